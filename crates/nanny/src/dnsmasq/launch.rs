//! The command line of dnsmasq: the user's arguments and the nanny's additions. Also whether an
//! edit of the configuration needs a restart of dnsmasq.
//!
//! The arguments of kube-dns, and those of a nanny that has a servers file:
//!
//! | kube-dns passes | the nanny passes | the nanny writes into the servers file |
//! | --- | --- | --- |
//! | the user's arguments | the same without `--servers-file` | the lines of the user's own servers file |
//! | `--server ip#port` in the user's arguments | | `server=ip#port` |
//! | `--server /domain/ip#port` per stub server | | `server=/domain/ip#port` |
//! | `--server ip#port` per upstream server | | `server=ip#port` |
//! | `--no-resolv` with upstream servers | `--no-resolv` | the servers of resolv.conf, if no upstream servers are configured |
//!
//! With [`ForwardMode::Kubedns`], or if kubedns applies rules for external names, the nanny writes
//! kubedns into the file in place of all configured servers. If a configured server needs more than
//! plain DNS over UDP, only kubedns can query it. The file then names kubedns in place of all
//! servers of the same list (the upstreams, or the servers of one stub domain). kubedns may not yet
//! have the nanny's configuration. Until it is known to have it, the file names the nanny's
//! SERVFAIL server ([`crate::dnsmasq::servfail_server`]) for such a list, not kubedns. With
//! [`ForwardMode::Kubedns`], the SERVFAIL server then takes the place of kubedns for all lists.
//!
//! A `--server` argument without a domain names a server for all names. The nanny moves most of
//! these servers from the command line into the file (see `DnsmasqArguments::movable_servers`), so
//! that it can leave out those that forward back to dnsmasq. The nanny does not pass the user's
//! `--dns-loop-detect` to dnsmasq ([`crate::dnsmasq::loop_finder`] has the reason).
//!
//! dnsmasq treats a `server=` line of its servers file like a `--server` argument that follows the
//! arguments on the command line, and reads the file again on SIGHUP. With a servers file, the
//! nanny passes `--no-resolv`, so dnsmasq never reads resolv.conf itself. Otherwise dnsmasq would
//! need a restart whenever configured servers replace the servers of resolv.conf. If a servers file
//! is not possible (see `reason_for_restarts`), the servers are arguments, as with kube-dns. Then a
//! change of the servers restarts dnsmasq. If dnsmasq's configuration is not fully known, dnsmasq
//! may read resolv.conf itself, unless upstream servers are configured or kubedns is the upstream.
//!
//! By default, a dnsmasq started by root changes to the user `nobody` and to another group. In the
//! stock manifest, the container has no capability to change users. The nanny can signal a dnsmasq
//! that runs as another user only through [`crate::dnsmasq::signal_helper`]. The nanny asks the
//! kernel to kill dnsmasq when the nanny dies (`PR_SET_PDEATHSIG`). A change of user or group would
//! cancel this request. So, as in the image of kube-dns, dnsmasq keeps the nanny's user unless the
//! arguments name another user. To run dnsmasq without root, run the nanny as another user.

use std::ffi::OsString;
use std::path::PathBuf;

use nix::unistd::{Gid, Group, Uid, User};

use crate::config::arguments::DnsmasqArguments;
use crate::config::routes::{ForwardMode, Routes, UpstreamOrigin};
use crate::dnsmasq::servers_file;
use crate::dnsmasq::version::DnsmasqVersion;

/// The way an edit reaches dnsmasq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EditMode {
    /// The nanny writes the servers file, and dnsmasq reads the file again.
    Reload { file: PathBuf },
    /// The nanny restarts dnsmasq with other arguments.
    Restart,
}

/// The nanny's user, as far as it matters to dnsmasq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NannyUser {
    /// Root, with the names of its user and group. The nanny adds `--user` and `--group` with these
    /// names, so that dnsmasq keeps this user and group. An option that the arguments or the
    /// configuration files already have is not added.
    Root { user: String, group: String },
    /// Any other user, or root if one of the names is unknown.
    Other,
}

impl NannyUser {
    pub(crate) fn current() -> Self {
        let uid = Uid::effective();
        if !uid.is_root() {
            return Self::Other;
        }

        let user = User::from_uid(uid).ok().flatten();
        let group = Group::from_gid(Gid::effective()).ok().flatten();
        match (user, group) {
            (Some(user), Some(group)) => Self::Root {
                user: user.name,
                group: group.name,
            },
            _ => Self::Other,
        }
    }
}

/// The settings that the command line depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchSettings<'a> {
    pub(crate) arguments: &'a DnsmasqArguments,
    pub(crate) user: &'a NannyUser,
    pub(crate) dnsmasq: &'a DnsmasqVersion,
    pub(crate) forward: ForwardMode,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaunchPlan {
    /// The way an edit reaches dnsmasq.
    pub(crate) mode: EditMode,
    /// The user's own servers file; its lines are copied into the nanny's servers file.
    pub(crate) extra_servers: Option<PathBuf>,
    /// The resolv.conf files that the nanny reads for dnsmasq. Empty in each of these cases:
    /// dnsmasq may read resolv.conf itself, the forward mode is [`ForwardMode::Kubedns`], or the
    /// user gave `--no-resolv`.
    pub(crate) resolv_files: Vec<PathBuf>,
    /// Whether the nanny reads resolv.conf files again when they change.
    pub(crate) follow_resolv: bool,
    /// The reason why edits need a restart, if they do.
    pub(crate) restart_reason: Option<String>,
    /// Log lines about user arguments that conflict with the nanny's arguments.
    pub(crate) notes: Vec<String>,
    /// Log lines about user arguments that can make DNS fail.
    pub(crate) warnings: Vec<String>,
    /// Whether dnsmasq may read resolv.conf itself, if no upstream servers are configured and
    /// kubedns is not the upstream.
    may_read_resolv_conf: bool,
    words: Vec<OsString>,
    /// `words` without the user's `--servers-file`.
    words_beside_file: Vec<OsString>,
    /// The nanny's additions.
    added: Vec<OsString>,
}

const SERVERS_FILE: &str = "--servers-file=";
const LOOP_DETECTION: &str = "dns-loop-detect";
/// Maximum number of queries that wait for kubedns at the same time (`--dns-forward-max`). kubedns
/// forwards at most 512 queries of one client at a time, and at most 384 of them to the same list
/// of upstreams. The limit here is higher, so that kubedns rejects the excess. A much higher limit
/// costs time, because dnsmasq searches the sockets of all waiting queries before each answer.
const MAX_FORWARDED: usize = 600;
/// Milliseconds until the first retry to kubedns, and until dnsmasq stops retrying
/// (`--fast-dns-retry`). Without these retries, a query that is lost in a restart of kubedns would
/// get no response until the client repeats it after five seconds. kubedns does not forward
/// a retry while the first query waits for an upstream.
const RETRIES: &str = "500,4000";

impl LaunchPlan {
    /// Plans the command line. `servers_file` is the path of the nanny's servers file, or the
    /// reason why there is none.
    pub(crate) fn new(settings: LaunchSettings<'_>, servers_file: Result<PathBuf, String>) -> Self {
        let arguments = settings.arguments;
        let (mode, restart_reason) = match (servers_file, reason_for_restarts(arguments)) {
            (Ok(file), None) => (EditMode::Reload { file }, None),
            (Err(reason), _) | (Ok(_), Some(reason)) => (EditMode::Restart, Some(reason)),
        };

        let mut plan = Self {
            extra_servers: None,
            resolv_files: Vec::new(),
            follow_resolv: !arguments.has_option("no-poll"),
            // If dnsmasq's configuration is not fully known, it may name other resolv.conf files.
            may_read_resolv_conf: arguments.unknown.is_some(),
            words: arguments.words_without(&[LOOP_DETECTION]),
            words_beside_file: arguments.words_without(&[LOOP_DETECTION, "servers-file"]),
            added: Vec::new(),
            mode,
            restart_reason,
            notes: Vec::new(),
            warnings: Vec::new(),
        };
        if plan.mode != EditMode::Restart {
            let extra = arguments.option_values("servers-file").pop();
            plan.extra_servers = extra.map(PathBuf::from);
        }
        if settings.forward == ForwardMode::Dnsmasq && !plan.may_read_resolv_conf {
            plan.resolv_files = arguments.resolv_files();
        }

        plan.note_loop_detection(arguments, settings.forward);
        match settings.forward {
            ForwardMode::Dnsmasq => plan.note_conflicts(arguments),
            ForwardMode::Kubedns => plan.note_conflicts_of_cache(arguments),
        }
        plan.added = plan.additions(settings);
        plan
    }

    /// dnsmasq's arguments. In [`EditMode::Reload`] the arguments do not depend on the routes.
    pub(crate) fn argv(&self, routes: &Routes) -> Vec<OsString> {
        match self.mode {
            EditMode::Reload { .. } => [self.words_beside_file.as_slice(), &self.added].concat(),
            EditMode::Restart => self.argv_without_file(routes),
        }
    }

    /// The arguments with the servers themselves instead of the nanny's servers file.
    pub(crate) fn argv_without_file(&self, routes: &Routes) -> Vec<OsString> {
        let mut argv = self.words.clone();
        for value in servers_file::server_values(routes) {
            argv.extend(["--server".into(), value.into()]);
        }

        // If `may_read_resolv_conf` is false, the user's configuration or `added` has `no-resolv`.
        if self.may_read_resolv_conf && routes.upstreams_from != UpstreamOrigin::ResolvConf {
            argv.push("--no-resolv".into());
        }
        let added = self.added.iter().filter(|word| !is_servers_file(word));
        argv.extend(added.cloned());
        argv
    }

    fn note_loop_detection(&mut self, arguments: &DnsmasqArguments, forward: ForwardMode) {
        if arguments.has_typed_option(LOOP_DETECTION) {
            let reason = match forward {
                ForwardMode::Dnsmasq => "the nanny itself detects loops through upstreams",
                ForwardMode::Kubedns => "kubedns itself detects loops through upstreams",
            };
            self.notes
                .push(format!("--{LOOP_DETECTION}: left out, because {reason}"));
        }
        if arguments.has_option_in_file(LOOP_DETECTION) {
            self.warnings.push(format!(
                "{LOOP_DETECTION} in dnsmasq's configuration file: remove it, because a loop through an upstream of kubedns can make dnsmasq stop using kubedns"
            ));
        }
    }

    fn note_conflicts(&mut self, arguments: &DnsmasqArguments) {
        for server in arguments.fixed_servers() {
            self.notes.push(format!(
                "server={}: stays in dnsmasq's own configuration, so the nanny cannot remove this server, even if the server forwards back to dnsmasq",
                server.value
            ));
        }
        if self.may_read_resolv_conf {
            return;
        }

        if let Some(file) = &self.extra_servers {
            let file = file.display();
            self.notes.push(format!(
                "--servers-file={file}: dnsmasq gets the lines of this file, then the servers of the configuration"
            ));
        }
        if arguments.has_option("no-resolv") {
            self.notes.push(
                "--no-resolv: resolv.conf is not used, even without upstreamNameservers".to_owned(),
            );
        } else if arguments.has_option("resolv-file") {
            let files: Vec<String> = self
                .resolv_files
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            self.notes.push(format!(
                "--resolv-file={}: used in place of /etc/resolv.conf",
                files.join(", ")
            ));
        }
    }

    fn note_conflicts_of_cache(&mut self, arguments: &DnsmasqArguments) {
        for server in arguments.servers_for_all_names() {
            self.notes.push(format!(
                "--server={server}: dnsmasq sends queries to this server and to kubedns, so some answers do not come from kubedns"
            ));
        }
        for option in ["no-resolv", "resolv-file"] {
            if arguments.has_option(option) {
                self.notes.push(format!(
                    "--{option}: has no effect, because kubedns, not dnsmasq, asks the servers of resolv.conf; use the flag --resolv-conf of kubedns"
                ));
            }
        }
    }

    /// The nanny's additions. Apart from `--servers-file`, an option that the user gave is not
    /// added.
    fn additions(&self, settings: LaunchSettings<'_>) -> Vec<OsString> {
        let LaunchSettings {
            arguments,
            user,
            dnsmasq,
            forward,
        } = settings;
        let lacks = |option| !arguments.has_option(option);
        let mut added = Vec::new();

        if lacks("keep-in-foreground") && lacks("no-daemon") {
            added.push("--keep-in-foreground".to_owned());
        }
        if !self.may_read_resolv_conf && lacks("no-resolv") {
            added.push("--no-resolv".to_owned());
        }
        if let EditMode::Reload { file } = &self.mode {
            added.push(format!("{SERVERS_FILE}{}", file.display()));
        }
        if forward == ForwardMode::Kubedns {
            added.extend(additions_of_cache(arguments, dnsmasq));
        }

        if lacks("log-facility") {
            added.push("--log-facility=-".to_owned());
        }
        // Without a value, the option means no pid file. The file is not needed, and cannot be
        // written on a read-only root file system.
        if lacks("pid-file") {
            added.push("--pid-file".to_owned());
        }
        if let NannyUser::Root { user, group } = user {
            if lacks("user") {
                added.push(format!("--user={user}"));
            }
            if lacks("group") {
                added.push(format!("--group={group}"));
            }
        }

        added.into_iter().map(OsString::from).collect()
    }
}

/// The options of a dnsmasq that forwards all queries to kubedns.
fn additions_of_cache(arguments: &DnsmasqArguments, dnsmasq: &DnsmasqVersion) -> Vec<String> {
    let mut added = Vec::new();

    if !arguments.has_option("dns-forward-max") {
        added.push(format!("--dns-forward-max={MAX_FORWARDED}"));
    }
    // Without `--all-servers` or `--strict-order`, dnsmasq repeats a query to kubedns after
    // SERVFAIL, and the client waits twice as long.
    if !arguments.has_option("all-servers") && !arguments.has_option("strict-order") {
        added.push("--all-servers".to_owned());
    }
    if dnsmasq.has_retries() && !arguments.has_option("fast-dns-retry") {
        added.push(format!("--fast-dns-retry={RETRIES}"));
    }

    added
}

fn is_servers_file(word: &OsString) -> bool {
    word.as_encoded_bytes().starts_with(SERVERS_FILE.as_bytes())
}

/// The reason why the nanny's servers file is not possible with the user's arguments. `None` if the
/// file is possible.
fn reason_for_restarts(arguments: &DnsmasqArguments) -> Option<String> {
    if let Some(unknown) = &arguments.unknown {
        return Some(format!(
            "dnsmasq's configuration is not fully known ({unknown})"
        ));
    }
    if arguments.has_option("servers-file") && !arguments.has_typed_option("servers-file") {
        return Some("dnsmasq's configuration file has a servers-file of its own".to_owned());
    }
    if arguments.option_values("servers-file").len() > 1 {
        return Some("dnsmasq's arguments have more than one --servers-file".to_owned());
    }
    None
}

#[cfg(test)]
mod tests;
