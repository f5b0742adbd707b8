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

/// The feeds of slices and of Endpoints retry an unreachable API server independently, so Endpoints
/// are sometimes listed before slices.
#[tokio::test(start_paused = true)]
async fn returned_api_server_gives_slices_a_head_start() {
    for stale_slices in [false, true] {
        let mut selection = SourceSelection::new(&WatchTiming::default(), stale_slices);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(
            due_now(&selection, FeedPhase::Failing),
            "failing slices must not block Endpoints"
        );
        selection.note_endpoints_listed();
        assert!(
            !due_now(&selection, FeedPhase::Failing),
            "Endpoints that happen to be listed first must not be used yet"
        );
        assert!(
            due_now(&selection, FeedPhase::Refused),
            "Endpoints must not wait for refused slices"
        );
        tokio::time::advance(HEAD_START).await;
        selection.note_endpoints_listed();
        assert!(
            due_now(&selection, FeedPhase::Failing),
            "Endpoints must not wait longer than the head start"
        );
    }
}

/// Many instances that start at once make the API server busy for longer than the head start.
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
