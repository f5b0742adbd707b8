//! The requests of a feed, with their times and numbers, if the API server is slow, busy, restarted
//! or unreachable.

use std::time::Duration;

use cluster::objects::{Kind, Service};
use cluster::watch::{Failure, Phase, WatchTiming};
use serde_json::Value;
use testkit::objects::mk_cluster_ip;
use tokio::time::{Instant, sleep};

use super::feed::Running;
use super::stub::{
    Answer, Asked, End, Stub, bookmark, event, expired, failure, failure_until, no_response, page,
    versioned, watching,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

fn service(name: &str, version: u32) -> Value {
    versioned(
        mk_cluster_ip("apps", name, &["10.96.0.1"], &["http:80"]),
        version,
    )
}

fn start(stub: &Stub) -> Running<Service> {
    Running::with(
        std::sync::Arc::clone(&stub.connection),
        WatchTiming::default(),
    )
}

/// The failures so far: each reason with its number.
fn failures(feed: &Running<Service>) -> Vec<(&'static str, u64)> {
    let counted =
        Failure::REASONS.map(|reason| (reason, feed.metrics.restarts(Kind::Service, reason)));
    counted
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Receives changes for `time`.
async fn pass(feed: &mut Running<Service>, time: Duration) {
    let end = Instant::now() + time;
    while let Ok(received) = tokio::time::timeout_at(end, feed.changes.recv()).await {
        feed.mirror.apply(received.expect("the feed goes on").event);
    }
}

/// A watch without events, which stays open.
fn quiet() -> Answer {
    watching(Vec::new(), End::Never)
}

/// A list of forty pages with one Service each; the token of a page is its number.
fn numbered_page(asked: &Asked) -> Answer {
    let number: u32 = asked.token().parse().unwrap_or(0);
    let next = (number < 39).then(|| (number + 1).to_string());
    page(
        100,
        &[service(&format!("s{number:02}"), 50)],
        next.as_deref(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_asked_for_again_and_not_the_whole_list() {
    type Failing = fn() -> Answer;
    let failures: [(&str, Failing); 6] = [
        ("too many requests", || failure_until(429, "1")),
        ("busy", || failure(503)),
        ("an error", || failure(500)),
        ("no response", no_response),
        ("forbidden for a moment", || failure(403)),
        ("cut off", || watching(Vec::new(), End::Broken)),
    ];
    for (what, failing) in failures {
        let mut requests = 0;
        let stub = Stub::new(move |asked| {
            if asked.watches() {
                return Some(quiet());
            }
            requests += 1;
            Some(if requests % 10 == 0 {
                failing()
            } else {
                numbered_page(asked)
            })
        });
        let mut feed = start(&stub);
        let begun = Instant::now();
        feed.until(|mirror| mirror.lists == 1).await;
        assert_eq!(feed.mirror.keys().len(), 40, "{what}");
        assert_eq!(stub.lists(), 1, "{what}");
        assert!(
            begun.elapsed() < 20 * SECOND,
            "{what}: {:?}",
            begun.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_has_expired_or_is_not_understood_begins_the_list_again() {
    for code in [410, 400] {
        let mut refusals = 1;
        let stub = Stub::new(move |asked| {
            if asked.watches() {
                return Some(quiet());
            }
            if asked.token() == "20" && refusals > 0 {
                refusals -= 1;
                return Some(failure(code));
            }
            Some(numbered_page(asked))
        });
        let mut feed = start(&stub);
        feed.until(|mirror| mirror.lists == 1).await;
        assert_eq!((feed.mirror.keys().len(), stub.lists()), (40, 2), "{code}");
    }
}

/// The token refers to a revision that no longer exists, because the database was restored during
/// the list.
#[tokio::test(start_paused = true)]
async fn a_token_that_fails_for_long_is_given_up() {
    let stub = Stub::new(move |asked| {
        if asked.watches() {
            return Some(quiet());
        }
        Some(if asked.token() == "20" && asked.at < 3 * MINUTE {
            failure(500)
        } else {
            numbered_page(asked)
        })
    });
    let mut feed = start(&stub);
    pass(&mut feed, 4 * MINUTE).await;
    assert_eq!(
        (feed.mirror.lists, stub.lists()),
        (1, 1),
        "a token lasts for some minutes"
    );

    let stub = Stub::new(move |asked| {
        if asked.watches() {
            return Some(quiet());
        }
        let first_list = asked.at < 5 * MINUTE;
        Some(if asked.token() == "20" && first_list {
            failure(500)
        } else {
            numbered_page(asked)
        })
    });
    let mut feed = start(&stub);
    pass(&mut feed, 8 * MINUTE).await;
    assert_eq!(feed.mirror.lists, 1);
    assert_eq!(stub.lists(), 2, "it expires");
}

#[tokio::test(start_paused = true)]
async fn the_api_server_says_when_to_come_again_within_bounds() {
    let cases = [
        ("5", 5 * SECOND, 7 * SECOND),
        ("0", Duration::ZERO, SECOND),
        ("nonsense", Duration::ZERO, SECOND),
        ("3600", 30 * SECOND, 90 * SECOND),
    ];
    for code in [429, 503] {
        for (retry_after, least, most) in cases {
            let mut refused = false;
            let stub = Stub::new(move |asked| {
                if !asked.watches() && !std::mem::replace(&mut refused, true) {
                    return Some(failure_until(code, retry_after));
                }
                Some(if asked.watches() {
                    quiet()
                } else {
                    page(9, &[], None)
                })
            });
            let mut feed = start(&stub);
            let begun = Instant::now();
            let listed = feed.state.wait_for(|state| state.listed);
            tokio::time::timeout(5 * MINUTE, listed)
                .await
                .expect("it is listed")
                .expect("it goes on");
            let waited = begun.elapsed();
            assert!(
                waited >= least && waited <= most,
                "{code}, {retry_after}: {waited:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_busy_for_long_is_noticed_within_seconds() {
    let stub = Stub::new(move |asked| {
        if asked.at < 2 * MINUTE {
            return Some(failure_until(429, "1"));
        }
        Some(if asked.watches() {
            quiet()
        } else {
            page(9, &[], None)
        })
    });
    let mut feed = start(&stub);
    let begun = Instant::now();
    let listed = feed.state.wait_for(|state| state.listed);
    tokio::time::timeout(5 * MINUTE, listed)
        .await
        .expect("it is listed")
        .expect("it goes on");
    assert!(
        begun.elapsed() <= 2 * MINUTE + 5 * SECOND,
        "listed after {:?}",
        begun.elapsed()
    );
    assert!(
        stub.lists() >= 30 && stub.lists() <= 80,
        "{} lists",
        stub.lists()
    );
}

#[tokio::test(start_paused = true)]
async fn lists_that_lead_nowhere_come_less_and_less_often() {
    type Scene = fn(&Asked) -> Answer;
    let scenes: [(&str, u32, Scene); 5] = [
        ("every watch expires", 3, |asked| {
            if asked.watches() {
                watching(vec![(Duration::ZERO, expired())], End::Complete)
            } else {
                page(9, &[], None)
            }
        }),
        (
            "every watch expires after an event and a bookmark",
            3,
            |asked| {
                let changed = (Duration::ZERO, event("MODIFIED", &service("a", 10)));
                if asked.watches() {
                    let events = vec![changed, (SECOND, bookmark(11)), (Duration::ZERO, expired())];
                    watching(events, End::Complete)
                } else {
                    page(9, &[service("a", 9)], None)
                }
            },
        ),
        (
            "two API servers with different histories take turns",
            3,
            |asked| match asked.watches() {
                true => watching(Vec::new(), End::Broken),
                false if asked.begins_a_list() => page(900, &[], None),
                false => page(9, &[], None),
            },
        ),
        ("every watch ends at once", 12, |asked| {
            if asked.watches() {
                watching(Vec::new(), End::Complete)
            } else {
                page(9, &[], None)
            }
        }),
        ("every second page expires", 3, |asked| {
            match asked.token() {
                "" => page(9, &[], Some("next")),
                _ => failure(410),
            }
        }),
    ];
    for (what, soon, scene) in scenes {
        let stub = Stub::new(move |asked| Some(scene(asked)));
        let mut feed = start(&stub);
        pass(&mut feed, 10 * MINUTE).await;
        let lists = stub.asked(Asked::begins_a_list);
        let gap = |at: usize| lists[at].at.saturating_sub(lists[at - 1].at);
        assert!(
            gap(1) < soon * SECOND,
            "{what}: the second comes soon, not after {:?}",
            gap(1)
        );
        let least = if soon > 3 { 8 } else { 30 };
        assert!(
            (least..90).contains(&lists.len()),
            "{what}: {} in ten minutes",
            lists.len()
        );
        assert!(
            gap(lists.len() - 1) > 8 * SECOND,
            "{what}: {:?}",
            gap(lists.len() - 1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn after_half_a_minute_of_watching_a_new_list_comes_at_once_again() {
    let stub = Stub::new(move |asked| {
        if !asked.watches() {
            return Some(page(9, &[], None));
        }
        let lasts = if asked.at < MINUTE {
            Duration::ZERO
        } else {
            40 * SECOND
        };
        Some(watching(vec![(lasts, expired())], End::Complete))
    });
    let mut feed = start(&stub);
    pass(&mut feed, 10 * MINUTE).await;
    let lists = stub.asked(Asked::begins_a_list);
    let last = lists[lists.len() - 1]
        .at
        .saturating_sub(lists[lists.len() - 2].at);
    assert!(
        last < 42 * SECOND,
        "{last:?} between lists whose watch lasts 40s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_is_renewed_without_a_word() {
    let stub = Stub::new(|asked| {
        Some(if asked.watches() {
            quiet()
        } else {
            page(9, &[], None)
        })
    });
    let mut feed = start(&stub);
    feed.until(|mirror| mirror.lists == 1).await;
    feed.until_phase(Phase::Following).await;
    feed.state.mark_unchanged();
    pass(&mut feed, 20 * MINUTE).await;
    assert!(
        !feed.state.has_changed().unwrap(),
        "it follows without a break"
    );
    assert!(feed.metrics.is_connected(Kind::Service));
    assert_eq!(failures(&feed), []);
    assert_eq!(stub.lists(), 1);
    let watches = stub.asked(Asked::watches).len();
    assert!(
        (10..=14).contains(&watches),
        "{watches} watches in twenty minutes"
    );
}

/// A proxy keeps the connection open after its API server is gone.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_dead_is_noticed_in_two_minutes_or_so() {
    let dead = 10 * SECOND..5 * MINUTE;
    let gone = dead.clone();
    let stub = Stub::new(move |asked| {
        let answer = if asked.watches() {
            quiet()
        } else {
            page(9, &[], None)
        };
        (!gone.contains(&asked.at)).then_some(answer)
    });
    let mut feed = start(&stub);
    feed.until_phase(Phase::Following).await;
    let begun = Instant::now();
    let away = feed.state.wait_for(|state| state.phase == Phase::Away);
    tokio::time::timeout(140 * SECOND, away)
        .await
        .expect("it is noticed")
        .expect("it goes on");
    assert!(!feed.metrics.is_connected(Kind::Service));
    assert_eq!(failures(&feed), [("silent", 1)]);
    sleep(dead.end.saturating_sub(begun.elapsed())).await;
    let following = feed.state.wait_for(|state| state.phase == Phase::Following);
    tokio::time::timeout(60 * SECOND, following)
        .await
        .expect("it comes back")
        .expect("it goes on");
    assert_eq!(stub.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn broken_connections_never_cost_a_list() {
    type Scene = fn(&Asked) -> Answer;
    let scenes: [(&str, Scene); 5] = [
        ("watches break after a while", |_| {
            watching(vec![(3 * SECOND, bookmark(9))], End::Broken)
        }),
        ("watches break at once", |_| {
            watching(Vec::new(), End::Broken)
        }),
        ("nobody answers for minutes", |asked| match asked.at {
            at if at < 10 * MINUTE => no_response(),
            _ => quiet(),
        }),
        ("forbidden for a while, then busy", |asked| match asked.at {
            at if at < MINUTE => watching(Vec::new(), End::Broken),
            at if at < 2 * MINUTE => failure(403),
            at if at < 3 * MINUTE => failure(429),
            at if at < 4 * MINUTE => failure(401),
            _ => quiet(),
        }),
        ("the API server fails for minutes", |asked| match asked.at {
            at if at < 10 * MINUTE => failure(500),
            _ => quiet(),
        }),
    ];
    for (what, scene) in scenes {
        let stub = Stub::new(move |asked| {
            let begins = asked.begins_a_list();
            Some(if begins || asked.at < SECOND && !asked.watches() {
                page(9, &[service("a", 9)], None)
            } else if asked.watches() {
                scene(asked)
            } else {
                match scene(asked) {
                    Ok(response) if response.status() == 200 => page(9, &[service("a", 9)], None),
                    other => other,
                }
            })
        });
        let mut feed = start(&stub);
        pass(&mut feed, 15 * MINUTE).await;
        assert_eq!(
            (stub.lists(), feed.mirror.lists),
            (1, 1),
            "{what}: {:?}",
            failures(&feed)
        );
        assert!(!failures(&feed).is_empty(), "{what}");
        assert_eq!(feed.mirror.keys(), ["apps/a"], "{what}");
    }
}

/// A feed that resumes the watch before an unreadable event would fail at the same event forever.
#[tokio::test(start_paused = true)]
async fn a_watch_that_cannot_be_read_is_left_behind_by_a_list() {
    let stub = Stub::new(move |asked| {
        if !asked.watches() {
            return Some(page(
                if asked.at < SECOND { 9 } else { 20 },
                &[service("a", 9)],
                None,
            ));
        }
        let from: u32 = asked.version().parse().unwrap();
        let nonsense = vec![(SECOND, serde_json::json!("nonsense"))];
        Some(if from < 20 {
            watching(nonsense, End::Complete)
        } else {
            quiet()
        })
    });
    let mut feed = start(&stub);
    feed.until(|mirror| mirror.lists == 2).await;
    pass(&mut feed, 10 * MINUTE).await;
    assert_eq!(stub.lists(), 2);
}

/// The Service `a` at this version, created `times` times.
fn recreated(version: u32, times: u32) -> Value {
    let mut service = service("a", version);
    service["metadata"]["uid"] = format!("uid-{times}").into();
    service
}

#[tokio::test(start_paused = true)]
async fn recreated_first_object_costs_no_list() {
    let stub = Stub::new(move |asked| {
        if !asked.watches() {
            let times = if asked.at < SECOND { 1 } else { 2 };
            return Some(page(
                if times == 1 { 9 } else { 20 },
                &[recreated(9, times)],
                None,
            ));
        }
        Some(if asked.version() == "9" {
            let deleted = (2 * SECOND, event("DELETED", &recreated(10, 1)));
            let added = (SECOND, event("ADDED", &recreated(11, 2)));
            watching(vec![deleted, added], End::Broken)
        } else {
            quiet()
        })
    });
    let mut feed = start(&stub);
    pass(&mut feed, 5 * MINUTE).await;
    assert_eq!(failures(&feed), [("broken", 1)]);
    assert_eq!(stub.lists(), 1);
    assert_eq!(feed.mirror.keys(), ["apps/a"]);
}
