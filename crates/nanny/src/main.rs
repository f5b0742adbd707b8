//! The `nanny` binary.

fn main() {}
