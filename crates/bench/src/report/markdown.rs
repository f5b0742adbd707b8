//! The tables in Markdown.

use std::fmt::Write as _;

use super::goals::{
    CHANGE, FIRST_ANSWER, LARGE_FIRST_ANSWER, LARGE_RESIDENT, PEAK, READ, RESIDENT, SLOW_READERS,
    megabytes,
};
use super::{Change, Churn, Cost, Machine, Outside, Pages, PagesRow, Real, Report, Start};
use crate::distribution::Distribution;
use crate::questions::Kind;

impl Report {
    /// All tables.
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        // Writing into a String does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        self.machine.write(text)?;
        if let Some(cost) = &self.cost {
            cost.write(text)?;
        }
        if let Some(start) = &self.start {
            start.write(text, FIRST_ANSWER, RESIDENT)?;
        }
        if let Some(large) = &self.large {
            large.write(text, LARGE_FIRST_ANSWER, LARGE_RESIDENT)?;
        }
        if let Some(change) = &self.change {
            change.write(text)?;
        }
        if let Some(churn) = &self.churn {
            write_churn(text, churn)?;
        }
        if let Some(outside) = &self.outside {
            outside.write(text)?;
        }
        if let Some(pages) = &self.pages {
            pages.write(text)?;
        }
        if let Some(real) = &self.real {
            real.write(text)?;
        }
        Ok(())
    }
}

impl Machine {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let Self {
            date,
            processor,
            cores,
            kernel,
            load,
        } = self;
        writeln!(
            text,
            "Measured on {date}: {cores} cores of {processor}, Linux {kernel}, load average {load} before the run."
        )
    }
}

impl Cost {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n### CPU time per query\n")?;
        writeln!(
            text,
            "Microseconds, and in brackets the multiple of the echo in the same run.\n"
        )?;
        write!(text, "| server |")?;
        Kind::ALL
            .iter()
            .try_for_each(|kind| write!(text, " {} |", kind.title()))?;
        write!(text, "\n| --- |{}", " --- |".repeat(Kind::ALL.len()))?;
        for server in &self.servers {
            write!(text, "\n| {server} |")?;
            for kind in Kind::ALL {
                match self
                    .prices
                    .iter()
                    .find(|price| price.server == *server && price.kind == kind)
                {
                    Some(price) => {
                        write!(text, " {:.2} ({:.2}) |", price.microseconds, price.ratio)?;
                    }
                    None => write!(text, " |")?,
                }
            }
        }
        write!(text, "\n| goal |")?;
        for kind in Kind::ALL {
            match kind.goal() {
                Some(goal) => write!(text, " ({goal:.2}) |")?,
                None => write!(text, " |")?,
            }
        }
        writeln!(text)
    }
}

impl Start {
    fn write(&self, text: &mut String, first_answer: f64, resident: f64) -> std::fmt::Result {
        writeln!(
            text,
            "\n### Start and memory with {} Services, {} addresses\n",
            self.services, self.addresses
        )?;
        writeln!(text, "| | measured | goal |\n| --- | --- | --- |")?;
        writeln!(
            text,
            "| first right answer after process start | {:.2} s | {first_answer} s |",
            self.first_answer
        )?;
        writeln!(
            text,
            "| resident after the first lists | {:.1} MB | {resident} MB |",
            megabytes(self.resident)
        )?;
        let most = PEAK * megabytes(self.resident);
        for (title, peak) in [
            ("during the first lists", self.peak_first_lists),
            ("during three relists", self.peak_relists),
            ("under load", self.peak_load),
        ] {
            writeln!(
                text,
                "| peak {title} | {:.1} MB | {most:.1} MB |",
                megabytes(peak)
            )?;
        }
        writeln!(
            text,
            "| resident after three relists | {:.1} MB | |",
            megabytes(self.resident_after_relists)
        )
    }
}

impl Change {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let Distribution {
            count,
            p50,
            p99,
            max,
        } = self.latency;
        writeln!(
            text,
            "\n### From a change at the API server to the answer\n"
        )?;
        writeln!(
            text,
            "{count} changes, 100 a second, Services and slices in turn; milliseconds.\n"
        )?;
        writeln!(
            text,
            "| p50 | p99 | goal for p99 | max | CPU |\n| --- | --- | --- | --- | --- |"
        )?;
        writeln!(
            text,
            "| {p50:.1} | {p99:.1} | {CHANGE} | {max:.1} | {:.1} % |",
            100.0 * self.cpu_share
        )
    }
}

fn write_churn(text: &mut String, rows: &[Churn]) -> std::fmt::Result {
    writeln!(text, "\n### Churn\n")?;
    writeln!(
        text,
        "CPU as a fraction of one core, 1,000 queries a second for cluster names included; milliseconds.\n"
    )?;
    writeln!(
        text,
        "| | CPU | p50 | p99 | max | lost | resident |\n| --- | --- | --- | --- | --- | --- | --- |"
    )?;
    for row in rows {
        let Distribution { p50, p99, max, .. } = row.latency;
        let (cpu, resident) = (100.0 * row.cpu_share, megabytes(row.resident));
        writeln!(
            text,
            "| {} | {cpu:.1} % | {p50:.2} | {p99:.2} | {max:.1} | {} | {resident:.1} MB |",
            row.title, row.lost
        )?;
    }
    Ok(())
}

impl Outside {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "\n### Cluster names while 10,000 queries for external names hang on a dead upstream\n"
        )?;
        writeln!(text, "| | p50 | p99 | max |\n| --- | --- | --- | --- |")?;
        for (title, Distribution { p50, p99, max, .. }) in
            [("without", self.without), ("with", self.with)]
        {
            writeln!(
                text,
                "| {title} | {p50:.2} ms | {p99:.2} ms | {max:.1} ms |"
            )?;
        }
        let Self {
            lost,
            asked,
            unanswered,
            longest,
            ..
        } = self;
        let peak = megabytes(self.peak);
        writeln!(
            text,
            "\nCluster names without an answer: {lost}. External names: {asked} asked, {unanswered} without an answer, the last answer after {longest:.1} s. Peak memory: {peak:.1} MB."
        )
    }
}

impl Pages {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n### While clients read `/explain` and `/cache`\n")?;
        writeln!(
            text,
            "A hundred changes a second at the API server, and a thousand forwarded queries a second; milliseconds. Goal: with readers, changes take at most {READ} times as long (p50).\n"
        )?;
        writeln!(
            text,
            "| | pages read | change p50 | p99 | forwarded p50 | p99 | lost |"
        )?;
        writeln!(text, "| --- | --- | --- | --- | --- | --- | --- |")?;
        for PagesRow {
            title,
            read,
            change,
            forwarded,
            lost,
        } in &self.rows
        {
            writeln!(
                text,
                "| {title} | {read} | {:.1} | {:.1} | {:.2} | {:.2} | {lost} |",
                change.p50, change.p99, forwarded.p50, forwarded.p99
            )?;
        }
        let taken = megabytes(self.peak_slow.saturating_sub(self.resident));
        writeln!(
            text,
            "\nTwo clients that read `/cache` slowly take {taken:.2} MB of memory. Goal: {SLOW_READERS} MB."
        )
    }
}

impl Real {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let Self {
            version,
            services,
            addresses,
            ..
        } = self;
        writeln!(
            text,
            "\n### On a kube-apiserver {version} with {services} Services, {addresses} addresses\n"
        )?;
        writeln!(text, "A start, the median of five:\n")?;
        writeln!(
            text,
            "| `--endpoints-source` | first answer | own CPU | API server's CPU | received | resident |"
        )?;
        writeln!(text, "| --- | --- | --- | --- | --- | --- |")?;
        for row in &self.rows {
            let (octets, resident) = (row.octets / 1e6, megabytes(row.resident));
            writeln!(
                text,
                "| {} | {:.2} s | {:.2} s | {:.2} s | {octets:.2} MB | {resident:.1} MB |",
                row.source, row.first_answer, row.own_cpu, row.api_cpu
            )?;
        }
        writeln!(
            text,
            "\n10,000 changes of a slice and its Endpoints, one by one, and fifty instances that start at once:\n"
        )?;
        writeln!(
            text,
            "| `--endpoints-source` | received for each | own CPU for each | all fifty answer after |"
        )?;
        writeln!(text, "| --- | --- | --- | --- |")?;
        for row in &self.rows {
            writeln!(
                text,
                "| {} | {:.0} bytes | {:.0} µs | {:.1} s |",
                row.source, row.octets_each, row.cpu_each, row.storm
            )?;
        }
        Ok(())
    }
}
