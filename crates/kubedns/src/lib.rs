//! Kubernetes to records to snapshot to DNS: the kubedns binary.

pub mod objects;
