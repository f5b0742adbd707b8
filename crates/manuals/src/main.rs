//! `manuals OUT` writes manual pages and shell completions below the directory `OUT`.

use std::path::Path;

use anyhow::Context as _;

fn main() -> anyhow::Result<()> {
    let out = std::env::args_os()
        .nth(1)
        .context("usage: manuals OUT (a directory)")?;
    manuals::write(Path::new(&out)).with_context(|| format!("cannot write below {}", out.display()))
}
