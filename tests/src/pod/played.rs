//! A pod that runs under `podman kube play`, with operations for tests.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use testkit::config_map::replace;
use testkit::objects::mk_config_map;
use testkit::query::Query;
use testkit::{client, eventually};

use super::container::{Container, Rights};
use super::kubelet::{Kubelet, ask};
use super::manifest::{Manifest, Probe};
use super::means::say;
use super::netns::NetNs;
use super::node::Node;
use super::place::Place;
use super::podman::Podman;
use crate::lab::in_a_line;

/// Timeout of every wait for the pod, long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(3);

/// Timeout of one probe or query.
const PROBE: Duration = Duration::from_secs(5);

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 50);
/// The name of the `ConfigMap` volume in our manifests.
const CONFIG: &str = "kube-dns-config";

/// A running pod. When the last owner of its [`Place`] is dropped, all resources of the place are
/// removed.
pub struct PlayedPod {
    /// The manifest of the pod.
    pub manifest: Manifest,
    /// The node and podman of the pod.
    pub place: Arc<Place>,
    config_volume: PathBuf,
}

impl PlayedPod {
    /// Starts the pod of `manifests/<name>` in a new place, and waits until all probes succeed.
    pub fn of(name: &str) -> Self {
        Self::in_place(&Arc::new(Place::make()), name)
    }

    /// Starts the pod of `manifests/<name>` in `place`, and waits until all probes succeed. The
    /// place must have no other pod.
    pub fn in_place(place: &Arc<Place>, name: &str) -> Self {
        let place = Arc::clone(place);
        let manifest = Manifest::of(name);
        let volumes = place.directory().join("volumes").join(name);
        let document = manifest.to_play(&volumes);
        let config_volume = volumes.join(CONFIG);
        std::fs::create_dir_all(&config_volume).expect("the ConfigMap's volume must be created");
        let pod = Self {
            manifest,
            place,
            config_volume,
        };
        pod.start(&document);
        pod
    }

    fn start(&self, document: &Value) {
        let file = self.place.directory().join("pod.json");
        std::fs::write(&file, document.to_string()).expect("the pod's document must be written");
        self.podman().play(&file, &ADDRESS.to_string());
        let infra = self.podman().run([
            "pod",
            "inspect",
            "--format",
            "{{.InfraContainerID}}",
            "kube-dns",
        ]);
        self.podman().run(["start", &infra]);
        let pid = self
            .podman()
            .run(["inspect", "--format", "{{.State.Pid}}", &infra]);
        let namespace = NetNs::at(format!("/proc/{pid}/ns/net").into());
        for (name, value) in self.manifest.sysctls() {
            let file = format!("/proc/sys/{}", name.replace('.', "/"));
            namespace
                .run(|| std::fs::write(&file, &value))
                .unwrap_or_else(|error| panic!("cannot set the sysctl {name}: {error}"));
        }
        self.podman().run(["pod", "start", "kube-dns"]);
        self.until_healthy();
    }

    /// Removes the pod, so that another can start in the same place.
    pub fn remove(self) {
        self.podman()
            .run(["pod", "rm", "--force", "--time", "0", "kube-dns"]);
    }

    /// The node of the pod.
    pub fn node(&self) -> &Node {
        &self.place.node
    }

    /// The podman that runs the pod.
    pub fn podman(&self) -> &Podman {
        &self.place.podman
    }

    /// A container by its name in the manifest.
    pub fn container(&self, name: &str) -> Container {
        Container::of(self.podman(), name)
    }

    /// The containers by their names in the manifest.
    pub fn containers(&self) -> Vec<(String, Container)> {
        let names = self
            .manifest
            .pod
            .containers
            .iter()
            .map(|container| container.name.clone());
        names
            .map(|name| (name.clone(), self.container(&name)))
            .collect()
    }

    /// The name of each container, and the privileges of its processes.
    pub fn rights(&self) -> Vec<(String, Vec<Rights>)> {
        self.containers()
            .into_iter()
            .map(|(name, container)| (name, container.rights()))
            .collect()
    }

    /// The ID of each container's first process.
    pub fn pids(&self) -> Vec<Option<u32>> {
        self.containers()
            .iter()
            .map(|(_, container)| container.pid())
            .collect()
    }

    /// Replaces the `ConfigMap` in the API server, and the files in the pod's volume. All files
    /// change at the same moment, as with a kubelet.
    pub fn configure(&self, entries: &[(&str, &str)]) {
        let object = mk_config_map("kube-system", "kube-dns", entries);
        self.node()
            .store
            .set(object)
            .expect("the API server must take a ConfigMap");
        replace(&self.config_volume, entries).expect("the volume must be written");
    }

    /// Queries the pod from the client's network namespace ([`Node::client`]), over UDP and then
    /// over TCP. Returns the answer as `in_a_line` shows it. Panics if the two answers differ.
    pub fn ask(&self, name: &str, rtype: &str) -> String {
        let server = (ADDRESS, 53).into();
        let query = || Query::new(name, rtype);
        let both = async {
            [
                client::ask(server, &query()).await,
                client::ask_tcp(server, &query()).await,
            ]
        };
        let [udp, tcp] = self
            .node()
            .client
            .block_on(both)
            .map(|message| in_a_line(&message));
        assert_eq!(
            udp, tcp,
            "{name} {rtype}: the answers over UDP and over TCP differ"
        );
        udp
    }

    /// Waits until the client receives this answer over UDP and over TCP.
    pub fn until(&self, name: &str, rtype: &str, expected: &str) {
        let query = Query::new(name, rtype);
        let server = (ADDRESS, 53).into();
        self.node().client.block_on(eventually(PATIENCE, || async {
            let udp = client::try_ask(server, &query, PROBE).await?;
            let tcp = client::try_ask_tcp(server, &query, PROBE).await?;
            let lines = [udp, tcp].map(|message| in_a_line(&message));
            if lines == [expected; 2] {
                Ok(())
            } else {
                Err(format!("{name} {rtype}: {lines:?}"))
            }
        }));
    }

    /// Waits until all readiness and liveness probes of the manifest succeed.
    pub fn until_healthy(&self) {
        let mut probes = self.manifest.probes("readinessProbe");
        probes.extend(self.manifest.probes("livenessProbe"));
        let containers = self.manifest.pod.containers.len();
        assert_eq!(
            probes.len(),
            containers + 1,
            "the pod must have one readiness probe, and a liveness probe for each container"
        );
        self.node()
            .namespace
            .block_on(eventually(PATIENCE, || async {
                for probe in &probes {
                    if !ask(probe, ADDRESS.into(), PROBE).await {
                        return Err(format!(
                            "{}: the probe of {} on port {} failed",
                            probe.container, probe.path, probe.port
                        ));
                    }
                }
                Ok(())
            }));
    }

    /// Returns whether the readiness probe succeeds.
    pub fn is_ready(&self) -> bool {
        let probes: Vec<Probe> = self.manifest.probes("readinessProbe");
        self.node().namespace.block_on(async {
            let mut ready = true;
            for probe in &probes {
                ready &= ask(probe, ADDRESS.into(), PROBE).await;
            }
            ready
        })
    }

    /// Starts a liveness prober for the containers of the pod.
    pub fn kubelet(&self) -> Kubelet {
        let probes = self.manifest.probes("livenessProbe");
        Kubelet::start(
            &self.node().namespace,
            IpAddr::from(ADDRESS),
            probes,
            self.podman(),
        )
    }
}

impl Drop for PlayedPod {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (name, container) in self.containers() {
                say(&format!("{name} logged:\n{}", container.log()));
            }
        }
    }
}
