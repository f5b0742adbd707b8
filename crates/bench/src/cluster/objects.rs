//! The objects of the cluster as an API server sends them, with labels, owners and managed fields.
//! kubedns needs only some of the fields; the measurements include the work of skipping the others.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{Pod, Service};

/// The creation time of all objects.
const CREATED: &str = "2026-01-15T09:30:00Z";
const POD_PORT: u16 = 8080;
const SERVICE_PORT: u16 = 80;
/// Number of nodes that the pods run on.
const NODES: u32 = 200;

impl Service {
    /// The Service object.
    pub fn object(&self) -> Value {
        let ip = self
            .cluster_ip
            .map_or_else(|| "None".to_owned(), |ip| ip.to_string());
        json!({
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": uid(&[&self.namespace, &self.name]),
                "creationTimestamp": CREATED,
                "labels": self.labels(),
                "annotations": {
                    "meta.helm.sh/release-name": self.name,
                    "meta.helm.sh/release-namespace": self.namespace,
                },
                "managedFields": [managed("helm", "v1", &json!({
                    "f:metadata": {
                        "f:annotations": {".": {}, "f:meta.helm.sh/release-name": {}, "f:meta.helm.sh/release-namespace": {}},
                        "f:labels": {".": {}, "f:app.kubernetes.io/instance": {}, "f:app.kubernetes.io/managed-by": {}, "f:app.kubernetes.io/name": {}},
                    },
                    "f:spec": {
                        "f:internalTrafficPolicy": {},
                        "f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}}},
                        "f:selector": {},
                        "f:sessionAffinity": {},
                        "f:type": {},
                    },
                }))],
            },
            "spec": {
                "ports": [{"name": "http", "protocol": "TCP", "port": SERVICE_PORT, "targetPort": POD_PORT}],
                "selector": {"app.kubernetes.io/name": self.name},
                "clusterIP": ip,
                "clusterIPs": [ip],
                "type": "ClusterIP",
                "sessionAffinity": "None",
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "internalTrafficPolicy": "Cluster",
            },
            "status": {"loadBalancer": {}},
        })
    }

    /// The Endpoints object.
    pub fn endpoints(&self) -> Value {
        let address = |pod: &Pod| {
            let mut address = json!({
                "ip": pod.ip,
                "nodeName": node(pod.ip),
                "targetRef": self.target(pod.ip),
            });
            if let Some(hostname) = &pod.hostname {
                address["hostname"] = json!(hostname);
            }
            address
        };
        let mut labels = self.labels();
        labels["endpoints.kubernetes.io/managed-by"] = json!("endpoint-controller");
        json!({
            "kind": "Endpoints",
            "apiVersion": "v1",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": uid(&[&self.namespace, &self.name, "endpoints"]),
                "creationTimestamp": CREATED,
                "labels": labels,
                "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": CREATED},
                "managedFields": [managed("kube-controller-manager", "v1", &json!({
                    "f:metadata": {"f:annotations": {".": {}, "f:endpoints.kubernetes.io/last-change-trigger-time": {}}, "f:labels": {".": {}}},
                    "f:subsets": {},
                }))],
            },
            "subsets": [{
                "addresses": self.pods.iter().map(address).collect::<Vec<_>>(),
                "ports": [{"name": "http", "port": POD_PORT, "protocol": "TCP"}],
            }],
        })
    }

    /// An EndpointSlice that lists `pods` of the Service. `number` distinguishes the slices of a
    /// Service.
    pub fn slice(&self, number: u32, pods: &[Pod]) -> Value {
        let endpoint = |pod: &Pod| {
            let mut endpoint = json!({
                "addresses": [pod.ip],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": node(pod.ip),
                "targetRef": self.target(pod.ip),
                "zone": "zone-a",
            });
            if let Some(hostname) = &pod.hostname {
                endpoint["hostname"] = json!(hostname);
            }
            endpoint
        };
        let mut labels = self.labels();
        labels["endpointslice.kubernetes.io/managed-by"] = json!("endpointslice-controller.k8s.io");
        labels["kubernetes.io/service-name"] = json!(self.name);
        let owner = json!({
            "apiVersion": "v1", "kind": "Service", "name": self.name,
            "uid": uid(&[&self.namespace, &self.name]), "controller": true, "blockOwnerDeletion": true,
        });
        json!({
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {
                "name": format!("{}-{:05x}", self.name, number),
                "generateName": format!("{}-", self.name),
                "namespace": self.namespace,
                "uid": uid(&[&self.namespace, &self.name, &number.to_string()]),
                "generation": 1,
                "creationTimestamp": CREATED,
                "labels": labels,
                "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": CREATED},
                "ownerReferences": [owner],
                "managedFields": [managed("kube-controller-manager", "discovery.k8s.io/v1", &json!({
                    "f:addressType": {},
                    "f:endpoints": {},
                    "f:metadata": {
                        "f:annotations": {".": {}, "f:endpoints.kubernetes.io/last-change-trigger-time": {}},
                        "f:generateName": {},
                        "f:labels": {".": {}, "f:endpointslice.kubernetes.io/managed-by": {}, "f:kubernetes.io/service-name": {}},
                        "f:ownerReferences": {".": {}, "k:{\"uid\":\"00000000-0000-0000-0000-000000000000\"}": {}},
                    },
                    "f:ports": {},
                }))],
            },
            "addressType": "IPv4",
            "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
            "ports": [{"name": "http", "protocol": "TCP", "port": POD_PORT}],
        })
    }

    fn labels(&self) -> Value {
        json!({
            "app.kubernetes.io/instance": self.name,
            "app.kubernetes.io/managed-by": "Helm",
            "app.kubernetes.io/name": self.name,
        })
    }

    fn target(&self, ip: Ipv4Addr) -> Value {
        let pod = format!("{}-{:08x}", self.name, u32::from(ip));
        json!({"kind": "Pod", "namespace": self.namespace, "uid": uid(&[&self.namespace, &pod]), "name": pod})
    }
}

fn node(ip: Ipv4Addr) -> String {
    format!("node-{}.compute.internal", u32::from(ip) % NODES)
}

fn managed(manager: &str, api_version: &str, fields: &Value) -> Value {
    json!({
        "manager": manager, "operation": "Update", "apiVersion": api_version, "time": CREATED,
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

/// A string in the form of a UID. Equal parts give equal strings.
fn uid(parts: &[&str]) -> String {
    let octets = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let hash = octets.fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
        (hash ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let (high, low) = (hash >> 32, hash & 0xffff_ffff);
    format!(
        "{high:08x}-{:04x}-4{:03x}-8{:03x}-{low:08x}{:04x}",
        low >> 16,
        low & 0xfff,
        high & 0xfff,
        high >> 16
    )
}

#[cfg(test)]
mod tests {
    use super::super::Cluster;

    #[test]
    fn objects_have_realistic_sizes_and_uids() {
        let cluster = Cluster::generate(10);
        for object in cluster.objects() {
            let size = object.to_string().len();
            assert!((1000..3000).contains(&size), "{size} octets: {object}");
            let uid = object["metadata"]["uid"].as_str().unwrap();
            assert_eq!(uid.len(), 36, "{uid}");
        }
    }
}
