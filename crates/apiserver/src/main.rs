//! The `apiserver` binary.

fn main() {}
