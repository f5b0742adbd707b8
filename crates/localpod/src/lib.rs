//! The whole kube-dns pod on loopback.
