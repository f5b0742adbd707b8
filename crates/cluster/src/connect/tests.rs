mod dead_mount;
mod requests;

use super::*;

#[test]
fn variables_expand_as_in_go() {
    let lookup = |name: &str| match name {
        "HOST" => Some("10.96.0.1".to_owned()),
        "PORT_2" => Some("6443".to_owned()),
        "1" => Some("one".to_owned()),
        _ => None,
    };
    let cases = [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("https://$HOST:$PORT_2", "https://10.96.0.1:6443"),
        ("https://${HOST}:${PORT_2}/", "https://10.96.0.1:6443/"),
        ("https://$UNKNOWN/", "https:///"),
        ("$", "$"),
        ("a$", "a$"),
        ("$/", "$/"),
        ("${}x", "x"),
        ("${HOST", "HOST"),
        ("$12", "one2"),
        ("ä$HOSTä", "ä10.96.0.1ä"),
        ("", ""),
    ];
    for (text, expected) in cases {
        assert_eq!(expand(text, lookup), expected, "{text}");
    }
}

fn kubeconfig(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn with_kubeconfig(file: &Path) -> Access {
    Access {
        kubeconfig: Some(file.to_owned()),
        ..Access::default()
    }
}

const TWO_CONTEXTS: &str = "apiVersion: v1
kind: Config
current-context: second
clusters:
- {name: a, cluster: {server: 'http://127.0.0.1:1'}}
- {name: b, cluster: {server: 'http://127.0.0.1:2'}}
contexts:
- {name: first, context: {cluster: a, user: u}}
- {name: second, context: {cluster: b, user: u}}
users:
- {name: u, user: {token: secret-token}}
";

#[tokio::test]
async fn kubeconfig_uses_its_current_context() {
    let file = kubeconfig(TWO_CONTEXTS);
    let connection = Connection::new(with_kubeconfig(file.path())).await.unwrap();
    assert_eq!(connection.url(), "http://127.0.0.1:2/");
    assert!(!format!("{connection:?}").contains("secret-token"));
}

#[tokio::test]
async fn named_context_overrides_the_current() {
    let (two, empty) = (kubeconfig(TWO_CONTEXTS), kubeconfig(""));
    let none_of_two = "there is no context \"third\"; the file has the contexts first, second";
    let none = "there is no context \"x\"; the file has no contexts";
    for (file, context, expected) in [
        (&two, "first", Ok("http://127.0.0.1:1/")),
        (&two, "second", Ok("http://127.0.0.1:2/")),
        (&two, "third", Err(none_of_two)),
        (&empty, "x", Err(none)),
    ] {
        let access = Access {
            context: Some(context.to_owned()),
            ..with_kubeconfig(file.path())
        };
        let found = Connection::new(access).await;
        let url = found.map(|connection| connection.url().to_owned());
        let unusable = format!("cannot use the kubeconfig {}: ", file.path().display());
        let expected = expected
            .map(str::to_owned)
            .map_err(|reason| format!("{unusable}{reason}"));
        assert_eq!(url.map_err(|error| error.to_string()), expected);
    }
}

#[tokio::test]
async fn url_replaces_only_server_of_kubeconfig() {
    let file = kubeconfig(TWO_CONTEXTS);
    let access = Access {
        master_url: Some("http://127.0.0.1:3".to_owned()),
        ..with_kubeconfig(file.path())
    };
    let config = access.config().await.unwrap();
    assert_eq!(config.cluster_url.to_string(), "http://127.0.0.1:3/");
    assert!(config.auth_info.token.is_some());
}

/// The cluster of the context has a proxy only if it names one itself. An exec plugin receives the
/// same proxy.
#[tokio::test]
async fn cluster_has_only_own_proxy() {
    for (own, expected) in [
        ("", [None, None]),
        (", proxy-url: ''", [None, None]),
        (
            ", proxy-url: 'http://192.0.2.1:3128'",
            [
                Some("http://192.0.2.1:3128/"),
                Some("http://192.0.2.1:3128"),
            ],
        ),
    ] {
        let file = kubeconfig(&format!(
            "current-context: c\nclusters:\n\
             - {{name: a, cluster: {{server: 'http://127.0.0.1:1', proxy-url: 'http://192.0.2.2:3128'}}}}\n\
             - {{name: b, cluster: {{server: 'http://127.0.0.1:2'{own}}}}}\n\
             contexts: [{{name: c, context: {{cluster: b, user: u}}}}]\n\
             users: [{{name: u, user: {{exec: {{command: p, provideClusterInfo: true}}}}}}]\n"
        ));
        let config = with_kubeconfig(file.path()).config().await.unwrap();
        let plugin = config.auth_info.exec.unwrap();
        let found = [
            config.proxy_url.map(|url| url.to_string()),
            plugin.cluster.unwrap().proxy_url,
        ];
        assert_eq!(found.each_ref().map(Option::as_deref), expected, "{own}");
    }
}

#[tokio::test]
async fn bare_url_has_no_credentials() {
    let access = Access {
        master_url: Some("http://127.0.0.1:3".to_owned()),
        ..Access::default()
    };
    let config = access.config().await.unwrap();
    assert!(config.auth_info.token.is_none() && config.auth_info.token_file.is_none());
}

#[tokio::test]
async fn error_of_unusable_access_is_one_line() {
    let broken = kubeconfig("clusters: [\n  nonsense: {");
    let empty = kubeconfig("");
    let cases: [(&Path, &str); 3] = [
        (
            Path::new("/nonexistent/kubeconfig"),
            "No such file or directory",
        ),
        (broken.path(), "failed to parse kubeconfig YAML"),
        (empty.path(), "context"),
    ];
    for (path, reason) in cases {
        let refused = Connection::new(with_kubeconfig(path)).await;
        let error = refused.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("cannot use the kubeconfig {}: ", path.display())),
            "{error}"
        );
        assert!(error.contains(reason), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let access = Access {
        master_url: Some("http://a b/".to_owned()),
        ..Access::default()
    };
    let error = Connection::new(access).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "\"http://a b/\" is not the URL of an API server, such as https://192.0.2.1:6443"
    );
}

#[test]
fn service_account_needs_token_host_and_port() {
    let (directory, host) = (
        tempfile::tempdir().unwrap(),
        std::cell::Cell::new("10.96.0.1"),
    );
    let variable = |name: &str| match name {
        "KUBERNETES_SERVICE_HOST" => Some(host.get().to_owned()),
        "KUBERNETES_SERVICE_PORT" => Some("443".to_owned()),
        _ => None,
    };
    let config = || from_service_account(directory.path(), variable);
    let error = config().unwrap_err().to_string();
    assert!(
        error.contains("there is no service account") && error.contains("/token"),
        "{error}"
    );
    std::fs::write(directory.path().join("token"), "secret").unwrap();
    let bare = config().unwrap();
    assert_eq!(
        (bare.cluster_url.to_string().as_str(), bare.root_cert_file),
        ("https://10.96.0.1:443/", None)
    );
    std::fs::copy(certificate("ca.pem"), directory.path().join("ca.crt")).unwrap();
    host.set("fd00::1");
    let whole = config().unwrap();
    assert_eq!(whole.cluster_url.to_string(), "https://[fd00::1]:443/");
    assert_eq!(whole.root_cert_file, Some(directory.path().join("ca.crt")));
    let found = whole.root_cert.map(|found| found.len());
    assert_eq!(
        found,
        Some(1),
        "the system's certificates must not be loaded"
    );
    let missing = from_service_account(directory.path(), |_| None)
        .unwrap_err()
        .to_string();
    assert!(
        missing.contains("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must both be set"),
        "{missing}"
    );
}

fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/tls")
        .join(name)
}

#[tokio::test]
async fn client_certificate_may_be_x509_v1_and_must_fit_key() {
    for (certificate_file, key_file, expected) in [
        ("client-v1.pem", "client-v1.key", None),
        (
            "client-v1.pem",
            "client-v1.pem",
            Some("there is no PRIVATE KEY"),
        ),
        (
            "client.key",
            "client.key",
            Some("there is no CERTIFICATE in PEM format"),
        ),
        (
            "client.pem",
            "server.key",
            Some("the client key does not match the client certificate"),
        ),
    ] {
        let (certificate_file, key_file) = (certificate(certificate_file), certificate(key_file));
        let file = kubeconfig(&format!(
            "current-context: c\nclusters: [{{name: c, cluster: {{server: 'https://192.0.2.1:6443'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{client-certificate: '{}', client-key: '{}'}}}}]\n",
            certificate_file.display(),
            key_file.display()
        ));
        let failed = Connection::new(with_kubeconfig(file.path()))
            .await
            .map(drop)
            .map_err(|error| error.to_string())
            .err();
        match (failed, expected) {
            (None, None) => {}
            (Some(error), Some(expected)) => assert!(error.contains(expected), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}
