//! `GET /explain?name=NAME&type=TYPE&search=NAMESPACE&ndots=5&format=text` on the status port.

use warp::http::header::{ALLOW, HeaderValue};
use warp::http::{Method, StatusCode};
use warp::reply::Response;
use warp::{Filter, Rejection};
use wire::shorten;

use crate::document::Explanation;
use crate::explainer::Explainer;
use crate::request::{ExplainParameters, ExplainRequest, ExplainRequestError};
use crate::text;

/// The format of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyFormat {
    Json,
    Text,
}

/// A parsed query string.
#[derive(Debug, PartialEq, Eq)]
struct ExplainQuery {
    request: ExplainRequest,
    format: ReplyFormat,
}

impl Explainer {
    /// The route `/explain` of the status port.
    pub fn route(
        &self,
    ) -> impl Filter<Extract = (Response,), Error = Rejection> + Clone + Send + Sync + 'static {
        let this = self.clone();
        let query = warp::query::raw().or_else(|_| async { Ok::<_, Rejection>((String::new(),)) });

        daemon::http::exact_path("/explain")
            .and(warp::method())
            .and(query)
            // The method is checked here, so that the 405 response has the header `Allow`.
            .then(move |method: Method, query: String| {
                let this = this.clone();
                async move {
                    match method {
                        Method::GET | Method::HEAD => this.reply_to_query(&query).await,
                        _ => not_allowed(),
                    }
                }
            })
    }

    async fn reply_to_query(&self, query: &str) -> Response {
        let ExplainQuery { request, format } = match parse_query(query) {
            Ok(query) => query,
            Err(error) => {
                return daemon::http::plain_error(StatusCode::BAD_REQUEST, format!("{error}\n"));
            }
        };

        match (self.explain(request).await, format) {
            (Ok(explanation), ReplyFormat::Json) => json_response(&explanation),
            (Ok(explanation), ReplyFormat::Text) => {
                daemon::http::text(StatusCode::OK, text::render_explanation(&explanation))
            }
            (Err(error), _) => {
                daemon::http::plain_error(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
            }
        }
    }
}

fn not_allowed() -> Response {
    let mut response = daemon::http::plain_error(
        StatusCode::METHOD_NOT_ALLOWED,
        "only GET and HEAD are allowed\n",
    );
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

/// The explanation as indented JSON that ends with a line feed.
fn json_response(explanation: &Explanation) -> Response {
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

fn parse_query(query: &str) -> Result<ExplainQuery, ExplainRequestError> {
    let mut parameters = ExplainParameters::default();
    let mut format = ReplyFormat::Json;
    let mut given = Vec::new();
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        // If a parameter is given twice, it is unknown which of the values is meant.
        if given.contains(&key) {
            return Err(ExplainRequestError::Repeated(key.into_owned()));
        }
        given.push(key.clone());

        let parameter = match &*key {
            "name" => &mut parameters.name,
            "type" => &mut parameters.qtype,
            "search" => &mut parameters.search,
            "ndots" => &mut parameters.ndots,
            "format" => {
                format = parse_format(&value)?;
                continue;
            }
            // If a mistyped parameter were ignored, the response would explain another query.
            other => return Err(ExplainRequestError::Parameter(shorten(other, 40))),
        };
        *parameter = value.into_owned();
    }

    let request = ExplainRequest::parse(&parameters)?;
    Ok(ExplainQuery { request, format })
}

fn parse_format(text: &str) -> Result<ReplyFormat, ExplainRequestError> {
    match text {
        "json" | "" => Ok(ReplyFormat::Json),
        "text" => Ok(ReplyFormat::Text),
        other => Err(ExplainRequestError::Format(shorten(other, 40))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_target_parses_back() {
        let parameters = ExplainParameters {
            name: "_http._tcp.*.apps&type=A".to_owned(),
            qtype: "srv".to_owned(),
            search: "a.example b.example".to_owned(),
            ndots: "2".to_owned(),
        };
        let target = parameters.request_target();

        let query = parse_query(target.strip_prefix("/explain?").unwrap()).unwrap();
        assert_eq!(query.format, ReplyFormat::Json);
        assert_eq!(Ok(query.request), ExplainRequest::parse(&parameters));
    }
}
