//! Fields with their protobuf numbers, from `generated.proto` of each group of the Kubernetes API.
//! The tables have only fields that `kubectl create` sets or that a client such as kubedns reads.

/// The fields of a message.
pub(super) type Message = [Field];

/// One field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) name: &'static str,
    pub(super) kind: Type,
}

/// The type of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type {
    Text,
    Octets,
    Number,
    Flag,
    NumberOrText,
    /// A time: RFC 3339 text in JSON, seconds since 1970 in protobuf.
    Time,
    Message(&'static Message),
    List(&'static Type),
    /// A map from text to this type.
    Map(&'static Type),
}

use Type::{Flag, List, Map, Number, NumberOrText, Octets, Text};

const fn field(number: u32, name: &'static str, kind: Type) -> Field {
    Field { number, name, kind }
}

pub(super) static ENVELOPE: [Field; 2] = [
    field(1, "typeMeta", Type::Message(&TYPE_META)),
    field(2, "raw", Octets),
];
static TYPE_META: [Field; 2] = [field(1, "apiVersion", Text), field(2, "kind", Text)];
pub(super) static NUMBER_OR_TEXT: [Field; 3] = [
    field(1, "type", Number),
    field(2, "number", Number),
    field(3, "text", Text),
];

pub(super) static TIME: [Field; 1] = [field(1, "seconds", Number)];

static META: [Field; 7] = [
    field(1, "name", Text),
    field(3, "namespace", Text),
    field(5, "uid", Text),
    field(6, "resourceVersion", Text),
    field(8, "creationTimestamp", Type::Time),
    field(11, "labels", Map(&Text)),
    field(12, "annotations", Map(&Text)),
];
const METADATA: Field = field(1, "metadata", Type::Message(&META));

static CONFIG_MAP: [Field; 4] = [
    METADATA,
    field(2, "data", Map(&Text)),
    field(3, "binaryData", Map(&Octets)),
    field(4, "immutable", Flag),
];
static NAMESPACE: [Field; 1] = [METADATA];

static POD: [Field; 3] = [
    METADATA,
    field(2, "spec", Type::Message(&POD_SPEC)),
    field(3, "status", Type::Message(&POD_STATUS)),
];
static POD_SPEC: [Field; 2] = [field(10, "nodeName", Text), field(11, "hostNetwork", Flag)];
static POD_STATUS: [Field; 3] = [
    field(1, "phase", Text),
    field(6, "podIP", Text),
    field(12, "podIPs", List(&Type::Message(&POD_IP))),
];
static POD_IP: [Field; 1] = [field(1, "ip", Text)];

static SERVICE: [Field; 3] = [
    METADATA,
    field(2, "spec", Type::Message(&SERVICE_SPEC)),
    field(3, "status", Type::Message(&SERVICE_STATUS)),
];
static SERVICE_STATUS: [Field; 1] = [field(1, "loadBalancer", Type::Message(&LOAD_BALANCER))];
static LOAD_BALANCER: [Field; 1] = [field(1, "ingress", List(&Type::Message(&INGRESS)))];
static INGRESS: [Field; 2] = [field(1, "ip", Text), field(2, "hostname", Text)];
static SERVICE_SPEC: [Field; 11] = [
    field(1, "ports", List(&Type::Message(&SERVICE_PORT))),
    field(2, "selector", Map(&Text)),
    field(3, "clusterIP", Text),
    field(4, "type", Text),
    field(5, "externalIPs", List(&Text)),
    field(7, "sessionAffinity", Text),
    field(10, "externalName", Text),
    field(13, "publishNotReadyAddresses", Flag),
    field(17, "ipFamilyPolicy", Text),
    field(18, "clusterIPs", List(&Text)),
    field(19, "ipFamilies", List(&Text)),
];
static SERVICE_PORT: [Field; 6] = [
    field(1, "name", Text),
    field(2, "protocol", Text),
    field(3, "port", Number),
    field(4, "targetPort", NumberOrText),
    field(5, "nodePort", Number),
    field(6, "appProtocol", Text),
];

static ENDPOINTS: [Field; 2] = [METADATA, field(2, "subsets", List(&Type::Message(&SUBSET)))];
static SUBSET: [Field; 3] = [
    field(1, "addresses", List(&Type::Message(&ADDRESS))),
    field(2, "notReadyAddresses", List(&Type::Message(&ADDRESS))),
    field(3, "ports", List(&Type::Message(&SUBSET_PORT))),
];
static ADDRESS: [Field; 4] = [
    field(1, "ip", Text),
    field(2, "targetRef", Type::Message(&REFERENCE)),
    field(3, "hostname", Text),
    field(4, "nodeName", Text),
];
static REFERENCE: [Field; 4] = [
    field(1, "kind", Text),
    field(2, "namespace", Text),
    field(3, "name", Text),
    field(4, "uid", Text),
];
static SUBSET_PORT: [Field; 4] = [
    field(1, "name", Text),
    field(2, "port", Number),
    field(3, "protocol", Text),
    field(4, "appProtocol", Text),
];

static ENDPOINT_SLICE: [Field; 4] = [
    METADATA,
    field(2, "endpoints", List(&Type::Message(&ENDPOINT))),
    field(3, "ports", List(&Type::Message(&SLICE_PORT))),
    field(4, "addressType", Text),
];
static ENDPOINT: [Field; 7] = [
    field(1, "addresses", List(&Text)),
    field(2, "conditions", Type::Message(&CONDITIONS)),
    field(3, "hostname", Text),
    field(4, "targetRef", Type::Message(&REFERENCE)),
    field(6, "nodeName", Text),
    field(7, "zone", Text),
    field(8, "hints", Type::Message(&HINTS)),
];
static HINTS: [Field; 2] = [
    field(1, "forZones", List(&Type::Message(&HINTED_PLACE))),
    field(2, "forNodes", List(&Type::Message(&HINTED_PLACE))),
];
static HINTED_PLACE: [Field; 1] = [field(1, "name", Text)];
static CONDITIONS: [Field; 3] = [
    field(1, "ready", Flag),
    field(2, "serving", Flag),
    field(3, "terminating", Flag),
];
static SLICE_PORT: [Field; 4] = [
    field(1, "name", Text),
    field(2, "protocol", Text),
    field(3, "port", Number),
    field(4, "appProtocol", Text),
];

static STATUS: [Field; 4] = [
    field(2, "status", Text),
    field(3, "message", Text),
    field(4, "reason", Text),
    field(6, "code", Number),
];

/// The fields of a kind; `None` if the kind has no table.
pub(super) fn of(kind: &str) -> Option<&'static Message> {
    match kind {
        "ConfigMap" => Some(&CONFIG_MAP),
        "Namespace" | "Node" => Some(&NAMESPACE),
        "Pod" => Some(&POD),
        "Service" => Some(&SERVICE),
        "Endpoints" => Some(&ENDPOINTS),
        "EndpointSlice" => Some(&ENDPOINT_SLICE),
        "Status" => Some(&STATUS),
        _ => None,
    }
}

/// The fields of a map entry with a value of the type `values`.
pub(super) fn entry(values: &Type) -> [Field; 2] {
    [field(1, "key", Text), field(2, "value", *values)]
}
