//! Pins of `--upstream-tls-pin` that match no upstream over TLS.

use super::cluster::with_web;
use super::process::Kubedns;

#[tokio::test]
async fn pin_without_upstream_is_warned_of() {
    let (cluster, config) = (with_web(), tempfile::tempdir().unwrap());
    let upstreams = r#"["tls://192.0.2.1#dns.example","tls://192.0.2.2"]"#;
    std::fs::write(config.path().join("upstreamNameservers"), upstreams).unwrap();
    let config = format!("--config-dir={}", config.path().display());
    let hash = "MPVr/9Tc/29KpKS5Z010/QQHZogdV01DwLYr9xE60tE=";
    let pins = format!(
        "--upstream-tls-pin=dns.example={hash},192.0.2.2={hash},192.0.2.1={hash},192.0.2.1={hash}"
    );

    let mut kubedns = Kubedns::ready(&cluster, &[&config, "--config-period=100ms", &pins]).await;
    let warning = "no upstream server over TLS has this name";
    let line = kubedns.logs(warning).await;
    assert!(
        line.starts_with('W') && line.contains("192.0.2.1"),
        "{line}"
    );
    assert_eq!(kubedns.logged(warning), 1);
    kubedns.stop().await;
}
