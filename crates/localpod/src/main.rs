//! The `localpod` binary.

fn main() {}
