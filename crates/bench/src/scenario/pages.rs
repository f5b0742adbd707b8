//! Measures the latency of changes and of forwarded queries while clients read `/explain` or
//! `/cache` as fast as they can, and the memory of kubedns while clients read `/cache` slowly.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use apiserver::RunningApiServer;
use testkit::upstream::Upstream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::change;
use crate::api;
use crate::cluster::Cluster;
use crate::kubedns::Kubedns;
use crate::probe;
use crate::report::{Pages, PagesRow};
use crate::setup::{Bench, say};

/// Number of changes for each row of the results. The changes of a row take five seconds.
const CHANGES: u32 = 500;
const SPAN: Duration = Duration::from_secs(5);
/// The first of the addresses that changed Services get.
const NEW_IPS: u32 = u32::from_be_bytes([10, 114, 0, 1]);
/// The page that explains an address that no Service has. To explain this address, kubedns searches
/// the endpoints of up to 50,000 Services.
const NO_ADDRESS: &str = "/explain?name=192.0.2.77";
/// Number of concurrent readers of a page.
const READERS: usize = 16;
/// Pause of a reader after a failed request. Requests fail while too many clients read the page.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Number of octets that a slow reader takes at once. The reader pauses after each read.
const SIP: usize = 4096;
const SIP_PAUSE: Duration = Duration::from_millis(5);

/// Measures without readers, and with readers of each page.
pub(super) async fn measure(bench: &Bench, cluster: &Cluster) -> anyhow::Result<Pages> {
    let api = api::start_on_free_port(cluster)?;
    let upstream = Upstream::answering("192.0.2.1").await;
    let kubedns = Kubedns::start(bench, &api, cluster, &[upstream.addr()]).await?;
    let resident = kubedns.settled_usage().await?.resident;

    say("pages: two clients read /cache slowly");
    let peak_slow = slow_readers(&kubedns).await?;

    let mut rows = Vec::new();
    for (row, (title, page)) in [
        ("no readers", None),
        ("16 readers of /explain", Some(NO_ADDRESS)),
        ("16 readers of /cache", Some("/cache")),
    ]
    .into_iter()
    .enumerate()
    {
        say(&format!("pages: {title}"));
        let read = Arc::new(AtomicU64::new(0));
        // The set is dropped at the end of the row, which ends the readers.
        let mut readers = JoinSet::new();
        for _ in 0..page.map_or(0, |_| READERS) {
            readers.spawn(read_again_and_again(
                kubedns.status(),
                page.unwrap_or_default(),
                Arc::clone(&read),
            ));
        }

        let (change, forwarded) = tokio::join!(
            changes(&api, &kubedns, cluster, row),
            forwarded(&kubedns, row)
        );
        let (change, forwarded) = (change?, forwarded?);
        rows.push(PagesRow {
            title: title.to_owned(),
            read: read.load(Ordering::Relaxed),
            change,
            forwarded: forwarded.answered.context("no query was answered")?,
            lost: forwarded.lost,
        });
    }
    Ok(Pages {
        rows,
        resident,
        peak_slow,
    })
}

/// Changes Services that no other row changes, and measures the time from each change to the first
/// answer with the new address.
async fn changes(
    api: &RunningApiServer,
    kubedns: &Kubedns,
    cluster: &Cluster,
    row: usize,
) -> anyhow::Result<crate::distribution::Distribution> {
    let services = change::services(cluster).skip(row * CHANGES as usize);
    let first = NEW_IPS + u32::try_from(row)? * CHANGES;
    change::latency(api, kubedns, services.zip(first..first + CHANGES)).await
}

/// Queries external names, each of them only once, so that kubedns forwards every query.
async fn forwarded(kubedns: &Kubedns, row: usize) -> anyhow::Result<probe::Pulse> {
    let names: Vec<String> = (0..10_000)
        .map(|number| format!("host-{row}-{number}.outside.test."))
        .collect();
    probe::pulse(kubedns.address(), &names, SPAN).await
}

async fn open(status: SocketAddr, page: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(status).await?;
    let request = format!(
        "GET {page} HTTP/1.0\r\nHost: {}\r\n\r\n",
        Ipv4Addr::LOCALHOST
    );
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Reads a page again and again, and counts the responses with status 200.
async fn read_again_and_again(status: SocketAddr, page: &'static str, read: Arc<AtomicU64>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(mut stream) = open(status, page).await else {
            continue;
        };
        let mut begin = Vec::new();
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            if begin.len() < 16 {
                begin.extend(buffer.iter().take(length.min(16)));
            }
        }
        if begin.starts_with(b"HTTP/1.0 200") {
            read.fetch_add(1, Ordering::Relaxed);
        } else {
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }
}

/// The largest resident memory, in KiB, while two clients read `/cache` slowly for five seconds.
async fn slow_readers(kubedns: &Kubedns) -> anyhow::Result<u32> {
    let mut readers = JoinSet::new();
    for _ in 0..2 {
        let mut stream = open(kubedns.status(), "/cache").await?;
        readers.spawn(async move {
            let mut sip = [0; SIP];
            while let Ok(1..) = stream.read(&mut sip).await {
                tokio::time::sleep(SIP_PAUSE).await;
            }
        });
    }
    // A peak between two measurements is missed.
    let mut most = 0;
    for _ in 0..60 {
        tokio::time::sleep(SPAN / 60).await;
        most = most.max(kubedns.usage()?.resident);
    }
    Ok(most)
}
