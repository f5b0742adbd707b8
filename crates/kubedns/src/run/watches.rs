//! The watches of the API server. Each watch follows one kind of objects, and sends events to the
//! index task.

use std::sync::Arc;

use cluster::connect::Connection;
use cluster::index::PodMode;
use cluster::objects::{Change, EndpointsSource, Event, Exposed, FromApi, Service};
use cluster::records::EndpointNames;
use cluster::watch::endpoints::EndpointsFeed;
use cluster::watch::nodes::{self, NodesFeed};
use cluster::watch::{
    Collection, CollectionFeed, ListTurns, ReceivedEvent, ScopedFeed, WatchTiming,
};
use cluster::watch::{Namespaces, Scope};
use daemon::one_thread::SingleThread;
use daemon::tasks::Tasks;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::config::InForce;
use crate::metrics::Metrics;
use crate::options::Options;

/// Values that the watches need.
pub(super) struct ApiServerWatches {
    pub(super) connection: Arc<Connection>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) sink: mpsc::Sender<ReceivedEvent<Event>>,
    pub(super) in_force: watch::Receiver<Arc<InForce>>,
    /// The endpoints source that the index uses.
    pub(super) endpoints_source: watch::Receiver<Option<EndpointsSource>>,
    /// The name of the node that this process runs on, if a flag needs the name.
    pub(super) own_node: Option<String>,
    /// Determines when this process may request its lists.
    pub(super) turns: ListTurns,
}

impl ApiServerWatches {
    /// Starts the watches on `thread`.
    pub(super) fn start(
        self,
        tasks: &mut Tasks,
        thread: &SingleThread,
        options: &Options,
        scope: &Scope,
        stop: &CancellationToken,
    ) {
        let mut feeds = FeedTasks {
            tasks,
            thread,
            turns: &self.turns,
            stop,
        };

        // These kinds are needed only by some flags.
        if let Namespaces::Selected(_) = scope.namespaces {
            let feed = self
                .feed(scope, Event::Namespace)
                .needed_for("--namespace-selector");
            feeds.start_in_turn("watching namespaces", |stop| feed.run(stop));
        }
        if let Some(feed) = self.pods_feed(options, scope) {
            feeds.start_in_turn("watching pods", |stop| feed.run(stop));
        }
        if !options.clusterset_domain.0.is_empty() {
            self.start_clusterset(&mut feeds, scope);
        }
        if let Some(feed) = self.own_node_feed(options) {
            feeds.start_at_once("watching the node of this pod", |stop| feed.run(stop));
        }

        // Services and endpoints are always needed.
        self.start_services(&mut feeds, options, scope);
        let endpoints = self.endpoints_feed(options, scope);
        feeds.start_in_turn("watching endpoints", |stop| endpoints.run(stop));

        // All Nodes are watched only while federations are configured.
        let nodes = self.nodes_feed();
        feeds.start_at_once("watching nodes", |stop| nodes.run(stop));
    }

    /// Watches Services, including their external addresses if there is an external zone.
    fn start_services(&self, feeds: &mut FeedTasks<'_>, options: &Options, scope: &Scope) {
        // Only an external zone needs the fields of external addresses.
        let feed = if options.external_zone.0.is_empty() {
            self.feed::<Service>(scope, Event::Service)
        } else {
            self.feed(scope, exposed_service)
        };
        feeds.start_in_turn("watching services", |stop| feed.run(stop));
    }

    /// Watches the service imports of the cluster set, and their EndpointSlices.
    fn start_clusterset(&self, feeds: &mut FeedTasks<'_>, scope: &Scope) {
        let flag = "--clusterset-domain";
        let imports = self.feed(scope, Event::ServiceImport);
        let imports = imports.optional().needed_for(flag);
        feeds.start_at_once("watching service imports", |stop| imports.run(stop));

        let slices = self.feed(scope, Event::ImportedSlice);
        let slices = slices.optional().needed_for(flag);
        feeds.start_at_once("watching imported endpoints", |stop| slices.run(stop));
    }

    fn endpoints_feed(&self, options: &Options, scope: &Scope) -> EndpointsFeed {
        EndpointsFeed {
            choice: options.endpoints_source,
            pod_names: options.endpoint_names == EndpointNames::Pod,
            zones: options.reads_zones(),
            scope: scope.clone(),
            connection: Arc::clone(&self.connection),
            timing: self.timing(),
            metrics: self.metrics.watch.clone(),
            sink: self.sink.clone(),
            in_force: self.endpoints_source.clone(),
        }
    }

    /// The feed of all Nodes, from which kubedns finds the zone and the region for federations.
    fn nodes_feed(&self) -> NodesFeed<Arc<InForce>> {
        NodesFeed {
            connection: Arc::clone(&self.connection),
            timing: self.timing(),
            metrics: self.metrics.watch.clone(),
            sink: self.sink.clone(),
            settings: self.in_force.clone(),
            needs_nodes: |in_force| !in_force.federations.is_empty(),
        }
    }

    /// The feed of the pods that `--pods` needs: all pods in the scope, or the pods of this node.
    fn pods_feed(&self, options: &Options, scope: &Scope) -> Option<ScopedFeed<Event>> {
        match options.pods {
            PodMode::Insecure | PodMode::Disabled => None,
            PodMode::Verified => {
                let feed = self.feed(scope, Event::Pod);
                Some(feed.needed_for("--pods=verified"))
            }
            PodMode::Node => {
                let collections = Collection::pods_on(self.own_node.as_ref()?, scope);
                let feed = self.feed_of(collections, Event::Pod);
                Some(feed.needed_for("--pods=node"))
            }
        }
    }

    /// The feed of the node whose zone is preferred.
    fn own_node_feed(&self, options: &Options) -> Option<CollectionFeed<Event>> {
        let name = self.own_node.as_ref()?;
        if !options.prefer_zone.follows_node() {
            return None;
        }
        Some(nodes::own_node_feed(
            &self.connection,
            &self.metrics.watch,
            self.sink.clone(),
            name,
            "--prefer-zone",
        ))
    }

    /// The timing of a feed of many objects.
    fn timing(&self) -> WatchTiming {
        WatchTiming {
            turns: self.turns.clone(),
            ..WatchTiming::default()
        }
    }

    /// A feed of the objects of one kind within the scope.
    fn feed<T: FromApi>(&self, scope: &Scope, wrap: fn(Change<T>) -> Event) -> ScopedFeed<Event> {
        self.feed_of(Collection::in_scope(T::KIND, scope), wrap)
    }

    fn feed_of<T: FromApi>(
        &self,
        collections: Vec<Collection>,
        wrap: fn(Change<T>) -> Event,
    ) -> ScopedFeed<Event> {
        ScopedFeed::new(
            &self.connection,
            collections,
            &self.timing(),
            self.metrics.watch.feed(T::KIND),
            self.sink.clone(),
            wrap,
        )
    }
}

/// Starts feeds as tasks.
struct FeedTasks<'a> {
    tasks: &'a mut Tasks,
    /// The thread on which the feeds run.
    thread: &'a SingleThread,
    turns: &'a ListTurns,
    stop: &'a CancellationToken,
}

impl FeedTasks<'_> {
    /// Starts the feed that `run` makes from a stop token.
    fn start_at_once<F>(&mut self, name: &'static str, run: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let feed = run(self.stop.clone());
        self.tasks.lasting(name, self.thread.run(feed));
    }

    /// Starts the feed of a kind with many objects, as soon as `turns` allows the first lists.
    fn start_in_turn<F>(&mut self, name: &'static str, run: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let turn = self.turns.clone().wait_for_first();
        self.start_at_once(name, |stop| {
            let feed = run(stop.clone());
            async move {
                if stop.run_until_cancelled(turn).await.is_some() {
                    feed.await;
                }
            }
        });
    }
}

/// Converts a change of a Service, which was read with its external addresses, into an event.
fn exposed_service(change: Change<Exposed>) -> Event {
    Event::Service(change.map(|exposed| exposed.0))
}
