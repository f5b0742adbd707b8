//! Free ports for processes that cannot bind port 0, and a check for IPv6.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// The first port of the range. The whole range lies below the ports that Linux uses for outgoing
/// connections.
const FIRST: u32 = 15_000;
const COUNT: u32 = 16_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port of 127.0.0.1 that is free over UDP and TCP.
///
/// Every call in a process returns a different port, and processes start at different points of the
/// range.
pub fn free_port() -> u16 {
    let start = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + start.wrapping_add(step) % COUNT;
        let port = u16::try_from(port).expect("the range lies below 65536");
        if is_free(port) {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT)
}

fn is_free(port: u16) -> bool {
    let address = (Ipv4Addr::LOCALHOST, port);
    TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
}

/// Returns whether this machine has IPv6. If not, prints a line on standard error.
#[allow(
    clippy::print_stderr,
    reason = "a skipped test must not look like a passed one"
)]
pub fn ipv6_is_here() -> bool {
    let is_here = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if !is_here {
        eprintln!("NOT TESTED over IPv6: this machine has no IPv6");
    }
    is_here
}
