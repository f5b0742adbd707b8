use super::*;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("apps", name)
}

/// A history at version 120 whose first object is `db` with the UID `u1`.
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

fn check_failure(
    history: &mut DatabaseHistory,
    version: &str,
    name: &str,
    uid: &str,
) -> Option<String> {
    let first = Some(ObjectIdentity {
        key: key(name),
        uid: uid.into(),
    });
    let failure = history.check_continues(version, first).err()?;
    Some(failure.to_string())
}

#[test]
fn other_history_shows_in_versions_and_uids() {
    let older = "the API server has another history: it is at version 119 and was at 120";
    let recreated =
        "the API server has another history: apps/db was recreated while no watch was open";
    let cases = [
        ("120", "db", "u1", None),
        ("500", "db", "u1", None),
        ("500", "a-newer-first-one", "u7", None),
        ("119", "db", "u1", Some(older)),
        ("500", "db", "u2", Some(recreated)),
        ("opaque", "db", "u1", None),
    ];
    for (version, name, uid, expected) in cases {
        let found = check_failure(&mut history(), version, name, uid);
        assert_eq!(found.as_deref(), expected, "{version} {name} {uid}");
    }
}

/// Events of a watch, and then the first object of the next check.
type EventCase = (
    &'static str,
    fn(&mut DatabaseHistory),
    (&'static str, &'static str),
    bool,
);

#[test]
fn watch_events_update_the_mark() {
    let cases: [EventCase; 7] = [
        (
            "recreated",
            |history| recreate(history, "db", "u9"),
            ("db", "u9"),
            true,
        ),
        (
            "deleted",
            |history| history.note_deleted(&key("db")),
            ("dc", "u2"),
            true,
        ),
        (
            "changed",
            |history| history.note_changed(&key("db"), &"u1".into()),
            ("db", "u1"),
            true,
        ),
        (
            "replaced at once",
            |history| history.note_changed(&key("db"), &"u9".into()),
            ("db", "u9"),
            true,
        ),
        (
            "a new first one",
            |history| history.note_changed(&key("a"), &"u5".into()),
            ("a", "u6"),
            false,
        ),
        (
            "a later one",
            |history| history.note_changed(&key("x"), &"u5".into()),
            ("db", "u2"),
            false,
        ),
        (
            "a later one deleted",
            |history| history.note_deleted(&key("web")),
            ("db", "u2"),
            false,
        ),
    ];
    for (case, change, (name, uid), continues) in cases {
        let mut history = history();
        change(&mut history);
        assert_eq!(
            check_failure(&mut history, "500", name, uid).is_none(),
            continues,
            "{case}"
        );
    }
}

fn recreate(history: &mut DatabaseHistory, name: &str, uid: &str) {
    history.note_deleted(&key(name));
    history.note_changed(&key(name), &uid.into());
}

#[test]
fn passed_check_sets_the_mark() {
    let mut history = history();
    history.note_deleted(&key("db"));
    assert_eq!(check_failure(&mut history, "500", "dc", "u2"), None);
    assert!(check_failure(&mut history, "500", "dc", "u8").is_some());
}
