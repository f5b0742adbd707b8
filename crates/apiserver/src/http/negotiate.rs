//! The form a client wants its answer in.

use warp::http::HeaderMap;

use crate::encode::Format;
use crate::status::Status;

/// The first form in the `Accept` header that this server has, or 406.
pub(super) fn format(headers: &HeaderMap) -> Result<Format, Status> {
    let accept = headers.get("accept").and_then(|value| value.to_str().ok()).unwrap_or("*/*");
    accept.split(',').find_map(clause).ok_or_else(|| {
        let message = "only the following media types are accepted: application/json";
        Status::failure(406, Some("NotAcceptable"), message)
    })
}

fn clause(clause: &str) -> Option<Format> {
    let mut parts = clause.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
    let of = |name| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    match (of("as"), of("v")) {
        (None, _) => Some(Format::Json),
        (Some("Table"), Some("v1") | None) => Some(Format::Table),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(accept: &str) -> Option<Format> {
        let mut headers = HeaderMap::new();
        headers.insert("accept", accept.parse().unwrap());
        format(&headers).ok()
    }

    #[test]
    fn the_first_that_fits() {
        let cases = [
            ("*/*", Some(Format::Json)),
            ("application/json, */*", Some(Format::Json)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Format::Json)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Format::Table)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Some(Format::Json)),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                Some(Format::Json),
            ),
            ("application/vnd.kubernetes.protobuf", None),
            ("text/html", None),
        ];
        for (accept, expected) in cases {
            assert_eq!(chosen(accept), expected, "{accept}");
        }
        assert_eq!(format(&HeaderMap::new()), Ok(Format::Json));
    }
}
