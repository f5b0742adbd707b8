//! The kube-dns ConfigMap: keys, validation, sources.
