use super::*;

use testkit::client::{ask, ask_tcp};
use testkit::query::Query;
use testkit::table;
use tokio::task::JoinSet;

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<Result<(), NetError>>,
}

fn start(offline: bool) -> Running {
    let upstream = Upstream::on(Sockets::bind(0).unwrap(), offline).unwrap();
    let address = upstream.local_addr().unwrap();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(upstream.run(stop.clone()));
    Running {
        address,
        stop,
        tasks,
    }
}

/// Checks the answers over UDP and over TCP against a table. Its columns are name, type, RCODE, and
/// the data of the answer records.
async fn hold(server: SocketAddr, answers: &str) {
    for [name, rtype, rcode, expected] in table::rows(answers) {
        let query = Query::new(name, rtype);
        for answer in [ask(server, &query).await, ask_tcp(server, &query).await] {
            let data: Vec<&str> = answer.answer.iter().map(|record| &*record.data).collect();
            assert_eq!(answer.rcode_name(), rcode, "{name} {rtype}");
            assert_eq!(data.join(", "), expected, "{name} {rtype}");
            // dnsmasq warns about an upstream without RA.
            assert!(answer.has("ra"), "{name} {rtype}");
        }
    }
}

#[tokio::test]
async fn upstream_serves_only_acme_example_and_stops_without_error() {
    let mut running = start(false);
    let answers = r#"
        payments.acme.example. | A     | NOERROR  | 192.0.2.80
        Payments.ACME.example. | AAAA  | NOERROR  | 2001:db8::80
        www.acme.example.      | A     | NOERROR  | payments.acme.example., 192.0.2.80
        www.acme.example.      | CNAME | NOERROR  | payments.acme.example.
        git.acme.example.      | AAAA  | NOERROR  |
        acme.example.          | A     | NOERROR  |
        acme.example.          | TXT   | NOERROR  | "answered by localpod's example upstream"
        missing.acme.example.  | A     | NXDOMAIN |
        other.example.         | A     | REFUSED  |
    "#;
    hold(running.address, answers).await;

    running.stop.cancel();
    assert!(running.tasks.join_next().await.unwrap().unwrap().is_ok());
}

#[tokio::test]
async fn offline_upstream_denies_other_names() {
    let running = start(true);
    let answers = "
        other.example.    | A | NXDOMAIN |
        git.acme.example. | A | NOERROR  | 192.0.2.22
    ";
    hold(running.address, answers).await;
}
