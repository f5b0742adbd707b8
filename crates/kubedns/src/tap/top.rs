//! `GET /top`: the clients with most queries, and the most queried names of the last minutes. Only
//! requests from within the pod get an answer. [`Owners`] finds the pods of the clients.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use cluster::snapshot::{Published, Snapshot};
use daemon::http::NotLocal;
use explain::Topology;
use querylog::ranking::{ClientOwner, RankingDocument, RankingRow};
use skydns::top::{self, TopQueries};
use warp::http::{Method, StatusCode};
use warp::reply::Response;
use warp::{Filter, Rejection};

use super::owners::Owners;

/// Rows of each table.
const ROWS: usize = 20;
/// Note for pods in which dnsmasq is the only client of kubedns.
const IN_FRONT: &str = "dnsmasq is in front: kubedns receives its cache misses, without the addresses of clients; \
                        queryLog logs its clients";

/// The route `GET /top`.
pub(crate) fn route(
    top: &Arc<TopQueries>,
    published: &Arc<Published>,
    topology: Topology,
    owners: &Arc<Owners>,
) -> impl Filter<Extract = (Response,), Error = Rejection> + Clone + Send + Sync + 'static {
    let (top, published, owners) = (Arc::clone(top), Arc::clone(published), Arc::clone(owners));
    let page = Page {
        top,
        published,
        topology,
        owners,
    };
    daemon::http::exact_path("/top")
        .and(warp::method())
        .and(daemon::http::local_only())
        .then(move |method: Method, local: Result<(), NotLocal>| {
            let page = page.clone();
            async move {
                if method != Method::GET {
                    return querylog::serve::method_not_allowed();
                }
                if let Err(error) = local {
                    return daemon::http::plain_error(StatusCode::FORBIDDEN, format!("{error}\n"));
                }
                daemon::http::json(StatusCode::OK, &page.ranking().await)
            }
        })
}

/// The sources of the document.
#[derive(Clone)]
struct Page {
    top: Arc<TopQueries>,
    published: Arc<Published>,
    topology: Topology,
    owners: Arc<Owners>,
}

impl Page {
    async fn ranking(&self) -> RankingDocument {
        let (found, in_front) = (self.top.ranking(ROWS), self.topology.is_behind_dnsmasq());
        let clients = found.clients.iter().map(|row| row.key);
        // dnsmasq in front sends queries from a loopback address.
        let clients: Vec<IpAddr> = clients
            .filter(|client| !(in_front && client.is_loopback()))
            .collect();
        let owners = self.owners.of(&clients).await;
        ranking(&found, &self.published.get(), in_front, &owners)
    }
}

/// Makes the document. A client without an owner may still have a namespace, from the index of
/// `--pods=verified`.
fn ranking(
    found: &top::TopRanking,
    snapshot: &Snapshot,
    in_front: bool,
    owners: &HashMap<IpAddr, ClientOwner>,
) -> RankingDocument {
    let name = |key: &String| (key.clone(), ClientOwner::default());
    let followed = |client: &IpAddr| snapshot.namespace_of_pod(*client).map(ToString::to_string);
    let client = |key: &IpAddr| {
        let known = owners
            .get(key)
            .filter(|owner| **owner != ClientOwner::default())
            .cloned();
        (
            key.to_string(),
            known.unwrap_or_else(|| ClientOwner {
                namespace: followed(key),
                ..ClientOwner::default()
            }),
        )
    };
    RankingDocument {
        seconds: found.time.as_secs(),
        queries: found.queries,
        samples: found.samples,
        note: in_front.then(|| IN_FRONT.to_owned()),
        clients: rows(&found.clients, found.queries, client),
        names: rows(&found.names, found.queries, name),
        nxdomain: rows(&found.nxdomain, found.missing, name),
        servfail: rows(&found.servfail, found.failed, name),
    }
}

#[allow(clippy::cast_precision_loss, reason = "a share for people to read")]
fn rows<T>(
    found: &[top::TopRow<T>],
    all: u64,
    show: impl Fn(&T) -> (String, ClientOwner),
) -> Vec<RankingRow> {
    let row = |row: &top::TopRow<T>| {
        let (key, owner) = show(&row.key);
        RankingRow {
            key,
            owner,
            queries: row.queries,
            share: row.queries as f64 / all.max(1) as f64,
        }
    };
    found.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cluster::connect::{Access, Connection};
    use cluster::snapshot::PodNames;
    use cluster::watch::Scope;
    use skydns::Zone;
    use treecache::Map;
    use wire::Name;

    use super::*;

    #[test]
    fn clients_have_their_owner_and_shares_are_those_of_their_table() {
        let (client, web, nobody) = (
            [10, 244, 0, 7].into(),
            [10, 244, 0, 8].into(),
            [10, 244, 0, 9].into(),
        );
        let mut snapshot = Snapshot::new(Zone::new(&Name::parse("cluster.local.").unwrap()));
        let mut pods = Map::default();
        for address in [client, web] {
            pods.insert(address, Arc::from(["apps".into()]));
        }
        snapshot.pods = PodNames::Verified(pods);
        let row = |key: &str, queries| top::TopRow {
            key: key.to_owned(),
            queries,
        };
        let found = top::TopRanking {
            time: Duration::from_secs(150),
            queries: 200,
            samples: 100,
            missing: 40,
            clients: vec![
                top::TopRow {
                    key: client,
                    queries: 150,
                },
                top::TopRow {
                    key: web,
                    queries: 40,
                },
                top::TopRow {
                    key: nobody,
                    queries: 10,
                },
            ],
            names: vec![row("a.", 100)],
            nxdomain: vec![row("b.", 10)],
            ..top::TopRanking::default()
        };
        let pod = ClientOwner {
            pod: Some("web-0".to_owned()),
            namespace: Some("apps".to_owned()),
            node: None,
        };
        let owners = HashMap::from([
            (client, ClientOwner::default()),
            (web, pod),
            (nobody, ClientOwner::default()),
        ]);
        let ranking = ranking(&found, &snapshot, false, &owners);
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
        let behind = super::ranking(&found, &snapshot, true, &owners);
        assert_eq!(behind.note.as_deref(), Some(IN_FRONT));
    }

    #[tokio::test]
    async fn strangers_are_refused() {
        let snapshot = Snapshot::new(Zone::new(&Name::parse("cluster.local.").unwrap()));
        let published = Arc::new(Published::new(snapshot));
        let access = Access {
            master_url: Some("http://127.0.0.1:1".to_owned()),
            ..Access::default()
        };
        let connection = Arc::new(Connection::new(access).await.unwrap());
        let owners = Arc::new(Owners::new(&connection, &Scope::default()));
        let route = route(&Arc::default(), &published, Topology::Alone, &owners);
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
