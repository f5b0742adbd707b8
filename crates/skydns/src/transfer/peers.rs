//! Peers: clients that may transfer zones, and secondaries to notify of changes.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;

/// The peers: networks and single addresses. The single addresses are also notified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransferPeers {
    /// All peers; a single address is stored as a network with one address.
    networks: Vec<IpNet>,
    /// The servers to notify, each once.
    targets: Vec<SocketAddr>,
}

/// Error of a malformed list of peers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParsePeersError {
    /// The peer is neither an address nor a network.
    #[error(
        "{0:?} is not a peer: expected IP, IP:port, [IPv6]:port or a network such as 10.0.0.0/8"
    )]
    Form(String),
    /// The port is 0.
    #[error("{0:?} has port 0: expected a port from 1 to 65535")]
    Port(String),
    /// The network has host bits set.
    #[error("{0:?} is not a network: {1} is the network of this address")]
    Host(String, IpNet),
    /// The list has too many peers.
    #[error("the list has {0} peers, but at most {MAX_PEERS} are allowed")]
    Many(usize),
}

/// Maximum number of peers. Each notified peer has a task.
const MAX_PEERS: usize = 100;
/// The port of a secondary whose address is given without a port.
const PORT: u16 = 53;
/// Length of the prefix `::ffff:0:0/96` of IPv4-mapped IPv6 addresses, in bits (RFC 4291, section
/// 2.5.5.2).
const MAPPED_BITS: u8 = 96;

impl TransferPeers {
    /// Whether `client` may transfer zones.
    pub fn allows(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.networks
            .iter()
            .any(|network| network.contains(&client))
    }

    /// The servers to notify: all peers that are single addresses.
    pub fn targets(&self) -> &[SocketAddr] {
        &self.targets
    }

    /// Whether there are no peers.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    fn add_peer(&mut self, text: &str) -> Result<(), ParsePeersError> {
        if let Some(network) = parse_network(text) {
            if network.trunc() != network {
                return Err(ParsePeersError::Host(text.to_owned(), network.trunc()));
            }
            self.networks.push(network);
            return Ok(());
        }

        // Without a prefix length the peer is one server, which is also notified.
        let address = text
            .parse()
            .map(|ip| SocketAddr::new(ip, PORT))
            .or_else(|_| text.parse());
        let address: SocketAddr = address.map_err(|_| ParsePeersError::Form(text.to_owned()))?;
        if address.port() == 0 {
            return Err(ParsePeersError::Port(text.to_owned()));
        }

        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        self.networks.push(IpNet::from(address.ip()));
        if !self.targets.contains(&address) {
            self.targets.push(address);
        }
        Ok(())
    }
}

impl FromStr for TransferPeers {
    type Err = ParsePeersError;

    fn from_str(text: &str) -> Result<Self, ParsePeersError> {
        let mut peers = Self::default();
        for peer in text.split(',').map(str::trim) {
            // A list may end with a comma.
            if !peer.is_empty() {
                peers.add_peer(peer)?;
            }
        }

        match peers.networks.len() {
            0..=MAX_PEERS => Ok(peers),
            many => Err(ParsePeersError::Many(many)),
        }
    }
}

/// Parses `ADDRESS/BITS`. Host bits may be set. An IPv4-mapped IPv6 network becomes an IPv4
/// network, because IPv4-mapped addresses of clients are compared as IPv4 addresses.
fn parse_network(text: &str) -> Option<IpNet> {
    let (address, bits) = text.split_once('/')?;
    // `parse` would also accept a number with a plus sign.
    let bits: u8 = bits.parse().ok().filter(|_| !text.contains('+'))?;
    let address: IpAddr = address.parse().ok()?;
    let network = IpNet::new(address, bits).ok()?;

    match (address.to_canonical(), bits.checked_sub(MAPPED_BITS)) {
        (canonical @ IpAddr::V4(_), Some(bits)) if address.is_ipv6() => {
            IpNet::new(canonical, bits).ok()
        }
        _ => Some(network),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_allowed_and_single_addresses_are_targets() {
        let peers: TransferPeers =
            "10.1.0.0/16, 192.0.2.1,192.0.2.2:5353,[2001:db8::1]:5300,2001:db8:1::/48,fd00::1,192.0.2.1,::ffff:10.9.0.0/112,"
                .parse()
                .unwrap();

        for (client, allowed) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.9.0.1", true),
            ("::ffff:10.9.0.1", true),
            ("::ffff:10.10.0.1", false),
            ("10.2.0.1", false),
            ("192.0.2.1", true),
            ("192.0.2.2", true),
            ("192.0.2.3", false),
            ("2001:db8::1", true),
            ("2001:db8::2", false),
            ("2001:db8:1:2::3", true),
            ("fd00::1", true),
        ] {
            assert_eq!(peers.allows(client.parse().unwrap()), allowed, "{client}");
        }

        let targets: Vec<String> = peers.targets().iter().map(ToString::to_string).collect();
        assert_eq!(
            targets,
            [
                "192.0.2.1:53",
                "192.0.2.2:5353",
                "[2001:db8::1]:5300",
                "[fd00::1]:53"
            ]
        );

        let everybody: TransferPeers = "0.0.0.0/0,::/0".parse().unwrap();
        assert!(
            ["192.0.2.1", "::1"]
                .iter()
                .all(|client| everybody.allows(client.parse().unwrap()))
        );
        assert!(
            TransferPeers::default().is_empty()
                && !TransferPeers::default().allows([127, 0, 0, 1].into())
        );
    }

    fn form_error(peer: &str) -> String {
        format!(
            "{peer:?} is not a peer: \
             expected IP, IP:port, [IPv6]:port or a network such as 10.0.0.0/8"
        )
    }

    #[test]
    fn invalid_list_of_peers_is_rejected_with_reason() {
        for (text, error) in [
            ("ns.example", form_error("ns.example")),
            ("10.0.0.0/33", form_error("10.0.0.0/33")),
            ("10.0.0.0/", form_error("10.0.0.0/")),
            ("10.0.0.0/+8", form_error("10.0.0.0/+8")),
            ("2001:db8::/129", form_error("2001:db8::/129")),
            (
                "10.0.0.1:0",
                "\"10.0.0.1:0\" has port 0: expected a port from 1 to 65535".to_owned(),
            ),
            (
                "10.0.0.1/8",
                "\"10.0.0.1/8\" is not a network: 10.0.0.0/8 is the network of this address"
                    .to_owned(),
            ),
            (
                &*"10.0.0.1,".repeat(101),
                "the list has 101 peers, but at most 100 are allowed".to_owned(),
            ),
        ] {
            assert_eq!(
                text.parse::<TransferPeers>()
                    .map_err(|error| error.to_string()),
                Err(error),
                "{text}"
            );
        }
    }
}
