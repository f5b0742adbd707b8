//! Access to the API server: from a kubeconfig file, by a bare URL, or as the pod's service
//! account.
//!
//! The precedence is the same as in kube-dns:
//! - A URL without a kubeconfig is used without credentials.
//! - A kubeconfig file is used with the given context, or else with the file's current context. A
//!   given URL replaces the URL in the file.
//! - Without a URL and a kubeconfig file, the pod's service account is used.
//!
//! Token files (of a service account, or `tokenFile` in a kubeconfig), the files of a client
//! certificate and a service account's `ca.crt` are read again, so that a rotation takes effect. An
//! exec plugin runs again before its credentials expire. The kubeconfig itself, its inline
//! certificates and the file `certificate-authority` are read again only by [`Connection::renew`].

mod certificate;
mod client;
mod credentials;
mod exec;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use daemon::blocking_read::{BlockingRead, READ_TIMEOUT};
use daemon::error_chain::brief;
use http::Uri;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use parking_lot::Mutex;
use thiserror::Error;
use tower::BoxError;

use crate::watch::ApiOutage;

/// Shortest interval between two reads by [`Connection::renew`].
const RENEWAL: Duration = Duration::from_secs(30);
/// Stands for the missing `proxy-url` of a cluster while kube reads the kubeconfig. kube would
/// otherwise take the proxy from the environment, and fail if its URL is invalid.
const PROXY_PLACEHOLDER: &str = "http://placeholder.invalid/";
/// The directory of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A failure to set up the client for the API server.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig file cannot be used.
    #[error("cannot use the kubeconfig {}: {reason}", .path.display())]
    Kubeconfig {
        /// The path of the file.
        path: PathBuf,
        /// The reason why the file cannot be used, in one line.
        reason: String,
    },
    /// The URL is invalid.
    #[error("{url:?} is not the URL of an API server, such as https://192.0.2.1:6443")]
    Url {
        /// The given value.
        url: String,
    },
    /// Neither a file nor a URL is given, and there is no service account.
    #[error(
        "neither --kubecfg-file nor --kube-master-url is given, and there is no service account: {reason}"
    )]
    InCluster {
        /// The reason why there is no service account.
        reason: String,
    },
    /// A setting of the connection cannot be used: a certificate, a credential, the proxy or the
    /// name of the TLS server.
    #[error("cannot set up the connection to {url}: {reason}")]
    Client {
        /// The URL of the API server.
        url: String,
        /// The reason why the connection cannot be set up, in one line.
        reason: String,
    },
    /// The files with the credentials cannot be read in time.
    #[error("reading the credentials for the API server timed out after {}s", READ_TIMEOUT.as_secs())]
    Hangs,
}

/// The credentials of a request could not be obtained, so the request was not sent.
#[derive(Debug, Error)]
#[error(transparent)]
pub(crate) struct AuthorizeError(BoxError);

/// The source of the API server's URL and of the credentials.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// `--kubecfg-file`.
    pub kubeconfig: Option<PathBuf>,
    /// `--kubecfg-context`; `None` for the current context of the file.
    pub context: Option<String>,
    /// `--kube-master-url`, with environment variables expanded.
    pub master_url: Option<String>,
}

impl Access {
    async fn config(&self) -> Result<Config, ConnectError> {
        match (&self.kubeconfig, &self.master_url) {
            (Some(path), url) => {
                from_kubeconfig(path, self.context.as_deref(), url.as_deref()).await
            }
            // As in kube-dns, a URL without a kubeconfig is used without credentials, even in a
            // pod.
            (None, Some(url)) => Ok(Config::new(parse_url(url)?)),
            (None, None) => {
                from_service_account(Path::new(SERVICE_ACCOUNT), |name| std::env::var(name).ok())
            }
        }
    }
}

/// A client, and the URL of its API server.
struct BuiltClient {
    url: String,
    client: Client,
}

/// A connection to one API server, shared by all watchers.
pub struct Connection {
    /// The source of the credentials; `None` if they cannot be read again.
    access: Option<Access>,
    url: String,
    client: ArcSwap<Client>,
    /// The time of the last attempt to renew; `None` before the first.
    renewed: Mutex<Option<Instant>>,
    reading: BlockingRead<Result<BuiltClient, ConnectError>>,
    outage: ApiOutage,
}

impl Connection {
    /// Reads the credentials. Does not contact the API server, which may be down.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if the client cannot be set up.
    pub async fn new(access: Access) -> Result<Self, ConnectError> {
        let reading = BlockingRead::default();
        let built = build_client(access.clone(), &reading).await?;

        Ok(Self {
            access: Some(access),
            url: built.url,
            client: ArcSwap::from_pointee(built.client),
            renewed: Mutex::default(),
            reading,
            outage: ApiOutage::default(),
        })
    }

    /// A connection through an existing client, whose credentials cannot be read again.
    pub fn through(client: Client) -> Self {
        Self {
            access: None,
            url: String::new(),
            client: ArcSwap::from_pointee(client),
            renewed: Mutex::default(),
            reading: BlockingRead::default(),
            outage: ApiOutage::default(),
        }
    }

    /// The URL of the API server, for logs.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The outage of the API server. All watches of this connection share it, so that their
    /// failures are logged as one outage.
    pub(crate) fn outage(&self) -> &ApiOutage {
        &self.outage
    }

    /// The current client.
    pub fn client(&self) -> Client {
        Client::clone(&self.client.load())
    }

    /// Reads the kubeconfig or the service account again, at most once every 30 seconds. Must be
    /// called when a request fails because of credentials or certificates. If reading fails, the
    /// previous client stays in use.
    pub async fn renew(&self) {
        let Some(access) = &self.access else { return };
        // A rejection makes all watches of the connection fail at the same time. One read is enough
        // for all of them.
        {
            let mut renewed = self.renewed.lock();
            if renewed.is_some_and(|renewed| renewed.elapsed() < RENEWAL) {
                return;
            }
            // The time is noted before the read, so that other watches do not begin another read
            // meanwhile.
            *renewed = Some(Instant::now());
        }

        match build_client(access.clone(), &self.reading).await {
            Ok(built) => self.client.store(built.client.into()),
            Err(error) => tracing::warn!(
                %error,
                "cannot read the credentials for the API server again; the previous credentials stay in use"
            ),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Expands `$NAME` and `${NAME}` as Go's `os.Expand` does. `lookup` returns the value of a name; an
/// unknown name expands to nothing.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + 1..).unwrap_or_default();

        let (name, after) = split_variable(rest);
        match name {
            Some(name) => expanded.push_str(&lookup(name).unwrap_or_default()),
            None if after.len() == rest.len() => expanded.push('$'),
            None => {}
        }
        rest = after;
    }

    expanded.push_str(rest);
    expanded
}

/// Splits the text after a `$` into the name of a variable and the rest. If there is no name and
/// the rest is the whole text, the `$` is literal. If there is no name and the rest is shorter, the
/// syntax is invalid, and the octets before the rest are dropped.
fn split_variable(text: &str) -> (Option<&str>, &str) {
    if let Some(braced) = text.strip_prefix('{') {
        return match braced.split_once('}') {
            Some(("", after)) => (None, after),
            Some((name, after)) => (Some(name), after),
            None => (None, braced),
        };
    }

    // The shell's special parameters are one character long.
    let special = text.starts_with(|c: char| "*#$@!?-0123456789".contains(c));
    let length = if special {
        1
    } else {
        text.find(|c: char| c != '_' && !c.is_ascii_alphanumeric())
            .unwrap_or(text.len())
    };

    let (name, after) = text.split_at(length);
    ((!name.is_empty()).then_some(name), after)
}

/// Reads the credentials and builds a client, on a thread that may block.
async fn build_client(
    access: Access,
    reading: &BlockingRead<Result<BuiltClient, ConnectError>>,
) -> Result<BuiltClient, ConnectError> {
    let runtime = tokio::runtime::Handle::current();
    // A read from a dead mount may never return, so it must not block the runtime's threads.
    let built = reading.run(move || {
        let config = runtime.block_on(access.config())?;
        let url = config.cluster_url.to_string();

        match client::build_client(config) {
            Ok(client) => Ok(BuiltClient { url, client }),
            Err(error) => Err(ConnectError::Client {
                url,
                reason: brief(&error),
            }),
        }
    });

    built.await.unwrap_or(Err(ConnectError::Hangs))
}

async fn from_kubeconfig(
    path: &Path,
    context: Option<&str>,
    url: Option<&str>,
) -> Result<Config, ConnectError> {
    let mut file =
        Kubeconfig::read_from(path).map_err(|error| unusable_kubeconfig(path, &error))?;
    // kube's own error does not say which contexts the file has.
    if let Some(context) = context {
        check_context(&file, context).map_err(|reason| ConnectError::Kubeconfig {
            path: path.to_owned(),
            reason,
        })?;
    }

    if let Some(url) = url {
        // The URL is checked before kube parses it, so that the error names the URL and not the
        // file.
        parse_url(url)?;
        // All clusters get this URL, so it does not matter which one the context names.
        for named in &mut file.clusters {
            if let Some(cluster) = &mut named.cluster {
                cluster.server = Some(url.to_owned());
            }
        }
    }

    insert_proxy_placeholders(&mut file);
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let mut config = Config::from_custom_kubeconfig(file, &options)
        .await
        .map_err(|error| unusable_kubeconfig(path, &error))?;
    remove_proxy_placeholder(&mut config);
    Ok(config)
}

/// Gives [`PROXY_PLACEHOLDER`] to the clusters without a `proxy-url`. A proxy from the environment
/// is not used, because kube ignores the environment variable `NO_PROXY`.
fn insert_proxy_placeholders(file: &mut Kubeconfig) {
    for named in &mut file.clusters {
        if let Some(cluster) = &mut named.cluster
            && cluster.proxy_url.as_ref().is_none_or(String::is_empty)
        {
            cluster.proxy_url = Some(PROXY_PLACEHOLDER.to_owned());
        }
    }
}

/// Removes [`PROXY_PLACEHOLDER`] from the connection, and from the cluster that an exec plugin
/// receives.
fn remove_proxy_placeholder(config: &mut Config) {
    if config
        .proxy_url
        .as_ref()
        .is_none_or(|url| *url != PROXY_PLACEHOLDER)
    {
        return;
    }

    config.proxy_url = None;
    if let Some(plugin) = &mut config.auth_info.exec
        && let Some(cluster) = &mut plugin.cluster
    {
        cluster.proxy_url = None;
    }
}

fn unusable_kubeconfig(path: &Path, error: &KubeconfigError) -> ConnectError {
    ConnectError::Kubeconfig {
        path: path.to_owned(),
        reason: match error {
            // The text of `ReadConfig` itself would repeat the path.
            KubeconfigError::ReadConfig(error, _) => error.to_string(),
            other => brief(other),
        },
    }
}

/// Checks that the file has the context. The error lists the file's contexts.
fn check_context(file: &Kubeconfig, context: &str) -> Result<(), String> {
    let names: Vec<&str> = file
        .contexts
        .iter()
        .map(|named| named.name.as_str())
        .collect();
    match names.as_slice() {
        names if names.contains(&context) => Ok(()),
        [] => Err(format!(
            "there is no context {context:?}; the file has no contexts"
        )),
        names => Err(format!(
            "there is no context {context:?}; the file has the contexts {}",
            names.join(", ")
        )),
    }
}

/// The configuration of a service account, as in client-go: the file `namespace` is not needed, and
/// without a usable `ca.crt` the system's certificates are trusted.
fn from_service_account(
    directory: &Path,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Config, ConnectError> {
    let host = variable("KUBERNETES_SERVICE_HOST").unwrap_or_default();
    let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_default();
    if host.is_empty() || port.is_empty() {
        let reason =
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must both be set".to_owned();
        return Err(ConnectError::InCluster { reason });
    }
    // An IPv6 address needs brackets in a URL.
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    let mut config = Config::new(parse_url(&format!("https://{host}:{port}"))?);

    let token = directory.join("token");
    // If the token is missing, there is no service account, and the error must say so.
    if let Err(error) = std::fs::metadata(&token) {
        return Err(ConnectError::InCluster {
            reason: format!("{}: {error}", token.display()),
        });
    }
    // The configuration gets the path of the token, not the token, because the kubelet renews the
    // token.
    config.auth_info.token_file = Some(token.display().to_string());

    let authority = directory.join("ca.crt");
    match certificate::read_authorities(&authority) {
        Ok(found) => {
            // Without `root_cert`, kube first loads the system's certificates, which a container
            // image may lack.
            config.root_cert = Some(found);
            config.root_cert_file = Some(authority);
        }
        Err(error) => {
            let error = brief(&error);
            tracing::error!(
                error,
                "cannot use the service account's ca.crt; the system's certificates are trusted instead"
            );
        }
    }
    Ok(config)
}

fn parse_url(url: &str) -> Result<Uri, ConnectError> {
    url.parse().map_err(|_| ConnectError::Url {
        url: url.to_owned(),
    })
}

fn first_line(text: &str) -> String {
    text.lines()
        .next()
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests;
