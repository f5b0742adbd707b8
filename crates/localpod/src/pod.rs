//! The containers of the pod, and their command lines. Most flags are those of the chosen topology
//! in `manifests/`. In the comments, "the manifest" means `manifests/base`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use crate::options::ExtraArgs;
use crate::ports::Ports;
use crate::programs::Programs;

/// One container: a program that localpod keeps running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The container's name in the manifest.
    pub name: &'static str,
    /// The executable.
    pub program: PathBuf,
    /// The arguments of the executable.
    pub args: Vec<String>,
    /// Environment variables, in addition to those of localpod.
    pub env: Vec<(&'static str, OsString)>,
    /// The signal that the kernel sends to the process if localpod is killed.
    pub on_death: Signal,
}

/// Unlike in the manifests, kubedns and dnsmasq do not continue to answer after SIGTERM. A laptop
/// has no other pod that clients could use in the meantime, and Ctrl-C should take effect at once.
const NO_LAMEDUCK: &str = "--lameduck=0s";

/// kubedns' access to the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// The embedded server at this URL, without credentials.
    MasterUrl(String),
    /// A kubeconfig file.
    Kubeconfig(PathBuf),
}

/// The values from which the command lines are made.
#[derive(Debug, Clone)]
pub struct Wiring<'a> {
    /// The executables.
    pub programs: &'a Programs,
    /// The ports.
    pub ports: Ports,
    /// The cluster domain, without a final dot.
    pub domain: &'a str,
    /// The directory with the entries of the `ConfigMap`.
    pub config_dir: &'a Path,
    /// The nanny's state directory.
    pub state_dir: &'a Path,
    /// The access to the API server.
    pub access: Access,
    /// Upstreams instead of those in /etc/resolv.conf.
    pub nameservers: &'a [SocketAddr],
    /// Whether dnsmasq, in front of kubedns, is only a cache (`manifests/cache`). dnsmasq then
    /// forwards to kubedns all queries that its cache cannot answer.
    pub is_cache: bool,
    /// Whether kubedns runs without dnsmasq (`manifests/alone`), on the ports of the direct
    /// topology.
    pub is_alone: bool,
    /// Seconds between two probes by the sidecar; 5 in the manifest.
    pub probe_interval: u32,
    /// Verbosity.
    pub verbosity: u8,
    /// The user's arguments for each program. They follow localpod's own arguments for the program.
    /// If an option with a single value occurs twice, the last value counts, except in dnsmasq,
    /// which rejects most repeated options of this kind.
    pub extra: &'a ExtraArgs,
}

impl Wiring<'_> {
    /// The containers, in the order of the manifest.
    pub fn containers(&self) -> Vec<Container> {
        let dnsmasq = (!self.is_alone).then(|| self.dnsmasq());
        [self.kubedns()]
            .into_iter()
            .chain(dnsmasq)
            .chain([self.sidecar()])
            .collect()
    }

    /// Returns whether kubedns is in front and dnsmasq behind it (`manifests/direct`).
    fn is_direct(&self) -> bool {
        self.ports.dns == self.ports.kubedns && !self.is_alone
    }

    /// kubedns' arguments for the `ConfigMap`, the topology and the upstreams.
    fn kubedns_upstreams(&self) -> Vec<String> {
        let mut args = vec![format!("--config-dir={}", self.config_dir.display())];
        if self.is_direct() {
            args.push("--topology=direct".to_owned());
            args.push(format!("--nameservers=127.0.0.1:{}", self.ports.dnsmasq));
            return args;
        }
        if self.is_cache {
            args.push("--topology=cache".to_owned());
        }
        if self.is_alone {
            args.extend(
                ["--topology=alone", "--cache-size=10000", "--serve-stale=1h"].map(str::to_owned),
            );
        }
        if !self.nameservers.is_empty() {
            let addresses: Vec<String> =
                self.nameservers.iter().map(SocketAddr::to_string).collect();
            args.push(format!("--nameservers={}", addresses.join(",")));
        }
        args
    }

    fn kubedns(&self) -> Container {
        let mut args = vec![
            format!("--domain={}.", self.domain),
            format!("--dns-port={}", self.ports.kubedns),
        ];
        args.extend(self.kubedns_upstreams());
        args.extend([
            format!("--v={}", self.verbosity),
            // Not in the manifest: on a laptop, unlike in a pod, other programs use the same
            // addresses and ports.
            "--dns-bind-address=127.0.0.1".to_owned(),
            "--http-bind-address=127.0.0.1".to_owned(),
            format!("--healthz-port={}", self.ports.readiness),
            NO_LAMEDUCK.to_owned(),
            // Not in the manifest: in a pod, kubedns uses the in-cluster configuration.
            match &self.access {
                Access::MasterUrl(url) => format!("--kube-master-url={url}"),
                Access::Kubeconfig(file) => format!("--kubecfg-file={}", file.display()),
            },
        ]);
        if !self.is_direct() && !self.is_alone {
            let nanny = self.ports.nanny;
            args.push(format!("--nanny-status=http://127.0.0.1:{nanny}/status"));
        }
        args.extend_from_slice(&self.extra.kubedns);
        Container {
            name: "kubedns",
            program: self.programs.kubedns.clone(),
            args,
            env: vec![(
                "PROMETHEUS_PORT",
                self.ports.kubedns_metrics.to_string().into(),
            )],
            on_death: Signal::SIGKILL,
        }
    }

    fn dnsmasq(&self) -> Container {
        let kubedns_address = format!("127.0.0.1:{}", self.ports.kubedns);
        let mut args = vec![
            format!("-v={}", self.verbosity),
            format!("-configDir={}", self.config_dir.display()),
            "-restartDnsmasq=true".to_owned(),
            // Not in the manifest: the defaults of these flags fit a pod, but not a laptop.
            format!("-dnsmasqExec={}", self.programs.dnsmasq.display()),
            format!("-kubednsServer={kubedns_address}"),
            format!("-stateDir={}", self.state_dir.display()),
            format!("-statusAddr=127.0.0.1:{}", self.ports.nanny),
            NO_LAMEDUCK.to_owned(),
        ];
        if self.is_cache {
            args.push("-forward=kubedns".to_owned());
        }
        args.extend_from_slice(&self.extra.nanny);
        args.push("--".to_owned());
        args.extend(self.dnsmasq_args());
        Container {
            name: "dnsmasq",
            program: self.programs.nanny.clone(),
            args,
            env: Vec::new(),
            // On SIGTERM, the nanny ends dnsmasq as well.
            on_death: Signal::SIGTERM,
        }
    }

    /// The arguments for dnsmasq on the command line of the nanny, which passes most of them on.
    fn dnsmasq_args(&self) -> Vec<String> {
        let mut args = vec!["-k".to_owned(), "--cache-size=1000".to_owned()];
        args.extend(self.dnsmasq_routes());
        args.extend([
            // Not in the manifest: on a laptop, unlike in a pod, other programs use the same
            // addresses and ports.
            format!("--port={}", self.ports.dnsmasq),
            "--listen-address=127.0.0.1".to_owned(),
            "--bind-interfaces".to_owned(),
            // Not in the manifest: the pod must not use the machine's own dnsmasq configuration and
            // pid file.
            "--conf-file=/dev/null".to_owned(),
            "--pid-file=".to_owned(),
        ]);
        if !self.nameservers.is_empty() && !self.is_cache {
            args.push("--no-resolv".to_owned());
            args.extend(
                self.nameservers
                    .iter()
                    .map(|at| format!("--server={}#{}", at.ip(), at.port())),
            );
        }
        args.extend_from_slice(&self.extra.dnsmasq);
        args
    }

    /// The arguments for dnsmasq that depend on its position, in front of kubedns or behind it.
    /// Also `--dns-loop-detect` and `--log-facility=-`, which are the same in both positions. The
    /// nanny does not pass `--dns-loop-detect` on to dnsmasq, because the nanny finds loops itself.
    /// In front of kubedns, dnsmasq forwards queries for cluster names and reverse names to
    /// kubedns, and does not cache negative answers. Behind kubedns, dnsmasq receives only queries
    /// for external names, and may forward 1000 queries at a time.
    fn dnsmasq_routes(&self) -> Vec<String> {
        let every = [
            "--dns-loop-detect".to_owned(),
            "--log-facility=-".to_owned(),
        ];
        if self.is_direct() {
            return ["--dns-forward-max=1000".to_owned()]
                .into_iter()
                .chain(every)
                .collect();
        }
        let kubedns = format!("127.0.0.1#{}", self.ports.kubedns);
        let servers = [self.domain, "in-addr.arpa", "ip6.arpa"]
            .map(|zone| format!("--server=/{zone}/{kubedns}"));
        ["--no-negcache".to_owned()]
            .into_iter()
            .chain(every)
            .chain(servers)
            .collect()
    }

    /// The sidecar's arguments that concern dnsmasq. `query` is the query of the probe, in the form
    /// `NAME,SECONDS,TYPE`. If kubedns is in front, the probe queries `localhost` instead.
    fn sidecar_of_dnsmasq(&self, query: &str) -> [String; 4] {
        // `localhost` is in /etc/hosts, so the dnsmasq behind kubedns needs no upstream to answer.
        let localhost = format!("localhost,{},A", self.probe_interval);
        let query = if self.is_direct() { &localhost } else { query };
        [
            format!("--probe=dnsmasq,127.0.0.1:{},{query}", self.ports.dnsmasq),
            format!("--dnsmasq-port={}", self.ports.dnsmasq),
            // Not in the manifest, which uses the default port.
            format!(
                "--nanny-status=http://127.0.0.1:{}/status",
                self.ports.nanny
            ),
            format!("--nanny-top=http://127.0.0.1:{}/top", self.ports.nanny),
        ]
    }

    fn sidecar(&self) -> Container {
        let query = format!(
            "kubernetes.default.svc.{},{},SRV",
            self.domain, self.probe_interval
        );
        let mut args = vec![
            format!("--v={}", self.verbosity),
            format!("--kubedns-addr=127.0.0.1:{}", self.ports.kubedns),
        ];
        if self.is_alone {
            args.push("--dnsmasq-addr=".to_owned());
        }
        args.push(format!(
            "--probe=kubedns,127.0.0.1:{},{query}",
            self.ports.kubedns
        ));
        if !self.is_alone {
            args.extend(self.sidecar_of_dnsmasq(&query));
        }
        args.extend([
            // Not in the manifest, which uses the default addresses and ports.
            format!(
                "--kubedns-metrics=http://127.0.0.1:{}/metrics",
                self.ports.kubedns_metrics
            ),
            format!(
                "--kubedns-explain=http://127.0.0.1:{}/explain",
                self.ports.readiness
            ),
            format!(
                "--kubedns-top=http://127.0.0.1:{}/top",
                self.ports.readiness
            ),
            "--prometheus-addr=127.0.0.1".to_owned(),
            format!("--prometheus-port={}", self.ports.sidecar),
        ]);
        args.extend_from_slice(&self.extra.sidecar);
        Container {
            name: "sidecar",
            program: self.programs.sidecar.clone(),
            args,
            env: Vec::new(),
            on_death: Signal::SIGKILL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs() -> Programs {
        Programs {
            kubedns: "/bin/kubedns".into(),
            nanny: "/bin/nanny".into(),
            sidecar: "/bin/sidecar".into(),
            dnsmasq: "/usr/sbin/dnsmasq".into(),
        }
    }

    static NO_EXTRA: ExtraArgs = ExtraArgs {
        kubedns: Vec::new(),
        nanny: Vec::new(),
        dnsmasq: Vec::new(),
        sidecar: Vec::new(),
    };

    fn wiring<'a>(programs: &'a Programs, nameservers: &'a [SocketAddr]) -> Wiring<'a> {
        Wiring {
            programs,
            ports: Ports::block(5300).unwrap(),
            domain: "cluster.local",
            config_dir: Path::new("/tmp/config"),
            state_dir: Path::new("/tmp/state"),
            access: Access::MasterUrl("http://127.0.0.1:5305".to_owned()),
            nameservers,
            is_cache: false,
            is_alone: false,
            probe_interval: 5,
            verbosity: 2,
            extra: &NO_EXTRA,
        }
    }

    /// The arguments of a container in one line.
    fn line(wiring: &Wiring<'_>, name: &str) -> String {
        let containers = wiring.containers();
        let container = containers.iter().find(|found| found.name == name);
        container.unwrap().args.join(" ")
    }

    #[test]
    fn arguments_of_user_follow_those_of_localpod() {
        let programs = programs();
        let extra = ExtraArgs {
            nanny: vec!["-n".to_owned()],
            dnsmasq: vec!["-d".to_owned()],
            ..NO_EXTRA.clone()
        };
        let wiring = Wiring {
            extra: &extra,
            ..wiring(&programs, &[])
        };
        let dnsmasq = line(&wiring, "dnsmasq");
        assert!(dnsmasq.contains(" -n -- "), "{dnsmasq}");
        assert!(dnsmasq.ends_with(" -d"), "{dnsmasq}");
    }

    #[test]
    fn direct_topology_puts_dnsmasq_behind_kubedns() {
        let programs = programs();
        let upstream = ["127.0.0.1:5306".parse().unwrap()];
        let mut wiring = wiring(&programs, &upstream);
        wiring.ports = wiring.ports.direct();
        for (name, expected) in [
            (
                "kubedns",
                "--dns-port=5300 --config-dir=/tmp/config --topology=direct --nameservers=127.0.0.1:5301 --v=2",
            ),
            ("dnsmasq", "--port=5301"),
            ("dnsmasq", "-kubednsServer=127.0.0.1:5300"),
            ("dnsmasq", "--no-resolv --server=127.0.0.1#5306"),
            ("sidecar", "--probe=dnsmasq,127.0.0.1:5301,localhost,5,A"),
            ("sidecar", "--dnsmasq-port=5301"),
        ] {
            let line = line(&wiring, name);
            assert!(line.contains(expected), "{expected}: {line}");
        }
        let dnsmasq = line(&wiring, "dnsmasq");
        assert_eq!(dnsmasq.matches("--server=").count(), 1, "{dnsmasq}");
    }

    #[test]
    fn upstreams_reach_kubedns_and_dnsmasq() {
        let programs = programs();
        let nameservers = [
            "127.0.0.1:5306".parse().unwrap(),
            "[::1]:53".parse().unwrap(),
        ];
        let wiring = wiring(&programs, &nameservers);
        let kubedns = line(&wiring, "kubedns");
        let expected = "--nameservers=127.0.0.1:5306,[::1]:53";
        assert!(kubedns.contains(expected), "{kubedns}");
        let dnsmasq = line(&wiring, "dnsmasq");
        let expected = "--no-resolv --server=127.0.0.1#5306 --server=::1#53";
        assert!(dnsmasq.ends_with(expected), "{dnsmasq}");
    }

    #[test]
    fn cache_topology_gives_dnsmasq_no_upstreams() {
        let (programs, nameservers) = (programs(), ["127.0.0.1:5306".parse().unwrap()]);
        let wiring = Wiring {
            is_cache: true,
            ..wiring(&programs, &nameservers)
        };
        let kubedns = line(&wiring, "kubedns");
        let expected = "--topology=cache --nameservers=127.0.0.1:5306";
        assert!(kubedns.contains(expected), "{kubedns}");
        let dnsmasq = line(&wiring, "dnsmasq");
        assert!(dnsmasq.contains("-forward=kubedns"), "{dnsmasq}");
        assert!(!dnsmasq.contains("--server=127"), "{dnsmasq}");
    }
}
