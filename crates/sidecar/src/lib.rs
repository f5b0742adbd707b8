//! Probes kubedns and dnsmasq and exports health and metrics: the sidecar binary.
//!
//! * [`spec`]: what `--probe` asks for; pure.
//! * [`probe`]: asks again and again, and judges what came back.
//! * [`counters`]: dnsmasq's own counters, kept from falling when dnsmasq restarts.
//! * [`upstreams`]: the servers dnsmasq forwards to, probed because dnsmasq does not tell how they do.
//! * [`exechealthz`], [`nslookup`]: the health checks of the container `healthz` of old manifests, and its commands.
//! * [`routes`]: `/healthcheck/<label>`, `/healthz`, `/metrics`, `/status`, and the page at `/`.
//! * [`peers`]: what kubedns and the nanny tell about themselves.
//! * [`verdict`]: whether the pod is well, and if not, what to do.
//! * [`status`], [`page`]: what an operator sees at a glance.
//!
//! # Health that does not punish
//!
//! The kubelet restarts a container whose liveness probe fails, and the manifests in the field point the liveness of
//! *dnsmasq* at a probe that goes through dnsmasq to kubedns. With kubedns or the API server away that probe fails, and a
//! restart of dnsmasq would only add an empty cache to the trouble. So by default (`--health=self`) a part is judged by
//! what it can do alone:
//!
//! * dnsmasq (a probe whose server is `--dnsmasq-addr` and `--dnsmasq-port`): when the probed name is not answered,
//!   dnsmasq is asked for its own `cachesize.bind`, which it answers without anyone's help. If it does, its health
//!   check stays 200.
//! * kubedns (a probe whose server is `--kubedns-addr`): any well-formed answer, such as REFUSED before the first lists
//!   have arrived, shows that the process lives. Whether it should get traffic is what its readiness tells.
//!
//! Everything else stays as it was: the failed probe counts as an error, and the gauge `..._backend_away`, `/status`
//! and the page tell that the part answers for itself only. `--health=through` brings back the old judgement, where
//! only an answer to the probed name is health. Servers that are neither part are always judged by the name.

mod app;
mod counters;
mod exechealthz;
mod health;
mod metric_name;
mod monotonic;
mod nslookup;
mod options;
mod page;
mod parts;
mod peers;
mod probe;
mod routes;
mod runbook;
pub mod spec;
mod status;
mod time;
mod upstreams;
mod verdict;

pub use app::run;
pub use options::{Mode, Options};
