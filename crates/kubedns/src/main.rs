//! The `kubedns` binary.

fn main() {}
