//! Reports of the other parts of the pod: kubedns and the nanny.
//!
//! Each report is fetched on demand, at most once a second, bounded in size and time. Concurrent
//! requests share one fetch. If a fetch fails, the report is unknown.

mod exposition;
mod fetch;
mod kubedns;
mod nanny;

use std::time::{Duration, Instant};

use querylog::ranking::RankingDocument;
use serde::Serialize;
use tokio::sync::Mutex;

pub(crate) use self::fetch::fetch_page;
use self::fetch::{FileReads, fetch};
use crate::options::Options;

pub(crate) use self::kubedns::{Kubedns, Upstream};
pub(crate) use self::nanny::{Configuration, Nanny};

/// Time for which a report is reused.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) top: Peer<RankingDocument>,
    pub(crate) kubedns: Peer<Kubedns>,
    pub(crate) nanny: Peer<Nanny>,
}

/// The report of another part, or the reason why there is none.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fetched<T> {
    /// The URL or file; empty for none.
    pub(crate) source: String,
    pub(crate) known: Option<T>,
    pub(crate) error: Option<String>,
}

/// A part, with its last report and the time of the fetch.
#[derive(Debug)]
pub(crate) struct Peer<T> {
    source: String,
    read: fn(&str) -> Result<T, String>,
    last: Mutex<Option<(Instant, Fetched<T>)>>,
    files: FileReads,
}

impl Peers {
    pub(crate) fn new(options: &Options) -> Self {
        // The nanny reports on dnsmasq only: without dnsmasq there is nothing to fetch.
        let nanny_status = if options.dnsmasq().is_some() {
            options.nanny_status.as_str()
        } else {
            ""
        };
        Self {
            top: top(&options.kubedns_top),
            ..Self::at(&options.kubedns_metrics, nanny_status)
        }
    }

    /// Creates the peers without the ranking. The arguments are files or URLs; an empty argument
    /// means none.
    pub(crate) fn at(kubedns_metrics: &str, nanny_status: &str) -> Self {
        Self {
            top: top(""),
            kubedns: Peer::new(kubedns_metrics, |text| Ok(Kubedns::read(text))),
            nanny: Peer::new(nanny_status, Nanny::read),
        }
    }
}

/// The top clients and names, from kubedns.
fn top(source: &str) -> Peer<RankingDocument> {
    Peer::new(source, |text| {
        serde_json::from_str(text).map_err(|error| format!("not a ranking: {error}"))
    })
}

impl<T: Clone> Peer<T> {
    fn new(source: &str, read: fn(&str) -> Result<T, String>) -> Self {
        Self {
            source: source.to_owned(),
            read,
            last: Mutex::default(),
            files: FileReads::default(),
        }
    }

    /// The report, no older than [`FRESH`].
    pub(crate) async fn known(&self) -> Fetched<T> {
        let mut last = self.last.lock().await;
        if let Some((at, fetched)) = &*last
            && at.elapsed() < FRESH
        {
            return fetched.clone();
        }
        let fetched = self.fetch().await;
        *last = Some((Instant::now(), fetched.clone()));
        fetched
    }

    async fn fetch(&self) -> Fetched<T> {
        let source = self.source.clone();
        if source.is_empty() {
            return Fetched {
                source,
                known: None,
                error: None,
            };
        }
        let text = fetch(&source, &self.files)
            .await
            .map_err(|error| error.to_string());
        match text.and_then(|text| (self.read)(&text)) {
            Ok(known) => Fetched {
                source,
                known: Some(known),
                error: None,
            },
            Err(error) => Fetched {
                source,
                known: None,
                error: Some(error),
            },
        }
    }
}
