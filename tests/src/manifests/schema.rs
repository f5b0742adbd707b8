//! Finds unknown fields and values of a wrong type in documents, with the types of k8s-openapi.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, ReplicationController, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Checks that the kind of a document is known, and that the type of this kind can hold every value
/// of the document.
pub fn check(document: &Value) -> Result<(), String> {
    let text = |key| {
        document
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    match (text("apiVersion"), text("kind")) {
        ("v1", "Service") => round_trip::<Service>(document),
        ("v1", "ServiceAccount") => round_trip::<ServiceAccount>(document),
        ("v1", "ConfigMap") => round_trip::<ConfigMap>(document),
        ("v1", "ReplicationController") => round_trip::<ReplicationController>(document),
        ("apps/v1", "Deployment") => round_trip::<Deployment>(document),
        ("apps/v1", "DaemonSet") => round_trip::<DaemonSet>(document),
        ("autoscaling/v2", "HorizontalPodAutoscaler") => {
            round_trip::<HorizontalPodAutoscaler>(document)
        }
        ("networking.k8s.io/v1", "NetworkPolicy") => round_trip::<NetworkPolicy>(document),
        ("policy/v1", "PodDisruptionBudget") => round_trip::<PodDisruptionBudget>(document),
        ("rbac.authorization.k8s.io/v1", "Role") => round_trip::<Role>(document),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => round_trip::<RoleBinding>(document),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => round_trip::<ClusterRole>(document),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => {
            round_trip::<ClusterRoleBinding>(document)
        }
        (version, kind) => Err(format!(
            "the schema check does not know the kind {version} {kind}"
        )),
    }
}

fn round_trip<T: DeserializeOwned + Serialize>(document: &Value) -> Result<(), String> {
    let typed: T = serde_json::from_value(document.clone()).map_err(|error| error.to_string())?;
    let back = serde_json::to_value(typed).map_err(|error| error.to_string())?;
    match lost(document, &back, String::new()) {
        Some(path) => Err(format!(
            "{path} is not a field of this kind of object, or has an invalid value"
        )),
        None => Ok(()),
    }
}

/// The first path whose value in `before` is missing or different in `after`. A field that is null
/// in `before` may be missing in `after`.
fn lost(before: &Value, after: &Value, path: String) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match after.get(key) {
                Some(back) => lost(value, back, path),
                None => (!value.is_null()).then_some(path),
            }
        }),
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let mut pairs = before.iter().zip(after).enumerate();
            pairs.find_map(|(at, (value, back))| lost(value, back, format!("{path}[{at}]")))
        }
        _ => (before != after).then_some(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(spec: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec})
    }

    #[test]
    fn misspelt_field_is_found_with_path() {
        let spec = json!({"ports": [{"port": 53, "protocoll": "UDP"}]});
        let error = check(&service(&spec)).unwrap_err();
        assert_eq!(
            error,
            ".spec.ports[0].protocoll is not a field of this kind of object, or has an invalid value"
        );
    }

    #[test]
    fn a_wrong_type_is_found() {
        let error = check(&service(&json!({"ports": [{"port": "53"}]}))).unwrap_err();
        assert!(error.contains("invalid type: string"), "{error}");
    }
}
