//! Finds out whether this server, which has only old records, is the only DNS server that answers.
//!
//! A server that serves a snapshot file is not ready until its first lists are complete or overdue
//! (`--initial-sync-timeout`), because other servers have newer records. But if no other server is
//! ready, clients get no answers. So a server that waits for its first lists sends queries to the
//! address of the DNS Service, where only ready servers answer. The waiting server does not receive
//! these queries itself. If the queries get no answers with records, the waiting server becomes
//! ready without its lists.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cluster::index::SyncProgress;
use cluster::snapshot::{Published, Snapshot};
use dnsclient::{address_query, query_server};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use wire::{ServerAddr, Transport};

use crate::own_node::DNS_SERVICE;
use crate::status::Status;

/// The port of the DNS Service.
const PORT: u16 = 53;
/// Pause before each query. The first lists usually take less time.
const PAUSE: Duration = Duration::from_millis(500);
/// Timeout of a query.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Number of consecutive queries without an answer after which this server counts as the only one.
/// A response without records, such as REFUSED, does not count as an answer. One query is not
/// enough, because a datagram may be lost.
const UNANSWERED: u32 = 2;

/// The task that queries the DNS Service while this server serves a snapshot file.
pub(crate) struct SoleServerFinder {
    pub(crate) status: Status,
    pub(crate) published: Arc<Published>,
    /// Cancelled when no other server answers.
    pub(crate) found: CancellationToken,
}

impl SoleServerFinder {
    /// Sends queries until [`UNANSWERED`] queries in a row get no answer, or until the first lists
    /// are complete or overdue. Then waits for `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let asking = self.ask_others(dns_service_address);
        stop.run_until_cancelled(asking).await;
        stop.cancelled().await;
    }

    /// Sends the queries. `find_address` returns the address of the DNS Service in a snapshot.
    async fn ask_others(&self, find_address: impl Fn(&Snapshot) -> Option<SocketAddr>) {
        let mut unanswered = 0;
        while unanswered < UNANSWERED {
            sleep(PAUSE).await;
            match self.status.progress() {
                // No records of a snapshot file are served yet.
                SyncProgress::Waiting => continue,
                SyncProgress::Stale => {}
                SyncProgress::StaleOverdue | SyncProgress::Synced => return,
            }
            let snapshot = self.published.get();
            let Some(address) = find_address(&snapshot) else {
                continue;
            };

            if is_resolved_at(address, &dns_service_name(&snapshot)).await {
                unanswered = 0;
            } else {
                unanswered += 1;
            }
        }
        self.found.cancel();
    }
}

/// Whether the server at `address` answers with records for `name`.
async fn is_resolved_at(address: SocketAddr, name: &str) -> bool {
    let server = ServerAddr::from(address);
    let answer = query_server(&server, Transport::Udp, &address_query(name), TIMEOUT).await;

    answer.is_ok_and(|answer| !answer.message.answers.is_empty())
}

/// The name of the DNS Service. The records of this server contain this name. The other servers
/// have the same `--namespaces`, so their records contain it, too.
fn dns_service_name(snapshot: &Snapshot) -> String {
    let (namespace, name) = DNS_SERVICE;
    format!("{name}.{namespace}.svc.{}", snapshot.zone.domain)
}

/// The first address of the DNS Service, with its port.
fn dns_service_address(snapshot: &Snapshot) -> Option<SocketAddr> {
    let mut address: Option<IpAddr> = None;
    let (namespace, name) = DNS_SERVICE;
    let service = snapshot.services.entry(&[namespace], name)?;
    service.visit_members(None, &mut |entry| {
        address = address.or_else(|| entry.record.addresses().next());
    });
    address.map(|ip| SocketAddr::new(ip, PORT))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use daemon::shutdown::Shutdown;
    use skydns::Zone;
    use testkit::reply::Reply;
    use testkit::upstream::{Asked, Reaction, Upstream};
    use tokio::time::timeout;
    use wire::Name;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn finder() -> SoleServerFinder {
        let zone = Zone::new(&Name::parse("cluster.local.").unwrap());
        let published = Arc::new(Published::new(Snapshot::new(zone)));
        let status = Status::new(Arc::clone(&published), &Shutdown::default());
        status.set_progress(SyncProgress::Stale);
        SoleServerFinder {
            status,
            published,
            found: CancellationToken::new(),
        }
    }

    #[tokio::test]
    async fn server_is_sole_if_queries_get_no_records() {
        let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let refusing = Upstream::start(|asked: &Asked| {
            Reaction::from(Reply::to(&asked.packet).rcode("REFUSED"))
        })
        .await;
        for address in [silent.local_addr().unwrap(), refusing.addr()] {
            let finder = finder();
            let asking = finder.ask_others(|_| Some(address));
            timeout(PATIENCE, asking).await.unwrap();
            assert!(finder.found.is_cancelled(), "{address}");
        }
    }

    /// Until the snapshot file is read, there are no records, and the address of the DNS Service is
    /// unknown.
    #[tokio::test]
    async fn late_snapshot_is_waited_for() {
        let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = silent.local_addr().unwrap();
        let finder = finder();
        finder.status.set_progress(SyncProgress::Waiting);
        let is_known = std::cell::Cell::new(false);
        let asking = finder.ask_others(|_| is_known.get().then_some(address));

        let reading = async {
            sleep(2 * PAUSE).await;
            finder.status.set_progress(SyncProgress::Stale);
            sleep(2 * PAUSE).await;
            is_known.set(true);
        };
        timeout(PATIENCE, async { tokio::join!(asking, reading) })
            .await
            .unwrap();
        assert!(finder.found.is_cancelled());
    }

    #[tokio::test]
    async fn answering_server_keeps_this_one_waiting() {
        // The other server has records only for the name of the DNS Service. A server with
        // `--namespaces=kube-system` may have no other Service.
        let other = Upstream::start(|asked: &Asked| {
            let reply = Reply::to(&asked.packet);
            let name = "kube-dns.kube-system.svc.cluster.local.";
            Reaction::from(if asked.name() == name {
                reply.answer(&format!("{name} 30 IN A 10.96.0.10"))
            } else {
                reply.rcode("NXDOMAIN")
            })
        })
        .await;
        let finder = finder();
        let asking = finder.ask_others(|_| Some(other.addr()));
        let lists = async {
            testkit::eventually(PATIENCE, || async { other.count() > 2 }).await;
            finder.status.set_progress(SyncProgress::Synced);
        };
        timeout(PATIENCE, async { tokio::join!(asking, lists) })
            .await
            .unwrap();
        assert!(!finder.found.is_cancelled());
    }
}
