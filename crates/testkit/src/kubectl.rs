//! The real `kubectl`, run with the command lines that a user types.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

/// Timeout of a run. It is long enough for a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// `kubectl` for an API server without TLS.
#[derive(Debug, Clone)]
pub struct Kubectl {
    server: String,
    home: PathBuf,
}

impl Kubectl {
    /// A `kubectl` for the API server at this address, with its caches in `home`.
    pub fn on(server: SocketAddr, home: &Path) -> Self {
        Self {
            server: format!("--server=http://{server}"),
            home: home.to_owned(),
        }
    }

    /// Runs `kubectl` and returns its standard output. Panics with its standard error if `kubectl`
    /// fails.
    pub async fn run(&self, arguments: &str) -> String {
        self.with_input(arguments, "").await
    }

    /// Runs `kubectl` with `input` on standard input. Returns and panics like [`run`](Self::run).
    pub async fn with_input(&self, arguments: &str, input: &str) -> String {
        self.succeed(arguments, input, "true").await
    }

    /// Runs `kubectl edit` with a sed script as the editor.
    pub async fn edit(&self, what: &str, sed: &str) -> String {
        self.succeed(&format!("edit {what}"), "", &format!("sed -i -e '{sed}'"))
            .await
    }

    /// Runs `kubectl` and returns its standard error. Panics if `kubectl` succeeds.
    pub async fn refused(&self, arguments: &str, input: &str) -> String {
        let output = self.output(arguments, input, "true").await;
        assert!(!output.status.success(), "kubectl {arguments}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    async fn succeed(&self, arguments: &str, input: &str, editor: &str) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.output(arguments, input, editor).await;
        assert!(
            status.success(),
            "kubectl {arguments}: {status}: {}",
            String::from_utf8_lossy(&stderr)
        );
        String::from_utf8_lossy(&stdout).into_owned()
    }

    async fn output(&self, arguments: &str, input: &str, editor: &str) -> Output {
        let mut command = Command::new("kubectl");
        command.arg(&self.server).args(arguments.split_whitespace());
        command
            .env("HOME", &self.home)
            .env("KUBECONFIG", "/dev/null")
            .env("KUBE_EDITOR", editor);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run kubectl: {error}"));
        if let Some(mut stdin) = child.stdin.take() {
            // kubectl may exit before it has read the whole input.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let ended = timeout(PATIENCE, child.wait_with_output()).await;
        ended
            .expect("kubectl must end in time")
            .expect("kubectl must end with a status")
    }
}
