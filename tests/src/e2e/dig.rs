//! Runs `dig` as a user does in a terminal.

use tokio::process::Command;

/// Sends queries with `dig` to one port of 127.0.0.1.
#[derive(Debug, Clone, Copy)]
pub struct Dig {
    port: u16,
}

impl Dig {
    /// A `dig` for the server on this port.
    pub fn on(port: u16) -> Self {
        Self { port }
    }

    /// The lines of `dig +short`, sorted. `question` has dig's syntax, such as `-x 10.96.0.1` or
    /// `web.default AAAA`.
    pub async fn short(self, question: &str) -> Vec<String> {
        let output = self.run(&format!("+short {question}")).await;
        let mut lines: Vec<String> = output.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// The status of the answer, such as `NXDOMAIN`; `None` without an answer.
    pub async fn status(self, question: &str) -> Option<String> {
        let output = self.run(question).await;
        let (_, rest) = output.split_once("status: ")?;
        rest.split(',').next().map(str::to_owned)
    }

    /// The whole output of dig.
    pub async fn run(self, question: &str) -> String {
        let mut command = Command::new("dig");
        command.args([
            "@127.0.0.1",
            "-p",
            &self.port.to_string(),
            "+time=5",
            "+tries=2",
        ]);
        command.args(question.split_whitespace());
        let output = command
            .output()
            .await
            .unwrap_or_else(|error| panic!("cannot run dig: {error}"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
