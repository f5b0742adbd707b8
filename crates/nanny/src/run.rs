//! Starts and connects the nanny's parts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use daemon::http::Server;
use daemon::klog::Format;
use daemon::shutdown::Shutdown;
use daemon::tasks::Tasks;
use dnsclient::first_address;
use dnsclient::resolv_conf::{Emptied, ResolvConfFollower};
use dnsclient::resolve::{Resolver, Sources};
use dnsconfig::query_log::QueryLog;
use dnsconfig::{ConfigSource, ConfigState};
use querylog::log::{LogOpenError, LoggedQueries, QueryLogger};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use warp::Filter as _;
use wire::{Nameserver, ServerAddr};

use crate::config::arguments::Arguments;
use crate::config::routes::{Forward, Routes};
use crate::dnsmasq::delivery::Delivery;
use crate::dnsmasq::launch::{Mode, Plan};
use crate::dnsmasq::process::QueryLines;
use crate::dnsmasq::queries::{Queries, Reader};
use crate::dnsmasq::servfail_server::ServfailServer;
use crate::dnsmasq::supervisor::Supervisor;
use crate::dnsmasq::user::Identity;
use crate::dnsmasq::version::Dnsmasq;
use crate::flags::Flags;
use crate::kubedns::Follower;
use crate::report::Report;
use crate::router::{Fixed, Inputs, Requests, Router};
use crate::state_dir::{StateDir, StateDirError};

/// The name of the servers file in the state directory.
const SERVERS_FILE: &str = "servers.conf";
/// The cluster domain if neither flags nor arguments give one.
const CLUSTER_DOMAIN: &str = "cluster.local";
/// Limit of the wait for the addresses of stub servers before the first start of dnsmasq. The wait
/// applies only without a servers file: adding servers later then takes a restart.
const FIRST_NAMES: Duration = Duration::from_secs(3);
/// The writer of the query log if dnsmasq does not forward to kubedns.
const KUBEDNS: &str = "kubedns, to which dnsmasq forwards no names";
/// Limit of the look-up of -kubednsServer.
const LOOKUP: Duration = Duration::from_secs(5);
/// The time limit for the end of the tasks beside dnsmasq.
const ENDING: Duration = Duration::from_secs(2);

/// Runs the nanny until shutdown, or until dnsmasq dies too often.
pub async fn run(flags: Flags, shutdown: Shutdown) -> anyhow::Result<()> {
    let nanny = Nanny::prepare(flags).await?;
    nanny.run(shutdown.stop).await
}

/// The nanny after all steps of the start that can fail.
struct Nanny {
    tasks: Tasks,
    beside: CancellationToken,
    supervisor: Supervisor,
    directory: Option<Arc<StateDir>>,
    /// The routes, if the first start has to wait for addresses of stub servers.
    incomplete: Option<watch::Receiver<Routes>>,
}

impl Nanny {
    async fn prepare(flags: Flags) -> anyhow::Result<Self> {
        let arguments = Arguments::read(flags.dnsmasq.clone());
        let sources = name_sources(&flags, &arguments).await?;
        let dnsmasq = Dnsmasq::ask(&flags.dnsmasq_exec).await?;
        tell_version(&dnsmasq);
        let directory = state_directory(&flags.state_dir)?;
        let plan = plan(&arguments, directory.as_deref(), &dnsmasq, flags.forward);
        let report = Report::new()?;
        let edits_by = edits_by(&plan, flags.restart_dnsmasq);
        report.uses(
            &dnsmasq.version,
            dnsmasq.package.as_deref(),
            dnsmasq.missing_fixes(),
            edits_by,
        )?;

        let beside = CancellationToken::new();
        let mut tasks = Tasks::new(beside.clone());
        let asks_kubedns = flags.forward == Forward::Kubedns || arguments.send_to(sources.kubedns);
        let Routing {
            routes,
            unresolved,
            states,
        } = routing(
            &flags, &arguments, &plan, sources, &report, &mut tasks, &beside,
        )
        .await?;
        if let Some(directory) = &directory {
            tasks.lasting(
                "write status",
                report
                    .clone()
                    .write_file(Arc::clone(directory), beside.clone()),
            );
        }
        let queries = Queries::new(report.metrics(), logs_queries(&arguments))?;
        // The query log is opened before dnsmasq starts, so that a configured query log needs no
        // restart of dnsmasq.
        let logger = QueryLogger::new(
            query_log(&queries, asks_kubedns),
            states,
            LoggedQueries::Configured,
        );
        tasks.lasting("write the query log", logger.run(beside.clone()));
        let follow_queries = queries.wanted();
        serve_pages(&flags.status_addr, &report, &queries, &mut tasks, &beside).await;
        let incomplete = (unresolved && plan.mode == Mode::Restart).then(|| routes.clone());
        let supervisor = Supervisor {
            program: flags.dnsmasq_exec,
            port: arguments.port(),
            probe: arguments
                .probe_address()
                .filter(|_| !arguments.has("no-ident")),
            plan,
            directory: directory.clone(),
            delivery: Delivery::new(routes, report.clone()),
            log_interval: flags.log_interval.into(),
            may_restart: flags.restart_dnsmasq,
            query_lines: QueryLines {
                followers: queries,
                logged: arguments.has("log-queries"),
                json: flags.log.log_format == Format::Json,
            },
            follow_queries,
            report,
        };
        Ok(Self {
            tasks,
            beside,
            supervisor,
            directory,
            incomplete,
        })
    }

    /// Runs dnsmasq and the other tasks. The end of dnsmasq stops the tasks, and the end of a task
    /// stops dnsmasq.
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        if let Some(mut routes) = self.incomplete {
            // Servers with addresses that arrive later would need a restart.
            let _ = timeout(FIRST_NAMES, routes.changed()).await;
        }
        let stop = stop.child_token();
        let supervise = async {
            let outcome = self.supervisor.run(stop.clone()).await;
            self.beside.cancel();
            outcome
        };
        let join_tasks = async {
            let outcome = self.tasks.join(ENDING).await;
            stop.cancel();
            outcome
        };
        let (supervised, joined) = tokio::join!(supervise, join_tasks);
        if let Some(directory) = self.directory.and_then(Arc::into_inner) {
            directory.remove();
        }
        supervised?;
        Ok(joined?)
    }
}

async fn name_sources(flags: &Flags, arguments: &Arguments) -> anyhow::Result<Sources> {
    let kubedns = kubedns_address(&flags.kubedns_server).await?;
    let given = flags.kubedns_domain.trim_matches('.').to_ascii_lowercase();
    if !given.is_empty() && !wire::rfc1123::is_subdomain(&given) {
        anyhow::bail!("-kubednsDomain: {given:?} is no domain name");
    }
    let given = Some(given).filter(|domain| !domain.is_empty());
    let routed = || arguments.domain_routed_to(kubedns);
    let cluster_domain = given
        .or_else(routed)
        .unwrap_or_else(|| CLUSTER_DOMAIN.to_owned());
    debug!(%kubedns, cluster_domain, "stub servers given by names under this domain are resolved through kubedns");
    Ok(Sources {
        kubedns,
        cluster_domain,
        hosts: dnsclient::hosts::FILE.into(),
    })
}

/// The address of `-kubednsServer`. A name such as `localhost` is looked up once, at the start.
async fn kubedns_address(server: &str) -> anyhow::Result<Nameserver> {
    let accepted = "-kubednsServer (accepted: IP, IP:port, name:port)";
    let server = ServerAddr::from_flag(server).context(accepted)?;
    let address = timeout(LOOKUP, first_address(&server))
        .await
        .context("lookup timed out")
        .context(accepted)?;
    Ok(address.context(accepted)?.into())
}

fn tell_version(dnsmasq: &Dnsmasq) {
    info!(version = %dnsmasq, package = dnsmasq.package.as_deref().unwrap_or("unknown"), "dnsmasq found");
    let missing = dnsmasq.missing_fixes();
    if !missing.is_empty() {
        warn!(
            version = %dnsmasq,
            missing = missing.join(" "),
            "this dnsmasq lacks security fixes, unless its distribution added them: update it"
        );
    }
}

/// Opens the directory `given`, or a directory of the nanny's own. `None` if no directory is
/// writable: edits then restart dnsmasq.
fn state_directory(given: &str) -> anyhow::Result<Option<Arc<StateDir>>> {
    let given = Some(given).filter(|path| !path.is_empty());
    match StateDir::open(given.map(Path::new)) {
        Ok(directory) => Ok(Some(Arc::new(directory))),
        Err(StateDirError::Nowhere) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn plan(
    arguments: &Arguments,
    directory: Option<&StateDir>,
    dnsmasq: &Dnsmasq,
    forward: Forward,
) -> Plan {
    let file = directory.map(|directory| directory.file(SERVERS_FILE));
    let file = file.ok_or_else(|| StateDirError::Nowhere.to_string());
    let plan = Plan::new(arguments, file, &Identity::own(), dnsmasq, forward);
    for note in &plan.notes {
        info!("{note}");
    }
    if let Some(reason) = &plan.obstacle {
        warn!(%reason, "edits of the configuration restart dnsmasq");
    }
    plan
}

fn edits_by(plan: &Plan, restart_dnsmasq: bool) -> &'static str {
    match &plan.mode {
        _ if !restart_dnsmasq => "none",
        Mode::Reload { .. } => "reload",
        Mode::Restart => "restart",
    }
}

/// The results of [`routing`].
struct Routing {
    routes: watch::Receiver<Routes>,
    /// Names of stub servers are still unresolved.
    unresolved: bool,
    /// The configuration in force.
    states: watch::Receiver<ConfigState>,
}

/// Starts the sources of the routes.
async fn routing(
    flags: &Flags,
    arguments: &Arguments,
    plan: &Plan,
    sources: Sources,
    report: &Report,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> anyhow::Result<Routing> {
    let period = flags.sync_interval.duration();
    let domains = [sources.cluster_domain.clone()].into();
    let config = ConfigSource::Directory {
        path: flags.config_dir.clone(),
        period,
    }
    .open_for(domains);
    let states = config.subscribe();
    // With -restartDnsmasq=false the configuration is read once.
    if flags.restart_dnsmasq {
        tasks.lasting("follow the configuration", config.run(stop.clone()));
    }

    let upstreams =
        ResolvConfFollower::open(plan.resolv_files.clone(), Emptied::Unfinished, period);
    let upstream_servers = upstreams.subscribe();
    let system = if plan.resolv_files.is_empty() {
        // dnsmasq uses no resolv.conf, but the nanny resolves server names with the servers of
        // /etc/resolv.conf.
        let system = ResolvConfFollower::open(
            vec![PathBuf::from("/etc/resolv.conf")],
            Emptied::Unfinished,
            period,
        );
        let servers = system.subscribe();
        tasks.lasting("follow resolv.conf for names", system.run(stop.clone()));
        servers
    } else {
        upstreams.subscribe()
    };
    if plan.follow_resolv {
        tasks.lasting("follow resolv.conf", upstreams.run(stop.clone()));
    }

    let requests = Requests {
        names: watch::Sender::default(),
        kubedns: watch::Sender::default(),
    };
    let kubedns = sources.kubedns;
    let resolver = Resolver::new(sources, requests.names.subscribe(), system);
    let follower = Follower::new(kubedns, requests.kubedns.subscribe());
    let servfail = ServfailServer::bind()
        .await
        .context("cannot listen on a loopback port")?;
    report.servfail_server(servfail.local_addr());
    let inputs = Inputs {
        config: states.clone(),
        resolv_conf: upstream_servers,
        names: resolver.subscribe(),
        kubedns: follower.subscribe(),
    };
    let fixed = Fixed {
        arguments: arguments.clone(),
        servfail_server: servfail.local_addr(),
        kubedns,
        forward: flags.forward,
        follows: flags.restart_dnsmasq,
    };
    let router = Router::new(inputs, fixed, requests, report.clone());
    let routing = Routing {
        routes: router.subscribe(),
        unresolved: router.has_unresolved_names(),
        states,
    };
    tasks.lasting("resolve names", resolver.run(stop.clone()));
    tasks.lasting("follow the routes of kubedns", follower.run(stop.clone()));
    tasks.critical("fail unroutable queries", servfail.run(stop.clone()));
    tasks.lasting("route", router.run(stop.clone()));
    Ok(routing)
}

/// Opens the query log if dnsmasq forwards to kubedns. Otherwise kubedns is in front and writes the
/// query log.
fn query_log(
    queries: &Queries,
    asks_kubedns: bool,
) -> impl Fn(&QueryLog) -> Result<Reader, LogOpenError> + use<> {
    let queries = queries.clone();
    move |log| {
        let reader = || queries.query_log(log.filter.clone(), log.rate);
        asks_kubedns
            .then(reader)
            .ok_or(LogOpenError::Elsewhere(KUBEDNS))
    }
}

/// Returns whether the arguments make dnsmasq log queries with `--log-queries=extra`.
fn logs_queries(arguments: &Arguments) -> bool {
    arguments
        .all("log-queries")
        .last()
        .is_some_and(|form| form.starts_with("extra"))
}

/// Serves the status page. A failure of the page must not stop DNS.
async fn serve_pages(
    address: &str,
    report: &Report,
    queries: &Queries,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) {
    if address.is_empty() {
        return;
    }
    let Some((host, port)) = address
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse().ok()?)))
    else {
        warn!(address, "-statusAddr: no host:port, so no status page");
        return;
    };
    match Server::bind(host, port).await {
        Ok(server) => {
            info!(address = %server.local_addr(), "status and metrics pages");
            let queries = queries.clone();
            let tap = move |choice: &querylog::TapRequest| {
                queries
                    .tap(choice.filter.clone(), choice.rate)
                    .map_err(|error| error.to_string())
            };
            let pages = report
                .pages()
                .or(querylog::serve::route(tap, stop.clone()))
                .unify();
            tasks.lasting("status pages", server.run(pages, stop.clone()));
        }
        Err(error) => warn!(%error, "no status page"),
    }
}
