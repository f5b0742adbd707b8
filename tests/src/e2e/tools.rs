//! The real `dig` and `kubectl`, as a person would use them.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// `dig` on one port of 127.0.0.1.
#[derive(Debug, Clone, Copy)]
pub struct Dig {
    port: u16,
}

impl Dig {
    /// Asks the server on this port.
    pub fn on(port: u16) -> Self {
        Self { port }
    }

    /// What `dig +short` prints, sorted; `question` as typed, such as `-x 10.96.0.1` or `web.default AAAA`.
    pub async fn short(self, question: &str) -> Vec<String> {
        let output = self.run(&format!("+short {question}")).await;
        let mut lines: Vec<String> = output.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// The status of the answer, such as `NXDOMAIN`; `None` when there was none.
    pub async fn status(self, question: &str) -> Option<String> {
        let output = self.run(question).await;
        let (_, rest) = output.split_once("status: ")?;
        rest.split(',').next().map(str::to_owned)
    }

    /// Everything that dig prints.
    pub async fn run(self, question: &str) -> String {
        let mut command = Command::new("dig");
        command.args(["@127.0.0.1", "-p", &self.port.to_string(), "+time=5", "+tries=2"]);
        command.args(question.split_whitespace());
        let output = command.output().await.unwrap_or_else(|error| panic!("cannot run dig: {error}"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// `kubectl` on the embedded API server.
#[derive(Debug, Clone)]
pub struct Kubectl {
    server: String,
    home: PathBuf,
}

impl Kubectl {
    /// Talks to the API server on this port; keeps its caches in `home`.
    pub fn on(port: u16, home: &Path) -> Self {
        Self { server: format!("--server=http://127.0.0.1:{port}"), home: home.to_owned() }
    }

    /// Runs it; panics with what it printed when it fails. Returns its standard output.
    pub async fn run(&self, arguments: &str) -> String {
        self.run_with(arguments, "", "true").await
    }

    /// The same with standard input.
    pub async fn with_input(&self, arguments: &str, input: &str) -> String {
        self.run_with(arguments, input, "true").await
    }

    /// `kubectl edit`, with a sed script for an editor.
    pub async fn edit(&self, what: &str, sed: &str) -> String {
        self.run_with(&format!("edit {what}"), "", &format!("sed -i -e '{sed}'")).await
    }

    async fn run_with(&self, arguments: &str, input: &str, editor: &str) -> String {
        let mut command = Command::new("kubectl");
        command.arg(&self.server).args(arguments.split_whitespace());
        command.env("HOME", &self.home).env("KUBECONFIG", "/dev/null").env("KUBE_EDITOR", editor);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot run kubectl: {error}"));
        if let Some(mut stdin) = child.stdin.take() {
            // It may end without reading everything.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await.expect("kubectl can be waited for");
        let Output { status, stdout, stderr } = output;
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "kubectl {arguments}: {status}: {stderr}");
        String::from_utf8_lossy(&stdout).into_owned()
    }
}
