//! The columns of each resource's table, those of a real server.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use crate::kinds::Resource;
use crate::object::text;

/// One column.
pub(super) struct Column {
    pub(super) name: &'static str,
    /// JSON type of its cells.
    pub(super) kind: &'static str,
    /// Whether it only shows with `-o wide`.
    pub(super) wide: bool,
    pub(super) cell: fn(&Map<String, Value>) -> Value,
}

const NONE: &str = "<none>";
const UNKNOWN: &str = "<unknown>";
const NAME: Column = text_column("Name", |object| json!(text_at(object, "/metadata/name")));
const AGE: Column =
    text_column("Age", |object| json!(age(&text_at(object, "/metadata/creationTimestamp"), Utc::now())));

static CONFIG_MAPS: [Column; 3] = [NAME, Column { kind: "integer", ..text_column("Data", data_count) }, AGE];
static SECRETS: [Column; 4] = [
    NAME,
    text_column("Type", |object| json!(text(object, "type"))),
    Column { kind: "integer", ..text_column("Data", data_count) },
    AGE,
];
static SERVICE_ACCOUNTS: [Column; 3] = [
    NAME,
    Column { kind: "integer", ..text_column("Secrets", |object| json!(at(object, "/secrets").len())) },
    AGE,
];
static NAMESPACES: [Column; 3] =
    [NAME, text_column("Status", |object| json!(text_at(object, "/status/phase"))), AGE];
static ENDPOINTS: [Column; 3] = [NAME, text_column("Endpoints", |object| json!(endpoints(object))), AGE];
static SLICES: [Column; 5] = [
    NAME,
    text_column("AddressType", |object| json!(text(object, "addressType"))),
    text_column("Ports", |object| json!(slice_ports(object))),
    text_column("Endpoints", |object| json!(slice_endpoints(object))),
    AGE,
];
static SERVICES: [Column; 7] = [
    NAME,
    text_column("Type", |object| json!(text_at(object, "/spec/type"))),
    text_column("Cluster-IP", |object| json!(or(text_at(object, "/spec/clusterIP"), NONE))),
    text_column("External-IP", |object| json!(external_ip(object))),
    text_column("Port(s)", |object| json!(service_ports(object))),
    AGE,
    Column { wide: true, ..text_column("Selector", |object| json!(selector(object))) },
];
static NODES: [Column; 5] = [
    NAME,
    text_column("Status", |object| json!(node_status(object))),
    text_column("Roles", |object| json!(node_roles(object))),
    AGE,
    text_column("Version", |object| json!(text_at(object, "/status/nodeInfo/kubeletVersion"))),
];
static PODS: [Column; 7] = [
    NAME,
    text_column("Ready", |object| json!(pod_ready(object))),
    text_column("Status", |object| json!(text_at(object, "/status/phase"))),
    text_column("Restarts", |object| json!(pod_restarts(object))),
    AGE,
    Column { wide: true, ..text_column("IP", |object| json!(or(text_at(object, "/status/podIP"), NONE))) },
    Column { wide: true, ..text_column("Node", |object| json!(or(text_at(object, "/spec/nodeName"), NONE))) },
];
static EVENTS: [Column; 5] = [
    text_column("Last Seen", |object| json!(age(text(object, "lastTimestamp"), Utc::now()))),
    text_column("Type", |object| json!(text(object, "type"))),
    text_column("Reason", |object| json!(text(object, "reason"))),
    text_column("Object", |object| {
        let kind = text_at(object, "/involvedObject/kind").to_lowercase();
        json!(format!("{kind}/{}", text_at(object, "/involvedObject/name")))
    }),
    text_column("Message", |object| json!(text(object, "message").trim())),
];

/// The columns of a resource.
pub(super) fn of(resource: Resource) -> &'static [Column] {
    match resource {
        Resource::ConfigMaps => &CONFIG_MAPS,
        Resource::Endpoints => &ENDPOINTS,
        Resource::EndpointSlices => &SLICES,
        Resource::Events => &EVENTS,
        Resource::Namespaces => &NAMESPACES,
        Resource::Nodes => &NODES,
        Resource::Pods => &PODS,
        Resource::Secrets => &SECRETS,
        Resource::ServiceAccounts => &SERVICE_ACCOUNTS,
        Resource::Services => &SERVICES,
    }
}

const fn text_column(name: &'static str, cell: fn(&Map<String, Value>) -> Value) -> Column {
    Column { name, kind: "string", wide: false, cell }
}

fn pointer<'a>(object: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut parts = path.split('/').skip(1);
    let first = object.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}

fn text_at(object: &Map<String, Value>, path: &str) -> String {
    pointer(object, path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn at<'a>(object: &'a Map<String, Value>, path: &str) -> &'a [Value] {
    pointer(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn or(text: String, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text }
}

/// A time span as `kubectl` writes it: two units while they are small, one when they are not.
fn age(timestamp: &str, now: DateTime<Utc>) -> String {
    let Ok(then) = DateTime::parse_from_rfc3339(timestamp) else { return UNKNOWN.to_owned() };
    let seconds = now.signed_duration_since(then).num_seconds();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |big: i64, big_unit: char, small: i64, small_unit: char| {
        if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

fn data_count(object: &Map<String, Value>) -> Value {
    let count = |field| object.get(field).and_then(Value::as_object).map_or(0, Map::len);
    json!(count("data") + count("binaryData"))
}

fn external_ip(object: &Map<String, Value>) -> String {
    let ingress = at(object, "/status/loadBalancer/ingress");
    let ingress =
        ingress.iter().filter_map(|entry| entry.get("ip").or_else(|| entry.get("hostname"))?.as_str());
    let external = at(object, "/spec/externalIPs").iter().filter_map(Value::as_str);
    match text_at(object, "/spec/type").as_str() {
        "ExternalName" => text_at(object, "/spec/externalName"),
        "LoadBalancer" => or(ingress.chain(external).collect::<Vec<_>>().join(","), "<pending>"),
        _ => or(external.collect::<Vec<_>>().join(","), NONE),
    }
}

fn service_ports(object: &Map<String, Value>) -> String {
    let port = |port: &Value| {
        let number = port.get("port").map(ToString::to_string).unwrap_or_default();
        let node = port.get("nodePort").map(|node| format!(":{node}")).unwrap_or_default();
        format!("{number}{node}/{}", port.get("protocol").and_then(Value::as_str).unwrap_or_default())
    };
    or(at(object, "/spec/ports").iter().map(port).collect::<Vec<_>>().join(","), NONE)
}

fn selector(object: &Map<String, Value>) -> String {
    let labels = pointer(object, "/spec/selector").and_then(Value::as_object);
    let pair = |(key, value): (&String, &Value)| format!("{key}={}", value.as_str().unwrap_or_default());
    or(labels.into_iter().flatten().map(pair).collect::<Vec<_>>().join(","), NONE)
}

fn endpoints(object: &Map<String, Value>) -> String {
    let mut all = Vec::new();
    for subset in object.get("subsets").and_then(Value::as_array).into_iter().flatten() {
        let Some(subset) = subset.as_object() else { continue };
        let ports = at(subset, "/ports");
        for address in at(subset, "/addresses").iter().filter_map(|address| address.get("ip")?.as_str()) {
            if ports.is_empty() {
                all.push(address.to_owned());
            }
            for port in ports.iter().filter_map(|port| port.get("port")?.as_u64()) {
                all.push(if address.contains(':') {
                    format!("[{address}]:{port}")
                } else {
                    format!("{address}:{port}")
                });
            }
        }
    }
    some(&all)
}

fn slice_ports(object: &Map<String, Value>) -> String {
    let ports: Vec<String> = at(object, "/ports")
        .iter()
        .map(|port| {
            port.get("port")
                .filter(|port| !port.is_null())
                .map_or_else(|| "*".to_owned(), ToString::to_string)
        })
        .collect();
    if ports.is_empty() { "<unset>".to_owned() } else { some(&ports) }
}

fn slice_endpoints(object: &Map<String, Value>) -> String {
    let addresses =
        at(object, "/endpoints").iter().filter_map(|endpoint| endpoint.get("addresses")?.as_array());
    let all: Vec<String> =
        addresses.flatten().filter_map(|address| Some(address.as_str()?.to_owned())).collect();
    if all.is_empty() { "<unset>".to_owned() } else { some(&all) }
}

/// The first three, and how many more there are.
fn some(all: &[String]) -> String {
    match all {
        [] => NONE.to_owned(),
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first},{second},{third} + {} more...", rest.len())
        }
        few => few.join(","),
    }
}

fn node_status(object: &Map<String, Value>) -> String {
    let ready = at(object, "/status/conditions").iter().find(|c| c.get("type") == Some(&json!("Ready")));
    let status = match ready.and_then(|condition| condition.get("status")?.as_str()) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = pointer(object, "/spec/unschedulable") == Some(&json!(true));
    if cordoned { format!("{status},SchedulingDisabled") } else { status.to_owned() }
}

fn node_roles(object: &Map<String, Value>) -> String {
    let labels = pointer(object, "/metadata/labels").and_then(Value::as_object);
    let role = |label: &String| label.strip_prefix("node-role.kubernetes.io/").map(ToOwned::to_owned);
    or(labels.into_iter().flat_map(Map::keys).filter_map(role).collect::<Vec<_>>().join(","), NONE)
}

fn pod_ready(object: &Map<String, Value>) -> String {
    let statuses = at(object, "/status/containerStatuses");
    let ready = statuses.iter().filter(|status| status.get("ready") == Some(&json!(true))).count();
    format!("{ready}/{}", at(object, "/spec/containers").len())
}

fn pod_restarts(object: &Map<String, Value>) -> String {
    let statuses = at(object, "/status/containerStatuses").iter();
    statuses.filter_map(|status| status.get("restartCount")?.as_u64()).sum::<u64>().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_like_those_of_kubectl() {
        let now = DateTime::parse_from_rfc3339("2026-11-20T20:53:44Z").unwrap().to_utc();
        let cases = [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (660, "11m"),
            (4 * 3600 + 60, "4h1m"),
            (40 * 3600, "40h"),
            (3 * 86400 + 3600, "3d1h"),
            (100 * 86400, "100d"),
            (800 * 86400, "2y70d"),
        ];
        for (seconds, expected) in cases {
            let then = now - chrono::TimeDelta::seconds(seconds);
            assert_eq!(age(&then.to_rfc3339(), now), expected);
        }
        assert_eq!(age("", now), "<unknown>");
    }
}
