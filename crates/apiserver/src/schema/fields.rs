//! The fields of each kind and their protobuf numbers: facts of the Kubernetes API (`generated.proto` of each group).

/// The fields of a message.
pub(crate) type Message = [Field];

/// One field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) number: u64,
    pub(crate) name: &'static str,
    pub(crate) kind: Type,
}

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Type {
    Text,
    Octets,
    Number,
    /// Left out when false.
    Bool,
    /// Something else when it is absent than when it is false.
    Flag,
    NumberOrText,
    /// Not looked at, and not read from protobuf.
    Any,
    Message(&'static Message),
    List(&'static Type),
    /// From text to this.
    Map(&'static Type),
}

use Type::{Any, Bool, Flag, List, Map, Number, NumberOrText, Octets, Text};

const fn field(number: u64, name: &'static str, kind: Type) -> Field {
    Field { number, name, kind }
}

pub(crate) static ENVELOPE: [Field; 2] =
    [field(1, "typeMeta", Type::Message(&TYPE_META)), field(2, "raw", Octets)];
static TYPE_META: [Field; 2] = [field(1, "apiVersion", Text), field(2, "kind", Text)];
pub(crate) static NUMBER_OR_TEXT: [Field; 3] =
    [field(1, "type", Number), field(2, "number", Number), field(3, "text", Text)];

static META: [Field; 15] = [
    field(1, "name", Text),
    field(2, "generateName", Text),
    field(3, "namespace", Text),
    field(4, "selfLink", Text),
    field(5, "uid", Text),
    field(6, "resourceVersion", Text),
    field(7, "generation", Number),
    field(8, "creationTimestamp", Any),
    field(9, "deletionTimestamp", Any),
    field(10, "deletionGracePeriodSeconds", Number),
    field(11, "labels", Map(&Text)),
    field(12, "annotations", Map(&Text)),
    field(13, "ownerReferences", List(&Type::Message(&OWNER))),
    field(14, "finalizers", List(&Text)),
    field(17, "managedFields", Any),
];
static OWNER: [Field; 6] = [
    field(1, "kind", Text),
    field(3, "name", Text),
    field(4, "uid", Text),
    field(5, "apiVersion", Text),
    field(6, "controller", Flag),
    field(7, "blockOwnerDeletion", Flag),
];
static REFERENCE: [Field; 7] = [
    field(1, "kind", Text),
    field(2, "namespace", Text),
    field(3, "name", Text),
    field(4, "uid", Text),
    field(5, "apiVersion", Text),
    field(6, "resourceVersion", Text),
    field(7, "fieldPath", Text),
];
const METADATA: Field = field(1, "metadata", Type::Message(&META));

static CONFIG_MAP: [Field; 4] = [
    METADATA,
    field(2, "data", Map(&Text)),
    field(3, "binaryData", Map(&Octets)),
    field(4, "immutable", Flag),
];
static SECRET: [Field; 5] = [
    METADATA,
    field(2, "data", Map(&Octets)),
    field(3, "type", Text),
    field(4, "stringData", Map(&Text)),
    field(5, "immutable", Flag),
];
static NAMESPACE: [Field; 3] =
    [METADATA, field(2, "spec", Type::Message(&NAMESPACE_SPEC)), field(3, "status", Any)];
static NAMESPACE_SPEC: [Field; 1] = [field(1, "finalizers", List(&Text))];
static SERVICE_ACCOUNT: [Field; 4] = [
    METADATA,
    field(2, "secrets", List(&Type::Message(&REFERENCE))),
    field(3, "imagePullSecrets", List(&Type::Message(&LOCAL_REFERENCE))),
    field(4, "automountServiceAccountToken", Flag),
];
static LOCAL_REFERENCE: [Field; 1] = [field(1, "name", Text)];

static SERVICE: [Field; 3] = [
    METADATA,
    field(2, "spec", Type::Message(&SERVICE_SPEC)),
    field(3, "status", Type::Message(&SERVICE_STATUS)),
];
static SERVICE_STATUS: [Field; 2] =
    [field(1, "loadBalancer", Type::Message(&LOAD_BALANCER)), field(2, "conditions", Any)];
static LOAD_BALANCER: [Field; 1] = [field(1, "ingress", List(&Type::Message(&INGRESS)))];
static INGRESS: [Field; 4] =
    [field(1, "ip", Text), field(2, "hostname", Text), field(3, "ipMode", Text), field(4, "ports", Any)];
static SERVICE_SPEC: [Field; 20] = [
    field(1, "ports", List(&Type::Message(&SERVICE_PORT))),
    field(2, "selector", Map(&Text)),
    field(3, "clusterIP", Text),
    field(4, "type", Text),
    field(5, "externalIPs", List(&Text)),
    field(7, "sessionAffinity", Text),
    field(8, "loadBalancerIP", Text),
    field(9, "loadBalancerSourceRanges", List(&Text)),
    field(10, "externalName", Text),
    field(11, "externalTrafficPolicy", Text),
    field(12, "healthCheckNodePort", Number),
    field(13, "publishNotReadyAddresses", Bool),
    field(14, "sessionAffinityConfig", Type::Message(&AFFINITY)),
    field(17, "ipFamilyPolicy", Text),
    field(18, "clusterIPs", List(&Text)),
    field(19, "ipFamilies", List(&Text)),
    field(20, "allocateLoadBalancerNodePorts", Flag),
    field(21, "loadBalancerClass", Text),
    field(22, "internalTrafficPolicy", Text),
    field(23, "trafficDistribution", Text),
];
static SERVICE_PORT: [Field; 6] = [
    field(1, "name", Text),
    field(2, "protocol", Text),
    field(3, "port", Number),
    field(4, "targetPort", NumberOrText),
    field(5, "nodePort", Number),
    field(6, "appProtocol", Text),
];
static AFFINITY: [Field; 1] = [field(1, "clientIP", Type::Message(&CLIENT_IP))];
static CLIENT_IP: [Field; 1] = [field(1, "timeoutSeconds", Number)];

static ENDPOINTS: [Field; 2] = [METADATA, field(2, "subsets", List(&Type::Message(&SUBSET)))];
static SUBSET: [Field; 3] = [
    field(1, "addresses", List(&Type::Message(&ADDRESS))),
    field(2, "notReadyAddresses", List(&Type::Message(&ADDRESS))),
    field(3, "ports", List(&Type::Message(&ENDPOINT_PORT))),
];
static ADDRESS: [Field; 4] = [
    field(1, "ip", Text),
    field(2, "targetRef", Type::Message(&REFERENCE)),
    field(3, "hostname", Text),
    field(4, "nodeName", Text),
];
static ENDPOINT_PORT: [Field; 4] = [
    field(1, "name", Text),
    field(2, "port", Number),
    field(3, "protocol", Text),
    field(4, "appProtocol", Text),
];

static SLICE: [Field; 4] = [
    METADATA,
    field(2, "endpoints", List(&Type::Message(&SLICE_ENDPOINT))),
    field(3, "ports", List(&Type::Message(&SLICE_PORT))),
    field(4, "addressType", Text),
];
static SLICE_ENDPOINT: [Field; 8] = [
    field(1, "addresses", List(&Text)),
    field(2, "conditions", Type::Message(&CONDITIONS)),
    field(3, "hostname", Text),
    field(4, "targetRef", Type::Message(&REFERENCE)),
    field(5, "deprecatedTopology", Map(&Text)),
    field(6, "nodeName", Text),
    field(7, "zone", Text),
    field(8, "hints", Type::Message(&HINTS)),
];
static CONDITIONS: [Field; 3] =
    [field(1, "ready", Flag), field(2, "serving", Flag), field(3, "terminating", Flag)];
static HINTS: [Field; 2] = [
    field(1, "forZones", List(&Type::Message(&LOCAL_REFERENCE))),
    field(2, "forNodes", List(&Type::Message(&LOCAL_REFERENCE))),
];
static SLICE_PORT: [Field; 4] = [
    field(1, "name", Text),
    field(2, "protocol", Text),
    field(3, "port", Number),
    field(4, "appProtocol", Text),
];

static DELETE_OPTIONS: [Field; 4] = [
    field(1, "gracePeriodSeconds", Number),
    field(2, "preconditions", Type::Message(&PRECONDITIONS)),
    field(4, "propagationPolicy", Text),
    field(5, "dryRun", List(&Text)),
];
static PRECONDITIONS: [Field; 2] = [field(1, "uid", Text), field(2, "resourceVersion", Text)];

/// The fields of a kind, if they are known.
pub(crate) fn of(kind: &str) -> Option<&'static Message> {
    Some(match kind {
        "ConfigMap" => &CONFIG_MAP,
        "DeleteOptions" => &DELETE_OPTIONS,
        "Endpoints" => &ENDPOINTS,
        "EndpointSlice" => &SLICE,
        "Namespace" => &NAMESPACE,
        "Secret" => &SECRET,
        "Service" => &SERVICE,
        "ServiceAccount" => &SERVICE_ACCOUNT,
        _ => return None,
    })
}

/// The fields of an entry of a map to this.
pub(crate) fn entry(values: &Type) -> [Field; 2] {
    [field(1, "key", Text), field(2, "value", *values)]
}
