//! The server under measurement.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::api::Api;
use crate::cluster::{Cluster, DOMAIN};
use crate::probe;
use crate::process::{Process, free_address};
use crate::setup::Bench;
use crate::usage::{Memory, Usage};

/// How long a start may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// Ports that are tried.
const ATTEMPTS: u32 = 5;
/// How long one question may take while it starts.
const ANSWER: Duration = Duration::from_millis(20);
/// Between two questions while it starts.
const PAUSE: Duration = Duration::from_millis(1);
/// Memory has settled when it has been the same for this many looks.
const LOOKS: usize = 5;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(300);

/// A running kubedns.
#[derive(Debug)]
pub struct Kubedns {
    process: Process,
    address: SocketAddr,
    /// From the start of the process to the first right answer.
    pub first_answer: Duration,
}

impl Kubedns {
    /// Starts it on the objects of `api`, with `upstreams` for names outside, and waits for the first right answer.
    pub async fn start(
        bench: &Bench,
        api: &Api,
        cluster: &Cluster,
        upstreams: &[SocketAddr],
    ) -> anyhow::Result<Self> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match Self::start_once(bench, api, cluster, upstreams).await {
                // Somebody else took the port that was free a moment ago.
                Err(error) if attempts < ATTEMPTS && error.to_string().contains("Address already in use") => {
                }
                outcome => return outcome,
            }
        }
    }

    async fn start_once(
        bench: &Bench,
        api: &Api,
        cluster: &Cluster,
        upstreams: &[SocketAddr],
    ) -> anyhow::Result<Self> {
        let address = free_address(Ipv4Addr::LOCALHOST.into())?;
        let nameservers: Vec<String> = upstreams.iter().map(ToString::to_string).collect();
        let mut args = vec![
            format!("--domain={DOMAIN}."),
            format!("--kube-master-url={}", api.url()),
            format!("--dns-bind-address={}", bench.options.bind),
            format!("--dns-port={}", address.port()),
            format!("--nameservers={}", nameservers.join(",")),
            "--healthz-port=0".to_owned(),
            "--resolv-conf=/dev/null".to_owned(),
            "--lameduck=0s".to_owned(),
        ];
        args.extend(bench.options.kubedns_arg.iter().cloned());
        let begun = Instant::now();
        let process = Process::start("kubedns", &bench.kubedns, args, bench.directory())?;
        let mut kubedns = Self { process, address, first_answer: Duration::ZERO };
        kubedns.wait_for(cluster, begun).await?;
        kubedns.first_answer = begun.elapsed();
        Ok(kubedns)
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it uses.
    pub fn usage(&self) -> &Usage {
        self.process.usage()
    }

    async fn wait_for(&mut self, cluster: &Cluster, begun: Instant) -> anyhow::Result<()> {
        let Some(service) = cluster.services.last() else { bail!("the cluster is empty") };
        let (name, addresses) = (service.domain_name(), service.addresses());
        while !probe::leads_to(self.address, &name, &addresses, ANSWER).await {
            self.process.check()?;
            if begun.elapsed() > PATIENCE {
                bail!("kubedns does not answer {name} within {PATIENCE:?}");
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Its memory once that no longer changes.
    pub async fn settled_memory(&mut self) -> anyhow::Result<Memory> {
        let mut memory = self.usage().memory()?;
        let mut same = 0;
        for _ in 0..10 * LOOKS {
            tokio::time::sleep(LOOK).await;
            self.process.check()?;
            let now = self.usage().memory()?;
            same = if now.resident == memory.resident { same + 1 } else { 0 };
            memory = now;
            if same == LOOKS {
                break;
            }
        }
        Ok(memory)
    }
}
