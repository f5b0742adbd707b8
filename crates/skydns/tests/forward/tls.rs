//! Upstreams over TLS: accepted certificates, sessions, and padding.

use std::time::Duration;

use skydns::forward::{ForwardLimits, KeyPin, TlsTrust};
use testkit::eventually;
use testkit::message::{Edns as Opt, Message};
use testkit::reply::Reply;
use testkit::tls::{Gate, TLS12, TLS13, file};
use testkit::upstream::{Act, Asked, Reaction, Upstream};
use tokio::net::TcpListener;

use crate::support::{PATIENCE, Subject, a, answers_with, is_count, outcome_text, short_limits};

/// SHA-256 of the public key in server.pem, as reported by openssl.
const KEY: [u8; 32] = [
    0x30, 0xf5, 0x6b, 0xff, 0xd4, 0xdc, 0xff, 0x6f, 0x4a, 0xa4, 0xa4, 0xb9, 0x67, 0x4d, 0x74, 0xfd,
    0x04, 0x07, 0x66, 0x88, 0x1d, 0x57, 0x4d, 0x43, 0xc0, 0xb6, 0x2b, 0xf7, 0x11, 0x3a, 0xd2, 0xd1,
];
const OTHER_KEY: [u8; 32] = [0; 32];
/// Expiry of server.pem.
const EXPIRES: f64 = 4_733_510_400.0;

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
async fn certificate_trust_decides_use() {
    let good = "NOERROR 192.0.2.1";
    let name = Some("dns.test");
    let wrong = "failed: Certificate Certificate";
    for (certificate, name, pins, expected) in [
        ("server", name, &[][..], good),
        ("server", None, &[], good),
        ("server", name, &[("dns.test", KEY)], good),
        (
            "server",
            name,
            &[("dns.test", OTHER_KEY), ("dns.test", KEY)],
            good,
        ),
        ("server", name, &[("other.test", OTHER_KEY)], good),
        ("server", None, &[("127.0.0.1", KEY)], good),
        ("server", name, &[("dns.test", OTHER_KEY)], wrong),
        ("server", None, &[("127.0.0.1", OTHER_KEY)], wrong),
        ("server", Some("other.test"), &[], wrong),
        ("other-name", name, &[], wrong),
        ("other-name", None, &[], wrong),
        ("expired", name, &[], wrong),
        ("stranger", name, &[], wrong),
        // A pin does not replace the check against the CA.
        ("stranger", name, &[("dns.test", KEY)], wrong),
    ] {
        let upstream = Upstream::start(answers_with(1)).await;
        let gate = Gate::open(certificate, upstream.addr()).await;
        let subject = Subject::trusting(short_limits(), trust(pins));
        let outcome = outcome_text(&subject.ask_by(a("x.test."), &[gate.upstream(name)]).await);
        assert_eq!(
            outcome,
            expected,
            "{certificate} as {name:?} with pins {}",
            pins.len()
        );
        assert_eq!(
            upstream.count(),
            usize::from(expected == good),
            "{certificate}"
        );
        assert!(
            is_count(
                subject.errors("certificate"),
                if expected == good { 0 } else { 2 }
            ),
            "{certificate}"
        );
        assert!(
            is_count(
                subject.metric("tls_trusted", &[]),
                usize::from(expected == good)
            ),
            "{certificate}"
        );
        let next = Upstream::start(answers_with(2)).await;
        let upstreams = [gate.upstream(name), next.addr().into()];
        let outcome = outcome_text(&subject.ask_by(a("y.test."), &upstreams).await);
        assert_eq!(
            outcome,
            if expected == good {
                good
            } else {
                "NOERROR 192.0.2.2"
            },
            "{certificate}"
        );
    }
}

#[tokio::test]
async fn plain_server_gets_no_query_over_tls() {
    let plain = Upstream::start(answers_with(1)).await;
    let subject = Subject::trusting(short_limits(), trust(&[]));
    let upstream = format!("tls://{}", plain.addr()).parse().unwrap();
    let outcome = outcome_text(&subject.ask_by(a("secret.test."), &[upstream]).await);
    assert!(outcome.starts_with("failed: "), "{outcome}");
    assert!(
        plain
            .asked()
            .iter()
            .all(|asked| !asked.packet.windows(6).any(|octets| octets == b"secret"))
    );
}

#[tokio::test]
async fn unanswered_handshake_counts_as_silence() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let held = async {
        let mut held = Vec::new();
        while let Ok(accepted) = listener.accept().await {
            held.push(accepted);
        }
    };
    let subject = Subject::trusting(short_limits(), trust(&[]));
    let upstream: wire::Upstream = format!("tls://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let next = Upstream::start(answers_with(2)).await;
    let asking = async {
        let alone = outcome_text(
            &subject
                .ask_by(a("x.test."), std::slice::from_ref(&upstream))
                .await,
        );
        assert_eq!(alone, "failed: Timeout");
        let outcome = outcome_text(
            &subject
                .ask_by(a("y.test."), &[upstream.clone(), next.addr().into()])
                .await,
        );
        assert_eq!(outcome, "NOERROR 192.0.2.2");
    };
    tokio::select! {
        () = asking => {}
        () = held => unreachable!("it listens"),
    }
}

/// The server closes the connection after each answer, so that each query needs a handshake.
#[tokio::test]
async fn tls_sessions_resume_and_expiry_is_metric() {
    for version in [&TLS12, &TLS13] {
        let upstream = Upstream::start(|asked: &Asked| {
            Reaction::from(crate::support::address(asked, 1)).then(Act::Close)
        })
        .await;
        let gate = Gate::of_versions("server", &[version], upstream.addr()).await;
        let subject = Subject::trusting(ForwardLimits::default(), trust(&[("dns.test", KEY)]));
        let way = gate.upstream(Some("dns.test"));
        for n in 0..5 {
            let outcome = subject
                .ask_by(a(&format!("n{n}.test.")), std::slice::from_ref(&way))
                .await;
            assert_eq!(outcome_text(&outcome), "NOERROR 192.0.2.1");
            eventually(PATIENCE, || async {
                is_count(subject.metric("connections", &[]), 0)
            })
            .await;
        }
        let handshakes = |kind| subject.metric("tls_handshakes_total", &[("kind", kind)]);
        assert!(
            is_count(handshakes("full"), 1) && is_count(handshakes("resumed"), 4),
            "{version:?}"
        );
        let expiry = || subject.metric("tls_certificate_expiry_timestamp_seconds", &[]);
        assert!((expiry() - EXPIRES).abs() < 1.0);
        subject.forwarder.retain_upstreams(&[&way].into());
        assert!((expiry() - EXPIRES).abs() < 1.0);
        subject.forwarder.retain_upstreams(&[].into());
        assert!(is_count(subject.metric("tls_trusted", &[]), 0));
        assert!(
            is_count(expiry(), 0),
            "no expiry of an upstream that is not in use"
        );
    }
}

/// A changed CA file is used without a restart. If the file is missing or unusable, the previous
/// certificates stay in use.
#[tokio::test]
async fn changed_ca_file_is_reloaded() {
    let directory = tempfile::tempdir().unwrap();
    let ca_file = directory.path().join("ca.pem");
    let upstream = Upstream::start(answers_with(1)).await;
    let gate = Gate::open("server", upstream.addr()).await;
    let subject = Subject::trusting(
        short_limits(),
        TlsTrust {
            ca_file: Some(ca_file.clone()),
            pins: Vec::new(),
        },
    );
    let ask = async || {
        outcome_text(
            &subject
                .ask_by(a("x.test."), &[gate.upstream(Some("dns.test"))])
                .await,
        )
    };
    let wrong = "failed: Certificate Certificate";
    assert_eq!(ask().await, wrong, "there is no file");
    let [stranger, ours] =
        ["stranger-ca.pem", "ca.pem"].map(|name| std::fs::read_to_string(file(name)).unwrap());
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    for (what, certificates, expected) in [
        ("another CA", Some(&stranger), wrong),
        ("the CA of the upstream", Some(&ours), "NOERROR 192.0.2.1"),
        ("no file", None, "NOERROR 192.0.2.1"),
        ("a damaged certificate", Some(&garbage), "NOERROR 192.0.2.1"),
        ("another CA again", Some(&stranger), wrong),
    ] {
        match certificates {
            Some(certificates) => std::fs::write(&ca_file, certificates).unwrap(),
            None => std::fs::remove_file(&ca_file).unwrap(),
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(61)).await;
        tokio::time::resume();
        assert_eq!(ask().await, expected, "{what}");
    }
}

/// A named pipe stands for a file on a dead mount: opening it waits for a writer.
#[tokio::test]
async fn hanging_ca_file_keeps_previous_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let ca_file = directory.path().join("ca.pem");
    std::fs::copy(file("ca.pem"), &ca_file).unwrap();
    let upstream = Upstream::start(answers_with(1)).await;
    let gate = Gate::open("server", upstream.addr()).await;
    let subject = Subject::trusting(
        short_limits(),
        TlsTrust {
            ca_file: Some(ca_file.clone()),
            pins: Vec::new(),
        },
    );
    let ask = async || {
        outcome_text(
            &subject
                .ask_by(a("x.test."), &[gate.upstream(Some("dns.test"))])
                .await,
        )
    };
    assert_eq!(ask().await, "NOERROR 192.0.2.1");
    std::fs::remove_file(&ca_file).unwrap();
    nix::unistd::mkfifo(&ca_file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    eventually(PATIENCE, async || ask().await == "NOERROR 192.0.2.1").await;
    // The blocked thread can finish.
    drop(
        std::fs::OpenOptions::new()
            .write(true)
            .open(&ca_file)
            .unwrap(),
    );
}

/// Queries over TLS are padded, so that their length does not reveal the name (RFC 8467). Queries
/// over plain TCP are not padded.
#[tokio::test]
async fn tls_queries_are_padded() {
    let padded = |asked: &Asked| {
        let reply = crate::support::address(asked, 1);
        let options = vec![(12, vec![0; 300]), (15, vec![0, 0])];
        reply
            .opt(Opt {
                udp: 1232,
                options,
                ..Opt::default()
            })
            .into()
    };
    let upstream = Upstream::start(padded).await;
    let gate = Gate::open("server", upstream.addr()).await;
    let subject = Subject::trusting(short_limits(), trust(&[]));
    let long = format!("{}.test.", "a".repeat(60));
    let edns = |name, options| {
        a(name).edns(Opt {
            udp: 4096,
            dnssec_ok: true,
            options,
            ..Opt::default()
        })
    };
    for (what, client, has_edns) in [
        ("plain", a("x.test."), false),
        ("long", a(&long), false),
        ("EDNS", edns("x.test.", vec![]), true),
        (
            "client subnet",
            edns("y.test.", vec![(8, vec![0, 1, 0, 0])]),
            true,
        ),
        ("padding", edns(&long, vec![(12, vec![0; 3])]), true),
    ] {
        for (upstream_by, is_padded) in [
            (gate.upstream(None), true),
            (format!("tcp://{}", upstream.addr()).parse().unwrap(), false),
        ] {
            upstream.forget();
            let reply = subject.ask_by(client.clone(), &[upstream_by]).await;
            assert_eq!(outcome_text(&reply), "NOERROR 192.0.2.1");
            let packet = &upstream.asked()[0].packet;
            assert_eq!(
                packet.len() % 128 == 0,
                is_padded,
                "{what}: {} octets",
                packet.len()
            );
            let options = Message::parse(packet).unwrap().edns.unwrap().options;
            assert_eq!(
                options.last().is_some_and(|(code, _)| *code == 12),
                is_padded,
                "{what}"
            );
            let answered = client.answer(&reply.unwrap()).edns.map(|opt| opt.options);
            assert_eq!(answered, has_edns.then(|| vec![(15, vec![0, 0])]), "{what}");
        }
    }
}

/// If an upstream replies FORMERR to EDNS, the query is sent again without EDNS (RFC 6891, section
/// 7).
#[tokio::test]
async fn server_without_padding_is_queried_plain() {
    let old = |asked: &Asked| match Message::parse(&asked.packet).unwrap().edns {
        Some(_) => Reaction::from(Reply::to(&asked.packet).rcode("FORMERR")),
        None => crate::support::address(asked, 1).into(),
    };
    let upstream = Upstream::start(old).await;
    let gate = Gate::open("server", upstream.addr()).await;
    let subject = Subject::trusting(short_limits(), trust(&[]));
    assert_eq!(
        outcome_text(&subject.ask_by(a("x.test."), &[gate.upstream(None)]).await),
        "NOERROR 192.0.2.1"
    );
    // Further queries have no EDNS from the beginning.
    let question = a("y.test.").edns(Opt {
        udp: 1232,
        dnssec_ok: true,
        ..Opt::default()
    });
    let reply = subject
        .ask_by(question.clone(), &[gate.upstream(None)])
        .await;
    assert_eq!(outcome_text(&reply), "NOERROR 192.0.2.1");
    let edns = question.answer(&reply.unwrap()).edns;
    assert_eq!(
        edns,
        Some(Opt {
            udp: 1232,
            dnssec_ok: true,
            ..Opt::default()
        }),
        "our own"
    );
    assert_eq!(upstream.count(), 3);
}
