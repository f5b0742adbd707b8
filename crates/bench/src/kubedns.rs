//! The kubedns process that is measured.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, bail};
use testkit::ports::free_port;
use testkit::process::{Process, Program};
use testkit::processes::{Pid, Usage};

use crate::cluster::{Cluster, DOMAIN};
use crate::probe;
use crate::setup::Bench;
use apiserver::RunningApiServer;

/// Timeout of the first correct answer after a start.
const PATIENCE: Duration = Duration::from_mins(2);
/// Timeout of one answer during the start.
const ANSWER: Duration = Duration::from_millis(20);
/// The pause between two queries during the start.
const PAUSE: Duration = Duration::from_millis(1);
/// Memory has settled when this number of readings in a row show no change.
const EQUAL_READINGS: usize = 5;
/// The pause between two memory readings.
const READING_PAUSE: Duration = Duration::from_millis(300);

/// The program kubedns. It serves DNS on the port of `address`, serves health and status on the
/// port of `status`, and forwards to `upstreams`.
pub(crate) fn program(
    bench: &Bench,
    address: SocketAddr,
    status: SocketAddr,
    upstreams: &[SocketAddr],
) -> Program {
    let nameservers: Vec<String> = upstreams.iter().map(ToString::to_string).collect();
    Program::tied(&bench.kubedns)
        .args([
            &format!("--domain={DOMAIN}."),
            &format!("--dns-port={}", address.port()),
            &format!("--healthz-port={}", status.port()),
            &format!("--nameservers={}", nameservers.join(",")),
        ])
        // kubedns listens on all addresses, as with the stock manifest.
        .args([
            "--dns-bind-address=0.0.0.0",
            "--resolv-conf=/dev/null",
            "--lameduck=0s",
        ])
}

/// A running kubedns.
#[derive(Debug)]
pub struct Kubedns {
    started: Instant,
    process: Process,
    address: SocketAddr,
    status: SocketAddr,
    /// The time from the start of the process to the first correct answer.
    pub first_answer: Duration,
}

impl Kubedns {
    /// Starts kubedns with `api` as its API server and with `upstreams`, and waits for the first
    /// correct answer.
    pub async fn start(
        bench: &Bench,
        api: &RunningApiServer,
        cluster: &Cluster,
        upstreams: &[SocketAddr],
    ) -> anyhow::Result<Self> {
        let service = cluster.services.last().context("the cluster is empty")?;
        let access = format!("--kube-master-url={}", api.url());
        Self::start_with(
            bench,
            &[access],
            &service.domain_name(),
            &service.addresses(),
            upstreams,
        )
        .await
    }

    /// Starts kubedns with `upstreams` and with the arguments `access`, which connect it to an API
    /// server. Waits until `name` has exactly these `addresses`.
    pub async fn start_with(
        bench: &Bench,
        access: &[String],
        name: &str,
        addresses: &[Ipv4Addr],
        upstreams: &[SocketAddr],
    ) -> anyhow::Result<Self> {
        let mut kubedns = Self::launch(bench, access, upstreams);
        kubedns.wait_for(name, addresses, PAUSE).await?;
        Ok(kubedns)
    }

    /// Starts kubedns as [`start_with`](Self::start_with) does, without waiting.
    pub fn launch(bench: &Bench, access: &[String], upstreams: &[SocketAddr]) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let status = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let program = program(bench, address, status, upstreams)
            .args(access)
            .args(&bench.options.kubedns_arg);
        Self {
            started: Instant::now(),
            process: program.start(),
            address,
            status,
            first_answer: Duration::ZERO,
        }
    }

    /// The loopback address and the DNS port of kubedns.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the status port.
    pub fn status(&self) -> SocketAddr {
        self.status
    }

    /// The process ID.
    pub fn pid(&self) -> Pid {
        self.process.id()
    }

    /// The resources that kubedns uses now.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of(self.pid()).context("kubedns has ended")
    }

    /// Waits until `name` has exactly these `addresses`, and sets `first_answer`. Sends a query
    /// after each `pause`.
    pub async fn wait_for(
        &mut self,
        name: &str,
        addresses: &[Ipv4Addr],
        pause: Duration,
    ) -> anyhow::Result<()> {
        while !probe::leads_to(self.address, name, addresses, ANSWER).await {
            self.process.check().map_err(Error::msg)?;
            if self.started.elapsed() > PATIENCE {
                bail!("kubedns has not given the right answer for {name} within {PATIENCE:?}");
            }
            tokio::time::sleep(pause).await;
        }
        self.first_answer = self.started.elapsed();
        Ok(())
    }

    /// The resources that kubedns uses once its memory has settled, or after 50 readings.
    pub async fn settled_usage(&self) -> anyhow::Result<Usage> {
        let mut usage = self.usage()?;
        let mut same = 0;
        for _ in 0..10 * EQUAL_READINGS {
            tokio::time::sleep(READING_PAUSE).await;
            let now = self.usage()?;
            same = if now.resident == usage.resident {
                same + 1
            } else {
                0
            };
            usage = now;
            if same == EQUAL_READINGS {
                break;
            }
        }
        Ok(usage)
    }
}
