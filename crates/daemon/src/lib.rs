//! Process plumbing the binaries share: Go-style flags, klog lines, tasks, signals, HTTP, metrics.
