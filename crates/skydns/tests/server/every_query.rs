//! Every query gets an answer, with random combinations of options, while the objects behind the
//! names come and go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use skydns::forward::CacheLimits;
use skydns::{Backend, ExternalRules, OwnNames};
use wire::{Name, rcode, rtype};

use super::fixed::{Fixed, RunningServer, start_backend};
use super::*;

/// Number of random combinations of options.
const COMBINATIONS: u64 = 24;
/// One in this many combinations also queries names for which the upstream is silent. Such a query
/// may wait almost two seconds.
const SILENT_ONE_IN: u64 = 8;
/// Maximum number of queries over UDP that wait for an answer. The kernel drops queries that do not
/// fit into a socket's queue.
const WINDOW: usize = 64;
const POD: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// A wildcard that takes much work and matches nothing.
const EXPENSIVE: &[&str] = &["svc", "*", "nosuch"];

/// A backend whose objects come and go: each query gets the next view of the list.
struct Flipping {
    views: Vec<Arc<Fixed>>,
    taken: AtomicUsize,
}

impl Backend for Flipping {
    type View = Fixed;
    type Guard = Arc<Fixed>;

    fn view(&self) -> Arc<Fixed> {
        let next = self.taken.fetch_add(1, Ordering::Relaxed);
        Arc::clone(&self.views[next % self.views.len()])
    }

    fn keep(guard: Self::Guard) -> Arc<Fixed> {
        guard
    }
}

/// The options of one run.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the server"
)]
struct Options {
    fallthrough: &'static [&'static str],
    search_suffix: bool,
    autopath: bool,
    strict: bool,
    extended_errors: bool,
    forwards_all: bool,
    stub_domain: bool,
    own_names: bool,
    external_rules: bool,
    further_zone: bool,
    caches: bool,
    upstreams: bool,
    /// Whether the run also queries names for which the upstream is silent.
    silence: bool,
}

impl Options {
    fn random(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let fallthrough = [
            &[][..],
            &["."],
            &["cluster.local."],
            &["further.test."],
            &["apps.svc.cluster.local."],
        ];
        Self {
            fallthrough: fallthrough[random.usize(..fallthrough.len())],
            search_suffix: random.bool(),
            autopath: random.bool(),
            strict: random.bool(),
            extended_errors: random.bool(),
            forwards_all: random.bool(),
            stub_domain: random.bool(),
            own_names: random.bool(),
            external_rules: random.bool(),
            further_zone: random.bool(),
            caches: random.bool(),
            upstreams: random.u8(..8) > 0,
            silence: seed.is_multiple_of(SILENT_ONE_IN),
        }
    }

    /// A view with these options. `present` says whether the objects that come and go exist.
    fn view(&self, upstream: SocketAddr, present: bool) -> Fixed {
        let upstreams = if self.upstreams {
            vec![upstream]
        } else {
            Vec::new()
        };
        let mut view = Fixed::new(&upstreams)
            .small()
            .expensive_and_missing(EXPENSIVE);
        if !present {
            view = view
                .without(&["svc", "apps", "web"])
                .without(&["svc", "apps", "out"]);
        }
        view = view.fallthrough(self.fallthrough);
        match (self.search_suffix, self.autopath) {
            (true, _) => view = view.search("search.test.", &["corp.test."]),
            (false, true) => view = view.autopath(&["corp.test."], &[(POD, "apps")]),
            (false, false) => {}
        }
        if self.strict {
            view = view.strict();
        }
        if self.extended_errors {
            view = view.extended_errors();
        }
        if self.forwards_all {
            view = view.forwards_all();
        }
        if self.stub_domain {
            view = view
                .stub("stub.test.", &[upstream])
                .stub("empty.test.", &[]);
        }
        if self.own_names {
            view = view.own_names(own_names());
        }
        if self.external_rules {
            view = view.external_rules(external_rules());
        }
        if self.further_zone {
            let mut zone = Fixed::empty();
            if present {
                zone = zone.alias_at(&["out"], "www.outside.test");
            }
            view = view
                .further("further.test.", zone)
                .further("waits.test.", Fixed::empty().unsynced());
        }
        if self.caches {
            view.caching(CacheLimits::default())
        } else {
            view
        }
    }

    /// The names to query.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = [
            "web.apps.svc.cluster.local.",
            "out.apps.svc.cluster.local.",
            "missing.apps.svc.cluster.local.",
            "nosuch.*.svc.cluster.local.",
            "cluster.local.",
            "www.outside.test.apps.svc.cluster.local.",
            "nosuch.*.apps.svc.cluster.local.",
            "web.apps.search.test.",
            "www.outside.test.apps.search.test.",
            "nosuch.*.apps.search.test.",
            "apps.search.test.",
            "www.outside.test.",
            "missing.test.",
            "servfail.test.",
            "refused.test.",
            "label.",
            "www.stub.test.",
            "www.empty.test.",
            "host.own.test.",
            "alias.own.test.",
            "outside.own.test.",
            "loop.own.test.",
            "out.further.test.",
            "missing.further.test.",
            "www.waits.test.",
            "9.0.96.10.in-addr.arpa.",
        ]
        .map(str::to_owned)
        .into();
        if self.silence {
            names.push("silent.test.".to_owned());
            names.push("silent.stub.test.".to_owned());
        }
        names
    }
}

/// A host and three aliases of the configuration. The targets of the aliases are a cluster name, an
/// external name, and the alias itself.
fn own_names() -> OwnNames {
    let name = |text: &str| Name::parse(text).expect("the name must be valid");
    let mut own = OwnNames::new();
    own.add_host(
        &name("host.own.test."),
        &[Ipv4Addr::new(192, 0, 2, 1).into()],
    );
    for (alias, target) in [
        ("alias.own.test.", "web.apps.svc.cluster.local."),
        ("outside.own.test.", "www.outside.test."),
        ("loop.own.test.", "loop.own.test."),
    ] {
        own.add_alias(&name(alias), &name(target));
    }
    own
}

/// Rules of each kind for external names.
fn external_rules() -> ExternalRules {
    let name = |text: &str| Name::parse(text).expect("the name must be valid");
    let mut rules = ExternalRules::new();
    rules.filter_types(&name("."), &[rtype::AAAA]);
    rules.filter_types(&name("stub.test."), &[]);
    rules.deny_names(&name("refused.test."), rcode::NXDOMAIN);
    rules.deny_names(&name("label."), rcode::NOERROR);
    rules.deny_private_reverse();
    rules.reject_private_addresses_except([name("stub.test.")]);
    rules
}

/// An upstream that answers, fails or is silent, depending on the first label of the name. A long
/// name that begins with `www`, such as a name with a search domain, does not exist.
async fn upstream() -> Upstream {
    Upstream::start(|asked: &Asked| {
        let name = asked.name().to_ascii_lowercase();
        let reply = Reply::to(&asked.packet);
        match name.split('.').next() {
            Some("silent") => Reaction::silence(),
            Some("servfail") => reply.rcode("SERVFAIL").into(),
            Some("refused") => reply.rcode("REFUSED").into(),
            Some("www") if name.len() < 20 && asked.rtype() == "A" => reply
                .answer(&format!("{} 60 IN A 198.51.100.1", asked.name()))
                .into(),
            Some("www") if name.len() < 20 => reply.into(),
            _ => reply.rcode("NXDOMAIN").into(),
        }
    })
    .await
}

/// The queries of one run by ID: each name with each type, with and without EDNS.
fn queries(options: &Options) -> BTreeMap<u16, (String, Vec<u8>)> {
    let mut queries = BTreeMap::new();
    for name in options.names() {
        for rtype in ["A", "AAAA", "SRV", "PTR", "CNAME", "TXT", "SOA", "ANY"] {
            for edns in [false, true] {
                let id = u16::try_from(queries.len()).expect("each query must have its own ID");
                let query = Query::new(&name, rtype).id(id);
                let query = if edns { query.edns(1232) } else { query };
                queries.insert(id, (format!("{name} {rtype}, EDNS: {edns}"), query.wire()));
            }
        }
    }
    queries
}

/// Removes from `waiting` the query that `response` answers.
fn answered(waiting: &mut BTreeMap<u16, (String, Vec<u8>)>, response: &[u8]) {
    assert!(
        response.len() >= 12 && response[2] & 0x80 != 0,
        "the message must be a response with a header"
    );
    let id = u16::from_be_bytes([response[0], response[1]]);
    assert!(
        waiting.remove(&id).is_some(),
        "the response must answer a waiting query"
    );
}

fn names_of(waiting: BTreeMap<u16, (String, Vec<u8>)>) -> Vec<String> {
    waiting.into_values().map(|(what, _)| what).collect()
}

/// Sends all queries over UDP, and returns those without an answer.
async fn unanswered_over_udp(server: SocketAddr, options: &Options) -> Vec<String> {
    let mut to_send: Vec<(u16, (String, Vec<u8>))> = queries(options).into_iter().collect();
    let mut waiting = BTreeMap::new();
    let socket = UdpSocket::bind((POD, 0))
        .await
        .expect("the socket must be bound");
    let mut buffer = [0; 4096];

    loop {
        while waiting.len() < WINDOW
            && let Some((id, (what, query))) = to_send.pop()
        {
            socket
                .send_to(&query, server)
                .await
                .expect("the query must be sent");
            waiting.insert(id, (what, query));
        }
        if waiting.is_empty() {
            return Vec::new();
        }
        let Ok(received) = tokio::time::timeout(TIMEOUT, socket.recv(&mut buffer)).await else {
            return names_of(waiting);
        };
        answered(
            &mut waiting,
            &buffer[..received.expect("a datagram must arrive")],
        );
    }
}

/// Sends all queries over one TCP connection, and returns those without an answer.
async fn unanswered_over_tcp(server: SocketAddr, options: &Options) -> Vec<String> {
    let mut waiting = queries(options);
    let mut connection = connect(server).await;

    for (_, query) in waiting.values() {
        connection
            .send(query)
            .await
            .expect("the query must be sent");
    }
    while !waiting.is_empty()
        && let Ok(response) = connection.receive(TIMEOUT).await
    {
        answered(&mut waiting, &response);
    }
    names_of(waiting)
}

fn start_flipping(options: &Options, upstream: SocketAddr) -> RunningServer {
    let views =
        [true, false, true, true, false].map(|present| Arc::new(options.view(upstream, present)));
    let cache = options.caches.then(CacheLimits::default);
    let backend = Flipping {
        views: views.into(),
        taken: AtomicUsize::new(0),
    };
    start_backend(backend, cache)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_gets_a_response() {
    let upstream = upstream().await;
    // The combinations of a group run at the same time. Only one of them queries names for which
    // the upstream is silent.
    for group in 0..COMBINATIONS / SILENT_ONE_IN {
        let first = group * SILENT_ONE_IN;
        let seeds = first..first + SILENT_ONE_IN;
        join_all(seeds.map(|seed| check_combination(seed, upstream.addr()))).await;
    }
}

/// Asserts that a server with a random combination of options answers all queries.
async fn check_combination(seed: u64, upstream: SocketAddr) {
    let options = Options::random(seed);
    let server = start_flipping(&options, upstream);

    let (over_udp, over_tcp) = tokio::join!(
        unanswered_over_udp(server.address, &options),
        unanswered_over_tcp(server.address, &options)
    );
    for (transport, unanswered) in [("UDP", over_udp), ("TCP", over_tcp)] {
        assert!(
            unanswered.is_empty(),
            "no answer over {transport} with {options:?} to {unanswered:#?}"
        );
    }
    server.stop().await;
}
