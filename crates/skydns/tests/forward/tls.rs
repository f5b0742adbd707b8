//! Upstreams over TLS: accepted certificates, changes of the CA file, handshakes, sessions, and
//! padding.

use std::path::PathBuf;
use std::time::Duration;

use skydns::forward::{ForwardLimits, KeyPin, TlsTrust};
use tempfile::TempDir;
use testkit::eventually;
use testkit::message::Message;
use testkit::reply::Reply;
use testkit::tls::{Gate, TLS12, TLS13, file};
use testkit::upstream::{Act, Asked, Reaction, Upstream};
use tokio::net::TcpListener;

use crate::support::{
    GOOD, OTHER, PATIENCE, Subject, a, address, answers_with, opt, outcome_text, pass, short_limits,
};

/// SHA-256 of the `SubjectPublicKeyInfo` in server.pem, as reported by openssl.
const KEY: [u8; 32] = [
    0x30, 0xf5, 0x6b, 0xff, 0xd4, 0xdc, 0xff, 0x6f, 0x4a, 0xa4, 0xa4, 0xb9, 0x67, 0x4d, 0x74, 0xfd,
    0x04, 0x07, 0x66, 0x88, 0x1d, 0x57, 0x4d, 0x43, 0xc0, 0xb6, 0x2b, 0xf7, 0x11, 0x3a, 0xd2, 0xd1,
];
const OTHER_KEY: [u8; 32] = [0; 32];
/// Expiry of server.pem.
const EXPIRES: u64 = 4_733_510_400;
/// The outcome if the certificate is not trusted.
const WRONG: &str = "failed: Certificate Certificate";

fn trust(pins: &[(&str, [u8; 32])]) -> TlsTrust {
    let pins = pins.iter().map(|(name, sha256)| KeyPin {
        name: (*name).to_owned(),
        sha256: *sha256,
    });
    TlsTrust {
        ca_file: Some(file("ca.pem")),
        pins: pins.collect(),
    }
}

#[tokio::test]
async fn only_upstream_with_trusted_certificate_is_used() {
    let name = Some("dns.test");
    for (certificate, name, pins, is_trusted) in [
        ("server", name, &[][..], true),
        ("server", None, &[], true),
        ("server", name, &[("dns.test", KEY)], true),
        (
            "server",
            name,
            &[("dns.test", OTHER_KEY), ("dns.test", KEY)],
            true,
        ),
        ("server", name, &[("other.test", OTHER_KEY)], true),
        ("server", None, &[("127.0.0.1", KEY)], true),
        ("server", name, &[("dns.test", OTHER_KEY)], false),
        ("server", None, &[("127.0.0.1", OTHER_KEY)], false),
        ("server", Some("other.test"), &[], false),
        ("other-name", name, &[], false),
        ("other-name", None, &[], false),
        ("expired", name, &[], false),
        ("stranger", name, &[], false),
        // A pin does not replace the check against the CA.
        ("stranger", name, &[("dns.test", KEY)], false),
    ] {
        let what = format!("{certificate} as {name:?} with {} pins", pins.len());
        let upstream = Upstream::start(answers_with(1)).await;
        let gate = Gate::open(certificate, upstream.addr()).await;
        let subject = Subject::trusting(short_limits(), trust(pins));
        let outcome = subject.ask_a("x.test.", &[gate.upstream(name)]).await;
        assert_eq!(outcome, if is_trusted { GOOD } else { WRONG }, "{what}");
        assert_eq!(upstream.count(), usize::from(is_trusted), "{what}");
        let errors = if is_trusted { 0 } else { 2 };
        assert_eq!(subject.errors("certificate"), errors, "{what}");
        let trusted = subject.count("tls_trusted");
        assert_eq!(trusted, u64::from(is_trusted), "{what}");

        let next = Upstream::start(answers_with(2)).await;
        let upstreams = [gate.upstream(name), next.addr().into()];
        let outcome = subject.ask_a("y.test.", &upstreams).await;
        assert_eq!(outcome, if is_trusted { GOOD } else { OTHER }, "{what}");
    }
}

#[tokio::test]
async fn query_to_tls_upstream_is_never_sent_in_plain_text() {
    let plain = Upstream::start(answers_with(1)).await;
    let subject = Subject::trusting(short_limits(), trust(&[]));
    let upstream: wire::Upstream = format!("tls://{}", plain.addr()).parse().unwrap();
    let outcome = subject.ask_a("secret.test.", &[upstream]).await;
    assert!(outcome.starts_with("failed: "), "{outcome}");
    let has_name = |asked: &Asked| asked.packet.windows(6).any(|octets| octets == b"secret");
    assert!(!plain.asked().iter().any(has_name));
}

#[tokio::test]
async fn unanswered_handshake_times_out_and_next_upstream_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let held = async {
        let mut held = Vec::new();
        while let Ok(accepted) = listener.accept().await {
            held.push(accepted);
        }
    };
    let subject = Subject::trusting(short_limits(), trust(&[]));
    let address = listener.local_addr().unwrap();
    let upstream: wire::Upstream = format!("tls://{address}").parse().unwrap();
    let next = Upstream::start(answers_with(2)).await;
    let asking = async {
        let upstreams = [upstream, next.addr().into()];
        let alone = subject.ask_a("x.test.", &upstreams[..1]).await;
        assert_eq!(alone, "failed: Timeout");
        assert_eq!(subject.ask_a("y.test.", &upstreams).await, OTHER);
    };
    tokio::select! {
        () = asking => {}
        () = held => unreachable!("the listener accepts connections"),
    }
}

/// The server closes the connection after each answer, so that each query needs a handshake.
#[tokio::test]
async fn tls_sessions_resume_and_certificate_expiry_is_exported() {
    for version in [&TLS12, &TLS13] {
        let upstream =
            Upstream::start(|asked: &Asked| Reaction::from(address(asked, 1)).then(Act::Close))
                .await;
        let gate = Gate::of_versions("server", &[version], upstream.addr()).await;
        let subject = Subject::trusting(ForwardLimits::default(), trust(&[("dns.test", KEY)]));
        let way = [gate.upstream(Some("dns.test"))];
        for n in 0..5 {
            let outcome = subject.ask_a(&format!("n{n}.test."), &way).await;
            assert_eq!(outcome, GOOD);
            eventually(PATIENCE, || async { subject.count("connections") == 0 }).await;
        }
        let handshakes = |kind| subject.metric("tls_handshakes_total", &[("kind", kind)]);
        assert_eq!(handshakes("full"), 1, "{version:?}");
        assert_eq!(handshakes("resumed"), 4, "{version:?}");
        let expiry = || subject.count("tls_certificate_expiry_timestamp_seconds");
        assert_eq!(expiry(), EXPIRES);
        subject.forwarder.retain_upstreams(&[&way[0]].into());
        assert_eq!(expiry(), EXPIRES);
        subject.forwarder.retain_upstreams(&[].into());
        assert_eq!(subject.count("tls_trusted"), 0);
        assert_eq!(
            expiry(),
            0,
            "the metric of an unused upstream must be removed"
        );
    }
}

/// A forwarder that trusts the CA of a file, and an upstream over TLS.
struct TrustingFile {
    ca_file: PathBuf,
    subject: Subject,
    gate: Gate,
    _directory: TempDir,
    _upstream: Upstream,
}

impl TrustingFile {
    async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let ca_file = directory.path().join("ca.pem");
        let upstream = Upstream::start(answers_with(1)).await;
        let trust = TlsTrust {
            ca_file: Some(ca_file.clone()),
            pins: Vec::new(),
        };
        Self {
            ca_file,
            subject: Subject::trusting(short_limits(), trust),
            gate: Gate::open("server", upstream.addr()).await,
            _directory: directory,
            _upstream: upstream,
        }
    }

    async fn ask(&self) -> String {
        let upstreams = [self.gate.upstream(Some("dns.test"))];
        self.subject.ask_a("x.test.", &upstreams).await
    }
}

/// A changed CA file is used without a restart. If the file is missing or unusable, the previous
/// certificates stay in use.
#[tokio::test]
async fn changed_ca_file_is_reloaded() {
    let trusting = TrustingFile::start().await;
    assert_eq!(trusting.ask().await, WRONG, "there is no file");
    let [stranger, ours] =
        ["stranger-ca.pem", "ca.pem"].map(|name| std::fs::read_to_string(file(name)).unwrap());
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    for (what, certificates, expected) in [
        ("another CA", Some(&stranger), WRONG),
        ("the CA of the upstream", Some(&ours), GOOD),
        ("no file", None, GOOD),
        ("a damaged certificate", Some(&garbage), GOOD),
        ("another CA again", Some(&stranger), WRONG),
    ] {
        match certificates {
            Some(certificates) => std::fs::write(&trusting.ca_file, certificates).unwrap(),
            None => std::fs::remove_file(&trusting.ca_file).unwrap(),
        }
        pass(Duration::from_secs(61)).await;
        assert_eq!(trusting.ask().await, expected, "{what}");
    }
}

/// A named pipe simulates a file on a dead mount: opening the pipe waits for a writer.
#[tokio::test]
async fn hanging_ca_file_keeps_previous_certificates() {
    let trusting = TrustingFile::start().await;
    let ca_file = &trusting.ca_file;
    std::fs::copy(file("ca.pem"), ca_file).unwrap();
    assert_eq!(trusting.ask().await, GOOD);
    std::fs::remove_file(ca_file).unwrap();
    nix::unistd::mkfifo(ca_file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    pass(Duration::from_secs(61)).await;
    eventually(PATIENCE, async || trusting.ask().await == GOOD).await;
    // A writer lets the blocked thread finish.
    let writer = std::fs::OpenOptions::new().write(true).open(ca_file);
    drop(writer.unwrap());
}

/// Queries over TLS are padded, so that their length does not reveal the name (RFC 8467). Queries
/// over plain TCP are not padded.
#[tokio::test]
async fn tls_queries_are_padded() {
    let padded = |asked: &Asked| {
        let opt = opt(1232, false, &[(12, &[0; 300]), (15, &[0, 0])]);
        address(asked, 1).opt(opt).into()
    };
    let upstream = Upstream::start(padded).await;
    let gate = Gate::open("server", upstream.addr()).await;
    let subject = Subject::trusting(short_limits(), trust(&[]));
    let long = format!("{}.test.", "a".repeat(60));
    let edns = |name, options| a(name).edns(opt(4096, true, options));
    for (what, client, has_edns) in [
        ("plain", a("x.test."), false),
        ("long", a(&long), false),
        ("EDNS", edns("x.test.", &[]), true),
        (
            "client subnet",
            edns("y.test.", &[(8, &[0, 1, 0, 0])]),
            true,
        ),
        ("padding", edns(&long, &[(12, &[0; 3])]), true),
    ] {
        for (upstream_by, is_padded) in [
            (gate.upstream(None), true),
            (format!("tcp://{}", upstream.addr()).parse().unwrap(), false),
        ] {
            upstream.forget();
            let reply = subject.ask(client.clone(), &[upstream_by]).await;
            assert_eq!(outcome_text(&reply), GOOD);
            let packet = &upstream.asked()[0].packet;
            let size = packet.len();
            assert_eq!(size % 128 == 0, is_padded, "{what}: {size} octets");
            let options = Message::parse(packet).unwrap().edns.unwrap().options;
            let has_padding = options.last().is_some_and(|(code, _)| *code == 12);
            assert_eq!(has_padding, is_padded, "{what}");
            let answered = client.answer(&reply.unwrap()).edns.map(|opt| opt.options);
            assert_eq!(answered, has_edns.then(|| vec![(15, vec![0, 0])]), "{what}");
        }
    }
}

/// If an upstream replies FORMERR to EDNS, the query is sent again without EDNS (RFC 6891, section
/// 7).
#[tokio::test]
async fn queries_omit_opt_record_after_formerr_from_tls_server() {
    let old = |asked: &Asked| match Message::parse(&asked.packet).unwrap().edns {
        Some(_) => Reaction::from(Reply::to(&asked.packet).rcode("FORMERR")),
        None => address(asked, 1).into(),
    };
    let upstream = Upstream::start(old).await;
    let gate = Gate::open("server", upstream.addr()).await;
    let subject = Subject::trusting(short_limits(), trust(&[]));
    let way = [gate.upstream(None)];
    assert_eq!(subject.ask_a("x.test.", &way).await, GOOD);
    // The first attempt of the next query has no OPT record.
    let dnssec_ok = opt(1232, true, &[]);
    let question = a("y.test.").edns(dnssec_ok.clone());
    let reply = subject.ask(question.clone(), &way).await;
    assert_eq!(outcome_text(&reply), GOOD);
    let edns = question.answer(&reply.unwrap()).edns;
    assert_eq!(
        edns,
        Some(dnssec_ok),
        "the reply to the client must have an OPT record, although the reply of the upstream has none"
    );
    assert_eq!(upstream.count(), 3);
}
