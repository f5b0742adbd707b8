//! The ports of the pod on loopback: one block of consecutive numbers.
//!
//! In the cluster, the containers have the ports 53, 10053, 8081, 10055, 10054 and 10056. On a
//! laptop, other programs may use these ports, and unprivileged users cannot bind port 53.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use anyhow::{Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

/// The default of `--port-base`. With this default, the port `upstream` is 5306. The stub domain in
/// the example ConfigMap has a server on this port.
pub const DEFAULT_BASE: u16 = 5300;

/// The range in which `--port-base 0` looks for a free block. By default, Linux takes the source
/// ports of connections from a higher range, so no connection takes a port of the block while a
/// container restarts.
const FREE_RANGE: std::ops::Range<u16> = 5_400..15_000;
/// Maximum number of blocks that `--port-base 0` tries.
const FREE_ATTEMPTS: usize = 200;

/// All ports of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// The port that clients query (53 in the cluster), UDP and TCP: dnsmasq's port, or kubedns'
    /// port in the topologies direct and alone.
    pub dns: u16,
    /// dnsmasq's DNS, UDP and TCP.
    pub dnsmasq: u16,
    /// kubedns' DNS, UDP and TCP (10053).
    pub kubedns: u16,
    /// kubedns' `/readiness`, `/cache`, `/explain`, `/tap` and `/top` (8081).
    pub readiness: u16,
    /// kubedns' `/metrics` (10055).
    pub kubedns_metrics: u16,
    /// The sidecar's status page, metrics and health checks (10054).
    pub sidecar: u16,
    /// The embedded API server.
    pub api: u16,
    /// The example upstream, which serves `acme.example`, UDP and TCP.
    pub upstream: u16,
    /// The nanny's `/status`, `/healthz`, `/metrics`, `/tap` and `/top` (10056).
    pub nanny: u16,
}

impl Ports {
    /// The number of ports of a pod. `dns` is not counted, because it is also the port of dnsmasq
    /// or kubedns.
    pub const COUNT: u16 = 8;

    /// The block that begins at `base`. Ports in use are not detected.
    pub fn block(base: u16) -> Result<Self> {
        let (count, max) = (Self::COUNT, u16::MAX - Self::COUNT + 1);
        ensure!(
            base <= max,
            "--port-base {base} leaves no room for {count} ports: the highest base is {max}"
        );
        Ok(Self {
            dns: base,
            dnsmasq: base,
            kubedns: base + 1,
            readiness: base + 2,
            kubedns_metrics: base + 3,
            sidecar: base + 4,
            api: base + 5,
            upstream: base + 6,
            nanny: base + 7,
        })
    }

    /// The block that begins at `base`, and the sockets of its port `upstream`. If `base` is 0, the
    /// block is any free one. Fails if a port of the block is in use, or if no free block is found.
    ///
    /// No other localpod chooses the same block while these sockets are open.
    pub fn choose(base: u16) -> Result<(Self, Sockets)> {
        if base != 0 {
            let ports = Self::block(base)?;
            return Ok((ports, ports.reserve()?));
        }
        for _ in 0..FREE_ATTEMPTS {
            let ports = Self::block(fastrand::u16(FREE_RANGE) / 10 * 10)?;
            if let Ok(upstream) = ports.reserve() {
                return Ok((ports, upstream));
            }
        }
        bail!(
            "--port-base 0: no block of {} free ports was found between {} and {}; choose a block with --port-base N",
            Self::COUNT,
            FREE_RANGE.start,
            FREE_RANGE.end
        )
    }

    /// The same block for the topologies `direct` and `alone`: kubedns has the first port. In the
    /// topology `direct`, dnsmasq has the second port.
    #[must_use]
    pub fn direct(self) -> Self {
        Self {
            kubedns: self.dns,
            dnsmasq: self.kubedns,
            ..self
        }
    }

    /// The address of the example upstream.
    pub fn upstream_addr(self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.upstream).into()
    }

    /// Binds the port `upstream`, then binds every other port and closes it again. Fails if a port
    /// is in use.
    fn reserve(self) -> Result<Sockets> {
        let bind = |port, purpose| {
            // The message contains the reason, so the error gets no source.
            Sockets::bind(port).map_err(|reason| {
                anyhow!(
                    "port {port} ({purpose}) cannot be used: {reason}; choose other ports with --port-base N, or --port-base 0 for free ones"
                )
            })
        };
        let upstream = bind(self.upstream, "upstream of the example's stub domain")?;
        for (port, purpose) in self.listed() {
            bind(port, purpose)?;
        }
        Ok(upstream)
    }

    /// All ports except `upstream`, each with its purpose.
    fn listed(self) -> [(u16, &'static str); Self::COUNT as usize - 1] {
        [
            (self.dnsmasq, "DNS for clients"),
            (self.kubedns, "DNS between dnsmasq and kubedns"),
            (self.readiness, "kubedns, readiness"),
            (self.kubedns_metrics, "kubedns, metrics"),
            (self.sidecar, "sidecar"),
            (self.api, "embedded API server"),
            (self.nanny, "nanny"),
        ]
    }
}

/// The sockets of one port of 127.0.0.1.
#[derive(Debug)]
pub struct Sockets {
    /// The socket for UDP.
    pub udp: UdpSocket,
    /// The socket for TCP.
    pub tcp: TcpListener,
}

impl Sockets {
    /// Binds a port; 0 takes a free port.
    pub fn bind(port: u16) -> io::Result<Self> {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let udp = UdpSocket::bind(tcp.local_addr()?)?;
        Ok(Self { udp, tcp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_ends_below_65536() {
        assert_eq!(Ports::block(65_528).unwrap().nanny, u16::MAX);
        let error = Ports::block(65_529).unwrap_err().to_string();
        let expected = "--port-base 65529 leaves no room for 8 ports: the highest base is 65528";
        assert_eq!(error, expected);
    }

    #[test]
    fn error_names_purpose_of_port_in_use() {
        let (free, upstream) = Ports::choose(0).unwrap();
        drop(upstream);
        let _taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, free.kubedns)).unwrap();
        let error = Ports::choose(free.dns).unwrap_err().to_string();
        let expected = format!(
            "port {} (DNS between dnsmasq and kubedns) cannot be used: Address already in use",
            free.kubedns
        );
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn chosen_block_is_reserved() {
        let (chosen, _upstream) = Ports::choose(0).unwrap();
        let error = Ports::choose(chosen.dns).unwrap_err().to_string();
        let expected = format!(
            "port {} (upstream of the example's stub domain) cannot be used: Address already in use",
            chosen.upstream
        );
        assert!(error.starts_with(&expected), "{error}");
    }
}
