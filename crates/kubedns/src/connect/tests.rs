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
async fn a_kubeconfig_is_used_with_its_current_context() {
    let file = kubeconfig(TWO_CONTEXTS);
    let access = Access { kubeconfig: Some(file.path().to_owned()), master_url: None };
    let connection = Connection::new(access).await.unwrap();
    assert_eq!(connection.url(), "http://127.0.0.1:2/");
    assert!(!format!("{connection:?}").contains("secret-token"));
}

#[tokio::test]
async fn the_url_replaces_that_of_the_kubeconfig_and_keeps_its_user() {
    let file = kubeconfig(TWO_CONTEXTS);
    let access = Access {
        kubeconfig: Some(file.path().to_owned()),
        master_url: Some("http://127.0.0.1:3".to_owned()),
    };
    let config = access.config().await.unwrap();
    assert_eq!(config.cluster_url.to_string(), "http://127.0.0.1:3/");
    assert!(config.auth_info.token.is_some());
}

#[tokio::test]
async fn the_url_alone_is_used_without_credentials() {
    let access = Access { kubeconfig: None, master_url: Some("http://127.0.0.1:3".to_owned()) };
    let config = access.config().await.unwrap();
    assert!(config.auth_info.token.is_none() && config.auth_info.token_file.is_none());
}

#[tokio::test]
async fn what_cannot_be_used_is_named_in_one_line() {
    let broken = kubeconfig("clusters: [\n  nonsense: {");
    let empty = kubeconfig("");
    let cases: [(&Path, &str); 3] = [
        (Path::new("/nonexistent/kubeconfig"), "No such file or directory"),
        (broken.path(), "failed to parse kubeconfig YAML"),
        (empty.path(), "context"),
    ];
    for (path, reason) in cases {
        let access = Access { kubeconfig: Some(path.to_owned()), master_url: None };
        let error = Connection::new(access).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot use the kubeconfig {}: ", path.display())), "{error}");
        assert!(error.contains(reason), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let access = Access { kubeconfig: None, master_url: Some("http://a b/".to_owned()) };
    let error = Connection::new(access).await.unwrap_err().to_string();
    assert_eq!(error, "\"http://a b/\" is not the URL of an API server");
}
