//! Tests when and how often a feed sends requests if the API server is slow, busy, restarted or
//! unreachable.

use std::time::Duration;

use cluster::objects::{Kind, Service};
use cluster::watch::{FeedPhase, RequestFailure, WatchTiming};
use serde_json::Value;
use testkit::objects::mk_cluster_ip;
use tokio::time::{Instant, sleep};

use super::running_feed::RunningFeed;
use super::scripted_server::{
    BodyEnd, ReceivedRequest, ScriptedResponse, ScriptedServer, bookmark, busy_response,
    error_response, event, expired, page_response, refused_connection, versioned, watch_response,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

fn service(name: &str, version: u32) -> Value {
    versioned(
        mk_cluster_ip("apps", name, &["10.96.0.1"], &["http:80"]),
        version,
    )
}

fn start(stub: &ScriptedServer) -> RunningFeed<Service> {
    RunningFeed::with(
        std::sync::Arc::clone(&stub.connection),
        WatchTiming::default(),
    )
}

/// Waits for the first list; returns the time that it took.
async fn until_listed(feed: &mut RunningFeed<Service>) -> Duration {
    let begun = Instant::now();
    let listed = feed.state.wait_for(|state| state.listed);
    tokio::time::timeout(5 * MINUTE, listed)
        .await
        .expect("the list must end in time")
        .expect("the feed must run");
    begun.elapsed()
}

/// The reasons of the failures so far, each with the number of failures.
fn failures(feed: &RunningFeed<Service>) -> Vec<(&'static str, u64)> {
    let counted = RequestFailure::REASONS
        .map(|reason| (reason, feed.metrics.restart_count(Kind::Service, reason)));
    counted
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Receives changes for `time`.
async fn pass(feed: &mut RunningFeed<Service>, time: Duration) {
    let end = Instant::now() + time;
    while let Ok(received) = tokio::time::timeout_at(end, feed.changes.recv()).await {
        feed.mirror
            .apply(received.expect("the feed must run").event);
    }
}

/// A watch without events, which stays open.
fn quiet() -> ScriptedResponse {
    watch_response(Vec::new(), BodyEnd::Never)
}

/// An empty list, or a watch without events.
fn empty_cluster(asked: &ReceivedRequest) -> ScriptedResponse {
    if asked.is_watch() {
        quiet()
    } else {
        page_response(9, &[], None)
    }
}

/// A watch without events, or one of the forty pages of a list. Each page has one Service. Page 0
/// has no token. The token of any later page is its number.
fn numbered_page(asked: &ReceivedRequest) -> ScriptedResponse {
    if asked.is_watch() {
        return quiet();
    }
    let number: u32 = asked.token().parse().unwrap_or(0);
    let next = (number < 39).then(|| (number + 1).to_string());
    page_response(
        100,
        &[service(&format!("s{number:02}"), 50)],
        next.as_deref(),
    )
}

#[tokio::test(start_paused = true)]
async fn failed_page_alone_is_requested_again() {
    type Failing = fn() -> ScriptedResponse;
    let failures: [(&str, Failing); 6] = [
        ("too many requests", || busy_response(429, "1")),
        ("busy", || error_response(503)),
        ("an error", || error_response(500)),
        ("no response", refused_connection),
        ("forbidden for a moment", || error_response(403)),
        ("cut off", || watch_response(Vec::new(), BodyEnd::Broken)),
    ];
    for (what, failing) in failures {
        let mut requests = 0;
        let stub = ScriptedServer::new(move |asked| {
            requests += 1;
            Some(if requests % 10 == 0 && !asked.is_watch() {
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
async fn rejected_page_token_restarts_the_list() {
    for code in [410, 400] {
        let mut refusals = 1;
        let stub = ScriptedServer::new(move |asked| {
            if asked.token() == "20" && refusals > 0 {
                refusals -= 1;
                return Some(error_response(code));
            }
            Some(numbered_page(asked))
        });
        let mut feed = start(&stub);
        feed.until(|mirror| mirror.lists == 1).await;
        assert_eq!((feed.mirror.keys().len(), stub.lists()), (40, 2), "{code}");
    }
}

/// If requests with a page token keep failing with status 500, the feed repeats them for four
/// minutes, and then begins a new list. Some page tokens never work again, for example after a
/// restore of the API server's database.
#[tokio::test(start_paused = true)]
async fn failing_page_token_is_given_up_after_four_minutes() {
    let cases = [(3 * MINUTE, 4 * MINUTE, 1), (5 * MINUTE, 8 * MINUTE, 2)];
    for (failing, time, lists) in cases {
        let stub = ScriptedServer::new(move |asked| {
            let fails = asked.token() == "20" && asked.at < failing;
            Some(if fails {
                error_response(500)
            } else {
                numbered_page(asked)
            })
        });
        let mut feed = start(&stub);
        pass(&mut feed, time).await;
        assert_eq!(
            (feed.mirror.lists, stub.lists()),
            (1, lists),
            "requests with the token fail for {failing:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_obeyed_within_bounds() {
    let cases = [
        ("5", 5 * SECOND, 7 * SECOND),
        ("0", Duration::ZERO, SECOND),
        ("nonsense", Duration::ZERO, SECOND),
        ("3600", 30 * SECOND, 90 * SECOND),
    ];
    for code in [429, 503] {
        for (retry_after, least, most) in cases {
            let mut refused = false;
            let stub = ScriptedServer::new(move |asked| {
                if !asked.is_watch() && !std::mem::replace(&mut refused, true) {
                    return Some(busy_response(code, retry_after));
                }
                Some(empty_cluster(asked))
            });
            let mut feed = start(&stub);
            let waited = until_listed(&mut feed).await;
            assert!(
                waited >= least && waited <= most,
                "{code}, {retry_after}: {waited:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn recovered_server_is_noticed_within_seconds() {
    let stub = ScriptedServer::new(move |asked| {
        if asked.at < 2 * MINUTE {
            return Some(busy_response(429, "1"));
        }
        Some(empty_cluster(asked))
    });
    let mut feed = start(&stub);
    let waited = until_listed(&mut feed).await;
    assert!(waited <= 2 * MINUTE + 5 * SECOND, "listed after {waited:?}");
    assert!(
        stub.lists() >= 30 && stub.lists() <= 80,
        "{} lists in two minutes",
        stub.lists()
    );
}

#[tokio::test(start_paused = true)]
async fn useless_lists_become_rare() {
    type Scene = fn(&ReceivedRequest) -> ScriptedResponse;
    let scenes: [(&str, u32, Scene); 5] = [
        ("every watch expires", 3, |asked| {
            if asked.is_watch() {
                watch_response(vec![(Duration::ZERO, expired())], BodyEnd::Complete)
            } else {
                page_response(9, &[], None)
            }
        }),
        (
            "every watch expires after an event and a bookmark",
            3,
            |asked| {
                let changed = (Duration::ZERO, event("MODIFIED", &service("a", 10)));
                if asked.is_watch() {
                    let events = vec![changed, (SECOND, bookmark(11)), (Duration::ZERO, expired())];
                    watch_response(events, BodyEnd::Complete)
                } else {
                    page_response(9, &[service("a", 9)], None)
                }
            },
        ),
        (
            "two API servers with different histories take turns",
            3,
            |asked| match asked.is_watch() {
                true => watch_response(Vec::new(), BodyEnd::Broken),
                false if asked.begins_list() => page_response(900, &[], None),
                false => page_response(9, &[], None),
            },
        ),
        ("every watch ends at once", 12, |asked| {
            if asked.is_watch() {
                watch_response(Vec::new(), BodyEnd::Complete)
            } else {
                page_response(9, &[], None)
            }
        }),
        (
            "the second page of every list expires",
            3,
            |asked| match asked.token() {
                "" => page_response(9, &[], Some("next")),
                _ => error_response(410),
            },
        ),
    ];
    for (what, soon, scene) in scenes {
        let stub = ScriptedServer::new(move |asked| Some(scene(asked)));
        let mut feed = start(&stub);
        pass(&mut feed, 10 * MINUTE).await;
        let lists = stub.asked(ReceivedRequest::begins_list);
        let gap = |at: usize| lists[at].at.saturating_sub(lists[at - 1].at);
        assert!(
            gap(1) < soon * SECOND,
            "{what}: the second list must come soon, not after {:?}",
            gap(1)
        );
        let least = if soon > 3 { 8 } else { 30 };
        assert!(
            (least..90).contains(&lists.len()),
            "{what}: {} lists in ten minutes",
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
async fn stable_watch_resets_the_list_pause() {
    let stub = ScriptedServer::new(move |asked| {
        if !asked.is_watch() {
            return Some(page_response(9, &[], None));
        }
        let lasts = if asked.at < MINUTE {
            Duration::ZERO
        } else {
            40 * SECOND
        };
        Some(watch_response(vec![(lasts, expired())], BodyEnd::Complete))
    });
    let mut feed = start(&stub);
    pass(&mut feed, 10 * MINUTE).await;
    let lists = stub.asked(ReceivedRequest::begins_list);
    let last = lists[lists.len() - 1]
        .at
        .saturating_sub(lists[lists.len() - 2].at);
    assert!(
        last < 42 * SECOND,
        "the last two lists are {last:?} apart, and each watch lasts 40s"
    );
}

#[tokio::test(start_paused = true)]
async fn quiet_watch_is_renewed_without_failure() {
    let stub = ScriptedServer::new(|asked| Some(empty_cluster(asked)));
    let mut feed = start(&stub);
    feed.until(|mirror| mirror.lists == 1).await;
    feed.until_phase(FeedPhase::Following).await;
    feed.state.mark_unchanged();
    pass(&mut feed, 20 * MINUTE).await;
    assert!(
        !feed.state.has_changed().unwrap(),
        "the feed must follow without a break"
    );
    assert!(feed.metrics.is_connected(Kind::Service));
    assert_eq!(failures(&feed), []);
    assert_eq!(stub.lists(), 1);
    let watches = stub.asked(ReceivedRequest::is_watch).len();
    assert!(
        (10..=14).contains(&watches),
        "{watches} watches in twenty minutes"
    );
}

/// A proxy keeps the connection open after its API server is gone.
#[tokio::test(start_paused = true)]
async fn dead_connection_is_noticed_within_minutes() {
    let dead = 10 * SECOND..5 * MINUTE;
    let gone = dead.clone();
    let stub = ScriptedServer::new(move |asked| {
        let answer = empty_cluster(asked);
        (!gone.contains(&asked.at)).then_some(answer)
    });
    let mut feed = start(&stub);
    feed.until_phase(FeedPhase::Following).await;
    let begun = Instant::now();
    let away = feed
        .state
        .wait_for(|state| state.phase == FeedPhase::Failing);
    tokio::time::timeout(140 * SECOND, away)
        .await
        .expect("the dead connection must be noticed in time")
        .expect("the feed must run");
    assert!(!feed.metrics.is_connected(Kind::Service));
    assert_eq!(failures(&feed), [("silent", 1)]);
    sleep(dead.end.saturating_sub(begun.elapsed())).await;
    let following = feed
        .state
        .wait_for(|state| state.phase == FeedPhase::Following);
    tokio::time::timeout(60 * SECOND, following)
        .await
        .expect("the feed must recover in time")
        .expect("the feed must run");
    assert_eq!(stub.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn failing_watch_is_retried_without_list() {
    type Scene = fn(&ReceivedRequest) -> ScriptedResponse;
    let scenes: [(&str, Scene); 5] = [
        ("watches break after a while", |_| {
            watch_response(vec![(3 * SECOND, bookmark(9))], BodyEnd::Broken)
        }),
        ("watches break at once", |_| {
            watch_response(Vec::new(), BodyEnd::Broken)
        }),
        ("nobody answers for minutes", |asked| match asked.at {
            at if at < 10 * MINUTE => refused_connection(),
            _ => quiet(),
        }),
        (
            "broken, then forbidden, then busy, then unauthorized",
            |asked| match asked.at {
                at if at < MINUTE => watch_response(Vec::new(), BodyEnd::Broken),
                at if at < 2 * MINUTE => error_response(403),
                at if at < 3 * MINUTE => error_response(429),
                at if at < 4 * MINUTE => error_response(401),
                _ => quiet(),
            },
        ),
        ("the API server fails for minutes", |asked| match asked.at {
            at if at < 10 * MINUTE => error_response(500),
            _ => quiet(),
        }),
    ];
    for (what, scene) in scenes {
        let stub = ScriptedServer::new(move |asked| {
            let begins = asked.begins_list();
            Some(if begins || asked.at < SECOND && !asked.is_watch() {
                page_response(9, &[service("a", 9)], None)
            } else if asked.is_watch() {
                scene(asked)
            } else {
                match scene(asked) {
                    Ok(response) if response.status() == 200 => {
                        page_response(9, &[service("a", 9)], None)
                    }
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

/// If the feed only resumed the watch, it would receive the unreadable event again and fail
/// forever.
#[tokio::test(start_paused = true)]
async fn unreadable_watch_event_is_skipped_by_list() {
    let stub = ScriptedServer::new(move |asked| {
        if !asked.is_watch() {
            return Some(page_response(
                if asked.at < SECOND { 9 } else { 20 },
                &[service("a", 9)],
                None,
            ));
        }
        let from: u32 = asked.version().parse().unwrap();
        let nonsense = vec![(SECOND, serde_json::json!("nonsense"))];
        Some(if from < 20 {
            watch_response(nonsense, BodyEnd::Complete)
        } else {
            quiet()
        })
    });
    let mut feed = start(&stub);
    feed.until(|mirror| mirror.lists == 2).await;
    pass(&mut feed, 10 * MINUTE).await;
    assert_eq!(stub.lists(), 2);
}

/// The Service `a` with this resource version. `times` counts its creations, and is part of the
/// UID.
fn recreated(version: u32, times: u32) -> Value {
    let mut service = service("a", version);
    service["metadata"]["uid"] = format!("uid-{times}").into();
    service
}

/// Before the feed resumes a broken watch, it requests a list of one object (`limit=1`). If the
/// feed knows this object with another UID, the API server's database may have been restored, so
/// the feed lists all objects again. Here the watch has already shown the new UID.
#[tokio::test(start_paused = true)]
async fn recreated_first_object_causes_no_list() {
    let stub = ScriptedServer::new(move |asked| {
        if !asked.is_watch() {
            let times = if asked.at < SECOND { 1 } else { 2 };
            return Some(page_response(
                if times == 1 { 9 } else { 20 },
                &[recreated(9, times)],
                None,
            ));
        }
        Some(if asked.version() == "9" {
            let deleted = (2 * SECOND, event("DELETED", &recreated(10, 1)));
            let added = (SECOND, event("ADDED", &recreated(11, 2)));
            watch_response(vec![deleted, added], BodyEnd::Broken)
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
