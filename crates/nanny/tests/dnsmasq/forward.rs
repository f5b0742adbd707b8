//! dnsmasq in front of kubedns. With `-forward=kubedns`, dnsmasq forwards to kubedns instead of the
//! servers in the configuration. Without this flag, the nanny makes dnsmasq forward to kubedns only
//! if the configuration requires it, for example for `hosts` or for servers over TLS.
//!
//! kubedns reports a hash of its upstreams, stub domains, search list, hosts, aliases and rules:
//! `routes=` in the answer for `routes.kubedns.`. When this hash changes, the nanny makes dnsmasq
//! flush its cache.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::eventually;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};

use super::rig::{NannyRig, NannySetup, PATIENCE, at, only, routes, stubs};

/// A fake kubedns with scripted answers.
struct Kubedns {
    upstream: Upstream,
    said: Arc<Mutex<Said>>,
}

#[derive(Clone, Debug, Default)]
struct Said {
    /// kubedns reports its routes.
    tells: bool,
    /// kubedns does not answer any query.
    is_away: bool,
    /// The address in the answers for all names.
    address: String,
    configuration: String,
    routes: u32,
    /// kubedns reports that it is in front of dnsmasq.
    in_front: bool,
}

impl Kubedns {
    async fn start(address: &str) -> Self {
        let said = Said {
            address: address.to_owned(),
            ..Said::default()
        };
        let said = Arc::new(Mutex::new(said));
        let says = Arc::clone(&said);
        let upstream =
            Upstream::start(move |asked: &Asked| react(&says.lock().unwrap(), asked)).await;
        Self { upstream, said }
    }

    /// Changes the script.
    fn says(&self, change: impl FnOnce(&mut Said)) {
        change(&mut self.said.lock().unwrap());
    }

    /// Simulates an edit that kubedns has applied: other routes, and another address for all names.
    fn moves_on(&self, address: &str) {
        self.says(|said| {
            let routes = said.routes + 1;
            *said = Said {
                tells: true,
                address: address.to_owned(),
                routes,
                ..said.clone()
            };
        });
    }

    /// The setup of a nanny with `-forward=kubedns`, whose dnsmasq forwards to this kubedns.
    fn plan(&self) -> NannySetup {
        NannySetup::new().flag("-forward=kubedns").flag(self.flag())
    }

    fn flag(&self) -> String {
        format!("-kubednsServer={}", at(&self.upstream))
    }

    /// The number of queries for `routes.kubedns.`.
    fn polls(&self) -> usize {
        self.upstream.count_of("routes.kubedns.", "TXT")
    }

    /// Waits for this many further queries for `routes.kubedns.`.
    async fn until_polled(&self, more: usize) {
        let enough = self.polls() + more;
        eventually(PATIENCE, || std::future::ready(self.polls() >= enough)).await;
    }
}

fn react(said: &Said, asked: &Asked) -> Reaction {
    let (reply, name) = (Reply::to(&asked.packet), asked.name());
    match asked.rtype().as_str() {
        _ if said.is_away => Reaction::silence(),
        "TXT" if name == "routes.kubedns." && !said.tells => reply.rcode("REFUSED").into(),
        "TXT" if name == "routes.kubedns." => {
            let topology = if said.in_front { "direct" } else { "cache" };
            let configuration = format!("configuration={}", said.configuration);
            let routes = format!("routes={}", said.routes);
            let texts = [configuration, routes, format!("topology={topology}")];
            let records = texts.map(|text| format!("{name} 0 CH TXT \"{text}\""));
            records
                .iter()
                .fold(reply, |reply, record| reply.answer(record))
                .into()
        }
        "A" => reply
            .answer(&format!("{name} 3600 IN A {}", said.address))
            .into(),
        _ => reply.into(),
    }
}

/// Makes kubedns report its routes, and waits until dnsmasq has flushed its cache for the new
/// routes. The nanny flushes the cache twice, because answers in flight at the first flush may be
/// cached after it.
async fn settled(rig: &NannyRig, kubedns: &Kubedns) {
    kubedns.says(|said| said.tells = true);
    let reloads = |rig: &NannyRig| rig.status()["configuration"]["reloads"].as_u64();
    rig.status_with("second reload", |_| reloads(rig) >= Some(2))
        .await;
    kubedns.until_polled(2).await;
}

/// dnsmasq retries the query after half a second. Most clients retry only after five seconds.
#[tokio::test]
async fn query_survives_restart_of_kubedns() {
    let kubedns = Kubedns::start("192.0.2.1").await;
    let rig = kubedns.plan().start().await;
    rig.until("early.test.", "192.0.2.1").await;
    kubedns.says(|said| said.is_away = true);
    let back = async {
        eventually(PATIENCE, || {
            std::future::ready(kubedns.upstream.count_of("late.test.", "A") > 0)
        })
        .await;
        kubedns.says(|said| said.is_away = false);
    };
    let (answer, ()) = tokio::join!(rig.resolve("late.test."), back);
    assert_eq!(answer, "192.0.2.1");
    assert_eq!(kubedns.upstream.count_of("late.test.", "A"), 2);
}

#[tokio::test]
async fn cache_is_flushed_after_kubedns_edit() {
    let kubedns = Kubedns::start("192.0.2.1").await;
    let other = Upstream::answering("192.0.2.99").await;
    let config = routes(&other, &[("acme.test", &other)]);
    let mut rig = kubedns.plan().config(&config).start().await;
    let dnsmasq = rig.dnsmasq();
    for name in [
        "www.acme.test.",
        "www.outside.test.",
        "short.",
        "4.3.2.1.in-addr.arpa.",
    ] {
        rig.until(name, "192.0.2.1").await;
    }
    assert_eq!(other.count(), 0);
    let status = rig.status();
    let upstreams = &status["routes"]["upstreams"];
    assert_eq!(*upstreams, json!([at(&kubedns.upstream)]));
    assert_eq!(status["routes"]["upstreamsFrom"], "kubedns");
    assert_eq!(status["routes"]["kubednsServer"], at(&kubedns.upstream));
    settled(&rig, &kubedns).await;

    // The following edit removes `upstreamNameservers`. The edit by itself flushes nothing, because
    // kubedns may not have applied it yet.
    rig.until("www.acme.test.", "192.0.2.1").await;
    kubedns.says(|said| said.address = "192.0.2.2".to_owned());
    rig.config(&[("stubDomains", stubs(&[("acme.test", &other)]))]);
    kubedns.until_polled(4).await;
    let answer = rig.resolve("www.acme.test.").await;
    assert_eq!(answer, "192.0.2.1", "the answer must be from the cache");

    kubedns.moves_on("192.0.2.2");
    for name in ["www.acme.test.", "www.outside.test."] {
        rig.until(name, "192.0.2.2").await;
    }
    assert_eq!(rig.dnsmasq(), dnsmasq, "dnsmasq must not be restarted");
    rig.end().await;
}

#[tokio::test]
async fn cache_is_flushed_if_user_has_a_servers_file() {
    let kubedns = Kubedns::start("192.0.2.1").await;
    let rig = kubedns.plan().with_own_servers_file().start().await;
    let dnsmasq = rig.dnsmasq();
    rig.until("www.outside.test.", "192.0.2.1").await;
    kubedns.moves_on("192.0.2.2");
    rig.until("www.outside.test.", "192.0.2.2").await;
    assert_eq!(rig.dnsmasq(), dnsmasq);
    rig.end().await;
}

/// If a server that has answered before returns SERVFAIL, dnsmasq repeats the query, and the client
/// waits twice as long. The nanny prevents this with the option `--all-servers`.
#[tokio::test]
async fn servfail_of_kubedns_is_not_retried() {
    let kubedns = Upstream::start(|asked: &Asked| {
        let (reply, name) = (Reply::to(&asked.packet), asked.name());
        match asked.rtype().as_str() {
            "A" if name.starts_with("bad") => reply.rcode("SERVFAIL").into(),
            "A" => reply.answer(&format!("{name} 0 IN A 192.0.2.1")).into(),
            _ => Reaction::from(reply.rcode("REFUSED")),
        }
    })
    .await;
    let plan = NannySetup::new()
        .flag("-forward=kubedns")
        .flag(format!("-kubednsServer={}", at(&kubedns)));
    let rig = plan.start().await;
    for number in 0..10 {
        rig.until("good.outside.test.", "192.0.2.1").await;
        let bad = format!("bad-{number}.outside.test.");
        assert_eq!(rig.resolve(&bad).await, "SERVFAIL");
        assert_eq!(kubedns.count_of(&bad, "A"), 1, "{bad}");
    }
    rig.end().await;
}

/// Until kubedns reports the same configuration as the nanny, kubedns might forward in plain text.
/// So until then, names in a stub domain with a server over TLS get SERVFAIL.
#[tokio::test]
async fn tls_stub_domain_fails_until_kubedns_reports_same_configuration() {
    let kubedns = Kubedns::start("192.0.2.1").await;
    let plain = Upstream::answering("192.0.2.99").await;
    let stubs =
        json!({"tls.test": [format!("tls://{}", plain.addr())], "plain.test": [at(&plain)]})
            .to_string();
    let rig = NannySetup::new()
        .flag(kubedns.flag())
        .config(&[("stubDomains", &stubs)])
        .start()
        .await;
    rig.until("www.plain.test.", "192.0.2.99").await;
    plain.forget();
    eventually(PATIENCE, || std::future::ready(kubedns.polls() > 1)).await;
    rig.until("www.tls.test.", "SERVFAIL").await;
    assert_eq!(kubedns.upstream.count_of("www.tls.test.", "A"), 0);

    let version = rig.status()["configuration"]["version"]
        .as_str()
        .unwrap()
        .to_owned();
    kubedns.says(|said| (said.tells, said.configuration) = (true, version.clone()));
    rig.until("www.tls.test.", "192.0.2.1").await;
    let status = rig
        .status_with("configuration", |status| {
            status["routes"]["kubednsConfiguration"] == version
        })
        .await;
    let servers = &status["routes"]["stubDomains"]["tls.test"];
    assert_eq!(*servers, json!([at(&kubedns.upstream)]));
    // `plain` may receive queries for names in plain.test.
    let mut asked = plain.asked().into_iter();
    let in_plain_text = asked.find(|asked| asked.name().ends_with("tls.test."));
    assert!(
        in_plain_text.is_none(),
        "no query may be sent in plain text"
    );
    rig.end().await;
}

/// A kubedns that follows no configuration also reports the version of the empty configuration. So
/// this version does not prove that kubedns will follow an edit.
#[tokio::test]
async fn new_tls_upstream_fails_until_kubedns_reports_edit() {
    let kubedns = Kubedns::start("192.0.2.1").await;
    let mut rig = kubedns.plan().start().await;
    let version = |status: &Value| {
        status["configuration"]["version"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let empty = version(&rig.status());
    kubedns.says(|said| (said.tells, said.configuration) = (true, empty.clone()));
    let agrees = |status: &Value| status["routes"]["kubednsConfiguration"] == empty;
    rig.status_with("configuration of kubedns", agrees).await;
    rig.until("www.outside.test.", "192.0.2.1").await;

    rig.config(&[("upstreamNameservers", r#"["tls://192.0.2.53"]"#)]);
    let status = rig
        .status_with("edit", |status| status["configuration"]["edits"] == 1)
        .await;
    rig.until("new.outside.test.", "SERVFAIL").await;
    kubedns.says(|said| said.configuration = version(&status));
    rig.until("new.outside.test.", "192.0.2.1").await;
    rig.end().await;
}

/// A kubedns that answers queries for `routes.kubedns.` and for names in `outside.test.`, and whose
/// upstream forwards all other queries to dnsmasq.
async fn start_looping_kubedns(said: Said, dnsmasq: SocketAddr) -> Upstream {
    Upstream::start(move |asked: &Asked| match asked.name() {
        name if name.ends_with("outside.test.") => react(&said, asked),
        name if name == "routes.kubedns." => react(&said, asked),
        _ => Reaction::send_on(asked, dnsmasq),
    })
    .await
}

/// If an upstream of kubedns forwards to dnsmasq, kubedns leaves out the upstream. dnsmasq must not
/// leave out kubedns, although the loop passes through kubedns.
#[tokio::test]
async fn dnsmasq_keeps_kubedns_despite_loop_of_upstream() {
    let other = Upstream::answering("192.0.2.99").await;
    let rule = [
        ("bogusPriv", "true".to_owned()),
        ("upstreamNameservers", only(&other)),
    ];
    let said = Said {
        tells: true,
        address: "192.0.2.1".to_owned(),
        configuration: version_of(&rule),
        ..Said::default()
    };
    for (flag, config, argument) in [
        ("-forward=kubedns", &[][..], "--dns-loop-detect"),
        ("-forward=dnsmasq", &[], "--server=KUBEDNS"),
        ("-forward=dnsmasq", &rule, "--dns-loop-detect"),
    ] {
        let plan = NannySetup::new();
        let kubedns = start_looping_kubedns(said.clone(), plan.server()).await;
        let server = at(&kubedns).replace(':', "#");
        let plan = plan
            .flag(flag)
            .flag(format!("-kubednsServer={}", at(&kubedns)))
            .dnsmasq(argument.replace("KUBEDNS", &server))
            .config(config);
        let mut rig = plan.start().await;
        if argument == "--dns-loop-detect" {
            rig.logs("--dns-loop-detect: left out").await;
        }
        rig.until_all("192.0.2.1").await;
        assert_eq!(rig.status()["routes"]["loops"], json!([]), "{argument}");
        rig.end().await;
    }
}

/// The version of a configuration with these keys.
fn version_of(config: &[(&str, String)]) -> String {
    let data = config
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone().into_bytes()));
    let config = dnsconfig::parse(&data.collect()).unwrap();
    config.version().to_string()
}

/// Without `-forward=kubedns`, dnsmasq itself forwards to the upstreams. But if kubedns is behind
/// dnsmasq and follows the same configuration, dnsmasq forwards the names in `hosts` to kubedns.
#[tokio::test]
async fn names_in_hosts_are_forwarded_to_kubedns_behind_dnsmasq() {
    let kubedns = Kubedns::start("192.0.2.1").await;
    let other = Upstream::answering("192.0.2.99").await;
    let config = [
        ("hosts", "192.0.2.1 db.acme.test\n".to_owned()),
        ("upstreamNameservers", only(&other)),
    ];
    let version = version_of(&config);
    let plan = NannySetup::new().flag(kubedns.flag()).config(&config);
    let rig = plan.start().await;
    for (configuration, in_front) in [("another", false), (version.as_str(), true)] {
        kubedns.says(|said| {
            *said = Said {
                tells: true,
                in_front,
                configuration: configuration.to_owned(),
                ..said.clone()
            };
        });
        kubedns.until_polled(3).await;
        rig.until("db.acme.test.", "192.0.2.99").await;
    }

    kubedns.says(|said| said.in_front = false);
    for (name, expected) in [
        ("db.acme.test.", "192.0.2.1"),
        ("1.2.0.192.in-addr.arpa.", "192.0.2.1"),
        ("below.db.acme.test.", "192.0.2.1"),
        ("www.acme.test.", "192.0.2.99"),
    ] {
        rig.until(name, expected).await;
    }
    kubedns.moves_on("192.0.2.2");
    rig.until("db.acme.test.", "192.0.2.2").await;
    rig.end().await;
}

/// dnsmasq forwards to the upstreams until kubedns is known to be behind dnsmasq and to apply the
/// rules for external names. From then on, dnsmasq forwards only to kubedns.
#[tokio::test]
async fn external_rules_lead_dnsmasq_to_kubedns() {
    let kubedns = Kubedns::start("192.0.2.1").await;
    let other = Upstream::answering("192.0.2.99").await;
    let config = [
        ("filterTypes", r#"{".": ["AAAA"]}"#.to_owned()),
        ("upstreamNameservers", only(&other)),
    ];
    let version = version_of(&config);
    let plan = NannySetup::new().flag(kubedns.flag()).config(&config);
    let rig = plan.start().await;
    rig.until("www.acme.test.", "192.0.2.99").await;

    kubedns.says(|said| {
        *said = Said {
            tells: true,
            in_front: false,
            configuration: version,
            ..said.clone()
        };
    });
    rig.until("www.acme.test.", "192.0.2.1").await;
    rig.end().await;
}

/// An argument of dnsmasq routes a domain to another server. With kubedns as the upstream, stub
/// domains and the names in `hosts` and `aliases` still go to kubedns.
#[tokio::test]
async fn configured_names_go_to_kubedns_despite_argument() {
    let kubedns = Kubedns::start("192.0.2.1").await;
    let other = Upstream::answering("192.0.2.99").await;
    let config = [
        ("hosts", "192.0.2.9 db.corp.test\n".to_owned()),
        (
            "aliases",
            json!({"web.corp.test": "web.default"}).to_string(),
        ),
        ("stubDomains", stubs(&[("lab.corp.test", &other)])),
    ];
    let rule = [("bogusPriv", "true".to_owned())];
    for (flag, config) in [
        ("-forward=dnsmasq", [&config[..], &rule].concat()),
        ("-forward=kubedns", config.to_vec()),
    ] {
        let version = version_of(&config);
        kubedns.says(|said| (said.tells, said.configuration) = (true, version));
        let rig = NannySetup::new()
            .flag(flag)
            .flag(kubedns.flag())
            .config(&config)
            .dnsmasq(format!(
                "--server=/corp.test/127.0.0.1#{}",
                other.addr().port()
            ))
            .start()
            .await;

        rig.until("www.outside.test.", "192.0.2.1").await;
        let mut answers = Vec::new();
        for name in ["db", "web", "www.lab", "www"] {
            let answer = rig.resolve(&format!("{name}.corp.test.")).await;
            answers.push(format!("{name} {answer}"));
        }
        assert_eq!(
            answers,
            [
                "db 192.0.2.1",
                "web 192.0.2.1",
                "www.lab 192.0.2.1",
                "www 192.0.2.99"
            ],
            "{flag}"
        );
        rig.end().await;
    }
}

#[tokio::test]
async fn servers_of_arguments_are_reported() {
    let kubedns = Kubedns::start("192.0.2.1").await;
    for flag in ["-forward=dnsmasq", "-forward=kubedns"] {
        let setup = NannySetup::new().flag(flag).flag(kubedns.flag());
        let rig = setup.dnsmasq("--server=192.0.2.53").start().await;
        let servers = &rig.status()["routes"]["argumentServers"];
        assert_eq!(*servers, json!(["192.0.2.53:53"]), "{flag}");
        rig.end().await;
    }
}
