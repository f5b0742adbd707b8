//! Makes the records of one scenario, and passes queries to the engine.

use std::ffi::OsString;
use std::sync::Arc;

use cluster::index::Index;
use cluster::objects::{Change, EndpointsSource, Event, Exposed, FromApi, PodNamed, Zoned};
use cluster::records::EndpointNames;
use cluster::snapshot::{Published, Snapshot};
use cluster::watch::{Namespaces, Scope};
use daemon::flags::{Style, parse};
use kubedns::options::Options;
use serde_json::Value;
use skydns::engine::{EngineOutcome, Identity, PendingAnswer, answer_message};
use skydns::external::{ExternalAnswer, ExternalAnswers};
use testkit::query::Query;
use tests::conformance::answer::{Answer, Observed};
use tests::conformance::vector::Response;
use wire::Transport;

use crate::scenario::Scenario;

/// The published records of a scenario's objects.
pub(crate) struct Cluster {
    published: Arc<Published>,
}

impl Cluster {
    /// Makes the records that kubedns has after its first lists, with the flags of the scenario.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let flags = scenario.flags.iter().map(OsString::from);
        let options: Options =
            parse("kube-dns", Style::Pflag, flags).expect("the flags must be valid");
        let published = Arc::new(Published::new(Snapshot::new(
            options.zone().expect("the flags must describe a zone"),
        )));
        let scope = options.scope().expect("the flags must describe a scope");
        let mut index =
            Index::with_options(options.index_options(&scope, None), Arc::clone(&published));
        let objects = scenario.objects();
        let in_scope = objects.iter().filter(|object| is_in(&scope, object));
        for event in in_scope.filter_map(|object| event(object, &options)) {
            index.apply(event);
        }
        index.apply(Event::Namespace(Change::RelistDone));
        index.apply(Event::Pod(Change::RelistDone));
        index.apply(Event::Service(Change::RelistDone));
        index.apply(Event::EndpointSlice(Change::RelistDone));
        index.apply(Event::EndpointsFrom(EndpointsSource::EndpointSlices));
        index.publish();
        assert!(index.has_listed(), "{}", scenario.name);
        Self { published }
    }

    /// The answer to the question `name type`; `None` if the query must be forwarded. If the answer
    /// needs external names, such as the target of a CNAME, these names have no records.
    pub(crate) fn ask(&self, question: &str) -> Option<Response> {
        let (name, rtype) = question
            .split_once(' ')
            .expect("the question must be a name and a type");
        let query = Query::new(name, rtype).wire();
        let identity = Identity {
            version: "test".to_owned(),
        };
        let mut outside = ExternalAnswers::none();
        loop {
            let (mut out, view) = (Vec::new(), self.published.get());
            match answer_message(
                &*view,
                &identity,
                &query,
                Transport::Tcp,
                &outside,
                &mut out,
            ) {
                EngineOutcome::Reply(_) => return Some(read(out)),
                EngineOutcome::Pending(PendingAnswer::External(names)) => {
                    for name in names {
                        outside.insert(name, ExternalAnswer::Records(Vec::new()));
                    }
                }
                EngineOutcome::Pending(PendingAnswer::Forward(_)) => return None,
                other => panic!("{question}: {other:?}"),
            }
        }
    }
}

/// The answer as text, without the question.
fn read(packet: Vec<u8>) -> Response {
    let answer = Answer::read(&Observed::Packet(packet));
    assert_eq!(answer.defect, None);
    Response {
        question: Vec::new(),
        ..answer.response
    }
}

/// The event with which a listed object reaches the index; `None` if the object is not a Service,
/// EndpointSlice, Namespace or Pod.
fn event(object: &Value, options: &Options) -> Option<Event> {
    let pod_names = options.endpoint_names == EndpointNames::Pod;
    Some(match object["kind"].as_str()? {
        "Service" => {
            let Exposed(service) = slim(object);
            Event::Service(Change::Apply(service))
        }
        "EndpointSlice" if pod_names => {
            let PodNamed(slice) = slim(object);
            Event::EndpointSlice(Change::Apply(slice))
        }
        "EndpointSlice" if options.reads_zones() => {
            let Zoned(slice) = slim(object);
            Event::EndpointSlice(Change::Apply(slice))
        }
        "EndpointSlice" => Event::EndpointSlice(Change::Apply(slim(object))),
        "Namespace" => Event::Namespace(Change::Apply(slim(object))),
        "Pod" => Event::Pod(Change::Apply(slim(object))),
        _ => return None,
    })
}

/// Returns whether `scope` includes the object. `scope` has the namespaces and the label selectors
/// from the flags of kubedns.
fn is_in(scope: &Scope, object: &Value) -> bool {
    let matches = |selector: &str| {
        let (key, value) = selector
            .split_once('=')
            .expect("the selector must have the form KEY=VALUE");
        object["metadata"]["labels"][key] == value
    };
    match (
        object["kind"].as_str().unwrap_or_default(),
        &scope.namespaces,
    ) {
        ("Namespace", Namespaces::Selected(selector)) => matches(selector),
        ("Namespace", _) => false,
        (_, Namespaces::Only(names))
            if names
                .iter()
                .all(|name| object["metadata"]["namespace"] != **name) =>
        {
            false
        }
        ("Service", _) => scope.services.as_deref().is_none_or(matches),
        _ => true,
    }
}

fn slim<T: FromApi>(object: &Value) -> T {
    T::from_api(&object.to_string())
        .expect("the object must be valid")
        .object
}
