//! `GET /top`: the clients with the most queries, and the most queried names, of the last few
//! minutes. Only local requests are permitted (see [`daemon::http::local_only`]). [`ClientOwners`]
//! finds the pods of the clients.

use std::net::IpAddr;
use std::sync::Arc;

use explain::DnsmasqTopology;
use querylog::ranking::{ROWS, RankingDocument};
use reports::kubedns::percentage;
use warp::reply::Response;
use warp::{Filter, Rejection};
use wire::top::TopQueries;

use super::owners::ClientOwners;
use crate::own_node::OwnNode;

/// The note for a pod whose clients query dnsmasq, which forwards to kubedns.
const IN_FRONT: &str = "dnsmasq is in front: kubedns receives only the queries that dnsmasq cannot answer from its cache, \
                        and does not see the addresses of the clients; \
                        dnsmasq-nanny top --dnsmasq shows the clients if dnsmasq logs queries (queryLog in the ConfigMap)";

/// The route `GET /top`.
pub(crate) fn route(
    top: &Arc<TopQueries>,
    topology: DnsmasqTopology,
    owners: ClientOwners,
    node: Option<OwnNode>,
) -> impl Filter<Extract = (Response,), Error = Rejection> + Clone + Send + Sync + 'static {
    let page = TopPage {
        top: Arc::clone(top),
        topology,
        owners,
        node,
    };

    querylog::serve::top_route(move || {
        let page = page.clone();
        async move { Ok(page.ranking().await) }
    })
}

/// The data from which the [`RankingDocument`] is made.
#[derive(Clone)]
struct TopPage {
    top: Arc<TopQueries>,
    topology: DnsmasqTopology,
    owners: ClientOwners,
    node: Option<OwnNode>,
}

impl TopPage {
    async fn ranking(&self) -> RankingDocument {
        let found = self.top.ranking(ROWS);
        let in_front = self.topology.is_behind_dnsmasq();

        // If dnsmasq is in front, clients with a loopback address are processes of the pod, such as
        // dnsmasq. Their owners are not looked up.
        let mut clients: Vec<IpAddr> = found.clients.iter().map(|row| row.key).collect();
        clients.retain(|client| !(in_front && client.is_loopback()));
        let owners = self.owners.find_owners(&clients).await;

        let mut ranking = RankingDocument::new(&found, &owners);
        ranking.note = match &self.node {
            _ if in_front => Some(IN_FRONT.to_owned()),
            Some(node) => node.elsewhere().and_then(describe_elsewhere),
            None => None,
        };
        ranking
    }
}

/// Describes the `share` of queries that do not come from pods of this node, if it is at least
/// half a percent. With `trafficDistribution: PreferSameNode`, queries of other nodes arrive here
/// only while these nodes have no ready DNS pod.
fn describe_elsewhere(share: f64) -> Option<String> {
    let percent = percentage(share);
    (percent > 0).then(|| {
        format!(
            "{percent} % of the queries come from clients that are not pods of this node; \
             if the DNS Service has trafficDistribution: PreferSameNode, such a client is a pod of a node \
             without a ready DNS pod, or it is not a pod; \
             `kube-dns check cluster` names the nodes without a ready DNS pod"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use cluster::snapshot::{PodNames, Snapshot};
    use querylog::ranking::{ClientOwner, RankingRow};
    use skydns::Zone;
    use treecache::Map;
    use wire::Name;
    use wire::top::{TopRanking, TopRow};

    use super::*;
    use crate::tap::owners::add_namespaces;

    fn row<K>(key: K, queries: u64) -> TopRow<K> {
        TopRow { key, queries }
    }

    #[test]
    fn ranking_has_owners_and_shares() {
        let [client, web, nobody] = [7, 8, 9].map(|host| [10, 244, 0, host].into());
        let mut snapshot = Snapshot::new(Zone::new(&Name::parse("cluster.local.").unwrap()));
        let mut pods = Map::default();
        for address in [client, web] {
            pods.insert(address, Arc::from(["apps".into()]));
        }
        snapshot.pods = PodNames::Verified(pods);
        let found = TopRanking {
            time: Duration::from_secs(150),
            queries: 200,
            samples: 100,
            missing: 40,
            clients: vec![row(client, 150), row(web, 40), row(nobody, 10)],
            names: vec![row("a.".to_owned(), 100)],
            nxdomain: vec![row("b.".to_owned(), 10)],
            ..TopRanking::default()
        };
        let pod = ClientOwner {
            pod: Some("web-0".to_owned()),
            namespace: Some("apps".to_owned()),
            node: None,
        };
        let mut owners = HashMap::from([
            (client, ClientOwner::default()),
            (web, pod),
            (nobody, ClientOwner::default()),
        ]);
        add_namespaces(&mut owners, &[client, web, nobody], &snapshot);
        let ranking = RankingDocument::new(&found, &owners);
        let shown = |rows: &[RankingRow]| {
            rows.iter()
                .map(|row| (row.key.clone(), row.owner.text(), row.share))
                .collect::<Vec<_>>()
        };
        let owned = |text: &str| Some(text.to_owned());
        let expected = [
            ("10.244.0.7".to_owned(), owned("in apps"), 0.75),
            ("10.244.0.8".to_owned(), owned("pod apps/web-0"), 0.2),
            ("10.244.0.9".to_owned(), None, 0.05),
        ];
        assert_eq!(shown(&ranking.clients), expected);
        assert_eq!(shown(&ranking.names), [("a.".to_owned(), None, 0.5)]);
        assert_eq!(shown(&ranking.nxdomain), [("b.".to_owned(), None, 0.25)]);
        assert_eq!((ranking.servfail, ranking.note), (vec![], None));
    }

    #[test]
    fn nonzero_percentage_from_elsewhere_is_noted() {
        for (share, begins) in [
            (0.0, None),
            (0.004, None),
            (0.254, Some("25 % of the queries come from")),
        ] {
            let note = describe_elsewhere(share);
            assert_eq!(note.is_some(), begins.is_some(), "{share} {note:?}");
            let text = note.unwrap_or_default();
            assert!(
                text.starts_with(begins.unwrap_or_default()),
                "{share} {text}"
            );
        }
    }

    #[tokio::test]
    async fn ranking_behind_dnsmasq_has_note() {
        let page = TopPage {
            top: Arc::default(),
            topology: DnsmasqTopology::DropIn,
            owners: ClientOwners::Unknown,
            node: None,
        };
        assert_eq!(page.ranking().await.note.as_deref(), Some(IN_FRONT));
    }

    #[tokio::test]
    async fn only_local_get_succeeds() {
        let owners = ClientOwners::Unknown;
        let route = route(&Arc::default(), DnsmasqTopology::Alone, owners, None);
        for (method, client, host, status) in [
            ("GET", "127.0.0.1:1", "127.0.0.1:8081", 200),
            ("POST", "127.0.0.1:1", "127.0.0.1:8081", 405),
            ("GET", "10.244.0.7:1", "127.0.0.1:8081", 403),
            ("GET", "127.0.0.1:1", "pages.example:8081", 403),
        ] {
            let client = daemon::http::ClientAddr(client.parse().unwrap());
            let request = warp::test::request()
                .method(method)
                .path("/top")
                .extension(client);
            let reply = request.header("host", host).reply(&route).await;
            assert_eq!(reply.status(), status, "{method} {client:?} {host}");
        }
    }
}
