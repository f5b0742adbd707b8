//! The response to a transfer query over TCP. Its messages are made one by one, as fast as the
//! client reads.
//!
//! Transfers take turns, so only one message is made at a time. While a transfer waits for its
//! client, other transfers make their messages.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use super::ZoneTransfers;
use super::content::{ZoneContent, ZoneRecord};
use super::history::{VersionStep, ZoneVersion};
use super::metrics::{ResponseForm, TransferResult};
use super::names::OwnerNames;
use super::request::{AcceptedTransfer, ClientVersion, TransferRejection, TransferRequest};
use crate::backend::View;
use crate::client_shares::ClientShare;
use crate::engine::Reply;
use crate::engine::System;
use crate::serial::follows;
use wire::{Name, Query, Transport, rcode};

/// Size in octets at which a message takes no further record. With larger messages, the response
/// would have hardly fewer octets in total, and each message would occupy a thread for longer.
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
    /// Whether a message could not be made.
    failed: bool,
    /// Place among the concurrent transfers; `None` for a rejected query.
    place: Option<ClientShare>,
}

enum StreamState<V> {
    /// The error response to a rejected query.
    Last(Vec<u8>),
    Work(Box<StreamWork<V>>),
    End,
}

/// The inputs of the next message, which is made on a blocking thread.
struct StreamWork<V> {
    request: TransferRequest,
    version: Arc<ZoneVersion<V>>,
    plan: Option<StreamPlan>,
    form: ResponseForm,
}

/// The remaining records of a response.
struct StreamPlan {
    form: ResponseForm,
    /// Records to send next.
    ready: VecDeque<ZoneRecord>,
    /// The parts after `ready`.
    parts: VecDeque<StreamPart>,
}

/// A part of a response. For a part with many records, only the position in the part is stored, and
/// not the records.
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
        let accepted = match self.accept_query(message, client, Transport::Tcp)? {
            Ok(accepted) => accepted,
            Err(rejection) => return Some(self.rejection_stream(qtype, rejection)),
        };

        // The share of each client is limited, so that places are left for other clients.
        let Some(place) = self.places.take_share(client) else {
            let rejection = accepted.request.reject(rcode::REFUSED);
            return Some(self.rejection_stream(qtype, rejection));
        };
        Some(self.zone_stream(qtype, accepted, place))
    }

    /// A stream of one error response.
    fn rejection_stream(
        self: &Arc<Self>,
        qtype: u16,
        rejection: TransferRejection,
    ) -> TransferStream<V> {
        TransferStream {
            transfers: Arc::clone(self),
            state: StreamState::Last(rejection.response),
            form: ResponseForm::Error,
            qtype,
            rcode: rejection.rcode,
            open: true,
            failed: false,
            place: None,
        }
    }

    /// A stream of the records of a zone.
    fn zone_stream(
        self: &Arc<Self>,
        qtype: u16,
        accepted: AcceptedTransfer<V>,
        place: ClientShare,
    ) -> TransferStream<V> {
        let AcceptedTransfer { request, version } = accepted;
        self.metrics.running.inc();

        // The plan of the response decides the form, and is made with the first message. Until
        // then, the form is the one that the query asks for.
        let form = if request.since.is_some() {
            ResponseForm::Incremental
        } else {
            ResponseForm::Whole
        };
        let work = StreamWork {
            request,
            version,
            plan: None,
            form,
        };
        TransferStream {
            transfers: Arc::clone(self),
            state: StreamState::Work(Box::new(work)),
            form,
            qtype,
            rcode: rcode::NOERROR,
            open: true,
            failed: false,
            place: Some(place),
        }
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
            reason: None,
        }
    }

    /// Returns the next message; `None` after the last message or a failure. A stream that is
    /// dropped before its end counts as failed.
    pub async fn next_message(&mut self) -> Option<Vec<u8>> {
        let work = match std::mem::replace(&mut self.state, StreamState::End) {
            StreamState::Work(work) => work,
            StreamState::Last(message) => return Some(message),
            StreamState::End => {
                self.count_end();
                return None;
            }
        };
        let Some((work, message)) = self.make_message(work).await else {
            return self.fail();
        };

        self.form = work.form;
        if message.is_none() {
            return self.fail();
        }
        if !work.is_done() {
            self.state = StreamState::Work(work);
        }
        message
    }

    /// Ends the stream without the rest of the response. The failure is counted now, so that the
    /// transfer is not counted as completed later.
    fn fail(&mut self) -> Option<Vec<u8>> {
        self.failed = true;
        self.count_result(TransferResult::Failed);
        None
    }

    /// Whether the client lacks the rest of the response, because a message could not be made.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Waits for the turn of this transfer, and makes the next message on a blocking thread.
    async fn make_message(
        &self,
        mut work: Box<StreamWork<V>>,
    ) -> Option<(Box<StreamWork<V>>, Option<Vec<u8>>)> {
        let turn = Arc::clone(&self.transfers.turn);
        let turn = turn.acquire_owned().await.ok()?;
        let transfers = Arc::clone(&self.transfers);

        // A message takes milliseconds of work, which is too much for a thread of the runtime.
        let made = tokio::task::spawn_blocking(move || {
            let message = work.write_message(&transfers);
            drop(turn);
            (work, message)
        });
        made.await.ok()
    }

    fn count_end(&mut self) {
        let result = if self.form == ResponseForm::Error {
            TransferResult::Refused
        } else {
            TransferResult::Completed
        };
        self.count_result(result);
    }

    /// Counts the transfer, once.
    fn count_result(&mut self, result: TransferResult) {
        if !std::mem::take(&mut self.open) {
            return;
        }

        self.transfers.metrics.count_transfer(self.form, result);
        if self.place.is_some() {
            self.transfers.metrics.running.dec();
        }
    }
}

impl<V: View + 'static> Drop for TransferStream<V> {
    fn drop(&mut self) {
        self.count_result(TransferResult::Failed);
    }
}

impl<V: View> StreamWork<V> {
    fn is_done(&self) -> bool {
        self.plan.as_ref().is_some_and(StreamPlan::is_done)
    }

    /// Makes the next message; `None` if the message is too large for TCP.
    fn write_message(&mut self, transfers: &ZoneTransfers<V>) -> Option<Vec<u8>> {
        let Self {
            request,
            version,
            plan,
            form,
        } = self;

        // Listing all names of the zone takes a long time. So the plan is made here, on a blocking
        // thread, and not when the query arrives.
        let plan = plan.get_or_insert_with(|| StreamPlan::new(transfers, request, version));
        *form = plan.form;

        let zone = request.zone.clone();
        let mut content = ZoneContent::new(&*version.view, &zone);
        let mut out = Vec::with_capacity(FILLED + 4096);
        let written = request.write_message(FILLED, || plan.next_record(&mut content), &mut out);
        written.ok()?;
        Some(out)
    }
}

impl StreamPlan {
    /// Makes the plan of the response, and decides its form.
    fn new<V: View>(
        transfers: &ZoneTransfers<V>,
        request: &TransferRequest,
        version: &ZoneVersion<V>,
    ) -> Self {
        let zone = &request.zone;
        let content = ZoneContent::new(&*version.view, zone);
        let soa = SoaParts {
            transfers,
            content: &content,
        };

        let Some(since) = request.since else {
            return Self::whole_zone(&soa, zone, version);
        };

        // If the client's version is not older, the response has only the SOA record (RFC 1995,
        // section 2).
        if !follows(version.serial, since.serial) {
            let parts = VecDeque::from([soa.part(version.serial)]);
            return Self::with_parts(ResponseForm::Soa, parts);
        }
        match transfers.steps_since(zone, since, version.serial) {
            Some(steps) => Self::steps(&soa, steps, version.serial),
            None => Self::whole_zone(&soa, zone, version),
        }
    }

    /// All records between two SOA records (RFC 5936, section 2.2).
    fn whole_zone<V: View>(
        soa: &SoaParts<'_, '_, V>,
        zone: &Name,
        version: &ZoneVersion<V>,
    ) -> Self {
        let parts = [
            soa.part(version.serial),
            StreamPart::Apex,
            StreamPart::Names(version.names(zone), 0),
            soa.part(version.serial),
        ];
        Self::with_parts(ResponseForm::Whole, parts.into())
    }

    /// The steps to version `serial`, each with the SOA records of its two versions (RFC 1995,
    /// section 4).
    fn steps<V: View>(
        soa: &SoaParts<'_, '_, V>,
        steps: Vec<Arc<VersionStep>>,
        serial: u32,
    ) -> Self {
        let mut parts = VecDeque::from([soa.part(serial)]);
        for step in steps {
            parts.push_back(soa.part(step.from));
            parts.push_back(StreamPart::Deleted(Arc::clone(&step), 0));
            parts.push_back(soa.part(step.to));
            parts.push_back(StreamPart::Added(step, 0));
        }
        parts.push_back(soa.part(serial));
        Self::with_parts(ResponseForm::Incremental, parts)
    }

    fn with_parts(form: ResponseForm, parts: VecDeque<StreamPart>) -> Self {
        Self {
            form,
            ready: VecDeque::new(),
            parts,
        }
    }

    fn is_done(&self) -> bool {
        self.ready.is_empty() && self.parts.is_empty()
    }

    /// The next record of the response; `None` at its end.
    fn next_record<V: View>(&mut self, content: &mut ZoneContent<'_, V>) -> Option<ZoneRecord> {
        // A part may have no records left.
        while self.ready.is_empty() {
            let mut records = Vec::new();
            let rest = self.parts.pop_front()?.take_records(content, &mut records);
            if let Some(rest) = rest {
                self.parts.push_front(rest);
            }
            self.ready.extend(records);
        }
        self.ready.pop_front()
    }
}

impl StreamPart {
    /// Adds the next records of the part to `records`. Returns the rest of the part, if any.
    fn take_records<V: View>(
        self,
        content: &mut ZoneContent<'_, V>,
        records: &mut Vec<ZoneRecord>,
    ) -> Option<Self> {
        match self {
            Self::Soa(record) => {
                records.push(record);
                None
            }
            Self::Apex => {
                content.append_apex(records);
                None
            }
            Self::Names(names, at) => {
                content.append_name(names.get(at)?, records);
                Some(Self::Names(names, at + 1))
            }
            Self::Deleted(step, at) => {
                records.push(step.difference.deleted.get(at)?.clone());
                Some(Self::Deleted(step, at + 1))
            }
            Self::Added(step, at) => {
                records.push(step.difference.added.get(at)?.clone());
                Some(Self::Added(step, at + 1))
            }
        }
    }
}

/// Makes the SOA records of a response.
struct SoaParts<'p, 'v, V> {
    transfers: &'p ZoneTransfers<V>,
    content: &'p ZoneContent<'v, V>,
}

impl<V: View> SoaParts<'_, '_, V> {
    fn part(&self, serial: u32) -> StreamPart {
        let numbers = self.transfers.serials.soa_numbers(serial);
        StreamPart::Soa(self.content.soa_record(numbers))
    }
}

impl<V: View> ZoneTransfers<V> {
    /// The steps from the client's version of a zone to the version `to`; `None` if EXPIRE of the
    /// client's version is not that of this process, or if the history lacks the steps.
    fn steps_since(
        &self,
        zone: &Name,
        since: ClientVersion,
        to: u32,
    ) -> Option<Vec<Arc<VersionStep>>> {
        // Each process adds its own random number to EXPIRE, so EXPIRE shows which process made the
        // version.
        if since.expire != self.serials.expire_seconds() {
            return None;
        }
        self.history.lock().steps_between(zone, since.serial, to)
    }
}
