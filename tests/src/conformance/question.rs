//! Converts a recorded question to a packet, and recorded upstream packets to an exchange for
//! replay.

use anyhow::Context as _;
use testkit::hex::unhex;
use testkit::message;
use testkit::query::Query;
use testkit::upstream;
use wire::Transport;

use super::vector::{Edns, Exchange, Question};

impl Question {
    /// The packet of the query, with this ID in its first two octets.
    pub fn packet(&self, id: u16) -> anyhow::Result<Vec<u8>> {
        let mut packet = match &self.wire {
            Some(hex) => {
                unhex(hex).with_context(|| format!("the packet of the query is not hex: {hex}"))?
            }
            None => self.query()?.wire(),
        };
        for (octet, new) in packet.iter_mut().zip(id.to_be_bytes()) {
            *octet = new;
        }
        Ok(packet)
    }

    fn query(&self) -> anyhow::Result<Query> {
        let query = Query::new(&self.name, &self.rtype)
            .class(&self.class)
            .opcode(&self.opcode)
            .flags(&self.flags);
        Ok(match &self.edns {
            Some(edns) => query.opt(edns.to_testkit()?),
            None => query,
        })
    }

    /// Maximum size of the answer in octets. Over TCP, the maximum is 65535. Over UDP, the maximum
    /// is the size in the OPT record, or 512 if that size is smaller or there is no OPT record.
    pub fn limit(&self) -> usize {
        match self.transport {
            Transport::Tcp => 65_535,
            Transport::Udp => self
                .edns
                .as_ref()
                .map_or(512, |edns| usize::from(edns.udp).max(512)),
        }
    }

    /// The question in one line, for reports.
    pub fn in_words(&self) -> String {
        let mut words = match &self.what {
            Some(what) => vec![what.as_str()],
            None => vec![self.name.as_str(), &self.rtype],
        };
        words.extend(Some(self.class.as_str()).filter(|class| !matches!(*class, "" | "IN")));
        words.extend(Some(self.opcode.as_str()).filter(|opcode| !matches!(*opcode, "" | "QUERY")));
        words.extend((self.transport == Transport::Tcp).then_some("tcp"));
        words.join(" ")
    }
}

impl Edns {
    fn to_testkit(&self) -> anyhow::Result<message::Edns> {
        let option = |(code, hex): &(u16, String)| Some((*code, unhex(hex)?));
        let options: Option<Vec<_>> = self.options.iter().map(option).collect();
        let options = options.context("the data of an EDNS option are not hex")?;
        Ok(message::Edns {
            udp: self.udp,
            dnssec_ok: self.dnssec_ok,
            version: self.version,
            options,
        })
    }
}

impl Exchange {
    /// The exchange, for an upstream that replays the responses.
    pub fn to_replay(&self) -> anyhow::Result<upstream::Exchange> {
        let responses: Option<Vec<Vec<u8>>> =
            self.response_wire.iter().map(|hex| unhex(hex)).collect();
        let responses =
            responses.with_context(|| format!("{}: a response is not hex", self.question))?;
        Ok(upstream::Exchange {
            transport: self.transport,
            question: self.question.clone(),
            responses,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::conformance::vector;

    #[test]
    fn question_fields_give_recorded_packet() {
        let mut compared = 0;
        for scenario in vector::load_all().expect("the vectors must be loaded") {
            for question in scenario
                .steps
                .iter()
                .flat_map(|step| &step.queries)
                .map(|case| &case.query)
            {
                if question.wire.is_some() && question.what.is_none() {
                    let built = question
                        .query()
                        .expect("the options must be hex")
                        .id(0)
                        .wire();
                    let packet = question.packet(0).expect("the packet must be hex");
                    assert_eq!(built, packet, "{}", question.in_words());
                    compared += 1;
                }
            }
        }
        assert!(
            compared > 0,
            "at least one recorded packet must be compared"
        );
    }
}
