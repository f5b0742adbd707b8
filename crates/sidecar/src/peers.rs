//! Reports of the other parts of the pod: kubedns and the nanny.
//!
//! Each report is fetched on demand and reused for a second. The size of a report and the duration
//! of a fetch are limited. Concurrent requests share one fetch. If a fetch fails, the report is
//! unknown. A failure is reused for a tenth of a second.

mod fetch;

use std::time::Duration;

use daemon::http::GetError;
use querylog::ranking::RankingDocument;
use reports::kubedns::KubednsReport;
use reports::nanny::NannyStatus;
use reports::sidecar::PeerReport;
use tokio::sync::Mutex;
use tokio::time::Instant;

pub(crate) use self::fetch::fetch_page;
use self::fetch::{FileReads, fetch_text};
use crate::options::Options;

/// Time for which a report is reused.
const FRESH: Duration = Duration::from_secs(1);
/// Time for which a failure is reused. It is short, because the part may still be starting.
const FAILURE_FRESH: Duration = Duration::from_millis(100);

/// The sources of the reports.
#[derive(Debug)]
pub(crate) struct ReportPeers {
    pub(crate) top: ReportPeer<RankingDocument>,
    /// The ranking by the nanny. Fetching it fails while dnsmasq does not log queries.
    pub(crate) dnsmasq_top: ReportPeer<RankingDocument>,
    pub(crate) kubedns: ReportPeer<KubednsReport>,
    pub(crate) nanny: ReportPeer<NannyStatus>,
}

/// The source of one report, with the last report and the time of its fetch.
#[derive(Debug)]
pub(crate) struct ReportPeer<T> {
    source: String,
    parse: fn(&str) -> Result<T, String>,
    last: Mutex<Option<(Instant, PeerReport<T>)>>,
    files: FileReads,
}

impl ReportPeers {
    pub(crate) fn new(options: &Options) -> Self {
        // A pod without dnsmasq has no nanny, so no report of the nanny is fetched.
        let (nanny_status, nanny_top) = match options.dnsmasq() {
            Some(_) => (options.nanny_status.as_str(), options.nanny_top.as_str()),
            None => ("", ""),
        };

        Self {
            top: ReportPeer::new(&options.kubedns_top, parse_ranking),
            dnsmasq_top: ReportPeer::new(nanny_top, parse_ranking),
            ..Self::without_ranking(&options.kubedns_metrics, nanny_status)
        }
    }

    /// Creates the peers without the rankings. The arguments are files or URLs; an empty argument
    /// means that there is no report.
    pub(crate) fn without_ranking(kubedns_metrics: &str, nanny_status: &str) -> Self {
        Self {
            top: ReportPeer::new("", parse_ranking),
            dnsmasq_top: ReportPeer::new("", parse_ranking),
            kubedns: ReportPeer::new(kubedns_metrics, parse_metrics),
            nanny: ReportPeer::new(nanny_status, NannyStatus::parse),
        }
    }
}

/// Parses the top clients and names, from kubedns or the nanny.
fn parse_ranking(text: &str) -> Result<RankingDocument, String> {
    serde_json::from_str(text).map_err(|error| format!("not a ranking: {error}"))
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "every parser of a report returns a Result; this parser skips malformed lines"
)]
fn parse_metrics(text: &str) -> Result<KubednsReport, String> {
    Ok(KubednsReport::from_metrics(text))
}

impl<T: Clone> ReportPeer<T> {
    fn new(source: &str, parse: fn(&str) -> Result<T, String>) -> Self {
        Self {
            source: source.to_owned(),
            parse,
            last: Mutex::default(),
            files: FileReads::default(),
        }
    }

    /// The report, fetched again if the last fetch is older than [`FRESH`], or if it failed and is
    /// older than [`FAILURE_FRESH`].
    pub(crate) async fn report(&self) -> PeerReport<T> {
        // A caller that waits for the lock gets the report that the holder of the lock fetches.
        let mut last = self.last.lock().await;
        if let Some((at, report)) = &*last {
            let fresh_for = if report.known.is_some() {
                FRESH
            } else {
                FAILURE_FRESH
            };
            if at.elapsed() < fresh_for {
                return report.clone();
            }
        }

        let report = self.fetch_report().await;
        *last = Some((Instant::now(), report.clone()));
        report
    }

    async fn fetch_report(&self) -> PeerReport<T> {
        if self.source.is_empty() {
            return PeerReport::not_read();
        }

        let text = fetch_text(&self.source, &self.files).await;
        let error = text.as_ref().err().and_then(|error| error.downcast_ref());
        let is_unanswered = matches!(error, Some(GetError::Slow(_)));
        let result = text
            .map_err(|error| error.to_string())
            .and_then(|text| (self.parse)(&text));
        PeerReport {
            is_unanswered,
            ..PeerReport::of_request(self.source.clone(), result)
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failure_is_reused_for_less_time_than_report() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("status.json");
        let peer = ReportPeer::new(file.to_str().unwrap(), NannyStatus::parse);
        let version = || async { peer.report().await.known?.version };

        assert_eq!(version().await, None);
        std::fs::write(&file, r#"{"version":"1"}"#).unwrap();
        assert_eq!(version().await, None);
        advance(FAILURE_FRESH).await;
        assert_eq!(version().await.as_deref(), Some("1"));

        std::fs::write(&file, r#"{"version":"2"}"#).unwrap();
        advance(FAILURE_FRESH).await;
        assert_eq!(version().await.as_deref(), Some("1"));
        advance(FRESH).await;
        assert_eq!(version().await.as_deref(), Some("2"));
    }
}
