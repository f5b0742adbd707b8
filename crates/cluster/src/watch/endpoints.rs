//! The source of endpoints: Endpoints or `EndpointSlice`s. Slices have no limit of 1000 addresses
//! and have both IP families.
//!
//! With [`Choice::Auto`], slices are used if the API server has slices and permits reading them.
//! Reading is retried periodically, because permissions may change later. The source changes only
//! when the other source is complete.
//!
//! Two conditions must hold before Endpoints replace slices. The refusal of slices must last,
//! because a starting API server briefly refuses everything. And Endpoints must not lack addresses
//! of the slices.

mod selection;

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use selection::SourceSelection;

use super::collection::Collection;
use super::metrics::WatchMetrics;
use super::scoped::ScopedFeed;
use super::state::{FeedState, Phase};
use super::timing::WatchTiming;
use super::{Closed, Received};
use crate::connect::Connection;
use crate::objects::{
    Change, EndpointSlice, Endpoints, EndpointsSource, Event, FromApi, PodNamed, Zoned,
};
use crate::scope::Scope;

/// `--endpoints-source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Choice {
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
    pub choice: Choice,
    /// Whether endpoints without a hostname are named after their pod.
    pub pod_names: bool,
    /// Whether the zones of endpoints are read. Only slices have zones.
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
    pub sink: mpsc::Sender<Received<Event>>,
    /// The source in use, as reported by the receiver of the events.
    pub in_force: watch::Receiver<Option<EndpointsSource>>,
}

/// A running feed.
struct Running {
    state: watch::Receiver<FeedState>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Running {
    fn now(&mut self) -> FeedState {
        *self.state.borrow_and_update()
    }

    /// Returns whether the watch is open. If the watch is open, its objects are kept from now on.
    fn follow(&mut self, spare: &watch::Sender<bool>) -> bool {
        let follows = |state: FeedState| state.phase == Phase::Following;
        if !follows(self.now()) {
            return false;
        }
        spare.send_replace(false);
        // The watch may have been refused, and its objects removed, before `spare` was set to
        // false.
        follows(self.now())
    }

    async fn end(mut self) {
        self.stop.cancel();
        while self.task.join_next().await.is_some() {}
    }
}

impl EndpointsFeed {
    /// Follows the endpoints until `stop`, or until the receiver of the events is gone.
    pub async fn run(mut self, stop: CancellationToken) {
        let followed = match self.choice {
            Choice::Auto => self.choose(&stop).await,
            Choice::Endpoints => self.only(EndpointsSource::Endpoints, &stop).await,
            Choice::EndpointSlices => self.only(EndpointsSource::EndpointSlices, &stop).await,
        };
        if followed == Err(Closed) && !stop.is_cancelled() {
            tracing::debug!("the receiver of endpoints events is gone");
        }
    }

    async fn only(
        &mut self,
        source: EndpointsSource,
        stop: &CancellationToken,
    ) -> Result<(), Closed> {
        let spare = watch::Sender::new(false);
        let mut running = self.start(source, &spare, stop);
        let listed = running.state.wait_for(|state| state.listed).await.is_ok();
        if listed {
            self.put_in_force(source).await?;
        }
        while running.task.join_next().await.is_some() {}
        Ok(())
    }

    async fn choose(&mut self, stop: &CancellationToken) -> Result<(), Closed> {
        // True while Endpoints are in use, so that slices need not be kept.
        let spare = watch::Sender::new(false);
        let mut slices = self.start(EndpointsSource::EndpointSlices, &spare, stop);
        let mut endpoints: Option<Running> = None;
        let stale_slices = *self.in_force.borrow() == Some(EndpointsSource::EndpointSlices);
        let mut selection = SourceSelection::begin(&self.timing, stale_slices);
        while !stop.is_cancelled() {
            if selection.proposed
                && *self.in_force.borrow_and_update() == Some(EndpointsSource::Endpoints)
            {
                selection.take(EndpointsSource::Endpoints);
            }
            if slices.follow(&spare) {
                self.put_slices_in_force(endpoints.take(), &mut selection)
                    .await?;
            }
            spare.send_if_modified(|spare| {
                let now = selection.source == Some(EndpointsSource::Endpoints);
                std::mem::replace(spare, now) != now
            });
            let listed = endpoints
                .as_mut()
                .is_some_and(|running| running.now().listed);
            if listed {
                selection.endpoints_listed();
            }
            let due = selection.endpoints_due(slices.now());
            let is_due = due.is_some_and(|due| due <= Instant::now());
            if is_due && endpoints.is_none() {
                endpoints = Some(self.start(EndpointsSource::Endpoints, &spare, stop));
            }
            if is_due && listed {
                self.put_endpoints_in_force(&mut selection).await?;
                continue;
            }
            let later = due.filter(|_| !is_due);
            tokio::select! {
                changed = slices.state.changed() => changed.map_err(|_| Closed)?,
                changed = next_state(&mut endpoints) => changed?,
                changed = self.in_force.changed(), if selection.proposed => changed.map_err(|_| Closed)?,
                () = sleep_until(later.unwrap_or_else(Instant::now)), if later.is_some() => {}
            }
        }
        Ok(())
    }

    /// Uses slices and stops the feed of Endpoints. The index then drops the Endpoints.
    async fn put_slices_in_force(
        &mut self,
        endpoints: Option<Running>,
        selection: &mut SourceSelection,
    ) -> Result<(), Closed> {
        let changes =
            endpoints.is_some() || selection.source != Some(EndpointsSource::EndpointSlices);
        if let Some(running) = endpoints {
            running.end().await;
        }
        if changes {
            self.put_in_force(EndpointsSource::EndpointSlices).await?;
        }
        selection.take(EndpointsSource::EndpointSlices);
        Ok(())
    }

    /// Uses Endpoints at once if no source is in use. If slices are in use, the index decides: it
    /// keeps the slices if Endpoints lack addresses.
    async fn put_endpoints_in_force(
        &mut self,
        selection: &mut SourceSelection,
    ) -> Result<(), Closed> {
        if selection.source == Some(EndpointsSource::EndpointSlices) {
            selection.propose();
            return self.send(Event::EndpointsInsteadOfSlices).await;
        }
        self.put_in_force(EndpointsSource::Endpoints).await?;
        selection.take(EndpointsSource::Endpoints);
        Ok(())
    }

    async fn put_in_force(&mut self, source: EndpointsSource) -> Result<(), Closed> {
        if self.zones && source == EndpointsSource::Endpoints {
            tracing::warn!(
                "Endpoints have no zones; --prefer-zone has no effect until EndpointSlices can be read"
            );
        }
        self.send(Event::EndpointsFrom(source)).await?;
        self.in_force
            .wait_for(|now| *now == Some(source))
            .await
            .map(drop)
            .map_err(|_| Closed)
    }

    async fn send(&self, event: Event) -> Result<(), Closed> {
        let received = Received {
            event,
            at: std::time::Instant::now(),
        };
        self.sink.send(received).await.map_err(|_| Closed)
    }

    fn start(
        &self,
        source: EndpointsSource,
        spare: &watch::Sender<bool>,
        stop: &CancellationToken,
    ) -> Running {
        match (source, self.pod_names) {
            (EndpointsSource::Endpoints, false) => {
                spawn(self.feed::<Endpoints>(Event::Endpoints), stop)
            }
            (EndpointsSource::Endpoints, true) => {
                let wrap = |change: Change<PodNamed<Endpoints>>| {
                    Event::Endpoints(change.map(|named| named.0))
                };
                spawn(self.feed(wrap), stop)
            }
            (EndpointsSource::EndpointSlices, _) => self.start_slices(spare, stop),
        }
    }

    fn start_slices(&self, spare: &watch::Sender<bool>, stop: &CancellationToken) -> Running {
        match (self.pod_names, self.zones) {
            (false, false) => spawn(
                self.slices::<EndpointSlice>(Event::EndpointSlice, spare),
                stop,
            ),
            (false, true) => {
                let wrap =
                    |change: Change<Zoned>| Event::EndpointSlice(change.map(|zoned| zoned.0));
                spawn(self.slices(wrap, spare), stop)
            }
            (true, false) => {
                let wrap = |change: Change<PodNamed<EndpointSlice>>| {
                    Event::EndpointSlice(change.map(|named| named.0.without_zones()))
                };
                spawn(self.slices(wrap, spare), stop)
            }
            (true, true) => {
                let wrap = |change: Change<PodNamed<EndpointSlice>>| {
                    Event::EndpointSlice(change.map(|named| named.0))
                };
                spawn(self.slices(wrap, spare), stop)
            }
        }
    }

    /// The feed of slices, read as `T`.
    fn slices<T: FromApi>(
        &self,
        wrap: fn(Change<T>) -> Event,
        spare: &watch::Sender<bool>,
    ) -> ScopedFeed<Event> {
        let feed = self.feed(wrap).forgetting(&spare.subscribe());
        if self.choice == Choice::Auto {
            feed.optional()
        } else {
            feed
        }
    }

    fn feed<T: FromApi>(&self, wrap: fn(Change<T>) -> Event) -> ScopedFeed<Event> {
        let collections = Collection::in_scope(T::KIND, &self.scope);
        let (metrics, sink) = (self.metrics.feed(T::KIND), self.sink.clone());
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

fn spawn(feed: ScopedFeed<Event>, stop: &CancellationToken) -> Running {
    let (state, stop) = (feed.state(), stop.child_token());
    let mut task = JoinSet::new();
    task.spawn(feed.run(stop.clone()));
    Running { state, stop, task }
}

/// Waits for a change of a feed's state. Waits forever if the feed is not running.
async fn next_state(running: &mut Option<Running>) -> Result<(), Closed> {
    match running {
        Some(running) => running.state.changed().await.map_err(|_| Closed),
        None => std::future::pending().await,
    }
}
