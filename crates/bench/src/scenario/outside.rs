//! Measures queries for cluster names while a client sends 5,000 queries a second for external
//! names. The upstream of the external names never answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use testkit::query::Query;
use tokio::net::UdpSocket;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::api;
use crate::cluster::Cluster;
use crate::kubedns::Kubedns;
use crate::probe;
use crate::questions::Kind;
use crate::report::Outside;
use crate::setup::{Bench, say};

/// Duration of the queries for cluster names.
const SPAN: Duration = Duration::from_secs(5);
/// Time from the first query for an external name to the first measured query.
const LEAD: Duration = Duration::from_secs(2);
/// Time between two portions of queries for external names. 5,000 queries a second are sent.
const PERIOD: Duration = Duration::from_millis(10);
const PORTION: u32 = 50;
/// Maximum time to wait for each further answer after the last query.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of queried cluster names.
const NAMES: usize = 1000;

/// Measures queries for cluster names, first alone and then during queries for external names.
pub(super) async fn measure(bench: &Bench, cluster: &Cluster) -> anyhow::Result<Outside> {
    say(
        "outside: cluster names are queried, first alone and then during queries for external names",
    );
    let api = api::start_on_free_port(cluster)?;
    // The socket is bound but never read, so that no ICMP error reports an unreachable port.
    let dead = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .context("cannot bind a UDP socket")?;
    let kubedns = Kubedns::start(bench, &api, cluster, &[dead.local_addr()?]).await?;
    let names = Kind::A.names(cluster, NAMES);
    let without = probe::pulse(kubedns.address(), &names, SPAN).await?;
    let asked = hang(kubedns.address(), LEAD + SPAN);
    let pulse = async {
        tokio::time::sleep(LEAD).await;
        probe::pulse(kubedns.address(), &names, SPAN).await
    };
    let (hung, with) = tokio::join!(asked, pulse);
    let (hung, with) = (hung?, with?);
    Ok(Outside {
        without: without.answered.context("no query was answered")?,
        with: with.answered.context("no query was answered")?,
        lost: without.lost + with.lost,
        asked: hung.asked,
        unanswered: hung.asked - hung.answered,
        longest: hung.longest.as_secs_f64(),
        peak: kubedns.usage()?.peak,
    })
}

struct Hung {
    asked: u64,
    answered: u64,
    /// Time from the end of sending to the last answer; zero if no answer came after the end of
    /// sending.
    longest: Duration,
}

/// Sends queries for new external names, and counts the answers.
async fn hang(server: SocketAddr, span: Duration) -> anyhow::Result<Hung> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .context("cannot bind a UDP socket")?;
    socket
        .connect(server)
        .await
        .context("cannot connect the UDP socket to kubedns")?;
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut hung = Hung {
        asked: 0,
        answered: 0,
        longest: Duration::ZERO,
    };
    let (begun, mut buffer) = (Instant::now(), [0; 4096]);
    while begun.elapsed() < span {
        tokio::select! {
            received = socket.recv(&mut buffer) => hung.answered += u64::from(received.is_ok()),
            _ = tick.tick() => {
                for _ in 0..PORTION {
                    let query = Query::new(&format!("host-{}.outside.test", hung.asked), "A").wire();
                    hung.asked += u64::from(socket.send(&query).await.is_ok());
                }
            }
        }
    }
    let last = Instant::now();
    while hung.answered < hung.asked && timeout(PATIENCE, socket.recv(&mut buffer)).await.is_ok() {
        hung.answered += 1;
        hung.longest = last.elapsed();
    }
    Ok(hung)
}
