//! What the other parts of the pod tell about themselves.
//!
//! They are read when somebody wants to know, each at most once a second, bounded in size and time; what cannot be had is
//! unknown. Whoever comes while somebody reads waits for that answer.

mod exposition;
mod fetch;
mod kubedns;
mod nanny;

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Mutex;

use self::fetch::fetch;
use crate::options::Options;

pub use self::kubedns::{Kubedns, Upstream};
pub use self::nanny::{Configuration, Nanny, Process, Refusal, Routes};

/// How long an answer is good before it is asked for again.
const FRESH: Duration = Duration::from_secs(1);

/// The other parts of the pod.
#[derive(Debug)]
pub struct Peers {
    kubedns: Peer<Kubedns>,
    nanny: Peer<Nanny>,
}

/// What another part tells, or why it does not.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fetched<T> {
    /// Where it is read; empty when nowhere.
    pub source: String,
    /// What it says.
    pub known: Option<T>,
    /// Why that is not known.
    pub error: Option<String>,
}

/// One of them, with what it told last, and when.
#[derive(Debug)]
struct Peer<T> {
    source: String,
    read: fn(&str) -> Result<T, String>,
    last: Mutex<Option<(Instant, Fetched<T>)>>,
}

impl Peers {
    /// Those that the flags name.
    pub fn new(options: &Options) -> Self {
        Self::at(&options.kubedns_metrics, &options.nanny_status)
    }

    /// kubedns by its metrics, the nanny by its status: files or URLs, or empty.
    pub fn at(kubedns_metrics: &str, nanny_status: &str) -> Self {
        Self {
            kubedns: Peer::new(kubedns_metrics, |text| Ok(Kubedns::read(text))),
            nanny: Peer::new(nanny_status, Nanny::read),
        }
    }

    /// What kubedns tells.
    pub async fn kubedns(&self) -> Fetched<Kubedns> {
        self.kubedns.known().await
    }

    /// What the nanny tells.
    pub async fn nanny(&self) -> Fetched<Nanny> {
        self.nanny.known().await
    }
}

impl<T: Clone> Peer<T> {
    fn new(source: &str, read: fn(&str) -> Result<T, String>) -> Self {
        Self { source: source.to_owned(), read, last: Mutex::default() }
    }

    async fn known(&self) -> Fetched<T> {
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
            return Fetched { source, known: None, error: None };
        }
        let known = match fetch(&source).await {
            Ok(text) => (self.read)(&text),
            Err(error) => Err(error.to_string()),
        };
        match known {
            Ok(known) => Fetched { source, known: Some(known), error: None },
            Err(error) => Fetched { source, known: None, error: Some(error) },
        }
    }
}
