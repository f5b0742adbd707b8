//! The tables in Markdown.

use super::goals::{
    CHANGE, FIRST_ANSWER, LARGE_FIRST_ANSWER, LARGE_RESIDENT, PEAK, READ, RESIDENT, SLOW_READERS,
    megabytes,
};
use super::{
    Change, Churn, Cost, Fleet, FleetRow, Forwarded, ForwardedLoad, Forwarder, Machine, Outside,
    Pages, PagesRow, Real, RealRow, Report, Start,
};
use crate::distribution::Distribution;
use crate::questions::Kind;

impl Report {
    /// All tables.
    pub fn to_markdown(&self) -> String {
        let parts = [
            Some(self.machine.to_markdown()),
            self.cost.as_ref().map(Cost::to_markdown),
            self.start
                .as_ref()
                .map(|start| start.to_markdown(FIRST_ANSWER, RESIDENT)),
            self.large
                .as_ref()
                .map(|large| large.to_markdown(LARGE_FIRST_ANSWER, LARGE_RESIDENT)),
            self.change.as_ref().map(Change::to_markdown),
            self.churn.as_ref().map(|rows| churn_to_markdown(rows)),
            self.outside.as_ref().map(Outside::to_markdown),
            self.forwarded.as_ref().map(Forwarded::to_markdown),
            self.pages.as_ref().map(Pages::to_markdown),
            self.real.as_ref().map(Real::to_markdown),
            self.fleet.as_ref().map(Fleet::to_markdown),
        ];
        parts.into_iter().flatten().collect()
    }
}

impl Machine {
    fn to_markdown(&self) -> String {
        let Self {
            date,
            processor,
            cores,
            kernel,
            load,
        } = self;
        format!(
            "Measured on {date}: {cores} cores of {processor}, Linux {kernel}, load average {load} before the run.\n"
        )
    }
}

impl Cost {
    fn to_markdown(&self) -> String {
        let titles: String = Kind::ALL
            .map(|kind| format!(" {} |", kind.title()))
            .concat();
        let rules = " --- |".repeat(Kind::ALL.len());
        let rows: String = self.servers.iter().map(|server| self.row(server)).collect();
        let goals = Kind::ALL.map(|kind| match kind.goal() {
            Some(goal) => format!(" ({goal:.2}) |"),
            None => " |".to_owned(),
        });
        format!(
            "\n### CPU time per query\n\n\
             Times are in microseconds. The number in brackets is the time divided by that of the UDP echo server (`echo`) in the same round. Both numbers are medians of the rounds.\n\n\
             | server |{titles}\n\
             | --- |{rules}\n\
             {rows}\
             | goal |{}\n",
            goals.concat()
        )
    }

    fn row(&self, server: &str) -> String {
        let cells = Kind::ALL.map(|kind| {
            let is_cell = |price: &&super::Price| price.server == server && price.kind == kind;
            match self.prices.iter().find(is_cell) {
                Some(price) => format!(" {:.2} ({:.2}) |", price.microseconds, price.ratio),
                None => " |".to_owned(),
            }
        });
        format!("| {server} |{}\n", cells.concat())
    }
}

impl Start {
    fn to_markdown(&self, first_answer: f64, resident: f64) -> String {
        let most = PEAK * megabytes(self.resident);
        format!(
            "\n### Start and memory with {services} Services, {addresses} addresses\n\n\
             | | measured | goal |\n\
             | --- | --- | --- |\n\
             | first right answer after process start | {first:.2} s | {first_answer} s |\n\
             | resident after the first lists | {now:.1} MB | {resident} MB |\n\
             | peak during the first lists | {lists:.1} MB | {most:.1} MB |\n\
             | peak during three relists | {relists:.1} MB | {most:.1} MB |\n\
             | peak under load | {load:.1} MB | {most:.1} MB |\n\
             | resident after three relists | {after:.1} MB | |\n",
            services = self.services,
            addresses = self.addresses,
            first = self.first_answer,
            now = megabytes(self.resident),
            lists = megabytes(self.peak_first_lists),
            relists = megabytes(self.peak_relists),
            load = megabytes(self.peak_load),
            after = megabytes(self.resident_after_relists),
        )
    }
}

impl Change {
    fn to_markdown(&self) -> String {
        let Distribution {
            count,
            p50,
            p99,
            max,
        } = self.latency;
        format!(
            "\n### From a change at the API server to the answer\n\n\
             {count} changes of Services and EndpointSlices in turn, 100 a second. Latencies are in milliseconds.\n\n\
             | p50 | p99 | goal for p99 | max | CPU of kubedns |\n\
             | --- | --- | --- | --- | --- |\n\
             | {p50:.1} | {p99:.1} | {CHANGE} | {max:.1} | {:.1} % |\n",
            100.0 * self.cpu_share
        )
    }
}

fn churn_to_markdown(rows: &[Churn]) -> String {
    let row = |row: &Churn| {
        let Distribution { p50, p99, max, .. } = row.latency;
        let (cpu, resident) = (100.0 * row.cpu_share, megabytes(row.resident));
        format!(
            "| {} | {cpu:.1} % | {p50:.2} | {p99:.2} | {max:.1} | {} | {resident:.1} MB |\n",
            row.title, row.lost
        )
    };
    format!(
        "\n### Churn\n\n\
         CPU is the CPU time of kubedns, as a share of one core. In every row, kubedns also answers 1,000 queries a second for cluster names. p50, p99 and max are the latencies of these queries, in milliseconds.\n\n\
         | | CPU | p50 | p99 | max | lost queries | resident |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n\
         {}",
        rows.iter().map(row).collect::<String>()
    )
}

impl Outside {
    fn to_markdown(&self) -> String {
        let row = |title, Distribution { p50, p99, max, .. }: Distribution| {
            format!("| {title} | {p50:.2} ms | {p99:.2} ms | {max:.1} ms |\n")
        };
        let Self {
            lost,
            asked,
            unanswered,
            longest,
            ..
        } = self;
        format!(
            "\n### Cluster names during 5,000 queries a second for external names whose upstream is dead\n\n\
             | | p50 | p99 | max |\n\
             | --- | --- | --- | --- |\n\
             {}{}\n\
             Lost queries for cluster names: {lost}. Queries for external names: {asked}, without an answer: {unanswered} (SERVFAIL counts as an \
             answer). The last answer came {longest:.1} s after the last query. Peak memory of kubedns: {:.1} MB.\n",
            row("without these queries", self.without),
            row("with these queries", self.with),
            megabytes(self.peak)
        )
    }
}

impl Forwarded {
    fn to_markdown(&self) -> String {
        let titles: String = ForwardedLoad::ALL
            .map(|load| format!(" {} |", load.title()))
            .concat();
        let rows: String = self.rows.iter().map(Forwarder::row).collect();
        format!(
            "\n### A query for an external name\n\n\
             The first columns have the CPU time of the server per query, in microseconds. The upstream is NSD. Goals for kubedns: no more CPU time than \
             `dnsmasq` for names that are not cached, no more than Unbound for cached names, and at most twice the memory of `dnsmasq with 10,000 names`. \
             p50 and p99 are the latencies of names that are not cached, at a thousand queries a second. \
             In the columns \"cached\", a server without a cache forwards all queries.\n\n\
             | |{titles} lost queries | p50 | p99 | memory of 10,000 cached names |\n\
             | --- |{} --- | --- | --- | --- |\n{rows}",
            " --- |".repeat(ForwardedLoad::ALL.len()),
        )
    }
}

impl Forwarder {
    fn row(&self) -> String {
        let costs: Vec<String> = self
            .microseconds
            .iter()
            .map(|cost| format!("{cost:.1}"))
            .collect();
        let costs = costs.join(" | ");
        let Distribution { p50, p99, .. } = self.uncached;
        format!(
            "| {} | {costs} | {} | {p50:.2} ms | {p99:.2} ms | {:.1} MB |\n",
            self.server,
            self.lost,
            megabytes(self.cache_memory)
        )
    }
}

impl Pages {
    fn to_markdown(&self) -> String {
        let taken = megabytes(self.peak_slow.saturating_sub(self.resident));
        format!(
            "\n### While clients read `/explain` and `/cache`\n\n\
             There are a hundred changes a second at the API server, and a thousand forwarded queries a second. Latencies are in \
             milliseconds. Goal: with readers, the p50 of changes is at most {READ} times the p50 without readers.\n\n\
             | | pages read | change p50 | p99 | forwarded p50 | p99 | lost queries |\n\
             | --- | --- | --- | --- | --- | --- | --- |\n\
             {}\n\
             While two clients read `/cache` slowly, kubedns takes {taken:.2} MB more memory. Goal: at most {SLOW_READERS} MB.\n",
            self.rows
                .iter()
                .map(PagesRow::to_markdown)
                .collect::<String>()
        )
    }
}

impl PagesRow {
    fn to_markdown(&self) -> String {
        let Self {
            title,
            read,
            change,
            forwarded,
            lost,
        } = self;
        format!(
            "| {title} | {read} | {:.1} | {:.1} | {:.2} | {:.2} | {lost} |\n",
            change.p50, change.p99, forwarded.p50, forwarded.p99
        )
    }
}

impl Real {
    fn to_markdown(&self) -> String {
        let Self {
            services,
            addresses,
            rows,
            ..
        } = self;
        format!(
            "\n### On a real kube-apiserver with {services} Services, {addresses} addresses\n\n\
             This table has the medians of five starts, and the resident memory after one further start:\n\n\
             | `--endpoints-source` | first answer | CPU of kubedns | API server's CPU | received | resident |\n\
             | --- | --- | --- | --- | --- | --- |\n\
             {}\n\
             This table has the means of 10,000 changes; each change alters an EndpointSlice and its Endpoints. The last column is for fifty kubedns instances that start at once:\n\n\
             | `--endpoints-source` | received for each change | CPU of kubedns for each change | all fifty had answered after |\n\
             | --- | --- | --- | --- |\n\
             {}",
            rows.iter().map(RealRow::of_start).collect::<String>(),
            rows.iter().map(RealRow::of_changes).collect::<String>()
        )
    }
}

impl RealRow {
    fn of_start(&self) -> String {
        let (octets, resident) = (self.octets / 1e6, megabytes(self.resident));
        format!(
            "| {} | {:.2} s | {:.2} s | {:.2} s | {octets:.2} MB | {resident:.1} MB |\n",
            self.source, self.first_answer, self.own_cpu, self.api_cpu
        )
    }

    fn of_changes(&self) -> String {
        format!(
            "| {} | {:.0} bytes | {:.0} µs | {:.1} s |\n",
            self.source, self.octets_each, self.cpu_each, self.storm
        )
    }
}

impl Fleet {
    fn to_markdown(&self) -> String {
        let Self {
            services,
            addresses,
            rows,
            ..
        } = self;
        format!(
            "\n### Many kubedns instances on a real kube-apiserver with {services} Services, {addresses} addresses\n\n\
             The table shows the CPU time of the API server, and the octets that all kubedns instances together receive. First all \
             instances start at once, then nothing changes for a while, then ten slices change each second.\n\n\
             | instances | all have answered after | CPU of the start | received at the start | CPU while nothing changes | received each second while nothing changes | CPU with ten changes a second | received for each change |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- |\n\
             {}\n\
             The next table has two times in milliseconds. `accepted` is the time from the request for a change until the API server has accepted \
             the change. `answered` is the time from then until the answer of a queried kubedns instance shows the change.\n\n\
             | instances | accepted: p50 | p99 | answered: p50 | p99 (goal {CHANGE:.0}) | max | answers | load average |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- |\n\
             {}",
            rows.iter().map(FleetRow::of_cost).collect::<String>(),
            rows.iter()
                .filter_map(FleetRow::of_latency)
                .collect::<String>()
        )
    }
}

impl FleetRow {
    fn of_cost(&self) -> String {
        format!(
            "| {} | {:.2} s | {:.2} s | {:.2} MB | {:.1} % | {:.0} bytes | {:.1} % | {:.1} kB |\n",
            self.instances,
            self.last_answer,
            self.start_cpu,
            self.start_octets / 1e6,
            100.0 * self.idle_cpu_share,
            self.idle_octets,
            100.0 * self.busy_cpu_share,
            self.octets_each / 1e3
        )
    }

    fn of_latency(&self) -> Option<String> {
        let (accepted, answered) = (&self.accepted, self.answered.as_ref()?);
        Some(format!(
            "| {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {} | {:.1} |\n",
            self.instances,
            accepted.p50,
            accepted.p99,
            answered.p50,
            answered.p99,
            answered.max,
            answered.count,
            self.load
        ))
    }
}
