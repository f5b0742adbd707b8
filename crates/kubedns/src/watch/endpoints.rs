//! Which objects tell the endpoints of Services: Endpoints, or the `EndpointSlice`s that have no limit of 1000
//! addresses and know both IP families.
//!
//! With [`Choice::Auto`] slices are used where the API server has them and lets us read them, which is found out by
//! trying, again and again: a permission that comes or goes later is followed. The source in force changes only when
//! the other one is complete.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::collection::Collection;
use super::feed::{Feed, FeedState, Phase};
use super::pace::Pace;
use super::{Closed, Received};
use crate::connect::Connection;
use crate::metrics::Metrics;
use crate::objects::{EndpointSlice, Endpoints, EndpointsSource, Event, FromApi};

/// How long slices may keep us waiting at the start before Endpoints are asked for as well.
const HEAD_START: Duration = Duration::from_secs(5);

/// `--endpoints-source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Choice {
    /// Slices where possible, Endpoints otherwise.
    #[default]
    Auto,
    /// Endpoints only.
    Endpoints,
    /// Slices only.
    #[value(name = "endpointslices")]
    EndpointSlices,
}

/// Follows the endpoints of Services and says which source counts.
pub struct EndpointsFeed {
    /// What to follow.
    pub choice: Choice,
    /// The API server.
    pub connection: Arc<Connection>,
    /// The timing.
    pub pace: Pace,
    /// Where watches are counted.
    pub metrics: Arc<Metrics>,
    /// Where events go.
    pub sink: mpsc::Sender<Received<Event>>,
}

/// A feed that was started.
struct Running {
    state: watch::Receiver<FeedState>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Running {
    fn now(&mut self) -> FeedState {
        *self.state.borrow_and_update()
    }

    async fn end(mut self) {
        self.stop.cancel();
        while self.task.join_next().await.is_some() {}
    }
}

impl EndpointsFeed {
    /// Follows until `stop`, or until nobody takes the events any more.
    pub async fn run(self, stop: CancellationToken) {
        let followed = match self.choice {
            Choice::Auto => self.choose(&stop).await,
            Choice::Endpoints => self.only(EndpointsSource::Endpoints, &stop).await,
            Choice::EndpointSlices => self.only(EndpointsSource::EndpointSlices, &stop).await,
        };
        if followed == Err(Closed) && !stop.is_cancelled() {
            tracing::debug!("nobody takes the events about endpoints any more");
        }
    }

    async fn only(&self, source: EndpointsSource, stop: &CancellationToken) -> Result<(), Closed> {
        let mut running = self.start(source, stop);
        let listed = running.state.wait_for(|state| state.listed).await.is_ok();
        if listed {
            self.announce(source).await?;
        }
        while running.task.join_next().await.is_some() {}
        Ok(())
    }

    async fn choose(&self, stop: &CancellationToken) -> Result<(), Closed> {
        let waiting_ends = Instant::now() + HEAD_START;
        let mut slices = self.start(EndpointsSource::EndpointSlices, stop);
        let mut endpoints: Option<Running> = None;
        let mut in_force = None;
        while !stop.is_cancelled() {
            let phase = slices.now().phase;
            let overdue = in_force.is_none() && Instant::now() >= waiting_ends;
            if phase == Phase::Following {
                if let Some(running) = endpoints.take() {
                    running.end().await;
                }
                self.put_in_force(EndpointsSource::EndpointSlices, &mut in_force).await?;
            } else if endpoints.is_none() && (phase == Phase::Refused || overdue) {
                endpoints = Some(self.start(EndpointsSource::Endpoints, stop));
            }
            if endpoints.as_mut().is_some_and(|running| running.now().listed) {
                self.put_in_force(EndpointsSource::Endpoints, &mut in_force).await?;
            }
            let waiting = in_force.is_none() && endpoints.is_none();
            tokio::select! {
                changed = slices.state.changed() => changed.map_err(|_| Closed)?,
                changed = next_state(&mut endpoints) => changed?,
                () = sleep_until(waiting_ends), if waiting => {}
            }
        }
        Ok(())
    }

    async fn put_in_force(
        &self,
        source: EndpointsSource,
        in_force: &mut Option<EndpointsSource>,
    ) -> Result<(), Closed> {
        if *in_force != Some(source) {
            self.announce(source).await?;
            *in_force = Some(source);
        }
        Ok(())
    }

    async fn announce(&self, source: EndpointsSource) -> Result<(), Closed> {
        tracing::info!(?source, "endpoints of services are taken from");
        let received = Received { event: Event::EndpointsFrom(source), at: std::time::Instant::now() };
        self.sink.send(received).await.map_err(|_| Closed)
    }

    fn start(&self, source: EndpointsSource, stop: &CancellationToken) -> Running {
        match source {
            EndpointsSource::Endpoints => spawn(self.feed::<Endpoints>(Event::Endpoints), stop),
            EndpointsSource::EndpointSlices => {
                let feed = self.feed::<EndpointSlice>(Event::EndpointSlice);
                spawn(if self.choice == Choice::Auto { feed.optional() } else { feed }, stop)
            }
        }
    }

    fn feed<T: FromApi>(&self, wrap: fn(crate::objects::Change<T>) -> Event) -> Feed<T, Event> {
        Feed::new(
            Arc::clone(&self.connection),
            Collection::all(T::KIND),
            self.pace.clone(),
            self.metrics.feed(T::KIND),
            self.sink.clone(),
            wrap,
        )
    }
}

fn spawn<T: FromApi>(feed: Feed<T, Event>, stop: &CancellationToken) -> Running {
    let (state, stop) = (feed.state(), stop.child_token());
    let mut task = JoinSet::new();
    task.spawn(feed.run(stop.clone()));
    Running { state, stop, task }
}

/// Waits for news of a feed; for ever if it is not running.
async fn next_state(running: &mut Option<Running>) -> Result<(), Closed> {
    match running {
        Some(running) => running.state.changed().await.map_err(|_| Closed),
        None => std::future::pending().await,
    }
}
