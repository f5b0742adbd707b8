//! The response to a transfer query over TCP, message by message, at the speed at which the client
//! reads.
//!
//! One message is made at a time, and transfers take turns. A transfer that waits for its client
//! holds only a version and a place.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use wire::{Name, Query, Transport, rcode};

use super::ZoneTransfers;
use super::content::{ZoneContent, ZoneRecord};
use super::history::{VersionStep, ZoneVersion};
use super::metrics::ResponseForm;
use super::names::OwnerNames;
use super::request::{AcceptedTransfer, ClientVersion, TransferRejection, TransferRequest};
use crate::backend::View;
use crate::client_shares::ClientShare;
use crate::engine::Reply;
use crate::metrics::System;
use crate::serial::follows;

/// Size in octets at which a message takes no further record. A larger message would save little
/// and occupy a thread for longer.
const FILLED: usize = 24 * 1024;

/// A response in progress.
pub struct TransferStream<V: View + 'static> {
    transfers: Arc<ZoneTransfers<V>>,
    state: StreamState<V>,
    form: ResponseForm,
    qtype: u16,
    rcode: u16,
    /// Whether the transfer is still to be counted in the metrics.
    open: bool,
    /// Place among the concurrent transfers; `None` for a rejected query.
    place: Option<ClientShare>,
}

enum StreamState<V> {
    /// The error response to a rejected query.
    Last(Vec<u8>),
    StreamWork(Box<StreamWork<V>>),
    End,
}

struct StreamWork<V> {
    request: TransferRequest,
    version: Arc<ZoneVersion<V>>,
    plan: Option<StreamPlan>,
    form: ResponseForm,
}

/// The remaining records of a response.
#[derive(Default)]
struct StreamPlan {
    /// Records to send next.
    ready: VecDeque<ZoneRecord>,
    /// The parts after `ready`.
    parts: VecDeque<StreamPart>,
}

/// A part of a response. Only the position in it is held, not its records.
enum StreamPart {
    Soa(ZoneRecord),
    /// The records of the zone's apex and its name server.
    Apex,
    /// The records of these names, from a position on.
    Names(Arc<OwnerNames>, usize),
    /// The records that a step deletes, from a position on.
    Deleted(Arc<VersionStep>, usize),
    /// The records that a step adds, from a position on.
    Added(Arc<VersionStep>, usize),
}

impl<V: View + 'static> ZoneTransfers<V> {
    /// Begins the response to a transfer query over TCP; `None` if no response is sent.
    pub fn begin_stream(
        self: &Arc<Self>,
        message: &[u8],
        client: IpAddr,
    ) -> Option<TransferStream<V>> {
        let qtype = Query::parse(message, Transport::Tcp).ok()?.qtype;
        let stream = |state, form, rcode, place| {
            let transfers = Arc::clone(self);
            TransferStream {
                transfers,
                state,
                form,
                qtype,
                rcode,
                open: true,
                place,
            }
        };
        let reject = |TransferRejection { rcode, response }| {
            stream(
                StreamState::Last(response),
                ResponseForm::Error,
                rcode,
                None,
            )
        };
        let AcceptedTransfer { request, version } =
            match self.accept(message, client, Transport::Tcp)? {
                Ok(accepted) => accepted,
                Err(rejection) => return Some(reject(rejection)),
            };
        let Some(place) = self.places.take_share(client) else {
            return Some(reject(request.reject(rcode::REFUSED)));
        };
        self.metrics.running.inc();
        let form = if request.since.is_some() {
            ResponseForm::Incremental
        } else {
            ResponseForm::Whole
        };
        let state = StreamState::StreamWork(Box::new(StreamWork {
            request,
            version,
            plan: None,
            form,
        }));
        Some(stream(state, form, rcode::NOERROR, Some(place)))
    }
}

impl<V: View + 'static> TransferStream<V> {
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
    pub async fn next_message(&mut self) -> Option<Vec<u8>> {
        let mut work = match std::mem::replace(&mut self.state, StreamState::End) {
            StreamState::StreamWork(work) => work,
            StreamState::Last(message) => return Some(message),
            StreamState::End => {
                self.count(if self.form == ResponseForm::Error {
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
            self.state = StreamState::StreamWork(work);
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

impl<V: View + 'static> Drop for TransferStream<V> {
    fn drop(&mut self) {
        self.count("failed");
    }
}

impl<V: View> StreamWork<V> {
    fn is_done(&self) -> bool {
        self.plan.as_ref().is_some_and(StreamPlan::is_done)
    }

    /// Makes the next message; `None` if a message cannot be made.
    fn message(&mut self, transfers: &ZoneTransfers<V>) -> Option<Vec<u8>> {
        let Self {
            request,
            version,
            plan,
            form,
        } = self;
        let plan = plan.get_or_insert_with(|| {
            let (planned, what) = StreamPlan::new(transfers, request, version);
            *form = what;
            planned
        });
        let zone = request.zone.clone();
        let mut content = ZoneContent::new(&*version.view, &zone);
        let mut out = Vec::with_capacity(FILLED + 4096);
        request
            .write(FILLED, || plan.next(&mut content), &mut out)
            .then_some(out)
    }
}

impl StreamPlan {
    /// Makes the plan of the response, and decides its form.
    fn new<V: View>(
        transfers: &ZoneTransfers<V>,
        request: &TransferRequest,
        version: &ZoneVersion<V>,
    ) -> (Self, ResponseForm) {
        let content = ZoneContent::new(&*version.view, &request.zone);
        let soa = |serial| StreamPart::Soa(content.soa(transfers.serials.soa_numbers(serial)));
        let mut parts = VecDeque::from([soa(version.serial)]);

        if let Some(since) = request.since {
            if !follows(version.serial, since.serial) {
                return (
                    Self {
                        parts,
                        ..Self::default()
                    },
                    ResponseForm::Soa,
                );
            }
            if let Some(steps) = transfers.steps(&request.zone, since, version.serial) {
                for step in steps {
                    parts.push_back(soa(step.from));
                    parts.push_back(StreamPart::Deleted(Arc::clone(&step), 0));
                    parts.push_back(soa(step.to));
                    parts.push_back(StreamPart::Added(step, 0));
                }
                parts.push_back(soa(version.serial));
                return (
                    Self {
                        parts,
                        ..Self::default()
                    },
                    ResponseForm::Incremental,
                );
            }
        }

        let names = StreamPart::Names(version.names(&request.zone), 0);
        parts.extend([StreamPart::Apex, names, soa(version.serial)]);
        (
            Self {
                parts,
                ..Self::default()
            },
            ResponseForm::Whole,
        )
    }

    fn is_done(&self) -> bool {
        self.ready.is_empty() && self.parts.is_empty()
    }

    fn next<V: View>(&mut self, content: &mut ZoneContent<'_, V>) -> Option<ZoneRecord> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(record);
            }
            let mut records = Vec::new();
            match self.parts.pop_front()? {
                StreamPart::Soa(record) => records.push(record),
                StreamPart::Apex => content.append_apex(&mut records),
                StreamPart::Names(names, at) => {
                    if let Some(name) = names.get(at) {
                        content.append_name(name, &mut records);
                        self.parts.push_front(StreamPart::Names(names, at + 1));
                    }
                }
                StreamPart::Deleted(step, at) => {
                    if let Some(record) = step.difference.deleted.get(at) {
                        records.push(record.clone());
                        self.parts.push_front(StreamPart::Deleted(step, at + 1));
                    }
                }
                StreamPart::Added(step, at) => {
                    if let Some(record) = step.difference.added.get(at) {
                        records.push(record.clone());
                        self.parts.push_front(StreamPart::Added(step, at + 1));
                    }
                }
            }
            self.ready.extend(records);
        }
    }
}

impl<V: View> ZoneTransfers<V> {
    /// The steps from the client's version of a zone to the version `to`; `None` if this process
    /// did not make the client's version, or does not keep the steps. Some secondaries send no
    /// EXPIRE, and their version may be another replica's.
    fn steps(&self, zone: &Name, since: ClientVersion, to: u32) -> Option<Vec<Arc<VersionStep>>> {
        if since.expire != self.serials.expire_seconds() {
            return None;
        }
        self.history.lock().steps_between(zone, since.serial, to)
    }
}
