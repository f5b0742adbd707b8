//! Many edits of the ConfigMap in a row, with valid and invalid values.

use serde_json::json;
use tests::chaos::{Rig, Topology, corporate};
use tests::steady::Steady;

use super::RATE;

/// Number of edits before the last edit, which is valid.
const EDITS: u16 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drop_in_topology_loses_no_query_during_edits() {
    storm(Topology::DropIn).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_topology_loses_no_query_during_edits() {
    storm(Topology::Cache).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_topology_loses_no_query_during_edits() {
    storm(Topology::Alone).await;
}

async fn storm(topology: Topology) {
    let corporate = corporate().await;
    let rig = Rig::start(topology, &[]).await;
    let steady = Steady::start(rig.questions(), RATE);
    let edit = |key: &str, value: &str| rig.configure(&[(key, value)]);
    for number in 0..EDITS {
        let nowhere = json!({"corp.test": [format!("127.0.0.1:{}", 1000 + number)]}).to_string();
        match number % 4 {
            0 => edit("stubDomains", &nowhere),
            1 => edit("stubDomains", "{ not JSON"),
            2 => edit(
                "upstreamNameservers",
                &json!([rig.upstream.addr().to_string()]).to_string(),
            ),
            _ => edit(
                "stubDomains",
                &json!({"corp.test": ["no address"]}).to_string(),
            ),
        }
        steady.answered(1).await;
    }
    edit(
        "stubDomains",
        &json!({"corp.test": [corporate.addr().to_string()]}).to_string(),
    );
    rig.wait_until_resolved("host.corp.test", "192.0.2.7").await;
    steady.answered(20).await;
    rig.assert_no_restarts();
    steady
        .stop()
        .await
        .check("101 edits of the ConfigMap in a row, half of them with invalid values");
}
