//! The feed of a zone on a real etcd: first list, changes, and outages of etcd.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use daemon::blocking_read::READ_TIMEOUT;
use etcd::{EtcdAccess, EtcdLogin, EtcdTlsFiles};
use serde_json::json;
use testkit::etcd::Etcd;
use testkit::eventually;
use testkit::tls::{DefaultTimeProvider, Gate, file};

use crate::relay::Relay;
use crate::seen::SeenFeed;
use crate::{TIMEOUT, access};

const ZONE: &str = "/skydns/local/skydns";

/// A feed that reaches etcd through `relay`.
fn feed_through(relay: &Relay) -> SeenFeed {
    SeenFeed::feed(access(&format!("http://{}", relay.address)))
}

#[tokio::test]
async fn keys_and_changes_are_followed() {
    let Some(etcd) = Etcd::start("following the keys of a zone").await else {
        return;
    };
    let value = r#"{"host":"10.0.0.1"}"#;
    for key in ["east/web", "east/db", "west/web"] {
        etcd.put(&format!("{ZONE}/{key}"), value).await;
    }
    etcd.put("/skydns/local/skydns-2/other", value).await;
    etcd.put(&format!("{ZONE}/broken"), "{").await;
    let seen = SeenFeed::feed(access(&etcd.url()));
    seen.until(|tree| tree.len() == 3).await;
    let skipped = seen.metric("kubedns_etcd_skipped_keys_total");
    assert_eq!(skipped, 1, "only the key `broken` must be skipped");

    etcd.put(&format!("{ZONE}/broken"), value).await;
    seen.until(|tree| tree.len() == 4).await;
    etcd.put(&format!("{ZONE}/broken"), "{}{").await;
    seen.until(|tree| tree.len() == 3).await;
    etcd.delete(&format!("{ZONE}/east/web")).await;
    etcd.put("/skydns/local/skydns-2/further", value).await;
    seen.until(|tree| tree.len() == 2).await;
    assert_eq!(seen.metric("kubedns_etcd_records"), 2);
    assert_eq!(seen.metric("kubedns_etcd_lists_total"), 1);
    assert_eq!(seen.metric("kubedns_etcd_connected"), 1);
}

/// A list of 2500 keys takes three pages.
#[tokio::test]
async fn zone_of_many_pages_is_listed() {
    let Some(etcd) = Etcd::start("listing in pages").await else {
        return;
    };
    for chunk in 0..25 {
        let puts: Vec<_> = (0..100)
            .map(|key| etcd.put_in_transaction(&format!("{ZONE}/{chunk}/{key}"), "{}"))
            .collect();
        etcd.transaction(puts).await;
    }
    let seen = SeenFeed::feed(access(&etcd.url()));
    seen.until(|tree| tree.len() == 2500).await;
}

#[tokio::test]
async fn outage_keeps_records_and_revision() {
    let Some(mut etcd) = Etcd::start("an outage of etcd").await else {
        return;
    };
    etcd.put(&format!("{ZONE}/web"), r#"{"host":"10.0.0.1"}"#)
        .await;
    let seen = SeenFeed::feed(access(&etcd.url()));
    seen.until(|tree| tree.len() == 1).await;
    seen.until_connected().await;

    etcd.stop();
    let failure = seen.until_lost().await;
    assert!(!failure.is_empty());
    assert_eq!(seen.tree().len(), 1);
    assert_eq!(seen.metric("kubedns_etcd_connected"), 0);

    etcd.begin().await;
    etcd.put(&format!("{ZONE}/web/2"), r#"{"host":"10.0.0.2"}"#)
        .await;
    seen.until(|tree| tree.len() == 2).await;
    let lists = seen.metric("kubedns_etcd_lists_total");
    assert_eq!(lists, 1, "the zone must not be listed again");
}

#[tokio::test]
async fn zone_is_listed_again_after_compaction() {
    let Some(etcd) = Etcd::start("compaction").await else {
        return;
    };
    etcd.put(&format!("{ZONE}/old"), "{}").await;
    let mut relay = Relay::open(etcd.address).await;
    let seen = feed_through(&relay);
    seen.until(|tree| tree.len() == 1).await;
    seen.until_connected().await;

    relay.close().await;
    seen.until_lost().await;
    etcd.delete(&format!("{ZONE}/old")).await;
    for key in ["a", "b"] {
        etcd.put(&format!("{ZONE}/{key}"), "{}").await;
    }
    etcd.compact().await;
    relay.reopen().await;
    seen.until(|tree| tree.len() == 2).await;
    assert_eq!(seen.metric("kubedns_etcd_lists_total"), 2);
}

#[tokio::test]
async fn zone_is_listed_again_from_new_etcd() {
    let Some(mut etcd) = Etcd::start("listing again from a new etcd").await else {
        return;
    };
    for key in ["a", "b", "c"] {
        etcd.put(&format!("{ZONE}/{key}"), "{}").await;
    }
    let seen = SeenFeed::feed(access(&etcd.url()));
    seen.until(|tree| tree.len() == 3).await;
    etcd.stop();
    etcd.forget();
    etcd.begin().await;
    // The new etcd has a lower revision than the feed. A watch from the feed's revision would
    // receive no events.
    etcd.put(&format!("{ZONE}/new"), "{}").await;
    seen.until(|tree| tree.len() == 1).await;
}

/// The feed cannot read an event of its watch. A new watch from the same revision would receive
/// this event again, so the feed lists the zone instead.
#[tokio::test]
async fn unusable_event_is_replaced_by_list() {
    let Some(etcd) = Etcd::start("an unusable event of a watch").await else {
        return;
    };
    etcd.put(&format!("{ZONE}/web"), "{}").await;
    let relay = Relay::open(etcd.address).await;
    let seen = feed_through(&relay);
    seen.until_connected().await;

    relay.spoil_events();
    etcd.put(&format!("{ZONE}/db"), "{}").await;
    let failure = seen.until_lost().await;
    assert!(
        failure.starts_with("cannot use an event of the watch"),
        "{failure}"
    );
    seen.until(|tree| tree.len() == 2).await;
    seen.until_connected().await;
    assert_eq!(seen.metric("kubedns_etcd_lists_total"), 2);
}

/// The ID of a lease is a signed number.
#[tokio::test]
async fn negative_lease_is_accepted() {
    let Some(etcd) = Etcd::start("a negative lease").await else {
        return;
    };
    let lease = "-7";
    let granted = json!({ "ID": lease, "TTL": "3600" });
    etcd.call("/v3/lease/grant", granted).await;
    etcd.put_with_lease(&format!("{ZONE}/listed"), "{}", lease)
        .await;
    let seen = SeenFeed::feed(access(&etcd.url()));
    seen.until_connected().await;
    etcd.put_with_lease(&format!("{ZONE}/watched"), "{}", lease)
        .await;
    seen.until(|tree| tree.len() == 2).await;
    assert_eq!(seen.metric("kubedns_etcd_failures_total"), 0);
}

#[tokio::test]
async fn feed_uses_next_member_if_one_is_unreachable() {
    let Some(etcd) = Etcd::start("several members").await else {
        return;
    };
    etcd.put(&format!("{ZONE}/web"), "{}").await;
    let nobody = format!("http://127.0.0.1:{}", testkit::ports::free_port());
    let members = [nobody, etcd.url()]
        .iter()
        .map(|url| url.parse().unwrap())
        .collect();
    let seen = SeenFeed::feed(EtcdAccess {
        members,
        ..EtcdAccess::default()
    });
    seen.until(|tree| tree.len() == 1).await;
}

/// Makes the feed check its silent watch now.
async fn pass_silence() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
}

/// Makes changes of the zone: `put KEY`, `change KEY` and `delete KEY`.
async fn make_changes(etcd: &Etcd, changes: &[&str]) {
    for change in changes {
        let (change, key) = change.split_once(' ').unwrap();
        let key = format!("{ZONE}/{key}");
        match change {
            "put" => etcd.put(&key, "{}").await,
            "change" => etcd.put(&key, r#"{"host":"10.0.0.2"}"#).await,
            _ => etcd.delete(&key).await,
        }
    }
}

/// A proxy keeps the connection of the watch open, but discards what etcd sends over it. Other
/// connections work.
#[tokio::test]
async fn muted_watch_is_replaced() {
    let cases: [(&[&str], &[&str]); 4] = [
        (&["put new"], &["db", "new", "web"]),
        (&["delete web"], &["db"]),
        (&["change web"], &["db", "web"]),
        (&["delete web", "put new"], &["db", "new"]),
    ];
    for (changes, expected) in cases {
        let Some(etcd) = Etcd::start("a muted watch of etcd").await else {
            return;
        };
        for key in ["web", "db"] {
            etcd.put(&format!("{ZONE}/{key}"), "{}").await;
        }
        let relay = Relay::open(etcd.address).await;
        let seen = feed_through(&relay);
        seen.until_connected().await;
        let before = seen.tree();

        relay.mute_open_watches();
        make_changes(&etcd, changes).await;
        // A change outside the zone also increases etcd's revision. So the revision alone does not
        // show that the zone has changed.
        etcd.put("/elsewhere", "{}").await;
        pass_silence().await;
        assert_eq!(
            seen.until_lost().await,
            "the watch is silent although the zone has changed",
            "{changes:?}"
        );
        seen.until(|tree| *tree != before && expected.len() == tree.len())
            .await;
        let tree = seen.tree();
        let has_all = expected.iter().all(|key| tree.has_key_within(&[key]));
        assert!(has_all, "{changes:?}");
        seen.until_connected().await;
        assert_eq!(seen.metric("kubedns_etcd_lists_total"), 1, "{changes:?}");
    }
}

/// The revisions of a new etcd are lower than the revision at the last check of the previous etcd.
#[tokio::test]
async fn muted_watch_of_new_etcd_is_replaced() {
    let Some(mut etcd) = Etcd::start("a muted watch of a new etcd").await else {
        return;
    };
    let relay = Relay::open(etcd.address).await;
    let seen = feed_through(&relay);
    seen.until_connected().await;
    for _ in 0..9 {
        etcd.put("/elsewhere", "{}").await;
    }
    // A check requests the number of keys, and then the changed keys.
    let ranges = relay.ranges();
    pass_silence().await;
    eventually(TIMEOUT, async || relay.ranges() == ranges + 2).await;

    etcd.stop();
    seen.until_lost().await;
    etcd.forget();
    etcd.begin().await;
    etcd.put(&format!("{ZONE}/web"), "{}").await;
    seen.until(|tree| tree.len() == 1).await;
    seen.until_connected().await;
    let before = seen.tree();

    relay.mute_open_watches();
    make_changes(&etcd, &["change web"]).await;
    pass_silence().await;
    assert_eq!(
        seen.until_lost().await,
        "the watch is silent although the zone has changed"
    );
    seen.until(|tree| *tree != before).await;
}

/// Each watch is confirmed, but no event ever arrives.
#[tokio::test]
async fn zone_without_working_watch_is_listed() {
    let Some(etcd) = Etcd::start("an etcd without working watches").await else {
        return;
    };
    etcd.put(&format!("{ZONE}/web"), "{}").await;
    let relay = Relay::open(etcd.address).await;
    let seen = feed_through(&relay);
    seen.until_connected().await;

    relay.mute_all_watches();
    etcd.put(&format!("{ZONE}/db"), "{}").await;
    for _ in 0..2 {
        assert_eq!(seen.metric("kubedns_etcd_lists_total"), 1);
        pass_silence().await;
        seen.until_lost().await;
        seen.until_connected().await;
    }
    assert_eq!(seen.metric("kubedns_etcd_lists_total"), 2);
    assert_eq!(seen.tree().len(), 2);
}

/// Changes elsewhere in etcd, and changes that the watch has reported, do not count as missed.
#[tokio::test]
async fn quiet_watch_is_kept() {
    let Some(etcd) = Etcd::start("a quiet watch of etcd").await else {
        return;
    };
    let relay = Relay::open(etcd.address).await;
    let seen = feed_through(&relay);
    seen.until_connected().await;
    for (key, value) in [
        ("a", "{}"),
        ("b", "no message"),
        ("a", r#"{"host":"10.0.0.1"}"#),
        ("c", "{}"),
    ] {
        etcd.put(&format!("{ZONE}/{key}"), value).await;
    }
    etcd.delete(&format!("{ZONE}/a")).await;
    etcd.delete(&format!("{ZONE}/never")).await;
    seen.until(|tree| tree.len() == 1 && tree.has_key_within(&["c"]))
        .await;
    for round in ["r1", "r2", "r3"] {
        etcd.put("/elsewhere", "{}").await;
        let ranges = relay.ranges();
        pass_silence().await;
        eventually(TIMEOUT, async || relay.ranges() > ranges).await;
        etcd.put(&format!("{ZONE}/{round}"), "{}").await;
        seen.until(|tree| tree.has_key_within(&[round])).await;
    }
    assert_eq!(seen.metric("kubedns_etcd_failures_total"), 0);
    assert_eq!(seen.metric("kubedns_etcd_lists_total"), 1);
}

#[tokio::test]
async fn too_large_zone_is_read_when_small_enough() {
    let Some(etcd) = Etcd::start("a zone that is too large").await else {
        return;
    };
    for key in ["a", "b", "c"] {
        etcd.put(&format!("{ZONE}/{key}"), "{}").await;
    }
    let seen = SeenFeed::limited_feed(access(&etcd.url()), 600);
    assert_eq!(
        seen.until_lost().await,
        "the zone takes more than 600 octets of memory"
    );
    etcd.delete(&format!("{ZONE}/b")).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(1)).await;
    tokio::time::resume();
    seen.until(|tree| tree.len() == 2).await;
    seen.until_connected().await;
}

#[tokio::test]
async fn password_file_authenticates_user() {
    let Some(mut etcd) = Etcd::start("users of etcd").await else {
        return;
    };
    etcd.put(&format!("{ZONE}/web"), "{}").await;
    etcd.ask_for_users("dns", "secret", "/skydns/").await;
    let nobody = SeenFeed::feed(access(&etcd.url()));
    let failure = nobody.until_lost().await;
    assert!(failure.contains("user name is empty"), "{failure}");

    let folder = tempfile::tempdir().unwrap();
    let password_file = folder.path().join("password");
    let login = EtcdLogin {
        user: "dns".to_owned(),
        password_file: password_file.clone(),
    };
    let seen = SeenFeed::feed(EtcdAccess {
        login: Some(login),
        ..access(&etcd.url())
    });
    let failure = seen.until_lost().await;
    assert!(failure.contains("cannot read the password"), "{failure}");
    std::fs::write(&password_file, "wrong\n").unwrap();
    eventually(TIMEOUT, async || {
        seen.until_lost().await.contains("authentication failed")
    })
    .await;
    std::fs::write(&password_file, "secret\n").unwrap();
    seen.until(|tree| tree.len() == 1).await;
}

/// The password file is a named pipe to which nothing is written. So a read of the file blocks, as
/// on a network volume whose server is down. No etcd is needed.
#[tokio::test]
async fn hung_password_file_is_failure() {
    let folder = tempfile::tempdir().unwrap();
    let password_file = folder.path().join("password");
    nix::unistd::mkfifo(&password_file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let login = EtcdLogin {
        user: "dns".to_owned(),
        password_file: password_file.clone(),
    };
    let nobody = format!("http://127.0.0.1:{}", testkit::ports::free_port());
    let seen = SeenFeed::feed(EtcdAccess {
        login: Some(login),
        ..access(&nobody)
    });
    // The pipe can be opened for writing once the feed reads it.
    let mount = tokio::fs::OpenOptions::new()
        .write(true)
        .open(&password_file)
        .await
        .unwrap();
    tokio::time::pause();
    tokio::time::advance(READ_TIMEOUT).await;
    tokio::time::resume();
    let failure = seen.until_lost().await;
    assert!(failure.contains("timed out"), "{failure}");
    std::fs::remove_file(&password_file).unwrap();
    std::fs::write(&password_file, "secret").unwrap();
    drop(mount);
    eventually(TIMEOUT, async || {
        seen.until_lost().await.contains("cannot reach etcd")
    })
    .await;
}

#[tokio::test]
async fn tls_verifies_etcd() {
    let Some(etcd) = Etcd::start("TLS with etcd").await else {
        return;
    };
    etcd.put(&format!("{ZONE}/web"), "{}").await;
    let cases = [
        ("server", "ca.pem", None),
        ("stranger", "ca.pem", Some("UnknownIssuer")),
        ("expired", "ca.pem", Some("expired")),
    ];
    for (certificate, ca, expected) in cases {
        let gate = Gate::open(certificate, etcd.address).await;
        let tls = EtcdTlsFiles {
            ca: Some(file(ca)),
            client: None,
        };
        let seen = SeenFeed::feed(EtcdAccess {
            tls,
            ..access(&format!("https://{}", gate.address))
        });
        match expected {
            None => seen.until(|tree| tree.len() == 1).await,
            Some(text) => {
                let failure = seen.until_lost().await;
                assert!(failure.contains(text), "{certificate}: {failure}");
            }
        }
    }
}

#[tokio::test]
async fn tls_client_certificate_is_sent() {
    let Some(etcd) = Etcd::start("client certificates for etcd").await else {
        return;
    };
    etcd.put(&format!("{ZONE}/web"), "{}").await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cluster/testdata/tls");
    let pem = |name: &str| folder.join(name);
    let gate = Gate::for_clients_of(&folder, Arc::new(DefaultTimeProvider), etcd.address).await;
    let access = access(&format!("https://localhost:{}", gate.address.port()));
    let without = EtcdTlsFiles {
        ca: Some(pem("ca.pem")),
        client: None,
    };
    let seen = SeenFeed::feed(EtcdAccess {
        tls: without.clone(),
        ..access.clone()
    });
    assert!(!seen.until_lost().await.is_empty());
    let with = EtcdTlsFiles {
        client: Some((pem("client.pem"), pem("client.key"))),
        ..without
    };
    SeenFeed::feed(EtcdAccess {
        tls: with,
        ..access
    })
    .until(|tree| tree.len() == 1)
    .await;
}

/// After random changes, outages and compactions, a feed has the same tree as a new feed.
#[tokio::test]
async fn feed_has_same_tree_as_new_feed_after_random_changes() {
    let Some(etcd) = Etcd::start("random changes and outages of etcd").await else {
        return;
    };
    let mut relay = Relay::open(etcd.address).await;
    let seen = feed_through(&relay);
    for step in 0..400 {
        let key = format!("{ZONE}/{}/{}", fastrand::u8(..4), fastrand::u8(..8));
        match fastrand::u8(..20) {
            0 => relay.close().await,
            1 => relay.reopen().await,
            2 if step % 3 == 0 => etcd.compact().await,
            3..8 => etcd.delete(&key).await,
            8 => etcd.put(&key, "not JSON").await,
            _ => {
                etcd.put(
                    &key,
                    &format!(r#"{{"host":"10.0.0.{}"}}"#, fastrand::u8(1..)),
                )
                .await;
            }
        }
    }
    relay.reopen().await;
    etcd.put(&format!("{ZONE}/last"), "{}").await;
    let fresh = SeenFeed::feed(access(&etcd.url()));
    fresh.until(|tree| tree.has_key_within(&["last"])).await;
    seen.until(|tree| tree.has_key_within(&["last"])).await;
    assert_eq!(seen.tree(), fresh.tree());
}
