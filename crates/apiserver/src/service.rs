//! What a real server makes of a Service: defaults, IP families, cluster IPs, node ports.
//!
//! The order on every write is [`complete`]: defaults, then what an update keeps of the Service before, then the
//! families, then addresses and ports. Errors name fields as a real server does.

mod addresses;
mod defaults;
mod families;
mod keep;
mod ports;

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use crate::allocate::Ledger;
use crate::status::FieldError;

/// Why a Service cannot be stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Fields are wrong: 422.
    Fields(Vec<FieldError>),
    /// Nothing is left to give: 500.
    Exhausted(&'static str),
}

/// Makes a Service about to be stored complete; `before` is the one it replaces.
pub(crate) fn complete(
    service: &mut Value,
    before: Option<&Value>,
    ranges: &[IpNet],
    ledger: &mut Ledger,
) -> Result<(), Refusal> {
    let Some(spec) = spec_mut(service) else {
        return Err(Refusal::Fields(vec![FieldError::required("spec", "")]));
    };
    let before = before.and_then(|before| before.get("spec")).and_then(Value::as_object);
    defaults::fill(spec);
    keep::carry_over(spec, before);
    addresses::normalise(spec, before);
    let errors = crate::validate::service::spec(spec, before);
    if !errors.is_empty() {
        return Err(Refusal::Fields(errors));
    }
    families::settle(spec, before, ranges)?;
    addresses::assign(spec, before, ranges, ledger)?;
    ports::assign(spec, before, ledger)
}

/// The type of a Service, defaulted.
pub(crate) fn kind(spec: &Map<String, Value>) -> &str {
    match crate::object::text(spec, "type") {
        "" => "ClusterIP",
        other => other,
    }
}

/// Whether a Service of this spec has cluster IPs, `None` included.
pub(crate) fn has_cluster_ip(spec: &Map<String, Value>) -> bool {
    kind(spec) != "ExternalName"
}

/// Whether it says that it wants no cluster IP.
pub(crate) fn is_headless(spec: &Map<String, Value>) -> bool {
    crate::object::text(spec, "clusterIP") == "None"
}

/// The texts of a list field.
pub(crate) fn texts<'a>(spec: &'a Map<String, Value>, field: &str) -> Vec<&'a str> {
    spec.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// `spec`, made if it is missing; `None` if it is not an object.
fn spec_mut(service: &mut Value) -> Option<&mut Map<String, Value>> {
    service.as_object_mut()?.entry("spec").or_insert_with(|| json!({})).as_object_mut()
}

#[cfg(test)]
mod tests;
