//! The kube-dns pod in a YAML document, with the fields that the checks read.

use serde_json::Value;

/// The name of each container, and the binary that the container runs.
const PROGRAMS: &[(&str, &str)] = &[
    ("kubedns", "kubedns"),
    ("dnsmasq", "nanny"),
    ("sidecar", "sidecar"),
];

/// The pod template of a workload. The label `k8s-app` of the template is `kube-dns` or
/// `kube-dns-trial`.
#[derive(Debug, Clone)]
pub struct Pod {
    /// The `spec` of the template.
    pub spec: Value,
    /// The containers `kubedns`, `dnsmasq` and `sidecar`. Other containers are left out.
    pub containers: Vec<Container>,
}

/// One container.
#[derive(Debug, Clone)]
pub struct Container {
    /// The name of the container.
    pub name: String,
    /// The binary that the container runs.
    pub program: &'static str,
    /// The arguments of the binary; for the nanny, the arguments before `--`.
    pub args: Vec<String>,
    /// For the nanny, the arguments of dnsmasq.
    pub dnsmasq: Vec<String>,
    /// The container as in the document.
    pub spec: Value,
}

impl Pod {
    /// The kube-dns pod in a document; `None` if the document has no such pod.
    pub fn of(document: &Value) -> Option<Self> {
        let selected = document.pointer("/spec/template/metadata/labels/k8s-app")?;
        let ours = selected == "kube-dns" || selected == "kube-dns-trial";
        let spec = document.pointer("/spec/template/spec").filter(|_| ours)?;
        let containers = spec
            .get("containers")?
            .as_array()?
            .iter()
            .filter_map(Container::of)
            .collect();
        Some(Self {
            spec: spec.clone(),
            containers,
        })
    }

    /// The container that runs a program.
    pub fn container(&self, program: &str) -> Option<&Container> {
        self.containers
            .iter()
            .find(|container| container.program == program)
    }

    /// The `containerPort`s of `containers`.
    pub fn ports(&self) -> Vec<u64> {
        let lists = self
            .containers
            .iter()
            .filter_map(|container| container.spec.get("ports")?.as_array());
        lists
            .flatten()
            .filter_map(|port| port.get("containerPort")?.as_u64())
            .collect()
    }

    /// The DNS ports of kubedns and dnsmasq according to their arguments; 53 by default.
    pub fn dns_ports(&self) -> Vec<u64> {
        let kubedns = self
            .container("kubedns")
            .map(|container| flag(&container.args, "dns-port"));
        let dnsmasq = self
            .container("nanny")
            .map(|container| flag(&container.dnsmasq, "port"));
        [kubedns, dnsmasq]
            .into_iter()
            .flatten()
            .map(|port| number(port, 53))
            .collect()
    }

    /// The port of kubedns' `/readiness`.
    pub fn readiness_port(&self) -> u64 {
        number(
            self.container("kubedns")
                .and_then(|container| flag(&container.args, "healthz-port")),
            8081,
        )
    }
}

impl Container {
    fn of(spec: &Value) -> Option<Self> {
        let name = spec.get("name")?.as_str()?;
        let (_, program) = PROGRAMS.iter().find(|(container, _)| *container == name)?;
        let words = spec
            .get("args")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let mut args: Vec<String> = words
            .filter_map(|word| word.as_str().map(str::to_owned))
            .collect();
        let mut dnsmasq = Vec::new();
        if let Some(at) = args.iter().position(|word| word == "--") {
            dnsmasq = args.split_off(at).split_off(1);
        }
        Some(Self {
            name: name.to_owned(),
            program,
            args,
            dnsmasq,
            spec: spec.clone(),
        })
    }
}

/// The value of the last `--name=value` or `-name=value`.
pub fn flag<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    let of = |word: &'a String| word.trim_start_matches('-').split_once('=');
    args.iter()
        .rev()
        .filter_map(of)
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

fn number(value: Option<&str>, default: u64) -> u64 {
    value.and_then(|text| text.parse().ok()).unwrap_or(default)
}
