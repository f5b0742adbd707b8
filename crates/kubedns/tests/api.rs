//! Tests of kubedns, most of them with the embedded API server, some of these with injected faults.
//! Some tests use a real kube-apiserver or etcd.

#[cfg(test)]
mod api {
    mod check;
    mod client_rate;
    mod cluster;
    mod clusterset;
    mod etcd;
    mod etcd_alone;
    mod explain;
    mod external_rules;
    mod idle_upstreams;
    mod large_cluster;
    mod life;
    mod loops;
    mod own_names;
    mod process;
    mod real;
    mod scoped;
    mod stub_domains;
    mod tls_pins;
    mod transfer;
}
