//! A generated cluster: Services with three endpoints each. Every tenth Service is headless, and
//! its pods have hostnames.
//!
//! Clusters of the same size have the same names and addresses. So `bench serve` and a measurement,
//! which are separate processes, have the same cluster if `--services` is the same.

mod objects;

use std::net::Ipv4Addr;

use fastrand::Rng;
use serde_json::Value;

/// Seed of all random choices.
pub const SEED: u64 = 1;
/// The cluster domain.
pub const DOMAIN: &str = "cluster.local";
/// Number of endpoints of each Service.
pub const ENDPOINTS: u32 = 3;
/// One in `HEADLESS_EACH` Services is headless.
const HEADLESS_EACH: u32 = 10;
/// The number of namespaces is the number of Services divided by `SERVICES_EACH`, rounded up.
const SERVICES_EACH: u32 = 100;
/// A cluster IP is this address plus the index of the Service. The range 10.96.0.0/12 has a million
/// addresses.
const CLUSTER_IPS: u32 = u32::from_be_bytes([10, 96, 1, 0]);
/// The first pod IP. The range 10.128.0.0/9 has eight million addresses.
const POD_IPS: u32 = u32::from_be_bytes([10, 128, 0, 1]);
/// Words for the names of Services.
const WORDS: [&str; 16] = [
    "auth",
    "billing",
    "cart",
    "catalog",
    "checkout",
    "delivery",
    "events",
    "frontend",
    "gateway",
    "inventory",
    "mail",
    "orders",
    "payments",
    "search",
    "sessions",
    "users",
];

/// A Service with its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// The cluster IP; `None` for a headless Service.
    pub cluster_ip: Option<Ipv4Addr>,
    /// Pods of the Service.
    pub pods: Vec<Pod>,
}

/// A pod of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Address of the pod.
    pub ip: Ipv4Addr,
    /// The hostname of the pod, if the Service is headless.
    pub hostname: Option<String>,
}

/// All Services.
#[derive(Debug)]
pub struct Cluster {
    /// The Services, in no particular order.
    pub services: Vec<Service>,
}

impl Cluster {
    /// Generates a cluster with this number of Services.
    pub fn generate(services: u32) -> Self {
        let mut rng = Rng::with_seed(SEED);
        let namespaces = services.div_ceil(SERVICES_EACH).max(1);
        let services = (0..services)
            .map(|index| generate(index, rng.u32(..namespaces), &mut rng))
            .collect();
        Self { services }
    }

    /// The Services with a cluster IP.
    pub fn with_cluster_ip(&self) -> impl Iterator<Item = &Service> {
        self.services
            .iter()
            .filter(|service| service.cluster_ip.is_some())
    }

    /// The headless Services.
    pub fn headless(&self) -> impl Iterator<Item = &Service> {
        self.services
            .iter()
            .filter(|service| service.cluster_ip.is_none())
    }

    /// The number of endpoint addresses.
    pub fn addresses(&self) -> usize {
        self.services.iter().map(|service| service.pods.len()).sum()
    }

    /// The API objects of the cluster: a Service, an Endpoints object and an EndpointSlice for each
    /// [`Service`].
    pub fn objects(&self) -> impl Iterator<Item = Value> {
        self.services.iter().flat_map(|service| {
            [
                service.object(),
                service.endpoints(),
                service.slice(0, &service.pods),
            ]
        })
    }
}

fn generate(index: u32, namespace: u32, rng: &mut Rng) -> Service {
    let headless = index.is_multiple_of(HEADLESS_EACH);
    let word = rng.choice(WORDS).unwrap_or_default();
    let pods = (0..ENDPOINTS)
        .map(|number| Pod {
            ip: Ipv4Addr::from(POD_IPS + index * ENDPOINTS + number),
            hostname: headless.then(|| format!("{word}-{number}")),
        })
        .collect();
    Service {
        namespace: format!("team-{namespace}"),
        name: format!("{word}-{index}"),
        cluster_ip: (!headless).then(|| Ipv4Addr::from(CLUSTER_IPS + index)),
        pods,
    }
}

impl Service {
    /// The domain name of the Service.
    pub fn domain_name(&self) -> String {
        format!("{}.{}.svc.{DOMAIN}", self.name, self.namespace)
    }

    /// The owner name of the SRV records of the Service.
    pub fn port_name(&self) -> String {
        format!("_http._tcp.{}", self.domain_name())
    }

    /// The addresses of the domain name.
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        match self.cluster_ip {
            Some(ip) => vec![ip],
            None => self.pods.iter().map(|pod| pod.ip).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn clusters_of_same_size_are_equal_and_have_no_duplicates() {
        let cluster = Cluster::generate(1000);
        assert_eq!(cluster.services, Cluster::generate(1000).services);
        let names: HashSet<String> = cluster.services.iter().map(Service::domain_name).collect();
        let addresses: HashSet<Ipv4Addr> = cluster
            .services
            .iter()
            .flat_map(Service::addresses)
            .collect();
        assert_eq!((names.len(), addresses.len()), (1000, 900 + 100 * 3));
        let size = (cluster.headless().count(), cluster.addresses());
        assert_eq!(size, (100, 3000));
        assert_eq!(cluster.objects().count(), 3000);
    }
}
