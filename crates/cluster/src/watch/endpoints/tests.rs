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

/// Both feeds retry an unreachable API server independently; Endpoints may succeed first.
#[tokio::test(start_paused = true)]
async fn returned_api_server_gives_slices_a_head_start() {
    for stale_slices in [false, true] {
        let mut selection = SourceSelection::new(&WatchTiming::default(), stale_slices);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(
            due_now(&selection, FeedPhase::Failing),
            "Endpoints are listed"
        );
        selection.note_endpoints_listed();
        assert!(
            !due_now(&selection, FeedPhase::Failing),
            "Endpoints are not used only because they were first by chance"
        );
        assert!(
            due_now(&selection, FeedPhase::Refused),
            "Endpoints do not wait for refused slices"
        );
        tokio::time::advance(HEAD_START).await;
        selection.note_endpoints_listed();
        assert!(
            due_now(&selection, FeedPhase::Failing),
            "Endpoints do not wait longer than the head start"
        );
    }
}

/// Many instances that start at once make the API server busy for longer than the head start.
#[tokio::test(start_paused = true)]
async fn busy_api_server_sends_no_endpoints() {
    for stale_slices in [false, true] {
        let selection = SourceSelection::new(&WatchTiming::default(), stale_slices);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(
            !due_now(&selection, FeedPhase::Away),
            "Endpoints are not listed as well"
        );
    }
}
