//! Free ports for processes that cannot bind port 0, and a check for IPv6.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use parking_lot::Mutex;

/// The first port of the range from which [`free_port`] takes ports. By default, all these ports
/// lie below those that Linux uses for outgoing connections.
const FIRST: u16 = 15_000;
/// Number of blocks in the range.
const BLOCKS: u16 = 500;
/// Number of ports in a block.
const BLOCK: u16 = 32;

/// The blocks of this process.
static RESERVED: Mutex<Reserved> = Mutex::new(Reserved {
    blocks: Vec::new(),
    unused: 0..0,
});

struct Reserved {
    /// A block is reserved while a Unix socket is bound to the block's abstract name. Like a port,
    /// an abstract name belongs to a network namespace, and is free again when the process ends.
    blocks: Vec<UnixListener>,
    /// In the last block, the ports that [`free_port`] has not tried yet.
    unused: std::ops::Range<u16>,
}

/// A port of 127.0.0.1 that is free for both UDP and TCP.
///
/// Every call returns a different port. Two processes that run at the same time never get the same
/// port.
pub fn free_port() -> u16 {
    let mut reserved = RESERVED.lock();
    loop {
        if let Some(port) = reserved.unused.find(|port| is_free(*port)) {
            return port;
        }
        reserved.add_block();
    }
}

impl Reserved {
    fn add_block(&mut self) {
        // Processes begin at random blocks, so that late packets for a port of an ended process
        // seldom reach another process.
        let begin = fastrand::u16(..BLOCKS);
        let free = (0..BLOCKS).find_map(|step| {
            let block = (begin + step) % BLOCKS;
            Some((block, reserve(block)?))
        });
        let (block, name) = free.expect("some block must be free");
        let first = FIRST + block * BLOCK;
        self.unused = first..first + BLOCK;
        self.blocks.push(name);
    }
}

fn reserve(block: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("kube-dns-rs/ports/{block}")).ok()?;
    UnixListener::bind_addr(&name).ok()
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
