//! Checks the sources of the crates in `Cargo.lock`, which lists the crates for all platforms.

/// The only permitted source of third-party crates.
pub const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The names of third-party crates whose source is not [`REGISTRY`], or that have no checksum.
/// Crates without a source are our own.
pub fn foreign_packages(lock: &str) -> Vec<String> {
    let packages = lock.split("[[package]]").skip(1);
    let strange = packages.filter(|package| match field(package, "source") {
        None => false,
        Some(source) => source != REGISTRY || field(package, "checksum").is_none(),
    });
    strange
        .map(|package| {
            field(package, "name")
                .unwrap_or("without a name")
                .to_owned()
        })
        .collect()
}

fn field<'p>(package: &'p str, name: &str) -> Option<&'p str> {
    let value = |line: &'p str| {
        line.strip_prefix(name)?
            .strip_prefix(" = \"")?
            .strip_suffix('"')
    };
    package.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_source_or_missing_checksum_is_found() {
        let package = |name: &str, rest: &str| format!("[[package]]\nname = \"{name}\"\n{rest}\n");
        let lock = [
            package("ours", "version = \"0.1.0\""),
            package(
                "good",
                &format!("source = \"{REGISTRY}\"\nchecksum = \"00\""),
            ),
            package("unchecked", &format!("source = \"{REGISTRY}\"")),
            package("git", "source = \"git+https://example.com/x#00\""),
            package(
                "elsewhere",
                "source = \"registry+https://example.com/index\"\nchecksum = \"00\"",
            ),
        ];
        let foreign = foreign_packages(&lock.concat());
        assert_eq!(foreign, ["unchecked", "git", "elsewhere"]);
    }
}
