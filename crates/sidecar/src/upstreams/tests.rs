//! Probes of the upstreams that a scripted dnsmasq lists.

use std::sync::atomic::{AtomicU64, Ordering};

use reports::sidecar::{ProbeResult, ProbeState};
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream as Server};
use wire::Transport;

use super::upstream::MAX_HISTORY;
use super::*;

/// A dnsmasq that lists scripted upstreams, and the probes of these upstreams.
struct Lab {
    _dnsmasq: Server,
    upstreams: Arc<UpstreamProbes>,
    metrics: Metrics,
    texts: Arc<Mutex<Vec<String>>>,
    _directory: tempfile::TempDir,
}

impl Lab {
    async fn start(texts: &[String], nanny: &str, others: Vec<ServerAddr>) -> Self {
        let texts = Arc::new(Mutex::new(texts.to_vec()));
        let told = Arc::clone(&texts);
        let dnsmasq = Server::start(move |asked: &Asked| {
            assert_eq!(asked.name(), "servers.bind.");
            let reply = Reply::to(&asked.packet);
            // dnsmasq truncates UDP answers of more than 512 octets. This server truncates UDP
            // answers with more than 20 texts.
            if asked.transport == Transport::Udp && told.lock().len() > 20 {
                return reply.truncated().into();
            }

            let quoted: Vec<String> = told
                .lock()
                .iter()
                .map(|text| format!("\"{text}\""))
                .collect();
            reply
                .answer(&format!("servers.bind. 0 CH TXT {}", quoted.join(" ")))
                .into()
        })
        .await;
        let directory = tempfile::tempdir().unwrap();
        let status = directory.path().join("status.json");
        std::fs::write(&status, nanny).unwrap();
        let metrics = Metrics::new("x").unwrap();
        let dnsmasq_at = ServerAddr::from(dnsmasq.addr());
        let peers = Arc::new(ReportPeers::without_ranking("", status.to_str().unwrap()));
        let upstreams =
            UpstreamProbes::new(dnsmasq_at, others, peers, settings(10), "kubedns", &metrics)
                .unwrap();
        Self {
            _dnsmasq: dnsmasq,
            upstreams: Arc::new(upstreams),
            metrics,
            texts,
            _directory: directory,
        }
    }

    /// A dnsmasq that lists one upstream, for all names.
    async fn of_upstream(server: SocketAddr) -> Self {
        Self::start(&[text(server, 0)], &routes(&[], &[server], &[]), Vec::new()).await
    }

    async fn rounds(&self, number: u32) {
        for _ in 0..number {
            Arc::clone(&self.upstreams).probe_all().await;
        }
    }

    /// One text per upstream: condition, served names, failures, probes, queries, and the error
    /// without its varying parts.
    fn said(&self) -> Vec<String> {
        let said = |status: DnsmasqUpstream| {
            let DnsmasqUpstream {
                condition,
                serves,
                probes,
                failures,
                queries,
                error,
                ..
            } = status;
            let error = error.rsplit(": ").next().unwrap_or_default();
            format!(
                "{condition:?} [{}] {failures} of {probes}, asked {queries} {error}",
                serves.join(" ")
            )
            .trim_end()
            .to_owned()
        };
        self.upstreams.status().into_iter().map(said).collect()
    }

    /// The exported samples of one upstream that are not zero. The buckets and the sum of the
    /// histogram are left out.
    fn exported(&self, server: SocketAddr) -> Vec<String> {
        let text = self.metrics.render().unwrap();
        let of_it = text
            .lines()
            .filter(|line| line.contains(&format!("upstream=\"{server}\"")));
        let told = of_it.filter(|line| !line.contains("_bucket") && !line.contains("_sum"));
        let short = told.map(|line| {
            line.replace(&format!("upstream=\"{server}\""), "")
                .replace("kubedns_dnsmasq_upstream_", "")
        });
        short.filter(|line| !line.ends_with(" 0")).collect()
    }
}

/// The settings of probes with an interval of `seconds` seconds.
fn settings(seconds: u64) -> ProbeSettings {
    ProbeSettings {
        interval: Duration::from_secs(seconds),
        probe_name: Name::from_ascii("chosen.test.").unwrap(),
    }
}

fn text(server: SocketAddr, queries: u64) -> String {
    format!("{}#{} {queries} 0", server.ip(), server.port())
}

async fn answering(rcode: &'static str) -> Server {
    Server::start(move |asked: &Asked| Reply::to(&asked.packet).rcode(rcode).into()).await
}

/// The nanny's status. `upstreams` and `arguments` are the servers for names outside the stub
/// domains. The servers in `arguments` come from options of dnsmasq.
fn routes(
    stub_domains: &[(&str, SocketAddr)],
    upstreams: &[SocketAddr],
    arguments: &[SocketAddr],
) -> String {
    let domains: BTreeMap<&str, Vec<String>> = stub_domains
        .iter()
        .map(|(domain, server)| (*domain, vec![server.to_string()]))
        .collect();
    let [upstreams, arguments] = [upstreams, arguments].map(|servers| {
        let texts = servers.iter().map(ToString::to_string);
        texts.collect::<Vec<String>>()
    });

    let routes = serde_json::json!({
        "stubDomains": domains,
        "upstreams": upstreams,
        "argumentServers": arguments,
    });
    serde_json::json!({ "routes": routes }).to_string()
}

#[tokio::test]
async fn query_depends_on_served_names() {
    let (stub, outside, both, in_arguments, of_domain) = tokio::join!(
        answering("NOERROR"),
        answering("NXDOMAIN"),
        answering("NOERROR"),
        answering("NOERROR"),
        answering("REFUSED")
    );
    let nanny = routes(
        &[("acme.local", stub.addr()), ("beta.local", both.addr())],
        &[outside.addr(), both.addr()],
        &[in_arguments.addr()],
    );
    // The nanny's status does not contain the last server, so the purpose of this server is
    // unknown. dnsmasq's arguments may give such a server for a single domain.
    let servers = [&stub, &outside, &both, &in_arguments, &of_domain];
    let texts = servers.map(|server| text(server.addr(), 0));
    let lab = Lab::start(&texts, &nanny, Vec::new()).await;
    lab.rounds(1).await;
    for (server, expected) in [
        (&stub, "acme.local. 6"),
        (&outside, ". 2"),
        (&both, ". 2"),
        (&in_arguments, ". 2"),
        (&of_domain, ". 2, chosen.test. 1, . 2, chosen.test. 1"),
    ] {
        let asked: Vec<String> = server
            .asked()
            .iter()
            .map(|asked| {
                let question = asked.question.as_ref().unwrap();
                format!("{} {}", question.name, question.rtype)
            })
            .collect();
        assert_eq!(asked.join(", "), expected);
    }
    let mut said = lab.said();
    said.sort();
    assert_eq!(
        said,
        [
            "Answers [.] 0 of 1, asked 0",
            "Answers [.] 0 of 1, asked 0",
            "Answers [acme.local] 0 of 1, asked 0",
            "Answers [beta.local .] 0 of 1, asked 0",
            "Fails [] 2 of 2, asked 0 REFUSED for . NS",
        ],
    );
}

/// The server of a stub domain may refuse queries for names outside this domain. So the server must
/// not be queried for external names while the report of the nanny cannot be read.
#[tokio::test]
async fn purpose_is_kept_without_report() {
    let stub = Server::start(|asked: &Asked| {
        let rcode = if asked.name() == "acme.local." {
            "NOERROR"
        } else {
            "REFUSED"
        };
        Reply::to(&asked.packet).rcode(rcode).into()
    })
    .await;
    let nanny = routes(&[("acme.local", stub.addr())], &[], &[]);
    let mut lab = Lab::start(&[text(stub.addr(), 0)], &nanny, Vec::new()).await;
    lab.rounds(1).await;
    assert_eq!(lab.said(), ["Answers [acme.local] 0 of 1, asked 0"]);

    let without_report = ReportPeers::without_ranking("", "/nonexistent/status.json");
    Arc::get_mut(&mut lab.upstreams).unwrap().peers = Arc::new(without_report);
    lab.rounds(1).await;
    assert_eq!(lab.said(), ["Answers [acme.local] 0 of 2, asked 0"]);
}

#[tokio::test]
async fn history_length_is_bounded() {
    let server = answering("NXDOMAIN").await;
    let lab = Lab::of_upstream(server.addr()).await;
    let rounds = u32::try_from(MAX_HISTORY).unwrap() + 5;
    lab.rounds(rounds).await;

    let history = lab.upstreams.status().remove(0).history;
    assert_eq!(history.len(), MAX_HISTORY);
    let is_answer =
        |result: &ProbeResult| result.state == ProbeState::Ok && result.latency_ms > 0.0;
    assert!(history.iter().all(is_answer), "{history:?}");
}

#[tokio::test]
async fn failed_probe_is_repeated_at_once() {
    let silent = Server::start(|_: &Asked| Reaction::silence()).await;
    let servfail = answering("SERVFAIL").await;
    let refused = answering("REFUSED").await;
    let dead: SocketAddr = ([127, 0, 0, 1], testkit::ports::free_port()).into();
    for (server, condition, error, cause) in [
        (silent.addr(), "Silent", "i/o timeout", "timeout"),
        (dead, "Silent", "connection refused", "unreachable"),
        (servfail.addr(), "Fails", "SERVFAIL for . NS", "servfail"),
        (refused.addr(), "Fails", "REFUSED for . NS", "refused"),
    ] {
        let lab = Lab::of_upstream(server).await;
        lab.rounds(1).await;
        let twice = format!("{condition} [.] 2 of 2, asked 0 {error}");
        assert_eq!(lab.said(), [twice]);
        let errors = format!("errors_total{{cause=\"{cause}\",}} 2");
        assert_eq!(
            lab.exported(server),
            [errors, "probes_total{} 2".to_owned()]
        );
        let history = lab.upstreams.status().remove(0).history;
        let states = history.iter().map(|result| result.state);
        assert_eq!(states.collect::<Vec<_>>(), [ProbeState::Failed; 2]);
        let has_answered = lab.upstreams.status()[0].has_answered;
        assert!(!has_answered);
    }
}

/// A probe of a server that is only for stub domains sends a single query. (A failed probe is
/// repeated once.) The first probe of any other server queries the root. If the answer is SERVFAIL
/// or REFUSED, the probe sends a second query, for `--upstream-probe-name`.
#[tokio::test]
async fn second_query_follows_refused_query_for_root() {
    let picky = || {
        Server::start(|asked: &Asked| {
            let rcode = if asked.name() == "chosen.test." {
                "NXDOMAIN"
            } else {
                "REFUSED"
            };
            Reply::to(&asked.packet).rcode(rcode).into()
        })
    };
    for (serves, expected) in [
        (
            "acme.local",
            "Fails [acme.local] 2 of 2, asked 0 REFUSED for acme.local. SOA",
        ),
        (".", "Answers [.] 0 of 1, asked 0"),
        ("", "Answers [] 0 of 1, asked 0"),
    ] {
        let server = picky().await;
        let nanny = match serves {
            "" => "{}".to_owned(),
            "." => routes(&[], &[server.addr()], &[]),
            domain => routes(&[(domain, server.addr())], &[], &[]),
        };
        let lab = Lab::start(&[text(server.addr(), 0)], &nanny, Vec::new()).await;
        lab.rounds(1).await;
        assert_eq!(lab.said(), [expected], "{serves}");
        if serves == "acme.local" {
            continue;
        }

        // The next probe begins with the query that was answered.
        lab.rounds(1).await;
        assert_eq!(server.count_of("chosen.test.", "A"), 2, "{serves}");
        assert_eq!(server.count_of(".", "NS"), 1, "{serves}");
    }
}

/// An upstream that answers SERVFAIL after three seconds is not silent. A resolver that cannot
/// reach the root servers may answer that late.
#[tokio::test]
async fn late_servfail_is_no_silence() {
    let late = Server::start(|asked: &Asked| {
        Reaction::from(Reply::to(&asked.packet).rcode("SERVFAIL")).after(Duration::from_secs(3))
    })
    .await;
    let lab = Lab::of_upstream(late.addr()).await;
    lab.rounds(1).await;
    assert_eq!(lab.said(), ["Fails [.] 2 of 2, asked 0 SERVFAIL for . NS"]);
}

#[tokio::test]
async fn single_lost_packet_changes_no_condition() {
    let lost = Arc::new(AtomicU64::new(0));
    let to_lose = Arc::clone(&lost);
    let server = Server::start(move |asked: &Asked| {
        let lose_one = |left: u64| left.checked_sub(1);
        let lost = to_lose.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lose_one);
        if lost.is_ok() {
            Reaction::silence()
        } else {
            Reply::to(&asked.packet).rcode("NOERROR").into()
        }
    })
    .await;
    let lab = Lab::of_upstream(server.addr()).await;
    for (packets, expected) in [
        (0, "Answers [.] 0 of 1, asked 0"),
        (1, "Answers [.] 1 of 3, asked 0"),
        (2, "Silent [.] 3 of 5, asked 0 i/o timeout"),
        (0, "Answers [.] 3 of 6, asked 0"),
    ] {
        lost.store(packets, Ordering::Relaxed);
        lab.rounds(1).await;
        assert_eq!(lab.said(), [expected]);
    }
    assert_eq!(
        lab.exported(server.addr()),
        [
            "errors_total{cause=\"timeout\",} 3",
            "probe_duration_seconds_count{} 3",
            "probes_total{} 6"
        ],
    );
}

#[tokio::test]
async fn upstreams_follow_nonempty_lists_of_dnsmasq() {
    let (old, new) = tokio::join!(answering("NOERROR"), answering("NOERROR"));
    let lab = Lab::start(&[text(old.addr(), 5)], "{}", Vec::new()).await;
    lab.rounds(1).await;
    assert_eq!(lab.said(), ["Answers [] 0 of 1, asked 0"]);
    // The first reading (5) is not counted. Now dnsmasq restarts and counts from zero, so its 2
    // queries are counted.
    *lab.texts.lock() = vec![text(old.addr(), 2)];
    lab.rounds(1).await;
    assert!(
        lab.exported(old.addr())
            .contains(&"queries_total{} 2".to_owned())
    );
    // dnsmasq gives the new server the counter of the old server (2). The new server has had no
    // query yet.
    *lab.texts.lock() = vec![text(new.addr(), 2)];
    lab.rounds(1).await;
    assert_eq!(lab.said(), ["Answers [] 0 of 1, asked 0"]);
    *lab.texts.lock() = vec![text(new.addr(), 3)];
    lab.rounds(1).await;
    assert_eq!(lab.said(), ["Answers [] 0 of 2, asked 1"]);
    assert_eq!(
        lab.exported(old.addr()),
        [""; 0],
        "a removed upstream must not be exported"
    );
    // dnsmasq returns an empty list, so the previous list is used.
    lab.texts.lock().clear();
    lab.rounds(1).await;
    assert_eq!(lab.said(), ["Answers [] 0 of 3, asked 1"]);
}

#[tokio::test]
async fn servers_of_pod_are_excluded() {
    let (kubedns, nowhere, real) = tokio::join!(
        answering("NOERROR"),
        answering("SERVFAIL"),
        answering("NOERROR")
    );
    let texts = [
        text(kubedns.addr(), 1),
        text(nowhere.addr(), 1),
        "garbage".to_owned(),
        "192.0.2.1 1 0".to_owned(),
        "192.0.2.1#65536 1 0".to_owned(),
        text(real.addr(), 1),
        text(real.addr(), 9),
    ];
    let nanny =
        serde_json::json!({ "routes": { "nowhere": nowhere.addr().to_string() } }).to_string();
    let lab = Lab::start(&texts, &nanny, vec![ServerAddr::from(kubedns.addr())]).await;
    lab.rounds(1).await;
    assert_eq!(lab.said(), ["Answers [] 0 of 1, asked 0"]);
    assert_eq!((kubedns.count(), nowhere.count(), real.count()), (0, 0, 1));
}

/// A server for external names is probed even if it is the last of 201 servers in the list of
/// dnsmasq.
#[tokio::test]
async fn number_of_probed_servers_is_bounded() {
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let server = Server::start(move |asked: &Asked| {
        count.fetch_add(1, Ordering::Relaxed);
        Reply::to(&asked.packet).rcode("NOERROR").into()
    })
    .await;
    // No server answers at the other loopback addresses, so these probes fail at once.
    let port = server.addr().port();
    let many: Vec<SocketAddr> = (0..200u8).map(|n| ([127, 9, 9, n], port).into()).collect();
    let names: Vec<String> = (0..many.len()).map(|n| format!("stub-{n}.test")).collect();
    let names = names.iter().map(String::as_str);
    let stub_domains: Vec<(&str, SocketAddr)> = names.zip(many.iter().copied()).collect();
    let nanny = routes(&stub_domains, &[server.addr()], &[]);
    let listed = many.iter().copied().chain([server.addr()]);
    let texts: Vec<String> = listed.map(|server| text(server, 7)).collect();

    let lab = Lab::start(&texts, &nanny, Vec::new()).await;
    lab.rounds(1).await;
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let said = lab.said();
    let count_of = |condition: &str| {
        let matching = said.iter().filter(|text| text.starts_with(condition));
        matching.count()
    };
    let counts = ["Answers [.]", "Silent [stub-", "Waiting [stub-"].map(count_of);
    assert_eq!(counts, [1, MAX_UPSTREAMS - 1, 201 - MAX_UPSTREAMS]);
    assert_eq!(
        lab.exported(many[199]),
        [""; 0],
        "an unprobed upstream must have no series"
    );

    // Now the list has only an upstream that was not probed before, so the probes of this upstream
    // begin.
    *lab.texts.lock() = vec![text(many[199], 7)];
    lab.rounds(1).await;
    assert_eq!(lab.said().len(), 1);
    assert_eq!(
        lab.exported(many[199]).len(),
        2,
        "the errors and the probes must be exported"
    );
}

#[tokio::test]
async fn zero_interval_disables_probes() {
    let server = answering("NOERROR").await;
    let dnsmasq = ServerAddr::from(server.addr());
    let metrics = Metrics::new("x").unwrap();
    let upstreams = UpstreamProbes::new(
        dnsmasq,
        Vec::new(),
        Arc::new(ReportPeers::without_ranking("", "")),
        settings(0),
        "kubedns",
        &metrics,
    )
    .unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    Arc::new(upstreams).run(stop).await;
    assert_eq!(server.count(), 0);
}

#[test]
fn texts_of_servers_bind_are_parsed() {
    for (line, expected) in [
        ("192.0.2.1#53 12 3", Some(("192.0.2.1:53", 12))),
        ("2001:db8::1#5353 0 0", Some(("[2001:db8::1]:5353", 0))),
        ("192.0.2.1#53 12", Some(("192.0.2.1:53", 12))),
        ("fe80::1%lo#53 4 0", Some(("[fe80::1%1]:53", 4))),
        ("fe80::1%nosuch#53 4 0", None),
        ("192.0.2.1#53", None),
        ("192.0.2.1#53 -1 0", None),
        ("#53 1 0", None),
        ("", None),
    ] {
        let parsed =
            listed::parse_text(line).map(|server| (server.address.to_string(), server.queries));
        let expected = expected.map(|(address, queries)| (address.to_owned(), queries));
        assert_eq!(parsed, expected, "{line:?}");
    }
}
