//! Starts and connects the nanny's parts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use daemon::klog::LogFormat;
use daemon::shutdown::Shutdown;
use daemon::tasks::Tasks;
use dnsclient::first_address;
use dnsclient::resolv_conf::{EmptiedFile, ResolvConf, ResolvConfFollower};
use dnsclient::resolve::{LookupSources, ServerNameResolver};
use dnsconfig::query_log::QueryLog;
use dnsconfig::{ConfigSource, ConfigState};
use querylog::log::{LogOpenError, LoggedQueries, QueryLogger};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use warp::Filter as _;
use wire::{Nameserver, ServerAddr};

use crate::config::arguments::DnsmasqArguments;
use crate::config::routes::{ForwardMode, RoutedServer, Routes};
use crate::dnsmasq::delivery::RouteDelivery;
use crate::dnsmasq::launch::{EditMode, LaunchPlan, LaunchSettings, NannyUser};
use crate::dnsmasq::loop_finder::{LoopFinder, LoopMark};
use crate::dnsmasq::memory_kills::MemoryKills;
use crate::dnsmasq::process::QueryLines;
use crate::dnsmasq::queries::{QueryFollowers, QueryReader};
use crate::dnsmasq::servfail_server::ServfailServer;
use crate::dnsmasq::stub_probes::StubProbes;
use crate::dnsmasq::supervisor::Supervisor;
use crate::dnsmasq::version::DnsmasqVersion;
use crate::flags::Flags;
use crate::kubedns_poller::KubednsPoller;
use crate::page_listener::PageListener;
use crate::report::Report;
use crate::router::{Router, RouterInputs, RouterRequests, RouterSettings};
use crate::state_dir::{StateDir, StateDirError};

/// The name of the servers file in the state directory.
const SERVERS_FILE: &str = "servers.conf";
/// The cluster domain if neither flags nor arguments give one.
const CLUSTER_DOMAIN: &str = "cluster.local";
/// The longest wait for the addresses of stub servers before the first start of dnsmasq. With a
/// servers file, the nanny does not wait, because servers can be added later without a restart.
const FIRST_NAMES: Duration = Duration::from_secs(3);
/// The text that names the writer of the query log if dnsmasq does not forward to kubedns. The
/// nanny logs this text instead of writing a configured query log.
const KUBEDNS: &str = "the kubedns in front of dnsmasq (dnsmasq forwards no names to kubedns)";
/// Timeout of the lookup of -kubednsServer.
const LOOKUP: Duration = Duration::from_secs(5);
/// The longest wait for the end of the tasks after they are told to stop.
const ENDING: Duration = Duration::from_secs(2);

/// Runs the nanny until shutdown, or until it fails, for example because dnsmasq dies too often.
pub async fn run(flags: Flags, shutdown: Shutdown) -> anyhow::Result<()> {
    let nanny = Nanny::prepare(flags).await?;
    nanny.run(shutdown.stop).await
}

/// The nanny, ready to start dnsmasq.
struct Nanny {
    tasks: Tasks,
    stop_tasks: CancellationToken,
    supervisor: Supervisor,
    directory: Option<Arc<StateDir>>,
    /// The routes, if the first start has to wait for addresses of stub servers.
    incomplete: Option<watch::Receiver<Routes>>,
}

impl Nanny {
    async fn prepare(flags: Flags) -> anyhow::Result<Self> {
        let arguments = DnsmasqArguments::read(flags.dnsmasq.clone());
        let sources = name_sources(&flags, &arguments).await?;
        let dnsmasq = DnsmasqVersion::query(&flags.dnsmasq_exec).await?;
        log_version(&dnsmasq);

        let directory = open_state_directory(&flags.state_dir)?;
        let settings = LaunchSettings {
            arguments: &arguments,
            user: &NannyUser::current(),
            dnsmasq: &dnsmasq,
            forward: flags.forward,
        };
        let plan = plan_launch(settings, directory.as_deref());
        let report = Report::new()?;
        report.set_arguments(arguments.shown_options());
        report.set_kubedns_server(sources.kubedns);
        report.set_argument_servers(
            &arguments.addresses_for_all_names(),
            !arguments.may_answer_external_names(sources.kubedns),
        );
        report.set_dnsmasq(&dnsmasq, effect_of_edits(&plan, flags.restart_dnsmasq))?;

        let stop_tasks = CancellationToken::new();
        let mut start = NannyStart {
            flags,
            arguments,
            plan,
            report,
            tasks: Tasks::new(stop_tasks.clone()),
            stop_tasks,
        };
        let kubedns = sources.kubedns;
        let routing = start.start_routing(sources).await?;
        if let Some(directory) = &directory {
            start.start_status_file(Arc::clone(directory));
        }
        let queries = start.start_query_log(kubedns, routing.states.clone())?;
        start.serve_pages(&queries).await;
        Ok(start.finish(directory, routing, queries))
    }

    /// Runs dnsmasq's supervisor and the tasks. The end of the supervisor stops the tasks. The end
    /// of a task stops the supervisor, which then stops dnsmasq.
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        if let Some(mut routes) = self.incomplete {
            // A server whose address arrives after the start would require a restart of dnsmasq.
            let _ = timeout(FIRST_NAMES, routes.changed()).await;
        }

        let stop = stop.child_token();
        let supervise = async {
            let outcome = self.supervisor.run(stop.clone()).await;
            self.stop_tasks.cancel();
            outcome
        };
        let join_tasks = async {
            let outcome = self.tasks.join(ENDING).await;
            stop.cancel();
            outcome
        };
        // Both end when one of them ends.
        let (supervised, joined) = tokio::join!(supervise, join_tasks);

        if let Some(directory) = self.directory.and_then(Arc::into_inner) {
            directory.remove();
        }
        supervised?;
        Ok(joined?)
    }
}

/// The nanny while its tasks start.
struct NannyStart {
    flags: Flags,
    arguments: DnsmasqArguments,
    plan: LaunchPlan,
    report: Report,
    tasks: Tasks,
    stop_tasks: CancellationToken,
}

/// The results of [`NannyStart::start_routing`].
struct StartedRouting {
    routes: watch::Receiver<Routes>,
    /// Whether names of stub servers are still unresolved.
    unresolved: bool,
    /// The configuration in force.
    states: watch::Receiver<ConfigState>,
    /// The mark by which loops through dnsmasq's upstreams are recognized.
    loop_mark: Option<LoopMark>,
}

/// The content of the resolv.conf files that the nanny reads.
struct ResolvConfs {
    /// The servers of the resolv.conf files that the nanny reads for dnsmasq. Empty in each of
    /// these cases: dnsmasq reads resolv.conf itself, the nanny runs with `-forward=kubedns`, or
    /// the user gave `--no-resolv`.
    for_dnsmasq: watch::Receiver<ResolvConf>,
    /// The servers that resolve the names of stub servers, except names in the cluster domain.
    for_names: watch::Receiver<ResolvConf>,
}

impl NannyStart {
    /// Starts the sources of the routes, the router, the SERVFAIL server and loop detection.
    async fn start_routing(&mut self, sources: LookupSources) -> anyhow::Result<StartedRouting> {
        let kubedns = sources.kubedns;
        let states = self.follow_configuration(sources.cluster_domains.first().cloned());
        let resolv_confs = self.follow_resolv_confs();
        let stub_probes = StubProbes::new();
        let servfail_server = ServfailServer::bind(stub_probes.clone())
            .await
            .context("the SERVFAIL server cannot listen on a loopback port")?;
        self.report
            .set_servfail_server(servfail_server.local_addr());

        // The router tells the resolver which names to resolve, and the poller when to poll
        // kubedns.
        let requests = RouterRequests::default();
        let resolver =
            ServerNameResolver::new(sources, requests.names.subscribe(), resolv_confs.for_names);
        let poller = KubednsPoller::new(kubedns, requests.kubedns.subscribe());
        let loops = watch::Sender::default();
        let inputs = RouterInputs {
            config: states.clone(),
            resolv_conf: resolv_confs.for_dnsmasq,
            names: resolver.subscribe(),
            kubedns: poller.subscribe(),
            loops: loops.subscribe(),
        };
        let settings = RouterSettings {
            arguments: self.arguments.clone(),
            servfail_server: servfail_server.local_addr(),
            probe_label: Some(stub_probes.label().to_owned()),
            kubedns,
            forward: self.flags.forward,
            follows_edits: self.flags.restart_dnsmasq,
        };
        let router = Router::new(inputs, settings, requests, self.report.clone());
        let loop_mark = self.start_loop_finder(stub_probes, router.subscribe(), loops);
        let started = StartedRouting {
            routes: router.subscribe(),
            unresolved: router.has_unresolved_names(),
            states,
            loop_mark,
        };

        let stop = &self.stop_tasks;
        self.tasks.lasting(
            "resolving the names of stub servers",
            resolver.run(stop.clone()),
        );
        self.tasks
            .lasting("following the routes of kubedns", poller.run(stop.clone()));
        self.tasks.critical(
            "answering SERVFAIL for stub domains without a usable server",
            servfail_server.run(stop.clone()),
        );
        self.tasks
            .lasting("computing the routes", router.run(stop.clone()));
        Ok(started)
    }

    /// Starts loop detection, except with `-forward=kubedns`. Returns the mark that dnsmasq needs
    /// for loop detection.
    fn start_loop_finder(
        &mut self,
        stub_probes: StubProbes,
        routes: watch::Receiver<Routes>,
        loops: watch::Sender<BTreeSet<RoutedServer>>,
    ) -> Option<LoopMark> {
        if self.flags.forward == ForwardMode::Kubedns {
            return None;
        }

        let mark = LoopMark::random();
        let finder = LoopFinder::new(mark.clone(), stub_probes, routes, loops);
        self.tasks.lasting(
            "looking for forwarding loops",
            finder.run(self.stop_tasks.clone()),
        );
        Some(mark)
    }

    /// Reads the configuration and follows its edits. With -restartDnsmasq=false, it is read once.
    fn follow_configuration(
        &mut self,
        cluster_domain: Option<String>,
    ) -> watch::Receiver<ConfigState> {
        let source = ConfigSource::Directory {
            path: self.flags.config_dir.clone(),
            period: self.flags.sync_interval.duration(),
        };
        let config = source.open_for(cluster_domain.into_iter().collect());
        let states = config.subscribe();
        if self.flags.restart_dnsmasq {
            self.tasks.lasting(
                "following the configuration",
                config.run(self.stop_tasks.clone()),
            );
        }
        states
    }

    fn follow_resolv_confs(&mut self) -> ResolvConfs {
        let files = self.plan.resolv_files.clone();
        let has_files = !files.is_empty();
        let for_dnsmasq = self.open_resolv_conf(files);
        let servers_for_dnsmasq = for_dnsmasq.subscribe();

        let servers_for_names = if has_files {
            for_dnsmasq.subscribe()
        } else {
            // The nanny gives dnsmasq no servers of resolv.conf, but resolves the names of stub
            // servers with the servers of /etc/resolv.conf.
            let for_names = self.open_resolv_conf(vec![PathBuf::from("/etc/resolv.conf")]);
            let servers = for_names.subscribe();
            self.tasks.lasting(
                "following resolv.conf for the names of stub servers",
                for_names.run(self.stop_tasks.clone()),
            );
            servers
        };
        if self.plan.follow_resolv {
            self.tasks.lasting(
                "following resolv.conf",
                for_dnsmasq.run(self.stop_tasks.clone()),
            );
        }

        ResolvConfs {
            for_dnsmasq: servers_for_dnsmasq,
            for_names: servers_for_names,
        }
    }

    fn open_resolv_conf(&self, files: Vec<PathBuf>) -> ResolvConfFollower {
        let period = self.flags.sync_interval.duration();
        ResolvConfFollower::open(files, EmptiedFile::Unfinished, period)
    }

    fn start_status_file(&mut self, directory: Arc<StateDir>) {
        let write = self
            .report
            .clone()
            .keep_status_file(directory, self.stop_tasks.clone());
        self.tasks.lasting("writing the status file", write);
    }

    /// Starts the task of the query log before dnsmasq starts: if the configuration already turns
    /// the query log on, dnsmasq then logs queries from its start, and needs no restart for it.
    fn start_query_log(
        &mut self,
        kubedns: Nameserver,
        states: watch::Receiver<ConfigState>,
    ) -> anyhow::Result<QueryFollowers> {
        let queries = QueryFollowers::new(self.report.metrics(), logs_queries(&self.arguments))?;
        let asks_kubedns =
            self.flags.forward == ForwardMode::Kubedns || self.arguments.forwards_to(kubedns);
        let log = query_log(&queries, asks_kubedns);
        let logger = QueryLogger::new(log, states, LoggedQueries::Configured);
        self.tasks
            .lasting("writing the query log", logger.run(self.stop_tasks.clone()));
        Ok(queries)
    }

    /// Serves the status, metrics, tap and ranking pages. Their failure must not stop DNS.
    async fn serve_pages(&mut self, queries: &QueryFollowers) {
        let address = self.flags.status_addr.as_str();
        if address.is_empty() {
            return;
        }
        let Some((host, port)) = split_host_port(address) else {
            warn!(
                address,
                "-statusAddr is not host:port, so there is no status page"
            );
            return;
        };

        let (tapped, ranked) = (queries.clone(), queries.clone());
        let open_tap = move |request: &querylog::TapRequest| {
            tapped
                .open_tap(request.filter.clone(), request.rate)
                .map_err(|error| error.to_string())
        };
        let tap_page = querylog::serve::tap_route(open_tap, self.stop_tasks.clone());
        let rank = move || std::future::ready(ranked.ranking().map_err(|error| error.to_string()));
        let ranking_page = querylog::serve::top_route(rank);
        let pages = self.report.pages().or(tap_page).unify();
        let pages = pages.or(ranking_page).unify();

        // The listener opens before dnsmasq starts, so that the pages can be read as soon as
        // dnsmasq answers.
        let listener = PageListener::open(host, port).await;
        self.tasks.lasting(
            "serving the status pages",
            listener.run(pages, self.stop_tasks.clone()),
        );
    }

    fn finish(
        self,
        directory: Option<Arc<StateDir>>,
        routing: StartedRouting,
        queries: QueryFollowers,
    ) -> Nanny {
        // With a servers file, names that resolve later require only a reload.
        let needs_restart = self.plan.mode == EditMode::Restart;
        let incomplete = (routing.unresolved && needs_restart).then(|| routing.routes.clone());
        // With --no-ident, dnsmasq does not answer the probes.
        let probe = if self.arguments.has_option("no-ident") {
            None
        } else {
            self.arguments.probe_address()
        };

        let supervisor = Supervisor {
            program: self.flags.dnsmasq_exec,
            port: self.arguments.port(),
            has_query_sockets: !self.arguments.has_option("query-port"),
            probe,
            plan: self.plan,
            loop_mark: routing.loop_mark,
            directory: directory.clone(),
            delivery: RouteDelivery::new(routing.routes, self.report.clone()),
            log_interval: self.flags.log_interval.into(),
            may_restart: self.flags.restart_dnsmasq,
            follow_queries: queries.logging_wanted(),
            query_lines: QueryLines {
                followers: queries,
                logged: self.arguments.has_option("log-queries"),
                json: self.flags.log.log_format == LogFormat::Json,
            },
            memory_kills: MemoryKills::of_container(),
            report: self.report,
        };
        Nanny {
            tasks: self.tasks,
            stop_tasks: self.stop_tasks,
            supervisor,
            directory,
            incomplete,
        }
    }
}

/// Where the names of stub servers are looked up, apart from the servers in resolv.conf.
async fn name_sources(
    flags: &Flags,
    arguments: &DnsmasqArguments,
) -> anyhow::Result<LookupSources> {
    let kubedns = resolve_kubedns_address(&flags.kubedns_server).await?;
    let mut cluster_domains = arguments.domains_routed_to(kubedns);
    let given = flags.kubedns_domain.trim_matches('.').to_ascii_lowercase();
    if wire::rfc1123::is_subdomain(&given) {
        cluster_domains.insert(0, given);
    } else if !given.is_empty() {
        anyhow::bail!(
            "-kubednsDomain: {given:?} is not a domain name (accepted: letters, digits, '-' and '.')"
        );
    }
    if cluster_domains.is_empty() {
        cluster_domains.push(CLUSTER_DOMAIN.to_owned());
    }

    debug!(
        %kubedns,
        ?cluster_domains,
        "stub servers given by names in these domains are resolved through kubedns"
    );
    Ok(LookupSources {
        kubedns,
        cluster_domains,
        hosts: dnsclient::hosts::FILE.into(),
    })
}

/// The address of `-kubednsServer`. A name such as `localhost` is looked up once, at the start.
async fn resolve_kubedns_address(server: &str) -> anyhow::Result<Nameserver> {
    let server = ServerAddr::from_flag(server).context("-kubednsServer")?;
    let failure = || format!("-kubednsServer: cannot look up {server}");
    let address = timeout(LOOKUP, first_address(&server))
        .await
        .with_context(failure)?
        .with_context(failure)?;
    Ok(address.into())
}

fn log_version(dnsmasq: &DnsmasqVersion) {
    let package = dnsmasq.package.as_deref().unwrap_or("unknown");
    info!(version = %dnsmasq, package, "dnsmasq found");

    let missing = dnsmasq.missing_fixes();
    if !missing.is_empty() {
        warn!(
            version = %dnsmasq,
            missing = missing.join(" "),
            "this dnsmasq lacks security fixes, unless its distribution added them: update it"
        );
    }
}

/// Opens the directory with the path `given`. If the path is empty, or the directory has no space,
/// creates a directory of the nanny's own. `None` if there is no place for such a directory:
/// dnsmasq then gets its servers as arguments.
fn open_state_directory(given: &str) -> anyhow::Result<Option<Arc<StateDir>>> {
    let given = Some(given).filter(|path| !path.is_empty());
    match StateDir::open(given.map(Path::new)) {
        Ok(directory) => Ok(Some(Arc::new(directory))),
        Err(StateDirError::Nowhere) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn plan_launch(settings: LaunchSettings<'_>, directory: Option<&StateDir>) -> LaunchPlan {
    let servers_file = directory
        .map(|directory| directory.file_path(SERVERS_FILE))
        .ok_or_else(|| StateDirError::Nowhere.to_string());
    let plan = LaunchPlan::new(settings, servers_file);

    for note in &plan.notes {
        info!("{note}");
    }
    for warning in &plan.warnings {
        warn!("{warning}");
    }
    if let Some(reason) = &plan.restart_reason {
        warn!(%reason, "dnsmasq gets its servers as arguments, so a change of its servers needs a restart");
    }
    plan
}

/// The effect of an edit of the configuration on dnsmasq, as the status document names it.
fn effect_of_edits(plan: &LaunchPlan, restart_dnsmasq: bool) -> &'static str {
    match &plan.mode {
        _ if !restart_dnsmasq => "none",
        EditMode::Reload { .. } => "reload",
        EditMode::Restart => "restart",
    }
}

/// Returns a function that opens the query log if dnsmasq forwards to kubedns. Otherwise the
/// function returns an error, because kubedns is in front of dnsmasq and writes the query log.
fn query_log(
    queries: &QueryFollowers,
    asks_kubedns: bool,
) -> impl Fn(&QueryLog) -> Result<QueryReader, LogOpenError> + use<> {
    let queries = queries.clone();
    move |log| {
        if asks_kubedns {
            Ok(queries.open_query_log(log.filter.clone(), log.rate))
        } else {
            Err(LogOpenError::Elsewhere(KUBEDNS))
        }
    }
}

/// Returns whether the arguments make dnsmasq log queries with `--log-queries=extra`.
fn logs_queries(arguments: &DnsmasqArguments) -> bool {
    arguments
        .option_values("log-queries")
        .last()
        .is_some_and(|form| form.starts_with("extra"))
}

fn split_host_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}
