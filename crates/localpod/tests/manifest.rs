//! Compares the arguments and environment variables of localpod's containers with those of the
//! manifests.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot continue must end at once"
)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container as ManifestContainer, EnvVar};
use localpod::options::ExtraArgs;
use localpod::pod::{Access, Wiring};
use localpod::ports::Ports;
use localpod::programs::Programs;

/// The ports of the manifest. With these ports, localpod's arguments must contain all arguments of
/// the manifest, in the same order.
fn manifest_ports() -> Ports {
    Ports {
        dns: 53,
        dnsmasq: 53,
        kubedns: 10053,
        readiness: 8081,
        kubedns_metrics: 10055,
        sidecar: 10054,
        api: 6443,
        upstream: 0,
        nanny: 10056,
    }
}

/// The containers of `manifests/base`. If a file is given, the arguments in this file replace those
/// of the containers.
fn manifest_containers(arguments: Option<&str>) -> BTreeMap<String, ManifestContainer> {
    let read = |file: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../manifests")
            .join(file);
        serde_norway::from_str::<serde_norway::Value>(&std::fs::read_to_string(file).unwrap())
            .unwrap()
    };
    let containers = |file: &str| -> Vec<ManifestContainer> {
        let containers = read(file)["spec"]["template"]["spec"]["containers"].clone();
        serde_norway::from_value(containers).unwrap()
    };
    let base = containers("base/deployment.yaml").into_iter();
    let mut all: BTreeMap<String, ManifestContainer> = base
        .map(|container| (container.name.clone(), container))
        .collect();
    for other in arguments.map(containers).unwrap_or_default() {
        let container = all.get_mut(&other.name).unwrap();
        container.args = other.args.or_else(|| container.args.take());
    }
    all
}

#[test]
fn base_arguments_match_the_manifest() {
    compare(Shape::default(), &manifest_containers(None));
}

#[test]
fn cache_arguments_match_the_manifest() {
    compare(
        Shape {
            is_cache: true,
            ..Shape::default()
        },
        &manifest_containers(Some("components/cache/deployment.yaml")),
    );
}

/// localpod passes the arguments of `manifests/alone`, except those that have no use on a laptop.
#[test]
fn alone_arguments_match_the_manifest() {
    let mut manifest = manifest_containers(Some("components/alone/deployment.yaml"));
    manifest.remove("dnsmasq");
    let args = manifest.get_mut("kubedns").unwrap().args.as_mut().unwrap();
    args.retain(|flag| !["--snapshot-dir=/snapshot", "--lameduck=10s"].contains(&flag.as_str()));
    compare(
        Shape {
            is_alone: true,
            ..Shape::default()
        },
        &manifest,
    );
}

#[derive(Default)]
struct Shape {
    is_cache: bool,
    is_alone: bool,
}

fn compare(Shape { is_cache, is_alone }: Shape, manifest: &BTreeMap<String, ManifestContainer>) {
    let programs = Programs {
        kubedns: PathBuf::from("/kube-dns"),
        nanny: PathBuf::from("/dnsmasq-nanny"),
        sidecar: PathBuf::from("/sidecar"),
        dnsmasq: PathBuf::from("/usr/sbin/dnsmasq"),
    };
    let wiring = Wiring {
        programs: &programs,
        ports: if is_alone {
            manifest_ports().direct()
        } else {
            manifest_ports()
        },
        domain: "cluster.local",
        config_dir: Path::new("/config"),
        state_dir: Path::new("/state"),
        access: Access::MasterUrl("http://127.0.0.1:6443".to_owned()),
        nameservers: &[],
        is_cache,
        is_alone,
        probe_interval: 5,
        verbosity: 2,
        extra: &ExtraArgs::default(),
    };
    let containers = wiring.containers();
    assert_eq!(manifest.len(), containers.len());
    for container in containers {
        let expected = &manifest[container.name];
        let mut passed = container.args.iter();
        for flag in expected.args.as_ref().unwrap() {
            // localpod has one configuration directory for all volume mounts.
            let flag = flag
                .replace("/kube-dns-config", "/config")
                .replace("/etc/k8s/dns/dnsmasq-nanny", "/config");
            assert!(
                passed.any(|arg| *arg == flag),
                "{}: {flag} is missing or out of order",
                container.name
            );
        }
        // Values that a kubelet fills in, such as the name of the node, do not exist on a laptop.
        let written = |variable: &&EnvVar| variable.value_from.is_none();
        for variable in expected.env.iter().flatten().filter(written) {
            let value = OsString::from(variable.value.clone().unwrap());
            assert!(
                container
                    .env
                    .iter()
                    .any(|(name, given)| *name == variable.name && *given == value),
                "{}: {} is not set to {}",
                container.name,
                variable.name,
                value.display()
            );
        }
    }
}
