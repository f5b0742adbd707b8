//! The source of endpoints: Endpoints or `EndpointSlice`s. Kubernetes fills Endpoints with at most
//! 1000 addresses, of one IP family. The slices of a Service have all addresses of both families.
//!
//! With [`EndpointsChoice::Auto`], slices are used if the API server serves slices and permits
//! reading them. Reading is retried periodically, because permissions may change later. The source
//! changes only after the other source has been listed completely.
//!
//! Two conditions must hold before Endpoints replace slices. The refusal of slices must last,
//! because a starting API server briefly refuses everything. And Endpoints must not lack addresses
//! of the slices.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    Collection, FeedPhase, FeedState, ReceivedEvent, ReceiverGone, Scope, ScopedFeed, WatchMetrics,
    WatchTiming,
};
use crate::connect::Connection;
use crate::objects::{
    Change, EndpointSlice, Endpoints, EndpointsSource, Event, FromApi, PodNamed, Zoned,
};

/// The head start of slices over Endpoints, while no source is selected and requests for slices
/// fail ([`FeedPhase::Failing`]). Endpoints are listed this long after the start, and used this
/// long after their list is complete. While slices of a snapshot file are served, a refusal of
/// slices must also last for this time before Endpoints are listed.
///
/// The time is longer than the pause between attempts at an unreachable API server. After an
/// outage, slices therefore get another attempt even if Endpoints are listed first.
const HEAD_START: Duration = Duration::from_secs(5);

/// `--endpoints-source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum EndpointsChoice {
    /// Slices if possible, otherwise Endpoints.
    #[default]
    Auto,
    /// Endpoints only.
    Endpoints,
    /// Slices only.
    #[value(name = "endpointslices")]
    EndpointSlices,
}

/// Follows the endpoints of Services, and reports the source in use.
pub struct EndpointsFeed {
    /// The kinds to follow.
    pub choice: EndpointsChoice,
    /// Whether endpoints without a hostname are named after their pod.
    pub pod_names: bool,
    /// Whether the zones and hints of endpoints are read. Only slices have them.
    pub zones: bool,
    /// The namespaces to follow.
    pub scope: Scope,
    /// The API server.
    pub connection: Arc<Connection>,
    /// The timing.
    pub timing: WatchTiming,
    /// The metrics of the watches.
    pub metrics: WatchMetrics,
    /// The receiver of the events.
    pub sink: mpsc::Sender<ReceivedEvent<Event>>,
    /// The source in use, as reported by the receiver of the events.
    pub in_force: watch::Receiver<Option<EndpointsSource>>,
}

/// The running feed of one source.
struct SourceFeed {
    state: watch::Receiver<FeedState>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl SourceFeed {
    fn spawn(feed: ScopedFeed<Event>, stop: &CancellationToken) -> Self {
        let state = feed.state();
        // Each feed has its own token, so that one feed can be stopped without the other.
        let stop = stop.child_token();
        let mut task = JoinSet::new();
        task.spawn(feed.run(stop.clone()));

        Self { state, stop, task }
    }

    fn current_state(&mut self) -> FeedState {
        *self.state.borrow_and_update()
    }

    fn is_following(&mut self) -> bool {
        self.current_state().phase == FeedPhase::Following
    }

    /// Returns whether the watch is open. If the watch is open, its objects are kept from now on.
    fn keep_if_following(&mut self, dispensable: &watch::Sender<bool>) -> bool {
        if !self.is_following() {
            return false;
        }

        dispensable.send_replace(false);
        // The watch may have been refused, and its objects removed, before `dispensable` was set to
        // false.
        self.is_following()
    }

    async fn end(mut self) {
        self.stop.cancel();
        while self.task.join_next().await.is_some() {}
    }
}

impl EndpointsFeed {
    /// Follows the endpoints until `stop`, or until the receiver of the events is gone.
    pub async fn run(mut self, stop: CancellationToken) {
        self.metrics.report_endpoints_source(None);
        let followed = match self.choice {
            EndpointsChoice::Auto => self.follow_best_source(&stop).await,
            EndpointsChoice::Endpoints => {
                self.follow_source(EndpointsSource::Endpoints, &stop).await
            }
            EndpointsChoice::EndpointSlices => {
                self.follow_source(EndpointsSource::EndpointSlices, &stop)
                    .await
            }
        };

        if followed == Err(ReceiverGone) && !stop.is_cancelled() {
            tracing::debug!("the receiver of endpoints events is gone");
        }
    }

    async fn follow_source(
        &mut self,
        source: EndpointsSource,
        stop: &CancellationToken,
    ) -> Result<(), ReceiverGone> {
        let dispensable = watch::Sender::new(false);
        let mut feed = self.start_source(source, &dispensable, stop);

        let is_listed = feed.state.wait_for(|state| state.listed).await.is_ok();
        // If the list is not complete, the feed has ended: it was stopped, or the receiver of the
        // events is gone.
        if is_listed {
            self.put_in_force(source).await?;
        }
        while feed.task.join_next().await.is_some() {}
        Ok(())
    }

    async fn follow_best_source(&mut self, stop: &CancellationToken) -> Result<(), ReceiverGone> {
        // `dispensable` is true while Endpoints are in use, because slices need not be kept then.
        let dispensable = watch::Sender::new(false);
        let mut slices = self.start_source(EndpointsSource::EndpointSlices, &dispensable, stop);
        let mut endpoints: Option<SourceFeed> = None;

        let has_stale_slices = *self.in_force.borrow() == Some(EndpointsSource::EndpointSlices);
        let mut selection = SourceSelection::new(&self.timing, has_stale_slices);

        while !stop.is_cancelled() {
            // The receiver of the events may have accepted the proposal by now, see
            // `put_endpoints_in_force`.
            if selection.proposed
                && *self.in_force.borrow_and_update() == Some(EndpointsSource::Endpoints)
            {
                selection.select(EndpointsSource::Endpoints);
                self.metrics
                    .report_endpoints_source(Some(EndpointsSource::Endpoints));
            }
            if slices.keep_if_following(&dispensable) {
                self.put_slices_in_force(endpoints.take(), &mut selection)
                    .await?;
            }
            // While Endpoints are in use, refused slices are removed, because they would only
            // become outdated.
            let serves_endpoints = selection.source == Some(EndpointsSource::Endpoints);
            dispensable.send_if_modified(|now| {
                std::mem::replace(now, serves_endpoints) != serves_endpoints
            });

            let is_listed = match &mut endpoints {
                Some(feed) => feed.current_state().listed,
                None => false,
            };
            if is_listed {
                selection.note_endpoints_listed();
            }

            let due = selection.endpoints_due(slices.current_state());
            let is_due = due.is_some_and(|due| due <= Instant::now());
            if is_due && endpoints.is_none() {
                let source = EndpointsSource::Endpoints;
                endpoints = Some(self.start_source(source, &dispensable, stop));
            }
            if is_due && is_listed {
                self.put_endpoints_in_force(&mut selection).await?;
                continue;
            }

            // If `due` has passed, a timer would end every wait at once. So the loop then waits
            // without a timer.
            let later = due.filter(|_| !is_due);
            tokio::select! {
                changed = slices.state.changed() => changed.map_err(|_| ReceiverGone)?,
                changed = next_state(&mut endpoints) => changed?,
                changed = self.in_force.changed(), if selection.proposed => {
                    changed.map_err(|_| ReceiverGone)?;
                }
                () = sleep_until(later.unwrap_or_else(Instant::now)), if later.is_some() => {}
            }
        }
        Ok(())
    }

    /// Uses slices and stops the feed of Endpoints. The index, which receives the events, then
    /// drops the Endpoints.
    async fn put_slices_in_force(
        &mut self,
        endpoints: Option<SourceFeed>,
        selection: &mut SourceSelection,
    ) -> Result<(), ReceiverGone> {
        let is_change =
            endpoints.is_some() || selection.source != Some(EndpointsSource::EndpointSlices);
        // The feed of Endpoints ends first, because the index must receive no changes of Endpoints
        // after it has switched to slices.
        if let Some(feed) = endpoints {
            feed.end().await;
        }
        if is_change {
            self.put_in_force(EndpointsSource::EndpointSlices).await?;
        }

        selection.select(EndpointsSource::EndpointSlices);
        Ok(())
    }

    /// Uses Endpoints at once if no source is selected yet. If slices are selected, the index
    /// decides: it keeps the slices if Endpoints lack addresses of the slices.
    async fn put_endpoints_in_force(
        &mut self,
        selection: &mut SourceSelection,
    ) -> Result<(), ReceiverGone> {
        if selection.source == Some(EndpointsSource::EndpointSlices) {
            selection.note_proposal();
            return self.send_event(Event::EndpointsInsteadOfSlices).await;
        }

        self.put_in_force(EndpointsSource::Endpoints).await?;
        selection.select(EndpointsSource::Endpoints);
        Ok(())
    }

    async fn put_in_force(&mut self, source: EndpointsSource) -> Result<(), ReceiverGone> {
        if self.zones && source == EndpointsSource::Endpoints {
            tracing::warn!(
                "Endpoints have no zones, so kubedns has no zones for --prefer-zone and --zonal-names until EndpointSlices can be read"
            );
        }

        self.send_event(Event::EndpointsFrom(source)).await?;
        // The event waits in a queue. The source is in use after the index has applied the event.
        let reached = self.in_force.wait_for(|now| *now == Some(source)).await;
        reached.map(drop).map_err(|_| ReceiverGone)?;

        self.metrics.report_endpoints_source(Some(source));
        Ok(())
    }

    async fn send_event(&self, event: Event) -> Result<(), ReceiverGone> {
        let at = std::time::Instant::now();
        let sent = self.sink.send(ReceivedEvent { event, at }).await;

        sent.map_err(|_| ReceiverGone)
    }

    fn start_source(
        &self,
        source: EndpointsSource,
        dispensable: &watch::Sender<bool>,
        stop: &CancellationToken,
    ) -> SourceFeed {
        let feed = match source {
            EndpointsSource::Endpoints => self.endpoints_feed(),
            EndpointsSource::EndpointSlices => {
                let feed = self
                    .slices_feed()
                    .dispensable_while(&dispensable.subscribe());
                // With `Auto`, Endpoints can replace slices, so slices are optional.
                if self.choice == EndpointsChoice::Auto {
                    feed.optional()
                } else {
                    feed
                }
            }
        };

        SourceFeed::spawn(feed, stop)
    }

    fn endpoints_feed(&self) -> ScopedFeed<Event> {
        if self.pod_names {
            self.feed_of::<PodNamed<Endpoints>>(|change| {
                Event::Endpoints(change.map(|named| named.0))
            })
        } else {
            self.feed_of::<Endpoints>(Event::Endpoints)
        }
    }

    /// The feed of slices, read with the fields that the options need.
    fn slices_feed(&self) -> ScopedFeed<Event> {
        match (self.pod_names, self.zones) {
            (false, false) => self.feed_of::<EndpointSlice>(Event::EndpointSlice),
            (false, true) => {
                self.feed_of::<Zoned>(|change| Event::EndpointSlice(change.map(|zoned| zoned.0)))
            }
            // `PodNamed` slices also have the zones and hints of endpoints (`EndpointPlaces`).
            // Without `zones`, no option needs them.
            (true, false) => self.feed_of::<PodNamed<EndpointSlice>>(|change| {
                Event::EndpointSlice(change.map(|named| named.0.without_places()))
            }),
            (true, true) => self.feed_of::<PodNamed<EndpointSlice>>(|change| {
                Event::EndpointSlice(change.map(|named| named.0))
            }),
        }
    }

    fn feed_of<T: FromApi>(&self, wrap: fn(Change<T>) -> Event) -> ScopedFeed<Event> {
        let collections = Collection::in_scope(T::KIND, &self.scope);
        let metrics = self.metrics.feed(T::KIND);
        let sink = self.sink.clone();

        ScopedFeed::new(
            &self.connection,
            collections,
            &self.timing,
            metrics,
            sink,
            wrap,
        )
    }
}

/// Waits for a change of a feed's state. Waits forever if the feed is not running.
async fn next_state(feed: &mut Option<SourceFeed>) -> Result<(), ReceiverGone> {
    match feed {
        Some(feed) => feed.state.changed().await.map_err(|_| ReceiverGone),
        None => std::future::pending().await,
    }
}

/// The selected source, and the times that decide when Endpoints may be listed and used.
#[derive(Debug)]
struct SourceSelection {
    source: Option<EndpointsSource>,
    begun: Instant,
    /// The time when the first list of Endpoints completed.
    endpoints_listed: Option<Instant>,
    /// Time for which slices must be refused before Endpoints become the first source.
    first_refusal: Duration,
    /// Time for which slices in use must be refused before Endpoints replace the slices.
    lasting_refusal: Duration,
    /// Whether Endpoints were proposed to the index in place of slices.
    proposed: bool,
    /// The time from which Endpoints may be proposed again.
    next_proposal: Instant,
}

impl SourceSelection {
    /// Begins without a source. With `has_stale_slices`, slices of a snapshot file are served until
    /// a source is selected.
    fn new(timing: &WatchTiming, has_stale_slices: bool) -> Self {
        let begun = Instant::now();
        // A starting API server briefly refuses everything. While stale slices are served, there is
        // time to wait.
        let first_refusal = if has_stale_slices {
            HEAD_START
        } else {
            Duration::ZERO
        };

        Self {
            source: None,
            begun,
            endpoints_listed: None,
            first_refusal,
            lasting_refusal: timing.refusal_lasts,
            proposed: false,
            next_proposal: begun,
        }
    }

    fn select(&mut self, source: EndpointsSource) {
        self.source = Some(source);
        self.proposed = false;
    }

    /// Notes that Endpoints have been listed. Stores the time of the first call.
    fn note_endpoints_listed(&mut self) {
        self.endpoints_listed.get_or_insert_with(Instant::now);
    }

    fn note_proposal(&mut self) {
        self.proposed = true;
        self.next_proposal = Instant::now() + self.lasting_refusal;
    }

    /// The time from which Endpoints may be listed and, if already listed, used in place of slices.
    /// `None` in three cases: Endpoints are selected; slices are selected and not refused; no
    /// source is selected, and the phase of slices is neither [`FeedPhase::Refused`] nor
    /// [`FeedPhase::Failing`].
    fn endpoints_due(&self, slices: FeedState) -> Option<Instant> {
        let is_refused = slices.phase == FeedPhase::Refused;
        match self.source {
            Some(EndpointsSource::Endpoints) => None,
            Some(EndpointsSource::EndpointSlices) if !is_refused => None,
            Some(EndpointsSource::EndpointSlices) => {
                Some((slices.since + self.lasting_refusal).max(self.next_proposal))
            }

            None if is_refused => Some(slices.since + self.first_refusal),
            // In the phase `Away`, the feed of slices has just started, or its last failure
            // concerns every collection, for example because the API server is unreachable. After
            // such a failure, a list of Endpoints would usually fail, too. In the phase
            // `Following`, slices are about to be selected.
            None if slices.phase != FeedPhase::Failing => None,
            None => Some(self.endpoints_listed.unwrap_or(self.begun) + HEAD_START),
        }
    }
}

#[cfg(test)]
mod tests;
