//! Explanations warn that records or the configuration may be missing or out of date.

use apiserver::{Resource, RunningApiServer};
use testkit::eventually;

use super::{cluster, ready, starting};
use crate::api::cluster::PATIENCE;

#[tokio::test]
async fn explanation_warns_before_first_lists_are_complete() {
    let cluster = cluster();
    cluster.faults.down();
    let kubedns = starting(&cluster, &[]).await;
    let explanation = kubedns.explain("name=web.apps&type=A").await;
    assert_eq!(explanation["warnings"][0]["code"], "not_synced");
    assert_eq!(explanation["detail"]["answers"][0]["rcode"], "REFUSED");
    assert_eq!(explanation["server"]["synced"], false);
    cluster.faults.up();
    kubedns
        .until(|| async { kubedns.warnings().await.is_empty() })
        .await;
}

#[tokio::test]
async fn explanation_warns_of_lost_api_server() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    // While the watches of the API server are open, there is no warning.
    kubedns
        .until(|| async { kubedns.warnings().await.is_empty() })
        .await;
    cluster.faults.down();
    kubedns
        .until(|| async { kubedns.warnings().await == ["api_server_lost"] })
        .await;
    let explanation = kubedns.explain("name=web.apps&type=A").await;
    assert_eq!(
        explanation["verdict"]["text"], "resolves to 10.96.0.10",
        "the last known records must be served"
    );
    cluster.faults.up();
    kubedns
        .until(|| async { kubedns.warnings().await.is_empty() })
        .await;
}

/// Some flags need kinds of objects that kubedns otherwise does not watch. While the API server
/// refuses such a kind, answers and the configuration may be out of date.
#[tokio::test]
async fn explanation_warns_of_refused_kind() {
    let cluster = RunningApiServer::empty();
    let flags = [
        "--namespace-selector=team=x",
        "--pods=verified",
        "--config-map=kube-dns",
    ];
    let kubedns = starting(&cluster, &flags).await;
    kubedns.until_ready().await;

    for (resource, kind) in [
        (Resource::Namespaces, "namespaces"),
        (Resource::Pods, "pods"),
        (Resource::ConfigMaps, "configmaps"),
    ] {
        kubedns
            .until(|| async { kubedns.warnings().await.is_empty() })
            .await;
        let rule = cluster.faults.forbid(resource);
        cluster.faults.cut_watches();

        // The other watches are opened again, so the warning names only this kind.
        let expected = format!("no watch of {kind} is open: kubedns does not see their changes");
        eventually(PATIENCE, || async {
            let explanation = kubedns.explain("name=web.apps&type=A").await;
            let warnings = &explanation["warnings"];
            if warnings[0]["text"] == expected {
                Ok(())
            } else {
                Err(warnings.clone())
            }
        })
        .await;
        cluster.faults.remove(rule);
    }
    kubedns.stop().await;
}

#[tokio::test]
async fn explanation_warns_of_rejected_configuration() {
    let cluster = cluster();
    let directory = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(directory.path().join("stubDomains"), text).unwrap();
    write(r#"{"acme.test": ["192.0.2.7"]}"#);
    let flag = format!("--config-dir={}", directory.path().display());
    let kubedns = ready(&cluster, &[&flag, "--config-period=1s"]).await;
    let explanation = kubedns.explain("name=www.acme.test.&type=A").await;
    assert_eq!(explanation["detail"]["route"]["servers"][0], "192.0.2.7:53");
    assert_eq!(explanation["detail"]["dnsmasq"]["asks"], "stub_domain");
    let version = explanation["server"]["config_version"].clone();
    write("{not JSON");
    kubedns
        .until(|| async { kubedns.warnings().await == ["config_rejected"] })
        .await;
    let explanation = kubedns.explain("name=www.acme.test.&type=A").await;
    let in_force = &explanation["server"]["config_version"];
    assert_eq!(
        *in_force, version,
        "the last valid configuration must stay in force"
    );
    let text = explanation["warnings"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("stubDomains") && text.contains(version.as_str().unwrap()),
        "{text}"
    );
}

#[tokio::test]
async fn explanation_warns_of_snapshot_records() {
    let cluster = cluster();
    let directory = tempfile::tempdir().unwrap();
    let flag = format!("--snapshot-dir={}", directory.path().display());
    let kubedns = ready(&cluster, &[&flag]).await;
    // A temporary file appears earlier in the same directory, so the test waits for this file name.
    let file = directory.path().join("kubedns.snapshot");
    kubedns.until(|| async { file.exists() }).await;
    drop(kubedns);
    cluster.faults.down();
    let kubedns = starting(&cluster, &[&flag]).await;
    let explanation = kubedns.explain("name=web.apps&type=A").await;
    assert_eq!(explanation["warnings"][0]["code"], "stale");
    assert_eq!(explanation["server"]["records_from"], "snapshot_file");
    assert_eq!(explanation["verdict"]["text"], "resolves to 10.96.0.10");
    assert_eq!(explanation["detail"]["objects"][0]["endpoints"]["ready"], 2);
}
