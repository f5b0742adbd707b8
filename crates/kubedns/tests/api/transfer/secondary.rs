//! Real DNS servers as secondaries, configured as in docs/transfer.md. The tests add settings such
//! as ports, directories, and the permission for `dig` to transfer the zone.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use testkit::process::{Process, Program};

/// The TSIG key of all secondaries, in the format of tsig-keygen.
pub(crate) const KEY: &str = "key \"xfer\" {\n\talgorithm hmac-sha256;\n\tsecret \"c2VjcmV0IG9mIHR3ZW50eSBvY3RldHM=\";\n};\n";

/// A DNS server that can be a secondary.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Nsd,
    Knot,
    Bind,
}

/// A running secondary, which stops when dropped.
pub(crate) struct Secondary {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    process: Process,
}

impl Secondary {
    /// The last lines of the log.
    pub(crate) fn log(&self) -> String {
        let lines = self.process.stderr();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Kind {
    /// The installed secondaries. For each secondary that is not installed, prints a line to
    /// standard error.
    #[allow(
        clippy::print_stderr,
        reason = "the test prints which secondaries are not tested"
    )]
    pub(crate) fn installed() -> impl Iterator<Item = Self> {
        [Self::Nsd, Self::Knot, Self::Bind]
            .into_iter()
            .filter(|kind| {
                let is_here = kind.program().is_file();
                if !is_here {
                    eprintln!("skipped: {} is not installed", kind.program().display());
                }
                is_here
            })
    }

    fn program(self) -> PathBuf {
        Path::new("/usr/sbin").join(match self {
            Self::Nsd => "nsd",
            Self::Knot => "knotd",
            Self::Bind => "named",
        })
    }

    /// Starts the server on `address` as a secondary of `primary`, with its files in `directory`.
    pub(crate) fn start(
        self,
        address: SocketAddr,
        primary: SocketAddr,
        directory: &Path,
    ) -> Secondary {
        let (name, arguments, config): (_, &[&str], ConfigText) = match self {
            Self::Nsd => ("NSD", &["-d", "-c"], nsd_config),
            Self::Knot => ("Knot DNS", &["-c"], knot_config),
            Self::Bind => ("BIND", &["-g", "-c"], bind_config),
        };
        let directory = directory.join(name.replace(' ', "-"));
        std::fs::create_dir_all(&directory).unwrap();

        let text = config(&directory.display().to_string(), address.port(), primary);
        let file = directory.join("conf");
        std::fs::write(&file, text).unwrap();

        let process = Program::tied(&self.program())
            .args(arguments)
            .args([&file])
            .start();
        Secondary {
            name,
            address,
            process,
        }
    }
}

/// Makes the configuration of a secondary. The arguments are the directory of the secondary, its
/// port on 127.0.0.1, and the address of the primary.
type ConfigText = fn(&str, u16, SocketAddr) -> String;

fn nsd_config(directory: &str, port: u16, primary: SocketAddr) -> String {
    let primary = format!("{}@{}", primary.ip(), primary.port());
    format!(
        "server:
  ip-address: 127.0.0.1@{port}
  username: \"\"
  zonesdir: \"{directory}\"
  database: \"\"
  pidfile: \"{directory}/pid\"
  xfrdfile: \"{directory}/xfrd.state\"
  xfrdir: \"{directory}\"
  zonelistfile: \"{directory}/zone.list\"
  verbosity: 2
  xfrd-reload-timeout: 0
remote-control:
  control-enable: no
key:
  name: \"xfer\"
  algorithm: hmac-sha256
  secret: \"c2VjcmV0IG9mIHR3ZW50eSBvY3RldHM=\"
zone:
  name: \"cluster.local\"
  zonefile: \"cluster.local.zone\"
  request-xfr: {primary} xfer
  allow-notify: 127.0.0.1 xfer
  provide-xfr: 127.0.0.1 NOKEY
"
    )
}

fn knot_config(directory: &str, port: u16, primary: SocketAddr) -> String {
    let primary = format!("{}@{}", primary.ip(), primary.port());
    format!(
        "server:
  rundir: \"{directory}\"
  listen: 127.0.0.1@{port}
log:
  - target: stderr
    any: info
database:
  storage: \"{directory}/db\"
key:
  - id: xfer
    algorithm: hmac-sha256
    secret: c2VjcmV0IG9mIHR3ZW50eSBvY3RldHM=
remote:
  - id: kube-dns
    address: {primary}
    key: xfer
acl:
  - id: notify
    address: 127.0.0.1
    key: xfer
    action: notify
  - id: transfer
    address: 127.0.0.1
    action: transfer
zone:
  - domain: cluster.local
    storage: \"{directory}\"
    master: kube-dns
    acl: [notify, transfer]
"
    )
}

fn bind_config(directory: &str, port: u16, primary: SocketAddr) -> String {
    let primary_port = primary.port();
    format!(
        "options {{
  directory \"{directory}\";
  pid-file \"{directory}/pid\";
  session-keyfile \"{directory}/session.key\";
  listen-on port {port} {{ 127.0.0.1; }};
  listen-on-v6 {{ none; }};
  recursion no;
  dnssec-validation no;
  notify no;
  allow-transfer {{ 127.0.0.1; }};
}};
controls {{ }};
{KEY}
zone \"cluster.local\" {{
  type secondary;
  file \"cluster.local.zone\";
  primaries port {primary_port} {{ 127.0.0.1 key xfer; }};
  allow-notify {{ key xfer; }};
}};
"
    )
}
