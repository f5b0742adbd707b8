//! The response to a transfer query over TCP, message by message, at the speed at which the client
//! reads.
//!
//! One message is made at a time, and transfers take turns. A transfer that waits for its client
//! holds only a version and a place.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use super::Transfers;
use super::content::{Content, Record};
use super::history::{Step, Version};
use super::metrics::Form;
use super::names::Names;
use super::request::{Accepted, Rejection, Request, Since};
use crate::backend::View;
use crate::engine::Reply;
use crate::metrics::System;
use crate::serial::follows;
use crate::shares::Share;
use crate::wire::{Name, Query, Transport, rcode};

/// Size in octets at which a message takes no further record. A larger message would save little
/// and occupy a thread for longer.
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
#[derive(Default)]
struct Plan {
    /// Records to send next.
    ready: VecDeque<Record>,
    /// The parts after `ready`.
    parts: VecDeque<Part>,
}

/// A part of a response. Only the position in it is held, not its records.
enum Part {
    Soa(Record),
    /// The records of the zone's apex and its name server.
    Apex,
    /// The records of these names, from a position on.
    Names(Arc<Names>, usize),
    /// The records that a step deletes, from a position on.
    Deleted(Arc<Step>, usize),
    /// The records that a step adds, from a position on.
    Added(Arc<Step>, usize),
}

impl<V: View + 'static> Transfers<V> {
    /// Begins the response to a transfer query over TCP; `None` if no response is sent.
    pub fn begin(self: &Arc<Self>, message: &[u8], client: IpAddr) -> Option<Stream<V>> {
        let qtype = Query::parse(message, Transport::Tcp).ok()?.qtype;
        let stream = |state, form, rcode, place| {
            let transfers = Arc::clone(self);
            Stream {
                transfers,
                state,
                form,
                qtype,
                rcode,
                open: true,
                place,
            }
        };
        let reject =
            |Rejection { rcode, response }| stream(State::Last(response), Form::Error, rcode, None);
        let Accepted { request, version } = match self.accept(message, client, Transport::Tcp)? {
            Ok(accepted) => accepted,
            Err(rejection) => return Some(reject(rejection)),
        };
        let Some(place) = self.places.take(client) else {
            return Some(reject(request.reject(rcode::REFUSED)));
        };
        self.metrics.running.inc();
        let form = if request.since.is_some() {
            Form::Incremental
        } else {
            Form::Whole
        };
        let state = State::Work(Box::new(Work {
            request,
            version,
            plan: None,
            form,
        }));
        Some(stream(state, form, rcode::NOERROR, Some(place)))
    }
}

impl<V: View + 'static> Stream<V> {
    /// The properties of the response that metrics count.
    pub(crate) fn reply(&self) -> Reply {
        Reply {
            system: System::Auth,
            qtype: self.qtype,
            rcode: self.rcode,
            truncated: false,
            zone: None,
        }
    }

    /// Returns the next message; `None` after the last message. A stream that is dropped earlier
    /// counts as failed.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        let mut work = match std::mem::replace(&mut self.state, State::End) {
            State::Work(work) => work,
            State::Last(message) => return Some(message),
            State::End => {
                self.count(if self.form == Form::Error {
                    "refused"
                } else {
                    "completed"
                });
                return None;
            }
        };
        let turn = Arc::clone(&self.transfers.turn)
            .acquire_owned()
            .await
            .ok()?;
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
        let Self {
            request,
            version,
            plan,
            form,
        } = self;
        let plan = plan.get_or_insert_with(|| {
            let (planned, what) = Plan::new(transfers, request, version);
            *form = what;
            planned
        });
        let zone = request.zone.clone();
        let mut content = Content::new(&*version.view, &zone);
        let mut out = Vec::with_capacity(FILLED + 4096);
        request
            .write(FILLED, || plan.next(&mut content), &mut out)
            .then_some(out)
    }
}

impl Plan {
    /// Makes the plan of the response, and decides its form.
    fn new<V: View>(
        transfers: &Transfers<V>,
        request: &Request,
        version: &Version<V>,
    ) -> (Self, Form) {
        let content = Content::new(&*version.view, &request.zone);
        let soa = |serial| Part::Soa(content.soa(transfers.serials.numbers(serial)));
        let mut parts = VecDeque::from([soa(version.serial)]);

        if let Some(since) = request.since {
            if !follows(version.serial, since.serial) {
                return (
                    Self {
                        parts,
                        ..Self::default()
                    },
                    Form::Soa,
                );
            }
            if let Some(steps) = transfers.steps(&request.zone, since, version.serial) {
                for step in steps {
                    parts.push_back(soa(step.from));
                    parts.push_back(Part::Deleted(Arc::clone(&step), 0));
                    parts.push_back(soa(step.to));
                    parts.push_back(Part::Added(step, 0));
                }
                parts.push_back(soa(version.serial));
                return (
                    Self {
                        parts,
                        ..Self::default()
                    },
                    Form::Incremental,
                );
            }
        }

        let names = Part::Names(version.names(&request.zone), 0);
        parts.extend([Part::Apex, names, soa(version.serial)]);
        (
            Self {
                parts,
                ..Self::default()
            },
            Form::Whole,
        )
    }

    fn is_done(&self) -> bool {
        self.ready.is_empty() && self.parts.is_empty()
    }

    fn next<V: View>(&mut self, content: &mut Content<'_, V>) -> Option<Record> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(record);
            }
            let mut records = Vec::new();
            match self.parts.pop_front()? {
                Part::Soa(record) => records.push(record),
                Part::Apex => content.append_apex(&mut records),
                Part::Names(names, at) => {
                    if let Some(name) = names.get(at) {
                        content.append_name(name, &mut records);
                        self.parts.push_front(Part::Names(names, at + 1));
                    }
                }
                Part::Deleted(step, at) => {
                    if let Some(record) = step.difference.deleted.get(at) {
                        records.push(record.clone());
                        self.parts.push_front(Part::Deleted(step, at + 1));
                    }
                }
                Part::Added(step, at) => {
                    if let Some(record) = step.difference.added.get(at) {
                        records.push(record.clone());
                        self.parts.push_front(Part::Added(step, at + 1));
                    }
                }
            }
            self.ready.extend(records);
        }
    }
}

impl<V: View> Transfers<V> {
    /// The steps from the client's version of a zone to the version `to`; `None` if this process
    /// did not make the client's version, or does not keep the steps. Some secondaries send no
    /// EXPIRE, and their version may be another replica's.
    fn steps(&self, zone: &Name, since: Since, to: u32) -> Option<Vec<Arc<Step>>> {
        if since.expire != self.serials.expire() {
            return None;
        }
        self.history.lock().steps_between(zone, since.serial, to)
    }
}
