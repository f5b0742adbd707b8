//! `kubedns explain` and `GET /explain` on the real binary, against the embedded API server.

#[cfg(test)]
mod explain {
    mod command;
    mod dnsmasq;
    mod endpoint;
    mod support;
    mod trust;
}
