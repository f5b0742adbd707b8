//! An upstream with a fixed set of records.

use super::{Asked, Reaction};
use crate::reply::Reply;

/// Records in presentation format. Queries for other names get NXDOMAIN, and queries for other
/// types get NODATA. CNAMEs are followed.
#[derive(Clone, Debug, Default)]
pub struct Zone {
    records: Vec<String>,
}

impl Zone {
    /// A zone with these records, such as `www.outside.test. 120 IN A 198.51.100.10`.
    pub fn new<'a>(records: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            records: records.into_iter().map(str::to_owned).collect(),
        }
    }

    /// The answer to one question.
    pub fn answer(&self, asked: &Asked) -> Reply {
        let mut reply = Reply::to(&asked.packet);
        let mut name = asked.name();
        for _ in 0..=self.records.len() {
            let owned: Vec<Fields<'_>> = self.owned_by(&name).collect();
            if owned.is_empty() {
                return reply.rcode("NXDOMAIN");
            }
            let rtype = asked.rtype();
            for record in owned.iter().filter(|record| record.rtype == rtype) {
                reply = reply.answer(&record.under(&name));
            }
            let alias = owned
                .iter()
                .find(|record| record.rtype == "CNAME" && rtype != "CNAME");
            let Some(alias) = alias else { return reply };
            reply = reply.answer(&alias.under(&name));
            alias.data.clone_into(&mut name);
        }
        reply
    }

    fn owned_by(&self, name: &str) -> impl Iterator<Item = Fields<'_>> {
        let name = name.to_owned();
        self.records
            .iter()
            .map(|text| Fields::of(text))
            .filter(move |record| record.name.eq_ignore_ascii_case(&name))
    }

    /// A handler that answers from this zone.
    pub fn handler(self) -> impl Fn(&Asked) -> Reaction + Send + Sync + 'static {
        move |asked| self.answer(asked).into()
    }
}

struct Fields<'a> {
    name: &'a str,
    ttl: &'a str,
    rtype: &'a str,
    data: &'a str,
}

impl<'a> Fields<'a> {
    #[track_caller]
    fn of(text: &'a str) -> Self {
        let fields: Vec<&str> = text.splitn(5, ' ').collect();
        let [name, ttl, "IN", rtype, data] = fields[..] else {
            panic!("not a record of class IN: {text:?}")
        };
        Self {
            name,
            ttl,
            rtype,
            data,
        }
    }

    /// The record in presentation format, with `name` as its owner name, in the letter case of
    /// `name`.
    fn under(&self, name: &str) -> String {
        format!("{name} {} IN {} {}", self.ttl, self.rtype, self.data)
    }
}
