use super::*;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("apps", name)
}

/// A history at resource version 120 with three objects. The first object is the one whose key
/// sorts first: `db` with the UID `u1`.
fn history() -> DatabaseHistory {
    let mut history = DatabaseHistory::default();
    for (name, uid) in [("web", "u3"), ("db", "u1"), ("dc", "u2")] {
        history.note_listed(&key(name), &uid.into());
    }
    for version in ["100", "120", ""] {
        history.advance(version);
    }
    history
}

/// The failure of a check that finds this resource version and this first object. `first` has the
/// form `NAME UID`.
fn check_failure(history: &mut DatabaseHistory, version: &str, first: &str) -> Option<String> {
    let (name, uid) = first.split_once(' ').unwrap();
    let first = Some(ObjectIdentity {
        key: key(name),
        uid: uid.into(),
    });
    let failure = history.check_continues(version, first).err()?;
    Some(failure.to_string())
}

#[test]
fn lower_version_or_changed_uid_reveals_new_history() {
    let older = "the database of the API server was wiped or restored: it is at resource version 119 and was at 120";
    let recreated = "the database of the API server was wiped or restored: apps/db was recreated while no watch was open";
    let cases = [
        ("120", "db u1", None),
        ("500", "db u1", None),
        ("500", "a-newer-first-one u7", None),
        ("119", "db u1", Some(older)),
        ("500", "db u2", Some(recreated)),
        ("opaque", "db u1", None),
    ];
    for (version, first, expected) in cases {
        let found = check_failure(&mut history(), version, first);
        assert_eq!(found.as_deref(), expected, "{version} {first}");
    }
}

/// Notes the event of a watch: `deleted NAME`, or `changed NAME UID`.
fn note_event(history: &mut DatabaseHistory, event: &str) {
    match event.split(' ').collect::<Vec<_>>()[..] {
        ["deleted", name] => history.note_deleted(&key(name)),
        ["changed", name, uid] => history.note_changed(&key(name), &uid.into()),
        _ => panic!("{event}"),
    }
}

/// Each case has the events of a watch, the first object that the next check finds, and whether the
/// history continues.
#[test]
fn check_uses_first_object_after_watch_events() {
    let cases: [(&[&str], &str, bool); 7] = [
        (&["deleted db", "changed db u9"], "db u9", true),
        (&["deleted db"], "dc u2", true),
        (&["changed db u1"], "db u1", true),
        (&["changed db u9"], "db u9", true),
        (&["changed a u5"], "a u6", false),
        (&["changed x u5"], "db u2", false),
        (&["deleted web"], "db u2", false),
    ];
    for (events, first, continues) in cases {
        let mut history = history();
        for event in events {
            note_event(&mut history, event);
        }
        let failure = check_failure(&mut history, "500", first);
        assert_eq!(failure.is_none(), continues, "{events:?} {first}");
    }
}

#[test]
fn passed_check_updates_the_first_object() {
    let mut history = history();
    note_event(&mut history, "deleted db");
    assert_eq!(check_failure(&mut history, "500", "dc u2"), None);
    assert!(check_failure(&mut history, "500", "dc u8").is_some());
}
