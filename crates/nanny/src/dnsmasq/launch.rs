//! The command line of dnsmasq: the user's arguments, the nanny's additions, and whether edits need
//! a restart.
//!
//! | kube-dns passes | the nanny passes | the nanny writes into the servers file |
//! | --- | --- | --- |
//! | the user's arguments | the same, word for word | |
//! | `--server /domain/ip#port` per stub server | | `server=/domain/ip#port` |
//! | `--server ip#port` per upstream server | | `server=ip#port` |
//! | `--no-resolv` with upstream servers | `--no-resolv`, always | the servers of resolv.conf, without upstream servers |
//!
//! With [`Forward::Kubedns`], the file has a single server: kubedns. While kubedns has not applied
//! a configuration that only kubedns can serve, the single server is the nanny's SERVFAIL server.
//!
//! dnsmasq treats a `server=` line of its servers file like a `--server` argument after the
//! arguments on the command line, and reads the file again on SIGHUP. With a servers file, dnsmasq
//! never reads resolv.conf itself, because configured servers could not replace the servers of
//! resolv.conf without a restart. If a servers file is not possible (see [`Mode::Restart`]), the
//! servers are arguments, as with kube-dns. Then an edit restarts dnsmasq, and dnsmasq reads
//! resolv.conf itself unless upstream servers are configured.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::config::arguments::Arguments;
use crate::config::routes::{Forward, Origin, Routes};
use crate::dnsmasq::servers_file;
use crate::dnsmasq::user::Identity;
use crate::dnsmasq::version::Dnsmasq;

/// The way an edit reaches dnsmasq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The nanny writes the servers file, and dnsmasq reads the file again.
    Reload { file: PathBuf },
    /// The nanny restarts dnsmasq with other arguments.
    Restart,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The way an edit reaches dnsmasq.
    pub(crate) mode: Mode,
    /// The user's own servers file; its lines are copied into the nanny's servers file.
    pub(crate) extra_servers: Option<PathBuf>,
    /// The resolv.conf files whose servers go into the nanny's servers file. Empty if dnsmasq reads
    /// resolv.conf itself or does not use it.
    pub(crate) resolv_files: Vec<PathBuf>,
    /// The nanny reads changed resolv.conf files again.
    pub(crate) follow_resolv: bool,
    /// The reason why edits need a restart, if they do.
    pub(crate) obstacle: Option<String>,
    /// Log lines about user arguments that conflict with the nanny's arguments.
    pub(crate) notes: Vec<String>,
    words: Vec<OsString>,
    /// The words without the options that the nanny's servers file replaces.
    words_beside_file: Vec<OsString>,
    ours: Vec<OsString>,
}

const SERVERS_FILE: &str = "--servers-file=";
const LOOP_DETECTION: &str = "dns-loop-detect";
/// Limit of queries that wait for kubedns at a time (`--dns-forward-max`). The limit is above
/// kubedns' own limit of 512, so that kubedns rejects the excess. A higher limit costs time,
/// because dnsmasq searches all these sockets before each answer: with 4096, a cached answer takes
/// twice the time.
const MAX_FORWARDED: usize = 600;
/// Milliseconds until the first and the last retry to kubedns (`--fast-dns-retry`): a query sent
/// while kubedns restarts is answered before the client retries after five seconds. kubedns
/// forwards a retried query only once.
const RETRIES: &str = "500,4000";

impl Plan {
    /// Plans the command line. `servers_file` is the path of the nanny's servers file, or the
    /// reason why there is none.
    pub(crate) fn new(
        arguments: &Arguments,
        servers_file: Result<PathBuf, String>,
        identity: &Identity,
        dnsmasq: &Dnsmasq,
        forward: Forward,
    ) -> Self {
        let (mode, obstacle) = match (servers_file, obstacle(arguments)) {
            (Ok(file), None) => (Mode::Reload { file }, None),
            (Err(reason), _) | (Ok(_), Some(reason)) => (Mode::Restart, Some(reason)),
        };
        let reload = matches!(mode, Mode::Reload { .. });
        let is_cache = forward == Forward::Kubedns;
        let unwanted: &[&str] = if is_cache { &[LOOP_DETECTION] } else { &[] };
        let mut plan = Self {
            extra_servers: arguments
                .all("servers-file")
                .pop()
                .map(PathBuf::from)
                .filter(|_| reload),
            resolv_files: if reload && !is_cache {
                arguments.resolv_files()
            } else {
                Vec::new()
            },
            follow_resolv: !arguments.has("no-poll"),
            words: arguments.words_without(unwanted),
            words_beside_file: arguments.words_without(&[unwanted, &["servers-file"]].concat()),
            ours: Vec::new(),
            mode,
            obstacle,
            notes: Vec::new(),
        };
        match forward {
            Forward::Dnsmasq => plan.note_conflicts(arguments),
            Forward::Kubedns => plan.note_conflicts_of_a_cache(arguments),
        }
        plan.add_ours(arguments, identity, dnsmasq, is_cache);
        plan
    }

    /// dnsmasq's arguments. In [`Mode::Reload`] the arguments do not depend on the routes.
    pub(crate) fn argv(&self, routes: &Routes) -> Vec<OsString> {
        match self.mode {
            Mode::Reload { .. } => self
                .words_beside_file
                .iter()
                .chain(&self.ours)
                .cloned()
                .collect(),
            Mode::Restart => self.argv_without_file(routes),
        }
    }

    /// The arguments with the servers themselves instead of the servers file.
    pub(crate) fn argv_without_file(&self, routes: &Routes) -> Vec<OsString> {
        let mut argv = self.words.clone();
        for value in servers_file::values(routes) {
            argv.extend(["--server".into(), value.into()]);
        }
        // If a servers file is possible, `words` or `ours` already contains `--no-resolv`.
        if self.mode == Mode::Restart && routes.upstreams_from != Origin::ResolvConf {
            argv.push("--no-resolv".into());
        }
        let is_file =
            |word: &OsString| word.as_encoded_bytes().starts_with(SERVERS_FILE.as_bytes());
        argv.extend(self.ours.iter().filter(|word| !is_file(word)).cloned());
        argv
    }

    fn note_conflicts(&mut self, arguments: &Arguments) {
        if self.mode == Mode::Restart {
            return;
        }
        if let Some(file) = &self.extra_servers {
            let file = file.display();
            self.notes.push(format!(
                "--servers-file={file}: its lines are kept in front of those of the configuration"
            ));
        }
        if arguments.has("no-resolv") {
            self.notes.push(
                "--no-resolv: resolv.conf is not used, whatever the configuration says".to_owned(),
            );
        } else if arguments.has("resolv-file") {
            let files: Vec<String> = self
                .resolv_files
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            self.notes.push(format!(
                "--resolv-file: {} is used in place of /etc/resolv.conf",
                files.join(", ")
            ));
        }
    }

    fn note_conflicts_of_a_cache(&mut self, arguments: &Arguments) {
        for server in arguments.servers_for_all_names() {
            self.notes.push(format!(
                "--server={server}: dnsmasq asks it beside kubedns, and takes the answer of either"
            ));
        }
        for option in ["no-resolv", "resolv-file"]
            .into_iter()
            .filter(|option| arguments.has(option))
        {
            self.notes.push(format!(
                "--{option}: kubedns asks the servers, and has --resolv-conf for that"
            ));
        }
        if arguments.has(LOOP_DETECTION) {
            self.notes.push(format!(
                "--{LOOP_DETECTION}: left out, kubedns detects loops of upstreams itself"
            ));
        }
    }

    fn add_ours(
        &mut self,
        arguments: &Arguments,
        identity: &Identity,
        dnsmasq: &Dnsmasq,
        is_cache: bool,
    ) {
        let mut add = |wanted: bool, word: String| {
            if wanted {
                self.ours.push(word.into());
            }
        };
        add(
            !arguments.has("keep-in-foreground") && !arguments.has("no-daemon"),
            "--keep-in-foreground".into(),
        );
        if let Mode::Reload { file } = &self.mode {
            add(!arguments.has("no-resolv"), "--no-resolv".into());
            add(true, format!("{SERVERS_FILE}{}", file.display()));
        }
        // With loop detection, dnsmasq would stop using kubedns after a loop through one of
        // kubedns' upstreams.
        add(
            dnsmasq.loop_detection && !is_cache && !arguments.has(LOOP_DETECTION),
            format!("--{LOOP_DETECTION}"),
        );
        add(
            is_cache && !arguments.has("dns-forward-max"),
            format!("--dns-forward-max={MAX_FORWARDED}"),
        );
        // Without `--all-servers` or `--strict-order`, dnsmasq repeats a query to kubedns after
        // SERVFAIL, and the client waits twice as long.
        let asks_once = arguments.has("all-servers") || arguments.has("strict-order");
        add(is_cache && !asks_once, "--all-servers".into());
        let may_retry = dnsmasq.has_retries() && !arguments.has("fast-dns-retry");
        add(is_cache && may_retry, format!("--fast-dns-retry={RETRIES}"));
        add(!arguments.has("log-facility"), "--log-facility=-".into());
        // The pid file is not needed, and a read-only root has no place for it.
        add(!arguments.has("pid-file"), "--pid-file".into());
        if let Identity::Root { user, group } = identity {
            add(!arguments.has("user"), format!("--user={user}"));
            add(!arguments.has("group"), format!("--group={group}"));
        }
    }
}

fn obstacle(arguments: &Arguments) -> Option<String> {
    if let Some(unknown) = &arguments.unknown {
        return Some(format!(
            "dnsmasq's configuration is not fully known ({unknown})"
        ));
    }
    if arguments.has("servers-file") && !arguments.typed("servers-file") {
        return Some("dnsmasq's configuration file has a servers-file of its own".to_owned());
    }
    if arguments.all("servers-file").len() > 1 {
        return Some("more than one --servers-file".to_owned());
    }
    None
}

#[cfg(test)]
mod tests;
