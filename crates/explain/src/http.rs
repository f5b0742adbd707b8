//! `GET /explain?name=NAME&type=TYPE&search=NAMESPACE&ndots=5&format=text` on the status port.

use warp::http::header::{ALLOW, HeaderValue};
use warp::http::{Method, StatusCode};
use warp::reply::Response;
use warp::{Filter, Rejection};
use wire::shorten;

use crate::document::Explanation;
use crate::request::{Parameters, Request, RequestError};
use crate::{Explainer, text};

/// The format of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Text,
}

impl Explainer {
    /// The route of the status port.
    pub fn route(
        &self,
    ) -> impl Filter<Extract = (Response,), Error = Rejection> + Clone + Send + Sync + 'static {
        let this = self.clone();
        let query = warp::query::raw().or_else(|_| async { Ok::<_, Rejection>((String::new(),)) });
        daemon::http::exact_path("/explain")
            .and(warp::method())
            .and(query)
            .then(move |method: Method, query: String| {
                let this = this.clone();
                async move {
                    match method {
                        Method::GET | Method::HEAD => this.reply(&query).await,
                        _ => not_allowed(),
                    }
                }
            })
    }

    async fn reply(&self, query: &str) -> Response {
        let (request, format) = match read(query) {
            Ok(read) => read,
            Err(error) => {
                return daemon::http::plain_error(StatusCode::BAD_REQUEST, format!("{error}\n"));
            }
        };
        match (self.explain(request).await, format) {
            (Ok(explanation), Format::Json) => json(&explanation),
            (Ok(explanation), Format::Text) => {
                daemon::http::text(StatusCode::OK, text::render(&explanation))
            }
            (Err(error), _) => {
                daemon::http::plain_error(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
            }
        }
    }
}

fn not_allowed() -> Response {
    let mut response =
        daemon::http::plain_error(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

/// The explanation as indented JSON that ends with a line feed.
fn json(explanation: &Explanation) -> Response {
    match serde_json::to_string_pretty(explanation) {
        Ok(text) => daemon::http::with_type(StatusCode::OK, "application/json", text + "\n"),
        Err(error) => {
            tracing::error!(%error, "cannot write an explanation");
            daemon::http::plain_error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "cannot write the explanation\n",
            )
        }
    }
}

fn read(query: &str) -> Result<(Request, Format), RequestError> {
    let mut parameters = Parameters::default();
    let mut format = Format::Json;
    let mut given = Vec::new();
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        if given.contains(&key) {
            return Err(RequestError::Repeated(key.into_owned()));
        }
        given.push(key.clone());
        let place = match &*key {
            "name" => &mut parameters.name,
            "type" => &mut parameters.qtype,
            "search" => &mut parameters.search,
            "ndots" => &mut parameters.ndots,
            "format" => {
                format = match &*value {
                    "json" | "" => Format::Json,
                    "text" => Format::Text,
                    other => return Err(RequestError::Format(shorten(other, 40))),
                };
                continue;
            }
            other => return Err(RequestError::Parameter(shorten(other, 40))),
        };
        *place = value.into_owned();
    }
    Ok((Request::new(&parameters)?, format))
}

/// The request target of `GET /explain` with percent-encoded parameters.
pub(crate) fn target(parameters: &Parameters) -> String {
    let Parameters {
        name,
        qtype,
        search,
        ndots,
    } = parameters;
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (key, value) in [
        ("name", name),
        ("type", qtype),
        ("search", search),
        ("ndots", ndots),
    ] {
        if !value.is_empty() {
            query.append_pair(key, value);
        }
    }
    format!("/explain?{}", query.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_as_it_was_meant() {
        let parameters = Parameters {
            name: "_http._tcp.*.apps&type=A".to_owned(),
            qtype: "srv".to_owned(),
            search: "a.example b.example".to_owned(),
            ndots: "2".to_owned(),
        };
        let target = target(&parameters);
        let (request, format) = read(target.strip_prefix("/explain?").unwrap()).unwrap();
        assert_eq!(
            Ok((request, format)),
            Request::new(&parameters).map(|request| (request, Format::Json))
        );
    }
}
