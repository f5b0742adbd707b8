//! Probes kubedns and dnsmasq and exports health and metrics: the sidecar binary.
//!
//! * [`spec`]: parses the value of `--probe`.
//! * [`probe`]: sends the query of a probe at an interval, and judges the responses.
//! * [`counters`]: exports dnsmasq's own counters. The exported counters do not decrease when
//!   dnsmasq restarts.
//! * [`upstreams`]: probes dnsmasq's upstreams, because dnsmasq does not report their failures.
//! * [`exechealthz`], [`nslookup`]: the health checks and commands of the container `healthz` in
//!   old manifests.
//! * [`routes`]: `/healthcheck/<label>`, `/healthz`, `/metrics`, `/status`, `/explain`, `/runbook`,
//!   and the page at `/`.
//! * [`peers`]: fetches the metrics of kubedns, the status of the nanny, and from both processes a
//!   ranking of clients and names.
//! * [`verdict`]: the faults of the pod, and how long they have lasted.
//! * [`traffic`]: the rates of queries over the last twenty minutes.
//! * [`upstream_history`]: the latencies of the upstreams of kubedns over the last ten minutes.
//! * [`status`], [`page`]: the overview for an operator.
//!
//! # Health checks without needless restarts
//!
//! The kubelet restarts a container whose liveness probe fails. In the usual manifests, the
//! liveness probe of *dnsmasq* requests the result of a query that the sidecar sends through
//! dnsmasq to kubedns. This query fails while kubedns is down, and while kubedns waits for its
//! first lists from the API server. A restart of dnsmasq would only empty its cache. So by default
//! (`--health=self`) each part is checked on its own:
//!
//! * dnsmasq (a probe with the label `dnsmasq`, or of the server `--dnsmasq-addr` at
//!   `--dnsmasq-port`): each probe also queries `cachesize.bind`, which dnsmasq answers without
//!   kubedns. If dnsmasq answers only this query, its health check still returns 200.
//! * kubedns (a probe with the label `kubedns`, or of the server `--kubedns-addr`): any well-formed
//!   response, such as REFUSED before the first lists are complete, proves that the process is
//!   alive. The readiness of kubedns decides whether the pod gets traffic.
//!
//! As in kube-dns, the metrics count a probe without an answer for the probed name as an error.
//! Unlike in kube-dns, the health check may still return 200 for such a probe. In addition, the
//! gauge `..._backend_away`, `/status` and the page show when a part is alive, but gives no answer
//! for the probed name. `--health=through` restores the check of kube-dns, where only an answer for
//! the probed name counts. Servers other than dnsmasq and kubedns are always checked like that.

mod app;
mod container_histories;
mod counter_readings;
mod counters;
#[cfg(test)]
mod example;
mod exechealthz;
mod health;
mod limited_clients;
mod metric_name;
mod nslookup;
mod options;
mod page;
mod parts;
mod peers;
mod probe;
mod recent;
mod routes;
mod runbook;
pub mod spec;
mod status;
mod time;
mod traffic;
mod upstream_history;
mod upstreams;
mod verdict;

pub use app::run;
pub use options::{HealthMode, Options};
