//! `GET /top`: the busiest clients and the most queried names of the last minutes, from within the pod alone.

use std::net::IpAddr;
use std::sync::Arc;

use cluster::snapshot::{Published, Snapshot};
use explain::Topology;
use querylog::ranking::{Ranking, Row};
use skydns::top::{self, Top};
use warp::http::{Method, StatusCode};
use warp::reply::Response;
use warp::{Filter, Rejection};

/// Rows of each table.
const ROWS: usize = 20;
/// Note for pods where dnsmasq is the only client.
const IN_FRONT: &str = "dnsmasq is in front: kubedns receives its cache misses, without the addresses of clients; \
                        tap --dnsmasq follows its clients";

/// The route.
pub(crate) fn route(
    top: &Arc<Top>,
    published: &Arc<Published>,
    topology: Topology,
) -> impl Filter<Extract = (Response,), Error = Rejection> + Clone + Send + Sync + 'static {
    let (top, published) = (Arc::clone(top), Arc::clone(published));
    daemon::http::exact_path("/top").and(warp::method()).and(daemon::http::is_local()).map(
        move |method: Method, local: bool| {
            if method != Method::GET {
                return querylog::serve::not_allowed();
            }
            if !local {
                return daemon::http::plain_error(StatusCode::FORBIDDEN, "only from within the pod\n");
            }
            let ranking = ranking(&top.ranking(ROWS), &published.get(), topology);
            daemon::http::json(StatusCode::OK, &ranking)
        },
    )
}

fn ranking(found: &top::Ranking, snapshot: &Snapshot, topology: Topology) -> Ranking {
    let name = |key: &String| (key.clone(), None);
    let client = |key: &IpAddr| (key.to_string(), snapshot.namespace_of_pod(*key).map(ToString::to_string));
    let in_front = matches!(topology, Topology::DropIn | Topology::Cache);
    Ranking {
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
fn rows<T>(found: &[top::Row<T>], all: u64, show: impl Fn(&T) -> (String, Option<String>)) -> Vec<Row> {
    let row = |row: &top::Row<T>| {
        let (key, namespace) = show(&row.key);
        Row { key, namespace, queries: row.queries, share: row.queries as f64 / all.max(1) as f64 }
    };
    found.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cluster::snapshot::PodNames;
    use skydns::{Name, Zone};
    use treecache::Map;

    use super::*;

    #[test]
    fn clients_have_the_namespace_of_their_pod_and_shares_are_those_of_their_table() {
        let client = IpAddr::from([10, 244, 0, 7]);
        let mut snapshot = Snapshot::new(Zone::new(&Name::parse("cluster.local.").unwrap()));
        let mut pods = Map::default();
        pods.insert(client, Arc::from(["apps".into()]));
        snapshot.pods = PodNames::Verified(pods);
        let row = |key: &str, queries| top::Row { key: key.to_owned(), queries };
        let found = top::Ranking {
            time: Duration::from_secs(150),
            queries: 200,
            samples: 100,
            missing: 40,
            clients: vec![
                top::Row { key: client, queries: 150 },
                top::Row { key: [10, 244, 0, 8].into(), queries: 50 },
            ],
            names: vec![row("a.", 100)],
            nxdomain: vec![row("b.", 10)],
            ..top::Ranking::default()
        };
        let ranking = ranking(&found, &snapshot, Topology::Alone);
        let shown = |rows: &[Row]| {
            rows.iter().map(|row| (row.key.clone(), row.namespace.clone(), row.share)).collect::<Vec<_>>()
        };
        let apps = Some("apps".to_owned());
        let expected = [("10.244.0.7".to_owned(), apps, 0.75), ("10.244.0.8".to_owned(), None, 0.25)];
        assert_eq!(shown(&ranking.clients), expected);
        assert_eq!(shown(&ranking.names), [("a.".to_owned(), None, 0.5)]);
        assert_eq!(shown(&ranking.nxdomain), [("b.".to_owned(), None, 0.25)]);
        assert_eq!((ranking.servfail, ranking.note), (vec![], None));
        let behind = super::ranking(&found, &snapshot, Topology::DropIn);
        assert_eq!(behind.note.as_deref(), Some(IN_FRONT));
    }

    #[tokio::test]
    async fn strangers_are_refused() {
        let snapshot = Snapshot::new(Zone::new(&Name::parse("cluster.local.").unwrap()));
        let published = Arc::new(Published::new(snapshot));
        let route = route(&Arc::default(), &published, Topology::Alone);
        for (method, client, status) in
            [("GET", "127.0.0.1:1", 200), ("POST", "127.0.0.1:1", 405), ("GET", "10.244.0.7:1", 403)]
        {
            let client = daemon::http::ClientAddr(client.parse().unwrap());
            let request = warp::test::request().method(method).path("/top").extension(client);
            assert_eq!(request.reply(&route).await.status(), status, "{method} {client:?}");
        }
    }
}
