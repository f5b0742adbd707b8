//! Ports, as Services, Endpoints and EndpointSlices have them.

use serde_json::json;

use super::names;
use crate::status::FieldError;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// `name` of the port at `at`; `earlier` are the names of those before it.
pub(crate) fn check_name(
    at: &str,
    name: Option<&str>,
    required: bool,
    earlier: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let field = format!("{at}.name");
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        if required {
            errors.push(FieldError::required(field, ""));
        }
        return;
    };
    if let Err(why) = names::label_1123(name) {
        errors.push(FieldError::invalid(&field, &json!(name), why));
    }
    if earlier.contains(&name) {
        errors.push(FieldError::duplicate(field, &json!(name)));
    }
}

/// `protocol` of the port at `at`.
pub(crate) fn check_protocol(at: &str, protocol: Option<&str>, errors: &mut Vec<FieldError>) {
    if let Some(protocol) = protocol.filter(|protocol| !PROTOCOLS.contains(protocol)) {
        errors.push(FieldError::not_supported(format!("{at}.protocol"), &json!(protocol), &PROTOCOLS));
    }
}

/// A port number.
pub(crate) fn check_number(field: &str, number: i32, errors: &mut Vec<FieldError>) {
    if !(1..=65_535).contains(&number) {
        let why = "must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(field, &json!(number), why));
    }
}
