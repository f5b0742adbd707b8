//! Calls the query engine with the records of some objects, without a process or sockets.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use cluster::index::Index;
use cluster::objects::{Change, EndpointsSource, Event, FromApi};
use cluster::snapshot::{Published, Snapshot};
use serde_json::Value;
use skydns::Zone;
use skydns::engine::{EngineOutcome, Identity, answer_message};
use skydns::external::ExternalAnswers;
use testkit::message::Message;
use testkit::objects::{mk_endpoints, mk_headless};
use wire::Name;
use wire::Transport;

/// The `n`th IPv4 address for tests.
pub(crate) fn v4(n: u32) -> String {
    Ipv4Addr::from(0x0a40_0000 + n).to_string()
}

/// The `n`th IPv6 address for tests.
pub(crate) fn v6(n: u32) -> String {
    Ipv6Addr::from(0xfd00_0010_u128 << 96 | u128::from(n)).to_string()
}

/// A headless Service with one port, and its Endpoints. Each address is `ip` or `ip hostname`.
pub(crate) fn headless(
    namespace: &str,
    name: &str,
    addresses: &[String],
    port: &str,
) -> [Value; 2] {
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    [
        mk_headless(namespace, name, &[port]),
        mk_endpoints(namespace, name, &addresses, &[port]),
    ]
}

/// Publishes the records of Services and Endpoints in `cluster.local`.
pub(crate) fn published(objects: impl IntoIterator<Item = Value>, strict: bool) -> Arc<Published> {
    published_with(objects, |zone| zone.strict = strict)
}

/// Publishes the records of Services and Endpoints in a zone that `change` modifies.
pub(crate) fn published_with(
    objects: impl IntoIterator<Item = Value>,
    change: impl FnOnce(&mut Zone),
) -> Arc<Published> {
    let mut zone = Zone::new(&Name::parse("cluster.local").expect("the domain must be valid"));
    change(&mut zone);
    let published = Arc::new(Published::new(Snapshot::new(zone)));
    let mut index = Index::new(Arc::clone(&published));
    for object in objects {
        index.apply(match object["kind"].as_str() {
            Some("Service") => Event::Service(applied(&object)),
            Some("Endpoints") => Event::Endpoints(applied(&object)),
            other => panic!("{other:?} makes no records"),
        });
    }
    index.apply(Event::Service(Change::RelistDone));
    index.apply(Event::Endpoints(Change::RelistDone));
    index.apply(Event::EndpointsFrom(EndpointsSource::Endpoints));
    index.publish();
    published
}

fn applied<T: FromApi>(object: &Value) -> Change<T> {
    Change::Apply(
        T::from_api(&object.to_string())
            .expect("the object must be valid")
            .object,
    )
}

/// The answer to a query while the upstreams are down.
pub(crate) fn ask(published: &Published, query: &[u8], transport: Transport) -> Message {
    let identity = Identity {
        version: "test".to_owned(),
    };
    let mut outside = ExternalAnswers::none();
    outside.close();
    let mut out = Vec::new();
    let outcome = answer_message(
        &*published.get(),
        &identity,
        query,
        transport,
        &outside,
        &mut out,
    );
    assert!(matches!(outcome, EngineOutcome::Reply(_)), "{outcome:?}");
    Message::parse(&out).expect("the response must be a whole message")
}
