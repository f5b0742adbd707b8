//! Starts the pod, runs it until a signal arrives or the pod fails, then stops it and removes its
//! files.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::future::join_all;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::config_map::Follower;
use crate::console::Console;
use crate::container::Keeper;
use crate::embedded::Embedded;
use crate::guide::Guide;
use crate::options::Options;
use crate::pod::{Container, Wiring};
use crate::ports::{DEFAULT_BASE, Ports, Sockets};
use crate::programs::{Programs, search_path};
use crate::readiness;
use crate::status::Status;
use crate::stop::{self, Stop};
use crate::upstream::Upstream;

/// Tasks of the servers in this process. If a server ends early, the pod is stopped with an error.
type Servers = JoinSet<Result<()>>;

/// Runs the pod until a signal asks it to stop, or until the pod fails.
pub fn run(options: &Options, console: &Console) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    // This future spawns the containers, so it runs on the main thread: see `daemon::exec`.
    runtime.block_on(async {
        let stop = Stop::default();
        let signals = stop::on_signals(stop.clone()).context("cannot catch signals")?;
        tokio::select! {
            ended = pod(options, console, &stop) => ended,
            () = signals => Ok(()),
        }
    })
}

async fn pod(options: &Options, console: &Console, stop: &Stop) -> Result<()> {
    let search = search_path(&std::env::var_os("PATH").unwrap_or_default());
    let programs = Programs::find(&options.bin_dir()?, options.dnsmasq.as_deref(), &search)?;
    programs.check_dnsmasq(&options.extra.dnsmasq)?;
    let (chosen, upstream_sockets) = Ports::choose(options.port_base)?;
    let ports = if options.shape.direct || options.shape.alone {
        chosen.direct()
    } else {
        chosen
    };
    let work = tempfile::Builder::new()
        .prefix("localpod.")
        .tempdir()
        .context("cannot make a temporary directory")?;

    let config_dir = work.path().join("kube-dns-config");
    std::fs::create_dir(&config_dir).context("cannot make the directory of the ConfigMap")?;
    let status = Status::create(options.status_file.clone(), ports, &config_dir)?;

    let mut setup = Setup {
        options,
        ports,
        console,
        serving: CancellationToken::new(),
        servers: JoinSet::new(),
    };
    let (cluster, stub_domain) = tokio::select! {
        set_up = setup.run(upstream_sockets, &config_dir) => set_up?,
        () = stop.asked() => {
            setup.take_down().await;
            return Ok(());
        }
    };

    let nameservers = upstreams(options, ports);
    let wiring = Wiring {
        programs: &programs,
        ports,
        domain: options.domain(),
        config_dir: &config_dir,
        state_dir: &work.path().join("nanny"),
        access: cluster.access.clone(),
        nameservers: &nameservers,
        is_cache: options.shape.cache,
        is_alone: options.shape.alone,
        probe_interval: options.probe_interval,
        verbosity: options.v,
        extra: &options.extra,
    };
    let keeper = Keeper {
        console,
        status: &status,
        stop,
        grace: Duration::from_secs(options.grace_period),
    };
    let announce = announce(
        options,
        ports,
        &programs,
        &cluster,
        stub_domain,
        console,
        &status,
    );
    let ended = until_stopped(&keeper, &wiring.containers(), announce, &mut setup.servers).await;

    setup.take_down().await;
    ended
}

/// The servers in this process: the example upstream, the [`Follower`] of the `ConfigMap` and,
/// without `--kubecfg-file`, the embedded API server.
struct Setup<'a> {
    options: &'a Options,
    ports: Ports,
    console: &'a Console,
    /// Cancelling this token stops the servers.
    serving: CancellationToken,
    servers: Servers,
}

impl Setup<'_> {
    /// Starts the servers, and mounts the `ConfigMap` if the API server returns it in time. Returns
    /// the cluster, and whether the stub domain `acme.example` points at the example upstream.
    async fn run(
        &mut self,
        upstream_sockets: Sockets,
        config_dir: &Path,
    ) -> Result<(Cluster, bool)> {
        let upstream = Upstream::on(upstream_sockets, self.options.offline);
        let upstream = upstream.context("cannot start the example upstream")?;
        let token = self.serving.clone();
        self.servers.spawn(async move {
            upstream
                .run(token)
                .await
                .context("the example upstream failed")
        });
        let (cluster, stub_domain) = if let Some(file) = &self.options.kubecfg_file {
            let cluster = Cluster::real(file).await?;
            self.console.say(&format!(
                "serving the cluster of kubeconfig {}",
                file.display()
            ));
            (cluster, false)
        } else {
            self.embed().await?
        };
        let follower =
            Follower::start(cluster.client.clone(), config_dir, self.console.clone()).await;
        self.servers.spawn(async move {
            follower.run().await;
            Err(anyhow!("the watch of the ConfigMap ended"))
        });
        Ok((cluster, stub_domain))
    }

    /// Starts the embedded API server.
    async fn embed(&mut self) -> Result<(Cluster, bool)> {
        let (ports, manifests) = (self.ports, &self.options.manifests);
        let embedded = Embedded::bind(ports.api, manifests)?;
        self.console.say(&format!(
            "the API server has {} objects from {}",
            embedded.objects,
            manifests.display()
        ));
        let token = self.serving.clone();
        self.servers.spawn(async move {
            embedded.run(token).await;
            Ok(())
        });
        let cluster = Cluster::embedded(ports.api)?;
        let manifest_port = Ports::block(DEFAULT_BASE)?.upstream;
        let stub_domain = cluster
            .point_stub_domain(manifest_port, ports.upstream)
            .await?;
        Ok((cluster, stub_domain))
    }

    /// Stops the servers and waits for them, so that no server writes to the temporary directory
    /// while that directory is removed.
    async fn take_down(mut self) {
        self.serving.cancel();
        self.servers.shutdown().await;
        self.console.say("stopped");
    }
}

fn upstreams(options: &Options, ports: Ports) -> Vec<SocketAddr> {
    if options.offline {
        vec![ports.upstream_addr()]
    } else {
        options.nameservers.clone()
    }
}

/// When the pod is ready, prints the guide and updates the status file.
async fn announce(
    options: &Options,
    ports: Ports,
    programs: &Programs,
    cluster: &Cluster,
    stub_domain: bool,
    console: &Console,
    status: &Status,
) {
    readiness::wait(ports, options.shape.alone, options.domain(), console).await;
    let samples = cluster.samples().await;
    let guide = Guide {
        services: &samples.services,
        endpoints: &samples.endpoints,
        domain: options.domain(),
        ports,
        kubedns: &programs.kubedns,
        access: &cluster.access,
        stub_domain,
        is_alone: options.shape.alone,
    };
    console.guide(&guide.text());
    status.ready();
}

/// Runs the containers until a stop is requested, [`Keeper::keep`] fails, or a server of this
/// process ends.
async fn until_stopped(
    keeper: &Keeper<'_>,
    containers: &[Container],
    announce: impl Future<Output = ()>,
    servers: &mut Servers,
) -> Result<()> {
    let keeping = join_all(containers.iter().map(|container| keep(keeper, container)));
    let keeping = async { keeping.await.into_iter().collect::<Result<()>>() };
    let announcing = async {
        announce.await;
        std::future::pending::<Infallible>().await
    };
    tokio::pin!(keeping);
    let failure = tokio::select! {
        kept = &mut keeping => return kept,
        never = announcing => match never {},
        ended = servers.join_next() => failure_of(ended),
    };
    keeper.stop.ask();
    keeping.await.and(Err(failure))
}

/// Keeps one container running. If [`Keeper::keep`] fails, all other containers stop as well.
async fn keep(keeper: &Keeper<'_>, container: &Container) -> Result<()> {
    keeper
        .keep(container)
        .await
        .inspect_err(|_| keeper.stop.ask())
}

/// The error of a server that ended before the pod.
fn failure_of(ended: Option<Result<Result<()>, tokio::task::JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok(Err(error))) => error,
        Some(Err(error)) => anyhow!(error).context("one of localpod's own servers failed"),
        Some(Ok(Ok(()))) | None => anyhow!("one of localpod's own servers ended early"),
    }
}
