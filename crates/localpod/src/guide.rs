//! The guide that is printed when the pod is ready: complete commands, made from objects of the
//! cluster.
//!
//! This module only makes text from objects: it reads and writes nothing.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::pod::Access;
use crate::ports::Ports;
use crate::upstream;

/// The width to which commands are padded, so that their comments line up.
const COMMAND_WIDTH: usize = 78;

/// The input of the guide.
pub struct Guide<'a> {
    /// Services to choose samples from.
    pub services: &'a [Service],
    /// Endpoints to choose samples from.
    pub endpoints: &'a [Endpoints],
    /// The cluster domain, without a final dot.
    pub domain: &'a str,
    /// The ports.
    pub ports: Ports,
    /// The kubedns program.
    pub kubedns: &'a Path,
    /// The access to the API server.
    pub access: &'a Access,
    /// Whether localpod itself answers the queries for names of the stub domain `acme.example`.
    pub stub_domain: bool,
    /// Whether the pod has no dnsmasq.
    pub is_alone: bool,
}

impl Guide<'_> {
    /// The whole text, ending with a newline.
    pub fn text(&self) -> String {
        let mut text = "\nThe pod is ready. Try, in another terminal:\n\n".to_owned();
        for (command, about) in self.dig_lines() {
            let _ = writeln!(text, "  {command:<COMMAND_WIDTH$}  # {about}");
        }
        text.push('\n');
        if let Some(command) = self.explain_line() {
            let _ = writeln!(
                text,
                "  {command:<COMMAND_WIDTH$}  # explain why a misspelt name does not resolve\n"
            );
        }
        let _ = writeln!(text, "  {}  # check the whole pod\n", self.check_line());
        for command in self.http_lines() {
            let _ = writeln!(text, "  {command}");
        }
        text.push('\n');
        for command in self.kubectl_lines() {
            let _ = writeln!(text, "  {command}");
        }
        let _ = writeln!(
            text,
            "\nStatus page: http://127.0.0.1:{}/",
            self.ports.sidecar
        );
        text.push_str("Ctrl-C stops everything.\n\n");
        text
    }

    fn dig_lines(&self) -> Vec<(String, &'static str)> {
        let mut lines = Vec::new();
        let mut add = |arguments: String, about| {
            lines.push((
                format!("dig @127.0.0.1 -p {} {arguments}", self.ports.dns),
                about,
            ));
        };
        let domain = self.domain;
        let svc = |name: &str, namespace: &str| format!("{name}.{namespace}.svc.{domain}");
        let services = self.services_by_interest();

        if let Some((name, namespace, address)) = services
            .iter()
            .find_map(|service| address(service, IpAddr::is_ipv4))
        {
            add(svc(name, namespace), "A: a Service's cluster IP");
            add(
                format!("+tcp {}", svc(name, namespace)),
                "the same over TCP",
            );
            add(format!("-x {address}"), "PTR: the name of a cluster IP");
            add(
                format!("'{name}.*.svc.{domain}'"),
                "wildcard: Services of this name in all namespaces",
            );
        }
        if let Some((name, namespace, _)) = services
            .iter()
            .find_map(|service| address(service, IpAddr::is_ipv6))
        {
            add(
                format!("{} AAAA", svc(name, namespace)),
                "AAAA: a Service's IPv6 cluster IP",
            );
        }
        if let Some((port, name, namespace)) =
            services.iter().find_map(|service| named_port(service))
        {
            add(
                format!("{port}.{} SRV", svc(name, namespace)),
                "SRV: a named port",
            );
        }
        if let Some((host, name, namespace)) = self.endpoints.iter().find_map(hostname) {
            add(
                format!("{host}.{}", svc(name, namespace)),
                "A: one pod of a headless Service, by its hostname",
            );
            add(svc(name, namespace), "A: all pods of a headless Service");
        }
        if let Some((name, namespace)) = services.iter().find_map(|service| external(service)) {
            add(
                svc(name, namespace),
                "CNAME: an ExternalName Service, with its target's addresses",
            );
        }
        if let Some((address, namespace)) = self.endpoints.iter().find_map(pod_address) {
            add(
                format!("{}.{namespace}.pod.{domain}", address.replace('.', "-")),
                "A: a pod, by its IP address",
            );
        }
        if self.stub_domain {
            add(
                format!("www.{}", upstream::APEX),
                "through the stub domain in the ConfigMap",
            );
        }
        lines
    }

    /// The command that explains a name. The name is misspelt on purpose: the explanation of a name
    /// that does not exist is longer.
    fn explain_line(&self) -> Option<String> {
        let services = self.services_by_interest();
        let (name, namespace) = named(&services.first()?.metadata);
        let server = format!("http://127.0.0.1:{}", self.ports.readiness);
        Some(format!(
            "{} explain {name}s.{namespace} --server {server}",
            self.kubedns.display()
        ))
    }

    fn check_line(&self) -> String {
        let Ports {
            sidecar,
            readiness,
            dns,
            ..
        } = self.ports;
        let access = match self.access {
            Access::MasterUrl(url) => format!("--kube-master-url={url}"),
            Access::Kubeconfig(file) => format!("--kubecfg-file={}", file.display()),
        };
        format!(
            "{} check cluster {access} --server=http://127.0.0.1:{readiness} --sidecar=http://127.0.0.1:{sidecar} \
             --dns=127.0.0.1:{dns} --domain={}",
            self.kubedns.display(),
            self.domain
        )
    }

    fn http_lines(&self) -> Vec<String> {
        let Ports {
            sidecar,
            readiness,
            kubedns_metrics,
            ..
        } = self.ports;
        let curl = |port, path| format!("curl http://127.0.0.1:{port}{path}");
        let dnsmasq = (!self.is_alone).then(|| curl(sidecar, "/healthcheck/dnsmasq"));
        let rest = [
            curl(readiness, "/readiness"),
            curl(readiness, "/cache"),
            curl(sidecar, "/metrics"),
            curl(kubedns_metrics, "/metrics"),
        ];
        [curl(sidecar, "/healthcheck/kubedns")]
            .into_iter()
            .chain(dnsmasq)
            .chain(rest)
            .collect()
    }

    /// kubectl commands. For a real cluster the commands only read, so that a pasted line changes
    /// nothing.
    fn kubectl_lines(&self) -> Vec<String> {
        let url = match self.access {
            Access::MasterUrl(url) => url,
            Access::Kubeconfig(file) => {
                return vec![format!(
                    "kubectl --kubeconfig={} get services --all-namespaces",
                    file.display()
                )];
            }
        };
        let hello = format!(
            "dig @127.0.0.1 -p {} +short hello.default.svc.{}",
            self.ports.dns, self.domain
        );
        vec![
            format!("kubectl --server={url} get services --all-namespaces"),
            format!("kubectl --server={url} create service clusterip hello --tcp=80"),
            hello,
            format!("kubectl --server={url} edit configmap -n kube-system kube-dns"),
        ]
    }

    /// The Services: first the user's own, then those in kube-system and the Service `kubernetes`.
    fn services_by_interest(&self) -> Vec<&Service> {
        let mut services: Vec<&Service> = self.services.iter().collect();
        services.sort_by_key(|service| {
            let (name, namespace) = named(&service.metadata);
            (
                namespace == "kube-system" || name == "kubernetes",
                namespace,
                name,
            )
        });
        services
    }
}

fn named(metadata: &ObjectMeta) -> (&str, &str) {
    (
        metadata.name.as_deref().unwrap_or_default(),
        metadata.namespace.as_deref().unwrap_or_default(),
    )
}

/// The name and the namespace of a Service, and its first cluster IP of the wanted family.
fn address(service: &Service, family: fn(&IpAddr) -> bool) -> Option<(&str, &str, IpAddr)> {
    let (name, namespace) = named(&service.metadata);
    let spec = service.spec.as_ref()?;
    let addresses = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
    let found = addresses
        .filter_map(|text| text.parse().ok())
        .find(family)?;
    Some((name, namespace, found))
}

/// `_port._proto`, name and namespace of a Service with a cluster IP and a named port.
fn named_port(service: &Service) -> Option<(String, &str, &str)> {
    let (name, namespace, _) = address(service, |_| true)?;
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    ports.iter().find_map(|port| {
        let protocol = port
            .protocol
            .as_deref()
            .unwrap_or("TCP")
            .to_ascii_lowercase();
        Some((
            format!("_{}._{protocol}", port.name.as_ref()?),
            name,
            namespace,
        ))
    })
}

/// The first hostname among the addresses, and the name and the namespace of the Endpoints.
fn hostname(endpoints: &Endpoints) -> Option<(&str, &str, &str)> {
    let (name, namespace) = named(&endpoints.metadata);
    let host = addresses_of(endpoints).find_map(|address| address.hostname.as_deref())?;
    Some((host, name, namespace))
}

fn external(service: &Service) -> Option<(&str, &str)> {
    service.spec.as_ref()?.external_name.as_ref()?;
    Some(named(&service.metadata))
}

/// The IPv4 address and the namespace of a pod behind a Service.
fn pod_address(endpoints: &Endpoints) -> Option<(&str, &str)> {
    let (name, namespace) = named(&endpoints.metadata);
    if name == "kubernetes" {
        return None;
    }
    let found = addresses_of(endpoints)
        .map(|address| address.ip.as_str())
        .find(|ip| ip.contains('.'))?;
    Some((found, namespace))
}

fn addresses_of(endpoints: &Endpoints) -> impl Iterator<Item = &EndpointAddress> {
    endpoints
        .subsets
        .iter()
        .flatten()
        .flat_map(|subset| subset.addresses.iter().flatten())
}

#[cfg(test)]
mod tests;
