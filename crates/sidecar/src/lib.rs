//! Probes kubedns and dnsmasq and exports health and metrics: the sidecar binary.
