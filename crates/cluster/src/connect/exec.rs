//! Credentials from a plugin: the `exec` section of a kubeconfig.

mod process;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use tokio::process::Command;
use tokio::sync::Mutex;

use super::certificate::{ClientCertificate, IdentityError};
use process::RunError;

/// Timeout of a plugin, shorter than the timeout of a request.
// Differs from kube-dns, in which a hanging plugin blocks all requests: client-go has no such
// timeout.
const LIMIT: Duration = Duration::from_secs(20);
/// Pause before a failed plugin is run again.
const PAUSE: Duration = Duration::from_secs(5);
/// The credentials are renewed this long before they expire.
const LEEWAY: Duration = Duration::from_mins(1);

/// A failure of a plugin.
#[derive(Debug, Clone, Error)]
pub(super) enum PluginError {
    #[error("the exec plugin has no command")]
    NoCommand,
    #[error(
        "the exec plugin {0:?} requires a terminal (interactiveMode: Always); accepted: Never, IfAvailable"
    )]
    Interactive(String),
    #[error("cannot run the exec plugin {command:?}: {reason}")]
    Start { command: String, reason: String },
    #[error("the exec plugin {command:?} timed out after {LIMIT:?}")]
    Hangs { command: String },
    #[error("the exec plugin {command:?} {reason}")]
    Verbose { command: String, reason: String },
    #[error("the exec plugin {command:?} failed with {status}: {said}")]
    Failed {
        command: String,
        status: String,
        said: String,
    },
    #[error(
        "the exec plugin {command:?} printed no ExecCredential with a token or a certificate and its key: {reason}"
    )]
    Output { command: String, reason: String },
}

/// A plugin and its last credentials.
#[derive(Debug)]
pub(super) struct Plugin {
    config: ExecConfig,
    certificate: Arc<ClientCertificate>,
    cached: Mutex<CachedCredentials>,
}

/// The last credentials and, if the plugin has failed since, the failure.
#[derive(Debug, Default)]
struct CachedCredentials {
    token: Option<String>,
    /// End of the credentials' validity; `None` if there are no credentials.
    expires: Option<DateTime<Utc>>,
    failure: Option<(PluginError, Instant)>,
}

impl CachedCredentials {
    /// Whether the plugin must run.
    fn are_due(&self) -> bool {
        match &self.failure {
            Some((_, at)) => at.elapsed() >= PAUSE,
            None => !self.are_valid(LEEWAY),
        }
    }

    /// Whether the credentials are valid for longer than `remaining`.
    fn are_valid(&self, remaining: Duration) -> bool {
        self.expires
            .is_some_and(|expires| Utc::now() + remaining < expires)
    }

    /// The token. As in client-go, a failed renewal is an error only after the previous credentials
    /// have expired.
    fn token(&self) -> Result<Option<String>, PluginError> {
        match &self.failure {
            Some((error, _)) if !self.are_valid(Duration::ZERO) => Err(error.clone()),
            _ => Ok(self.token.clone()),
        }
    }
}

#[derive(Deserialize)]
struct ExecCredential {
    status: CredentialStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CredentialStatus {
    /// RFC 3339 time.
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl CredentialStatus {
    /// The expiry of the credentials. Without a time, the credentials do not expire. An invalid
    /// time is treated as expired, so that the plugin runs for each request.
    fn expires(&self) -> DateTime<Utc> {
        let Some(text) = &self.expiration_timestamp else {
            return DateTime::<Utc>::MAX_UTC;
        };
        DateTime::parse_from_rfc3339(text).map_or(DateTime::UNIX_EPOCH, |time| time.to_utc())
    }
}

impl Plugin {
    /// A plugin that has not run yet. Client certificates of the plugin are stored in
    /// `certificate`.
    pub(super) fn new(config: ExecConfig, certificate: Arc<ClientCertificate>) -> Self {
        Self {
            config,
            certificate,
            cached: Mutex::default(),
        }
    }

    /// The token, if the plugin provides one. Runs the plugin if the credentials are missing or
    /// about to expire, but not in the [`PAUSE`] after a failure.
    pub(super) async fn token(&self) -> Result<Option<String>, PluginError> {
        // The lock is held while the plugin runs, so that concurrent requests wait for the same
        // run.
        let mut cached = self.cached.lock().await;
        if cached.are_due() {
            match self.run_plugin().await {
                Ok(status) => {
                    let expires = Some(status.expires());
                    *cached = CachedCredentials {
                        token: status.token,
                        expires,
                        failure: None,
                    };
                }
                Err(error) => cached.failure = Some((error, Instant::now())),
            }
        }
        cached.token()
    }

    async fn run_plugin(&self) -> Result<CredentialStatus, PluginError> {
        let command = self.config.command.clone().ok_or(PluginError::NoCommand)?;
        // A plugin in the mode `Always` asks the user at a terminal, which a server does not have.
        if self.config.interactive_mode == Some(ExecInteractiveMode::Always) {
            return Err(PluginError::Interactive(command));
        }
        // A timeout drops the future of the run, which kills the processes of the plugin.
        let output = match tokio::time::timeout(
            LIMIT,
            process::run_command(&mut self.plugin_command(&command)),
        )
        .await
        {
            Ok(Ok(output)) => output,
            Ok(Err(RunError::Io(error))) => {
                return Err(PluginError::Start {
                    command,
                    reason: error.to_string(),
                });
            }
            Ok(Err(error @ RunError::TooMuchOutput)) => {
                return Err(PluginError::Verbose {
                    command,
                    reason: error.to_string(),
                });
            }
            Err(_) => return Err(PluginError::Hangs { command }),
        };

        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = super::first_line(said.trim_start());
            return Err(PluginError::Failed {
                command,
                status: output.status.to_string(),
                said,
            });
        }

        match self.accept_output(&output.stdout) {
            Ok(status) => Ok(status),
            Err(reason) => Err(PluginError::Output { command, reason }),
        }
    }

    /// Reads the credentials that a plugin has printed, and stores its certificate. The error says
    /// what is wrong with the output.
    fn accept_output(&self, output: &[u8]) -> Result<CredentialStatus, String> {
        let credential: ExecCredential =
            serde_json::from_slice(output).map_err(|error| error.to_string())?;
        let status = credential.status;

        match (&status.client_certificate_data, &status.client_key_data) {
            (Some(certificate), Some(key)) => {
                let stored = self.certificate.set(certificate.as_bytes(), key.as_bytes());
                stored.map_err(|error: IdentityError| error.to_string())?;
            }
            (None, None) if status.token.is_some() => {}
            (None, None) => {
                return Err("the status has neither a token nor a certificate".to_owned());
            }
            _ => {
                let reason =
                    "the status has only one of clientCertificateData and clientKeyData".to_owned();
                return Err(reason);
            }
        }
        Ok(status)
    }

    fn plugin_command(&self, program: &str) -> Command {
        let mut spec = json!({ "interactive": false });
        if let Some(cluster) = &self.config.cluster {
            spec["cluster"] = json!(cluster);
        }
        let version = self.config.api_version.as_deref();
        let version = version.unwrap_or("client.authentication.k8s.io/v1");
        let info = json!({ "kind": "ExecCredential", "apiVersion": version, "spec": spec });

        let mut command = Command::new(program);
        command
            .args(self.config.args.iter().flatten())
            .envs(
                self.config
                    .env
                    .iter()
                    .flatten()
                    .filter_map(environment_pair),
            )
            .env("KUBERNETES_EXEC_INFO", info.to_string());
        command
    }
}

/// A variable of the kubeconfig's `env`.
fn environment_pair(variable: &HashMap<String, String>) -> Option<(&String, &String)> {
    Some((variable.get("name")?, variable.get("value")?))
}
