//! Tests of kubedns with the embedded API server and its faults.

#[cfg(test)]
mod api {
    mod check;
    mod cluster;
    mod clusterset;
    mod endpoints;
    mod etcd;
    mod explain;
    mod feed;
    mod life;
    mod loops;
    mod mirror;
    mod own_names;
    mod patience;
    mod process;
    mod real;
    mod scoped;
    mod stub;
    mod stub_domains;
    mod tls;
    mod transfer;
    mod weather;
}
