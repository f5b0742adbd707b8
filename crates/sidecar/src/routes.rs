//! Routes of the HTTP server on `--prometheus-port`. All routes are read-only and accept every
//! method.

use std::sync::Arc;

use chrono::Utc;
use daemon::http;
use warp::Filter;
use warp::http::StatusCode;
use warp::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue};
use warp::reply::Response;

use crate::parts::Parts;
use crate::peers::fetch_page;
use crate::{page, runbook, status};

pub(crate) fn routes(
    parts: Arc<Parts>,
) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    warp::path::full()
        .and(query)
        .and(http::local_only().map(|local: Result<(), http::NotLocal>| local.is_ok()))
        .then(
            move |path: warp::path::FullPath, query: String, local: bool| {
                let parts = Arc::clone(&parts);
                async move { reply_at(&parts, path.as_str(), &query, local).await }
            },
        )
        .boxed()
}

async fn reply_at(parts: &Parts, path: &str, query: &str, local: bool) -> Response {
    // The path of the metrics takes precedence over a page with the same path.
    if path == parts.options.prometheus_path {
        return parts.metrics.reply();
    }

    match path {
        "/healthz" => reply_healthz(parts),
        "/status" => without_cache(http::json(
            StatusCode::OK,
            &status::build_status(parts, local).await,
        )),
        "/" => {
            let status = status::build_status(parts, local).await;
            without_cache(html_page(|nonce| page::render(&status, nonce)))
        }
        "/runbook" => html_page(runbook::render_all),
        "/explain" if !parts.options.kubedns_explain.is_empty() => {
            without_cache(pass_on_explain(parts, query).await)
        }
        _ => reply_below(parts, path).unwrap_or_else(http::not_found),
    }
}

/// The health check of a probe, or a section of the runbook; `None` if `path` names neither.
fn reply_below(parts: &Parts, path: &str) -> Option<Response> {
    if let Some(label) = path.strip_prefix("/healthcheck/") {
        return reply_healthcheck(parts, label);
    }
    let section = path.strip_prefix("/runbook/")?;
    runbook::render_section(section).map(html_page)
}

/// `/healthcheck/<label>`: 200 if the server of the probe is healthy, else 503.
fn reply_healthcheck(parts: &Parts, label: &str) -> Option<Response> {
    let probe = parts
        .probes
        .iter()
        .find(|probe| probe.spec().label == label)?;

    let health = probe.health();
    // If a liveness probe gets 503 repeatedly, the kubelet restarts the container. So with
    // `--health=self`, the health of dnsmasq and kubedns does not depend on other servers.
    let status = if health.last.state.is_healthy() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Some(http::json(status, &health.check_body()))
}

/// `/healthz`: the health of the sidecar itself, with the time in Go's format.
fn reply_healthz(parts: &Parts) -> Response {
    let now = Utc::now().format("%Y-%m-%d %H:%M:%S%.9f +0000 UTC");
    let text = format!("ok ({now} m=+{:.9})", parts.started.elapsed().as_secs_f64());
    http::text(StatusCode::OK, text)
}

/// An HTML response. Its content security policy permits a style or a script only if it has the
/// nonce of this response.
fn html_page(render: impl FnOnce(&str) -> String) -> Response {
    let nonce = format!("{:032x}", fastrand::u128(..));
    let mut response = http::with_type(StatusCode::OK, "text/html; charset=utf-8", render(&nonce));

    // A nonce of hexadecimal digits is always a valid header value.
    if let Ok(policy) = HeaderValue::from_str(&page::policy(&nonce)) {
        response
            .headers_mut()
            .insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// `/explain`: passes on the response of kubedns, including errors.
async fn pass_on_explain(parts: &Parts, query: &str) -> Response {
    let url = &parts.options.kubedns_explain;
    match fetch_page(&format!("{url}?{query}")).await {
        Ok(page) => {
            let status = StatusCode::from_u16(page.status).unwrap_or(StatusCode::BAD_GATEWAY);
            http::with_type(
                status,
                "text/plain; charset=utf-8",
                String::from_utf8_lossy(&page.body).into_owned(),
            )
        }
        Err(error) => http::plain_error(
            StatusCode::BAD_GATEWAY,
            format!("no explanation from {url}: {error}\n"),
        ),
    }
}

fn without_cache(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
