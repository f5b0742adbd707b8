//! The index of one scenario, with the recorded objects and events.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::index::Index;
use cluster::objects::{Change, EndpointsSource, Event, FromApi, ObjectKey};
use cluster::snapshot::{Published, Snapshot};
use serde_json::Value;
use skydns::Zone;
use tests::conformance::vector::{ApiServer, Files, Scenario, Step};
use wire::Name;

/// Objects by kind, namespace and name.
type Objects = BTreeMap<(String, ObjectKey), Value>;

pub(crate) struct Cluster {
    index: Index,
    objects: Objects,
    pub(crate) published: Arc<Published>,
}

impl Cluster {
    /// The state after the first lists.
    pub(crate) fn new(scenario: &Scenario, strict: bool) -> Self {
        let domain = Name::parse(&scenario.domain).expect("a domain");
        let zone = Zone {
            strict,
            ..Zone::new(&domain)
        };
        let published = Arc::new(Published::new(Snapshot::new(zone)));
        let mut index = Index::new(Arc::clone(&published));
        let flag = scenario
            .flags
            .iter()
            .find_map(|flag| flag.strip_prefix("--federations="));
        let file = scenario.config_dir.as_ref().and_then(federations_of);
        index.set_federations(federations(flag.or(file).unwrap_or_default()));
        let objects = scenario
            .initial
            .iter()
            .map(|object| (key(object), object.clone()))
            .collect();
        let mut cluster = Self {
            index,
            objects,
            published,
        };
        if scenario.api_server == ApiServer::Reachable {
            cluster.list();
            cluster
                .index
                .apply(Event::EndpointsFrom(EndpointsSource::Endpoints));
        }
        cluster.index.publish();
        cluster
    }

    /// Applies the events of a step.
    pub(crate) fn happen(&mut self, step: &Step) {
        for event in &step.events {
            let object = &event["object"];
            let deleted = event["type"] == "DELETED";
            if deleted {
                self.objects.remove(&key(object));
            } else {
                self.objects.insert(key(object), object.clone());
            }
            if !step.gap {
                self.tell(object, deleted);
                self.index.publish();
            }
        }
        if step.gap {
            self.list();
        }
        if let Some(files) = &step.config_dir {
            self.index
                .set_federations(federations(federations_of(files).unwrap_or_default()));
        }
        self.index.publish();
    }

    fn tell(&mut self, object: &Value, deleted: bool) {
        match object["kind"].as_str() {
            Some("Service") => self.index.apply(Event::Service(change(object, deleted))),
            Some("Endpoints") => self.index.apply(Event::Endpoints(change(object, deleted))),
            Some("Node") => self.index.apply(Event::Node(change(object, deleted))),
            _ => {}
        }
    }

    /// Lists the objects, as the feeds do at the start and after a watch has expired.
    fn list(&mut self) {
        let objects: Vec<Value> = self.objects.values().cloned().collect();
        self.index.apply(Event::Service(Change::RelistStarted));
        self.index.apply(Event::Endpoints(Change::RelistStarted));
        for object in &objects {
            self.tell(object, false);
        }
        self.index.apply(Event::Service(Change::RelistDone));
        self.index.apply(Event::Endpoints(Change::RelistDone));
    }
}

fn change<T: FromApi>(object: &Value, deleted: bool) -> Change<T> {
    let read = T::from_api(&object.to_string()).expect("an object").object;
    if deleted {
        Change::Deleted(read.key().clone())
    } else {
        Change::Apply(read)
    }
}

fn key(object: &Value) -> (String, ObjectKey) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    (
        text(&object["kind"]),
        ObjectKey::new(text(&metadata["namespace"]), text(&metadata["name"])),
    )
}

fn federations_of(files: &Files) -> Option<&str> {
    files.get("federations").map(String::as_str)
}

/// Parses `name=domain,name=domain`. Ignores other forms, which the suite over real sockets tests.
fn federations(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, domain)| (name.trim().to_owned(), domain.trim().to_owned()))
        .collect()
}
