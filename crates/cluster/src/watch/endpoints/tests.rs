use super::*;

fn due_now(selection: &SourceSelection, phase: FeedPhase) -> bool {
    let slices = FeedState {
        listed: false,
        phase,
        since: selection.begun,
    };
    selection
        .endpoints_due(slices)
        .is_some_and(|due| due <= Instant::now())
}

/// The feeds of slices and of Endpoints retry independently after failures, so Endpoints are
/// sometimes listed before slices.
#[tokio::test(start_paused = true)]
async fn failing_slices_have_a_head_start() {
    for stale_slices in [false, true] {
        let mut selection = SourceSelection::new(&WatchTiming::default(), stale_slices);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(
            due_now(&selection, FeedPhase::Failing),
            "Endpoints must be listed if slices fail"
        );
        selection.note_endpoints_listed();
        assert!(
            !due_now(&selection, FeedPhase::Failing),
            "Endpoints that happen to be listed first must not be used yet"
        );
        assert!(
            due_now(&selection, FeedPhase::Refused),
            "Endpoints must not wait for slices that have been refused for a minute"
        );
        tokio::time::advance(HEAD_START).await;
        selection.note_endpoints_listed();
        assert!(
            due_now(&selection, FeedPhase::Failing),
            "Endpoints must not wait longer than the head start"
        );
    }
}

/// If many instances start at once, the API server may be too busy (HTTP status 429) for longer
/// than the head start. The feed of slices is then in the phase [`FeedPhase::Away`].
#[tokio::test(start_paused = true)]
async fn busy_api_server_gets_no_request_for_endpoints() {
    for stale_slices in [false, true] {
        let selection = SourceSelection::new(&WatchTiming::default(), stale_slices);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(
            !due_now(&selection, FeedPhase::Away),
            "Endpoints must not be listed while the API server is busy"
        );
    }
}
