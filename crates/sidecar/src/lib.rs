//! Probes kubedns and dnsmasq and exports health and metrics: the sidecar binary.
//!
//! * [`spec`]: the value of `--probe`; pure.
//! * [`probe`]: sends the query of a probe at its interval, and judges the responses.
//! * [`counters`]: dnsmasq's own counters, kept from falling when dnsmasq restarts.
//! * [`upstreams`]: probes of dnsmasq's upstreams, because dnsmasq does not report their failures.
//! * [`exechealthz`], [`nslookup`]: the health checks of the container `healthz` of old manifests, and its commands.
//! * [`routes`]: `/healthcheck/<label>`, `/healthz`, `/metrics`, `/status`, and the page at `/`.
//! * [`peers`]: the metrics of kubedns and the status of the nanny.
//! * [`verdict`]: the condition of the pod, and remedies.
//! * [`status`], [`page`]: the overview for an operator.
//!
//! # Health checks without needless restarts
//!
//! The kubelet restarts a container whose liveness probe fails. The usual manifests point the liveness probe of
//! *dnsmasq* at a probe that goes through dnsmasq to kubedns. While kubedns or the API server is down that probe
//! fails, and a restart of dnsmasq would only empty its cache as well. So by default (`--health=self`) each part is
//! checked by itself:
//!
//! * dnsmasq (a probe whose server is `--dnsmasq-addr` and `--dnsmasq-port`): when the probed name is not answered,
//!   the probe queries `cachesize.bind`, which dnsmasq answers without a backend. If that is answered, the health
//!   check of dnsmasq stays 200.
//! * kubedns (a probe whose server is `--kubedns-addr`): any well-formed response, such as REFUSED before the first
//!   lists are complete, proves that the process is alive. Its readiness decides whether it gets traffic.
//!
//! The rest is as in kube-dns: the failed probe counts as an error; in addition the gauge `..._backend_away`,
//! `/status` and the page show that the part answers only for itself. `--health=through` restores the check of
//! kube-dns, where only an answer to the probed name counts. A server that is neither part is always checked by the
//! name.

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
