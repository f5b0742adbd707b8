//! Goals, and the results that miss a goal. Goals in seconds or milliseconds of wall-clock time are
//! shown but not enforced, because such times depend on the load of the machine.

use crate::forwarders::LARGE_CACHE;

use super::{Cost, Forwarded, ForwardedLoad, Forwarder, Pages, Report, Start};

/// Limit of resident memory with ten thousand Services, in MB.
pub(super) const RESIDENT: f64 = 20.0;
/// Limit of resident memory with a hundred thousand Services, in MB.
pub(super) const LARGE_RESIDENT: f64 = 100.0;
/// Limit of peak memory, as a multiple of resident memory.
pub(super) const PEAK: f64 = 1.3;
/// Limit of the time to the first answer with ten thousand Services, in seconds.
pub(super) const FIRST_ANSWER: f64 = 0.3;
/// Limit of the time to the first answer with a hundred thousand Services, in seconds.
pub(super) const LARGE_FIRST_ANSWER: f64 = 3.0;
/// Limit of the median time from a change to the first answer that shows the change, while clients
/// read pages. The limit is a multiple of the median time without readers.
pub(super) const READ: f64 = 2.0;
/// Limit of the memory that two slow readers of `/cache` take, in MB.
pub(super) const SLOW_READERS: f64 = 1.0;
/// Limit of the 99th percentile of the time from a change to the first answer that shows the
/// change, in milliseconds.
pub(super) const CHANGE: f64 = 50.0;
/// Limit of the memory of cached names, as a multiple of the memory that dnsmasq uses for them.
pub(super) const CACHE_MEMORY: f64 = 2.0;
/// Name of the server that must meet the goals.
const OURS: &str = "kubedns";

impl Report {
    /// One line for each enforced goal that is missed.
    pub fn missed(&self) -> Vec<String> {
        let start = self.start.iter().flat_map(|start| start.missed(RESIDENT));
        let large = self
            .large
            .iter()
            .flat_map(|large| large.missed(LARGE_RESIDENT));
        let forwarded = self.forwarded.iter().flat_map(Forwarded::missed);
        let pages = self.pages.iter().flat_map(Pages::missed);
        self.cost
            .iter()
            .flat_map(Cost::missed)
            .chain(start)
            .chain(large)
            .chain(forwarded)
            .chain(pages)
            .collect()
    }
}

impl Cost {
    fn missed(&self) -> Vec<String> {
        let ours = self.prices.iter().filter(|price| price.server == OURS);
        let missed = ours.filter_map(|price| {
            let goal = price.kind.goal().filter(|goal| price.ratio > *goal)?;
            Some(format!(
                "queries of the kind {} cost {:.2} times as much CPU time as a UDP echo, more than {goal:.2}",
                price.kind.title(),
                price.ratio
            ))
        });
        missed.collect()
    }
}

impl Start {
    fn missed(&self, resident: f64) -> Vec<String> {
        let most = PEAK * megabytes(self.resident);
        let sizes = [
            (
                "resident memory after the first lists",
                self.resident,
                resident,
            ),
            (
                "the peak during the first lists",
                self.peak_first_lists,
                most,
            ),
            ("the peak during relists", self.peak_relists, most),
            ("the peak under load", self.peak_load, most),
        ];
        let missed = sizes
            .into_iter()
            .filter(|(_, found, goal)| megabytes(*found) > *goal);
        missed
            .map(|(what, found, goal)| {
                format!(
                    "with {} Services, {what} is {:.1} MB, more than {goal:.1} MB",
                    self.services,
                    megabytes(found)
                )
            })
            .collect()
    }
}

impl Forwarded {
    fn missed(&self) -> Vec<String> {
        let Some(ours) = self.row_of(OURS) else {
            return Vec::new();
        };

        let loads = ForwardedLoad::ALL.into_iter().enumerate();
        let mut missed: Vec<String> = loads
            .filter_map(|(index, load)| {
                let cost = ours.microseconds.get(index)?;
                let bar = self.row_of(load.measure())?.microseconds.get(index)?;
                (cost > bar).then(|| {
                    format!(
                        "a query for an external name ({}) costs {cost:.1} us of CPU time, more than the {bar:.1} us of {}",
                        load.title(),
                        load.measure()
                    )
                })
            })
            .collect();

        if let Some(dnsmasq) = self.row_of(&format!("dnsmasq{LARGE_CACHE}"))
            && f64::from(ours.cache_memory) > CACHE_MEMORY * f64::from(dnsmasq.cache_memory)
        {
            missed.push(format!(
                "the cache takes {:.1} MB, more than {CACHE_MEMORY} times the {:.1} MB of dnsmasq",
                megabytes(ours.cache_memory),
                megabytes(dnsmasq.cache_memory)
            ));
        }
        missed
    }

    fn row_of(&self, server: &str) -> Option<&Forwarder> {
        self.rows.iter().find(|row| row.server == server)
    }
}

impl Pages {
    fn missed(&self) -> Vec<String> {
        let [idle, rows @ ..] = self.rows.as_slice() else {
            return Vec::new();
        };
        let late = rows
            .iter()
            .filter(|row| row.change.p50 > READ * idle.change.p50);
        let mut missed: Vec<String> = late
            .map(|row| {
                let multiple = row.change.p50 / idle.change.p50;
                format!(
                    "with {}, the median time from a change to the answer is {multiple:.1} times the median without readers, more than {READ}",
                    row.title
                )
            })
            .collect();

        let taken = megabytes(self.peak_slow.saturating_sub(self.resident));
        if taken > SLOW_READERS {
            missed.push(format!(
                "two slow readers of /cache take {taken:.1} MB, more than {SLOW_READERS} MB"
            ));
        }
        missed
    }
}

/// Converts KiB to MB.
pub(super) fn megabytes(kibibytes: u32) -> f64 {
    f64::from(kibibytes) * 1024.0 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Distribution;
    use crate::questions::Kind;
    use crate::report::Price;

    fn report(ratio: f64, resident: u32, peak: u32) -> Report {
        let price = |server: &str| Price {
            server: server.to_owned(),
            kind: Kind::A,
            microseconds: 9.0,
            ratio,
        };
        let start = Start {
            services: 10_000,
            addresses: 30_000,
            first_answer: 9.0,
            resident,
            peak_first_lists: resident,
            resident_after_relists: resident,
            peak_relists: peak,
            peak_load: resident,
        };
        let servers = vec!["echo".to_owned(), OURS.to_owned()];
        let prices = vec![price("echo"), price(OURS)];
        Report {
            cost: Some(Cost { servers, prices }),
            start: Some(start),
            ..Report::default()
        }
    }

    #[test]
    fn missed_goal_is_named() {
        assert_eq!(report(1.25, 19_000, 24_000).missed(), [""; 0]);
        assert_eq!(
            report(1.26, 20_000, 28_000).missed(),
            [
                "queries of the kind A cost 1.26 times as much CPU time as a UDP echo, more than 1.25",
                "with 10000 Services, resident memory after the first lists is 20.5 MB, more than 20.0 MB",
                "with 10000 Services, the peak during relists is 28.7 MB, more than 26.6 MB",
            ]
        );
    }

    fn forwarder(server: &str, microseconds: [f64; 4], cache_memory: u32) -> Forwarder {
        Forwarder {
            server: server.to_owned(),
            microseconds: microseconds.to_vec(),
            lost: 0,
            uncached: Distribution {
                count: 1,
                p50: 0.1,
                p99: 0.2,
                max: 0.3,
            },
            cache_memory,
        }
    }

    #[test]
    fn goal_is_missed_if_query_is_expensive_or_cache_is_large() {
        let dnsmasq = forwarder("dnsmasq", [60.0, 30.0, 20.0, 9.0], 100);
        let large = forwarder(
            "dnsmasq with 10,000 names",
            [140.0, 120.0, 29.0, 14.0],
            1000,
        );
        let unbound = forwarder("Unbound", [70.0, 35.0, 22.0, 10.0], 4000);
        for (name, ours, memory, missed) in [
            ("exactly at the limits", [60.0, 30.0, 22.0, 10.0], 2000, 0),
            ("uncached is expensive", [61.0, 30.0, 22.0, 10.0], 2000, 1),
            ("cached is expensive", [60.0, 30.0, 22.0, 10.1], 2000, 1),
            ("large cache", [60.0, 30.0, 22.0, 10.0], 2001, 1),
        ] {
            let rows = vec![
                forwarder(OURS, ours, memory),
                dnsmasq.clone(),
                large.clone(),
                unbound.clone(),
            ];
            let found = Forwarded { rows }.missed();
            assert_eq!(found.len(), missed, "{name}: {found:?}");
        }
    }
}
