//! The file from which dnsmasq reads its servers, at the start and on SIGHUP.

use std::fmt::Write as _;

use wire::Nameserver;

use crate::config::routes::Routes;

/// Renders the text of the file: `extra` (the lines of the user's own servers file) first, then one
/// line per server.
///
/// Every value in [`Routes`] has been validated, so no value can add a line or an option. `extra`
/// is copied unchanged.
pub fn render(routes: &Routes, extra: &str) -> String {
    let mut text = String::from("# Written by the nanny; edits are overwritten.\n");
    text.push_str(extra);
    if !extra.is_empty() && !extra.ends_with('\n') {
        text.push('\n');
    }
    for value in values(routes) {
        let _ = writeln!(text, "server={value}");
    }
    text
}

/// The values of `server=`, or of `--server` on a command line: first the names in `hosts` and
/// `aliases`, then stub domains, then the upstream servers.
pub fn values(routes: &Routes) -> Vec<String> {
    let own = routes.own_names.iter();
    let mut values: Vec<String> = own
        .map(|(name, server)| format!("/{name}/{}", address(*server)))
        .collect();
    for (domain, servers) in &routes.stub_domains {
        values.extend(
            servers
                .iter()
                .map(|server| format!("/{domain}/{}", address(*server))),
        );
    }
    values.extend(routes.upstreams.iter().map(|server| address(*server)));
    values
}

/// `ip`, then `%interface` if the server has an interface, then `#port` unless the port is 53.
// Differs from kube-dns, which writes `[IPv6]#port`: dnsmasq rejects the brackets.
fn address(server: Nameserver) -> String {
    let interface = server
        .interface()
        .map(|name| format!("%{name}"))
        .unwrap_or_default();
    match server.port {
        wire::DNS_PORT => format!("{}{interface}", server.ip),
        port => format!("{}{interface}#{port}", server.ip),
    }
}

#[cfg(test)]
mod tests;
