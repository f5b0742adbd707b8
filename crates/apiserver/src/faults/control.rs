//! Faults over HTTP: `POST /_faults` with one of [`Command`], `GET /_faults` to see what is in force, `DELETE /_faults` to
//! end it all. Only served when the options say so.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Faults, Presence, Rule, RuleId};
use crate::kinds::Resource;
use crate::status::Status;

/// What `POST /_faults` takes, as in `{"do": "add_rule", "rule": {"action": {"refuse": {"code": 500}}, "verbs": ["list"]}}`.
/// The methods of [`Faults`] of the same names say what each does.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
enum Command {
    DropWatches,
    CutWatches,
    CutConnections,
    HoldWatches,
    ReleaseWatches,
    Expire,
    ExpireWatches,
    Restart,
    Reboot { until_rbac_is_loaded_ms: u64 },
    Freeze,
    Thaw,
    Down,
    Up,
    AddRule { rule: Rule },
    RemoveRule { id: RuleId },
    Forbid { resource: Resource },
    KubeDnsRole,
    RequireToken { token: Option<String> },
    Clear,
    ClearRequests,
}

/// Does what a body says; answers with the id of the rule it added, if it did.
pub(crate) fn post(faults: &Faults, body: &[u8]) -> Result<Value, Status> {
    let command = serde_json::from_slice(body)
        .map_err(|error| Status::bad_request(format!("the fault is not understood: {error}")))?;
    run(faults, command).map(|added| added.map_or_else(|| json!({}), |id| json!({ "id": id })))
}

fn run(faults: &Faults, command: Command) -> Result<Option<RuleId>, Status> {
    match command {
        Command::AddRule { rule } => return Ok(Some(faults.add(rule))),
        Command::Forbid { resource } => return Ok(Some(faults.forbid(resource))),
        Command::KubeDnsRole => return Ok(Some(faults.kube_dns_role())),
        Command::RemoveRule { id } => {
            if !faults.remove(id) {
                return Err(Status::failure(404, Some("NotFound"), "there is no such rule"));
            }
        }
        Command::DropWatches => faults.drop_watches(),
        Command::CutWatches => faults.cut_watches(),
        Command::CutConnections => faults.cut_connections(),
        Command::HoldWatches => faults.hold_watches(),
        Command::ReleaseWatches => faults.release_watches(),
        Command::Expire => faults.expire(),
        Command::ExpireWatches => faults.expire_watches(),
        Command::Restart => faults.restart(),
        Command::Reboot { until_rbac_is_loaded_ms } => {
            faults.reboot(Duration::from_millis(until_rbac_is_loaded_ms));
        }
        Command::Freeze => faults.freeze(),
        Command::Thaw => faults.thaw(),
        Command::Down => faults.down(),
        Command::Up => faults.up(),
        Command::RequireToken { token } => faults.require_token(token.as_deref()),
        Command::ClearRequests => faults.clear_requests(),
        Command::Clear => faults.clear(),
    }
    Ok(None)
}

/// What is in force, and who asked for what.
pub(crate) fn get(faults: &Faults) -> Value {
    let signals = *faults.signals().borrow();
    let state = faults.state();
    let rules: Vec<Value> =
        state.rules.list().into_iter().map(|(id, rule)| json!({ "id": id, "rule": rule })).collect();
    let requests: Vec<Value> = state
        .log
        .records()
        .into_iter()
        .map(|r| {
            json!({
                "verb": r.verb, "resource": r.resource, "namespace": r.namespace, "name": r.name, "query": r.query,
                "secondsAgo": r.at.elapsed().as_secs_f64(),
            })
        })
        .collect();
    json!({
        "held": signals.held, "frozen": signals.presence == Presence::Frozen,
        "down": signals.presence == Presence::Down, "rules": rules, "requests": requests,
    })
}
