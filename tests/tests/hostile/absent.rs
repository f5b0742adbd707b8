//! Queries from unused addresses of the local link. The kernel holds the answers until ARP fails,
//! and counts them against kubedns' send buffer. Answers to other clients must not be delayed.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use testkit::eventually;
use testkit::query::Query;
use tests::e2e::PATIENCE;
use tests::pod::{means, netns};

use super::floods::{at_rest, bounded};

/// The `ip` commands that create a link on which there is no other host.
const LINK: &[&str] = &[
    "link add absent type veth peer name nobody",
    "link set absent up",
    "link set nobody up",
    "address add 10.9.0.1/24 dev absent",
];

/// Kernel settings for the link: answers may have a loopback address as source, and the test may
/// send from addresses that the machine does not have.
const SETTINGS: &[&str] = &["conf/absent/route_localnet", "ip_nonlocal_bind"];

/// Number of unused addresses. The answers that the kernel holds for two of these addresses fill a
/// send buffer of the default size.
const ABSENT: u8 = 16;

#[test]
fn absent_clients_do_not_delay_other_clients() {
    if means::are_there() {
        netns::run_in_a_new_one(|| {
            for words in LINK {
                netns::ip(words);
            }
            for setting in SETTINGS {
                fs::write(format!("/proc/sys/net/ipv4/{setting}"), "1").unwrap();
            }
            netns::runtime().block_on(flooded());
        });
    }
}

async fn flooded() {
    let (mut lab, steady, before) = at_rest().await;
    let flood = Flood::start(lab.dns());
    eventually(PATIENCE, || async {
        let now = absent();
        if now >= usize::from(ABSENT) {
            Ok(())
        } else {
            Err(now)
        }
    })
    .await;
    steady.answered(300).await;
    assert!(absent() > 0, "no answer waits for an unused address");
    flood.stop();
    bounded(
        &mut lab,
        "2,000 queries a second from unused addresses",
        before,
    );
    steady.answered(20).await;
    steady
        .stop()
        .await
        .check("kubedns under queries from unused addresses");
}

/// A thread that sends queries from the unused addresses until the test stops it.
struct Flood {
    thread: std::thread::JoinHandle<()>,
    stop: &'static AtomicBool,
}

impl Flood {
    fn start(server: SocketAddr) -> Self {
        static STOP: AtomicBool = AtomicBool::new(false);
        let senders: Vec<UdpSocket> = (0..ABSENT).map(|number| sender(number, server)).collect();
        let thread = std::thread::spawn(move || {
            let query = Query::new("web-1.shop.svc.cluster.local.", "A").wire();
            while !STOP.load(Ordering::Relaxed) {
                for sender in &senders {
                    // If the send buffer is full, the datagram is lost. A flood need not be
                    // complete.
                    let _ = sender.send(&query);
                }
                std::thread::sleep(Duration::from_millis(u64::from(ABSENT) / 2));
            }
        });
        Self {
            thread,
            stop: &STOP,
        }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn sender(number: u8, server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::new(10, 9, 0, 100 + number), 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    setsockopt(&socket, sockopt::IpTransparent, &true).unwrap();
    socket.connect(server).unwrap();
    socket
}

/// The number of addresses for which ARP has no answer.
fn absent() -> usize {
    const UNANSWERED: &str = "0x0";
    let table = fs::read_to_string("/proc/thread-self/net/arp").unwrap();
    table
        .lines()
        .filter(|line| line.split_whitespace().nth(2) == Some(UNANSWERED))
        .count()
}
