//! Renders `THIRD-PARTY-LICENCES.md`, the list of third-party software in the programs and images.
//! Only the table of crates comes from the dependency graph.

use std::collections::BTreeMap;

use super::graph::{Graph, Package};

/// Our programs that have images.
pub const PROGRAMS: [&str; 3] = ["kubedns", "nanny", "sidecar"];

const HEAD: &str = "\
# Third-party licences

This page lists the third-party software in our programs and images. It describes images that are built on Debian or Ubuntu
(*the distribution*), with the default `BASE_IMAGE`. kube-dns-rs itself is under the [Apache License 2.0](LICENSE).

## In the nanny's image: dnsmasq

The nanny runs [dnsmasq](https://thekelleys.org.uk/dnsmasq/doc.html), copyright Simon Kelley, as a separate program; no
part of dnsmasq is linked into our programs. dnsmasq is free software under the GNU General Public License, version 2 or
version 3. The executable is the unchanged file of the distribution's package `dnsmasq-base`. In the image,
`/usr/share/doc/dnsmasq-base/copyright` has the licence, and `/var/lib/dpkg/status.d/dnsmasq-base` has the version. The
complete source, with the distribution's patches, is the source package of this version: `apt-get source dnsmasq=VERSION`.
`https://snapshot.debian.org/package/dnsmasq/` also keeps versions that Debian's archive no longer has. The libraries that
dnsmasq needs are in the image, too, with their licences in `/usr/share/doc`.

## In the image of kubedns: CA certificates

The image of kubedns has the CA certificates of the distribution's package `ca-certificates`, for upstreams over TLS. In the
image, `/usr/share/doc/kube-dns-rs/ca-certificates-copyright` has their licences.

## In our programs: the C library

The programs in the images are static: they contain parts of the distribution's GNU C Library, under the GNU Lesser General
Public License, version 2.1 or later. In the images, `/usr/share/doc/kube-dns-rs/libc6-copyright` has the licence. The source
is the distribution's source package `glibc`; the list of components of an image, which `images/sbom` prints, has the version. To link the
programs with another C library, build them again from our sources with `images/programs`.

## In our programs: Rust crates

The table lists the crates from which `kubedns`, `nanny` and `sidecar` are built for Linux. It includes macros and the crates
that only macros need, although these run only during the build. The licences are those that the authors name. If the authors
offer a choice, we use a licence that `deny.toml` allows. The standard library of Rust is under MIT or Apache-2.0. Each link
opens the crate's page on crates.io, with links to its source and its owners. The images have the texts of the licences in
`/usr/share/doc/kube-dns-rs/third-party-licences.txt.gz` (`images/licences` gathers them). The command
`UPDATE_LICENCES_PAGE=1 cargo test -p tests --test supply_chain` regenerates this page.

| crate | version | licence | programs |
| --- | --- | --- | --- |
";

/// Renders the page as Markdown.
pub fn render(graph: &Graph) -> String {
    let mut programs: BTreeMap<&Package, Vec<&str>> = BTreeMap::new();
    for program in PROGRAMS {
        for package in graph.of_program(program) {
            programs.entry(package).or_default().push(program);
        }
    }
    let lines = programs.iter().map(|(package, programs)| {
        let Package {
            name,
            version,
            license,
            ..
        } = package;
        let licence = license.as_deref().unwrap_or("none named");
        let link = format!("https://crates.io/crates/{name}/{version}");
        format!(
            "| [{name}]({link}) | {version} | {licence} | {} |\n",
            programs.join(", ")
        )
    });
    std::iter::once(HEAD.to_owned()).chain(lines).collect()
}
