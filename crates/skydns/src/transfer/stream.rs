//! The response to a transfer query over TCP, message by message, at the speed at which the client reads.
//!
//! One message is made at a time, and transfers take turns. A transfer that waits for its client holds only a version
//! and a place.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use super::Transfers;
use super::content::{Content, Names, Record};
use super::difference::Difference;
use super::history::Version;
use super::metrics::Form;
use super::request::{Rejection, Request};
use crate::backend::View;
use crate::engine::Reply;
use crate::metrics::System;
use crate::serial::follows;
use crate::shares::Share;
use crate::wire::{Query, Transport, rcode};

/// Size in octets at which a message takes no further record. A larger message would save little and occupy a thread
/// for longer.
const FILLED: usize = 24 * 1024;

/// A response in progress.
pub struct Stream<V: View + 'static> {
    transfers: Arc<Transfers<V>>,
    state: State<V>,
    form: Form,
    qtype: u16,
    rcode: u16,
    /// Whether the transfer is still to be counted in the metrics.
    open: bool,
    /// Place among the concurrent transfers; `None` for a rejected query.
    place: Option<Share>,
}

enum State<V> {
    /// The error response to a rejected query.
    Last(Vec<u8>),
    Work(Box<Work<V>>),
    End,
}

struct Work<V> {
    request: Request,
    version: Arc<Version<V>>,
    plan: Option<Plan>,
    form: Form,
}

/// The remaining records of a response.
struct Plan {
    /// Records to send next.
    ready: VecDeque<Record>,
    /// For a whole zone, the names whose records follow `ready`, and the index of the next name.
    names: Option<(Arc<Names>, usize)>,
    /// The record that ends the response.
    last: Option<Record>,
}

impl<V: View + 'static> Transfers<V> {
    /// Begins the response to a transfer query over TCP; `None` if no response is sent.
    pub fn begin(self: &Arc<Self>, message: &[u8], client: IpAddr) -> Option<Stream<V>> {
        let qtype = Query::parse(message, Transport::Tcp).ok()?.qtype;
        let stream = |state, form, rcode, place| {
            let transfers = Arc::clone(self);
            Stream { transfers, state, form, qtype, rcode, open: true, place }
        };
        let reject = |Rejection { rcode, response }| stream(State::Last(response), Form::Error, rcode, None);
        let request = match self.accept(message, client, Transport::Tcp)? {
            Ok(request) => request,
            Err(rejection) => return Some(reject(rejection)),
        };
        let version = self.version()?;
        let Some(place) = self.places.take(client) else {
            return Some(reject(request.reject(rcode::REFUSED)));
        };
        self.metrics.running.inc();
        let form = if request.since.is_some() { Form::Incremental } else { Form::Whole };
        let state = State::Work(Box::new(Work { request, version, plan: None, form }));
        Some(stream(state, form, rcode::NOERROR, Some(place)))
    }
}

impl<V: View + 'static> Stream<V> {
    /// The properties of the response that metrics count.
    pub(crate) fn reply(&self) -> Reply {
        Reply { system: System::Auth, qtype: self.qtype, rcode: self.rcode, truncated: false, zone: None }
    }

    /// Returns the next message; `None` after the last message. A stream that is dropped earlier counts as failed.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        let mut work = match std::mem::replace(&mut self.state, State::End) {
            State::Work(work) => work,
            State::Last(message) => return Some(message),
            State::End => {
                self.count(if self.form == Form::Error { "refused" } else { "completed" });
                return None;
            }
        };
        let turn = Arc::clone(&self.transfers.turn).acquire_owned().await.ok()?;
        let transfers = Arc::clone(&self.transfers);
        let step = move || {
            let message = work.message(&transfers);
            drop(turn);
            (work, message)
        };
        let (work, message) = tokio::task::spawn_blocking(step).await.ok()?;
        self.form = work.form;
        if message.is_none() {
            // Counted now, so that the transfer does not count as completed later.
            self.count("failed");
        } else if !work.is_done() {
            self.state = State::Work(work);
        }
        message
    }

    fn count(&mut self, result: &str) {
        if std::mem::take(&mut self.open) {
            self.transfers.metrics.transfer(self.form, result).inc();
            if self.place.is_some() {
                self.transfers.metrics.running.dec();
            }
        }
    }
}

impl<V: View + 'static> Drop for Stream<V> {
    fn drop(&mut self) {
        self.count("failed");
    }
}

impl<V: View> Work<V> {
    fn is_done(&self) -> bool {
        self.plan.as_ref().is_some_and(Plan::is_done)
    }

    /// Makes the next message; `None` if a message cannot be made.
    fn message(&mut self, transfers: &Transfers<V>) -> Option<Vec<u8>> {
        let Self { request, version, plan, form } = self;
        let plan = plan.get_or_insert_with(|| {
            let (planned, what) = Plan::new(transfers, request, version);
            *form = what;
            planned
        });
        let zone = request.zone.clone();
        let mut content = Content::new(&*version.view, &zone);
        let mut out = Vec::with_capacity(FILLED + 4096);
        request.write(FILLED, || plan.next(&mut content), &mut out).then_some(out)
    }
}

impl Plan {
    /// Makes the plan of the response, and decides its form.
    fn new<V: View>(transfers: &Transfers<V>, request: &Request, version: &Arc<Version<V>>) -> (Self, Form) {
        let mut content = Content::new(&*version.view, &request.zone);
        let soa = |content: &Content<'_, V>, serial| content.soa(transfers.serial.numbers(serial));
        let current = soa(&content, version.serial);
        if let Some(since) = request.since {
            let newer = follows(version.serial, since.serial);
            if !newer {
                return (Self::of([current].into(), None), Form::Soa);
            }
            let older = transfers.version_of(since);
            let difference =
                older.and_then(|older| Difference::between(&*older.view, &*version.view, &request.zone));
            if let Some(Difference { deleted, added }) = difference {
                let old = soa(&content, since.serial);
                let (deleted, added) = (deleted.into_iter(), added.into_iter());
                let all = [current.clone(), old].into_iter().chain(deleted);
                let all = all.chain([current.clone()]).chain(added);
                return (Self::of(all.collect(), Some(current)), Form::Incremental);
            }
        }
        let mut ready = vec![current.clone()];
        content.append_apex(&mut ready);
        let names = Some((version.names(&request.zone), 0));
        (Self { names, ..Self::of(ready.into(), Some(current)) }, Form::Whole)
    }

    fn of(ready: VecDeque<Record>, last: Option<Record>) -> Self {
        Self { ready, names: None, last }
    }

    fn is_done(&self) -> bool {
        self.ready.is_empty() && self.names.is_none() && self.last.is_none()
    }

    fn next<V: View>(&mut self, content: &mut Content<'_, V>) -> Option<Record> {
        while self.ready.is_empty()
            && let Some((names, next)) = &mut self.names
        {
            match names.get(*next) {
                Some(name) => {
                    let mut records = Vec::new();
                    content.append_name(name, &mut records);
                    self.ready.extend(records);
                    *next += 1;
                }
                None => self.names = None,
            }
        }
        self.ready.pop_front().or_else(|| self.last.take())
    }
}
