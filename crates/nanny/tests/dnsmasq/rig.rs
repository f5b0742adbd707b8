//! A nanny with its dnsmasq on loopback, a `ConfigMap` directory, a resolv.conf and scripted
//! upstream servers.

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::client::{self, AskError};
use testkit::config_map::replace;
use testkit::eventually;
use testkit::message::Message;
use testkit::ports::free_port;
use testkit::process::{Process, Program};
use testkit::processes::is_running;
use testkit::query::Query;
use testkit::upstream::Upstream;

/// Timeout of each wait that has to succeed, long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The address of a server as `ip:port`, as written in a `ConfigMap`.
pub(crate) fn at(upstream: &Upstream) -> String {
    upstream.addr().to_string()
}

/// `upstreamNameservers` with one server.
pub(crate) fn only(server: &Upstream) -> String {
    json!([at(server)]).to_string()
}

/// `stubDomains` with one server for each domain.
pub(crate) fn stubs(entries: &[(&str, &Upstream)]) -> String {
    let domains = entries
        .iter()
        .map(|(domain, server)| ((*domain).to_owned(), json!([at(server)])));
    Value::Object(domains.collect()).to_string()
}

/// A `ConfigMap` with one server for each stub domain, and one server for all other names.
pub(crate) fn routes(
    server: &Upstream,
    stub_domains: &[(&str, &Upstream)],
) -> [(&'static str, String); 2] {
    [
        ("upstreamNameservers", only(server)),
        ("stubDomains", stubs(stub_domains)),
    ]
}

/// The settings with which a nanny starts.
pub(crate) struct NannySetup {
    directory: TempDir,
    port: u16,
    flags: Vec<String>,
    dnsmasq: Vec<String>,
    runner: Vec<String>,
}

impl NannySetup {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let port = free_port();
        let path = |name: &str| directory.path().join(name).display().to_string();
        fs::create_dir(path("config")).unwrap();
        fs::write(path("resolv.conf"), "").unwrap();
        let flags = [
            "-v=4".to_owned(),
            "-restartDnsmasq=true".to_owned(),
            // The interval is so long that only file notifications make an edit take effect.
            "-syncInterval=1h".to_owned(),
            format!("-configDir={}", path("config")),
            format!("-stateDir={}", path("state")),
            "-lameduck=0s".to_owned(),
            "-statusAddr=".to_owned(),
        ];
        let dnsmasq = [
            "-k".to_owned(),
            format!("--port={port}"),
            "--listen-address=127.0.0.1".to_owned(),
            "--bind-interfaces".to_owned(),
            "--no-hosts".to_owned(),
            "--conf-file=/dev/null".to_owned(),
            "--cache-size=1000".to_owned(),
            format!("--resolv-file={}", path("resolv.conf")),
        ];
        Self {
            port,
            flags: flags.to_vec(),
            dnsmasq: dnsmasq.to_vec(),
            runner: Vec::new(),
            directory,
        }
    }

    /// The address on which dnsmasq will answer.
    pub(crate) fn server(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Lets dnsmasq listen on this port.
    pub(crate) fn on_port(mut self, port: u16) -> Self {
        self.port = port;
        self.without("--port=").dnsmasq(format!("--port={port}"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    pub(crate) fn dnsmasq(mut self, argument: impl Into<String>) -> Self {
        self.dnsmasq.push(argument.into());
        self
    }

    /// Removes each argument of dnsmasq that starts with `beginning`.
    pub(crate) fn without(mut self, beginning: &str) -> Self {
        self.dnsmasq
            .retain(|argument| !argument.starts_with(beginning));
        self
    }

    /// Gives dnsmasq a configuration file with the option `servers-file`. The nanny then passes the
    /// servers to dnsmasq as arguments, not in a servers file of its own.
    pub(crate) fn with_own_servers_file(self) -> Self {
        let file = self.path("dnsmasq.conf");
        fs::write(&file, "servers-file=/dev/null\n").unwrap();
        self.without("--conf-file")
            .dnsmasq(format!("--conf-file={}", file.display()))
    }

    /// Adds the status page; returns its address.
    pub(crate) fn with_status_page(self) -> (Self, SocketAddr) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        (self.flag(format!("-statusAddr={address}")), address)
    }

    /// Puts these words before the command line of the nanny, so that another program starts the
    /// nanny.
    pub(crate) fn run_by(mut self, words: &[&str]) -> Self {
        self.runner = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Writes the resolv.conf. Its servers are queried on port 53, on which no server of a test
    /// listens.
    pub(crate) fn resolv_conf(self, text: &str) -> Self {
        fs::write(self.path("resolv.conf"), text).unwrap();
        self
    }

    pub(crate) fn config<V: AsRef<[u8]>>(self, files: &[(&str, V)]) -> Self {
        replace(&self.path("config"), files).unwrap();
        self
    }

    /// Configures one server for all names.
    pub(crate) fn forwarding_to(self, server: &Upstream) -> Self {
        self.config(&[("upstreamNameservers", only(server))])
    }

    /// Starts the nanny without waiting for anything.
    pub(crate) fn spawn(self) -> NannyRig {
        let nanny = env!("CARGO_BIN_EXE_nanny");
        let mut words = self.runner.clone();
        words.push(nanny.to_owned());
        words.extend(self.flags.iter().cloned());
        words.push("--".to_owned());
        words.extend(self.dnsmasq.iter().cloned());
        let program = Program::at(Path::new(&words.remove(0))).args(words);
        NannyRig {
            nanny: program.start(),
            plan: self,
        }
    }

    /// Starts the nanny and waits until dnsmasq is up.
    pub(crate) async fn start(self) -> NannyRig {
        let mut rig = self.spawn();
        rig.logs("dnsmasq: started, version").await;
        rig.status_with("dnsmasq up", |status| status["dnsmasq"]["up"] == true)
            .await;
        rig
    }
}

/// Gives all users access to the directory that contains the files of this setup.
pub(crate) fn allow_all_users(plan: NannySetup) -> NannySetup {
    fs::set_permissions(plan.path(""), Permissions::from_mode(0o777)).unwrap();
    plan
}

/// A running nanny.
pub(crate) struct NannyRig {
    pub(crate) nanny: Process,
    plan: NannySetup,
}

impl NannyRig {
    /// The address on which dnsmasq answers.
    pub(crate) fn server(&self) -> SocketAddr {
        self.plan.server()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.plan.path(name)
    }

    /// Replaces all keys of the `ConfigMap`.
    pub(crate) fn config<V: AsRef<[u8]>>(&mut self, files: &[(&str, V)]) {
        replace(&self.plan.path("config"), files).unwrap();
    }

    /// Replaces all keys of the `ConfigMap` by `upstreamNameservers` with one server.
    pub(crate) fn forward_to(&mut self, server: &Upstream) {
        self.config(&[("upstreamNameservers", only(server))]);
    }

    /// Removes all keys from the `ConfigMap`.
    pub(crate) fn clear_config(&mut self) {
        self.config::<&str>(&[]);
    }

    /// Waits for a log line that contains `text`, and returns the line.
    pub(crate) async fn logs(&mut self, text: &str) -> String {
        self.nanny.line_with(text, PATIENCE).await
    }

    /// Number of log lines that contain `text`.
    pub(crate) fn logged(&self, text: &str) -> usize {
        let lines = self.nanny.stderr();
        lines.iter().filter(|line| line.contains(text)).count()
    }

    pub(crate) fn resolv_conf(&self, text: &str) {
        fs::write(self.plan.path("resolv.conf"), text).unwrap();
    }

    pub(crate) async fn try_ask(&self, name: &str) -> Result<Message, AskError> {
        let wire = Query::new(name, "A").wire();
        let reply = client::udp(self.server(), &wire, Duration::from_secs(3)).await?;
        Ok(Message::parse(&reply).unwrap())
    }

    /// The IPv4 addresses in the response for a name, the RCODE if the answer section is empty, or
    /// `silence` if there is no response.
    pub(crate) async fn resolve(&self, name: &str) -> String {
        match self.try_ask(name).await {
            Err(_) => "silence".to_owned(),
            Ok(answer) if answer.answer.is_empty() => answer.rcode_name(),
            Ok(answer) => answer.answer_data("A").join(" "),
        }
    }

    /// Waits until a name resolves to `expected`.
    pub(crate) async fn until(&self, name: &str, expected: &str) {
        eventually(PATIENCE, || async {
            let found = self.resolve(name).await;
            if found == expected {
                Ok(())
            } else {
                Err(format!("{name}: {found}"))
            }
        })
        .await;
    }

    /// Waits until each of twenty names resolves to `expected`.
    pub(crate) async fn until_all(&self, expected: &str) {
        for number in 0..20 {
            self.until(&format!("w{number}.outside.test."), expected)
                .await;
        }
    }

    /// The status file.
    pub(crate) fn status(&self) -> Value {
        let text = fs::read_to_string(self.path("state/status.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Waits for a status for which `good` holds.
    pub(crate) async fn status_with(&self, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        eventually(PATIENCE, || {
            let status = self.status();
            let outcome = if good(&status) {
                Ok(status)
            } else {
                Err(format!("waiting for {what} in {status}"))
            };
            async move { outcome }
        })
        .await
    }

    /// Waits until the status has a reason why dnsmasq does not use the newest servers yet. Returns
    /// the status and the reason.
    pub(crate) async fn pending_routes(&self) -> (Value, String) {
        let reason = |status: &Value| {
            status["routes"]["pending"]["reason"]
                .as_str()
                .map(str::to_owned)
        };
        let status = self
            .status_with("pending routes", |status| reason(status).is_some())
            .await;
        let reason = reason(&status).unwrap();
        (status, reason)
    }

    /// Number of reloads that removed servers while dnsmasq may still have waited for answers from
    /// these servers.
    pub(crate) fn hasty_reloads(&self) -> usize {
        self.logged("sent=\"Anyway\"")
    }

    /// The process ID of the running dnsmasq.
    pub(crate) fn dnsmasq(&self) -> Pid {
        let pid = self.status()["dnsmasq"]["pid"]
            .as_i64()
            .expect("dnsmasq must run");
        Pid::from_raw(i32::try_from(pid).unwrap())
    }

    /// Sends dnsmasq a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.dnsmasq(), signal).unwrap();
    }

    /// Waits until dnsmasq has been restarted once for this reason.
    pub(crate) async fn restarted(&self, reason: &str) -> Value {
        self.status_with("restart", |status| {
            status["dnsmasq"]["restarts"][reason] == 1
        })
        .await
    }

    /// Sends SIGTERM. The nanny must exit with status 0, and dnsmasq must end.
    pub(crate) async fn end(mut self) {
        let pid = self.status()["dnsmasq"]["pid"].as_i64();
        let status = self.nanny.terminate(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{}", self.nanny.stderr().join("\n"));
        if let Some(pid) = pid {
            assert!(
                !is_running(pid.try_into().unwrap()),
                "dnsmasq is left behind"
            );
        }
    }

    /// The exit status of a nanny that exits by itself, and its log.
    pub(crate) async fn ended(mut self) -> (Option<i32>, String) {
        let status = self.nanny.wait(PATIENCE).await;
        (status.code(), self.nanny.stderr().join("\n"))
    }
}
