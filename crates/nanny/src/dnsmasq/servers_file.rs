//! The file from which dnsmasq reads its servers, at the start and on SIGHUP.

use wire::Nameserver;

use crate::config::routes::Routes;

/// Renders the octets of the file: a comment, `extra` (the lines of the user's own servers file),
/// and one line per server.
///
/// Every value in [`Routes`] has been validated, so no value can add a line or an option. `extra`
/// is copied unchanged; it may contain octets that are not UTF-8.
pub fn render(routes: &Routes, extra: &[u8]) -> Vec<u8> {
    let mut octets = b"# Written by the nanny; edits are overwritten.\n".to_vec();
    octets.extend_from_slice(extra);
    if !extra.is_empty() && !extra.ends_with(b"\n") {
        octets.push(b'\n');
    }

    for value in server_values(routes) {
        octets.extend_from_slice(format!("server={value}\n").as_bytes());
    }
    octets
}

/// The values of `server=`, or of `--server` on a command line: first [`Routes::own_names`], then
/// the stub domains, then the domains of the loop probes, then the servers from dnsmasq's command
/// line, and last the upstream servers.
pub fn server_values(routes: &Routes) -> Vec<String> {
    let mut values = Vec::new();
    for (name, server) in &routes.own_names {
        values.push(format!("/{name}/{}", format_address(*server)));
    }
    for (domain, servers) in &routes.stub_domains {
        for server in servers {
            values.push(format!("/{domain}/{}", format_address(*server)));
        }
    }
    for (domain, server) in &routes.probe_domains {
        values.push(format!("/{domain}/{}", format_address(*server)));
    }
    for server in &routes.argument_servers {
        values.push(server.value.clone());
    }
    for server in &routes.upstreams {
        values.push(format_address(*server));
    }
    values
}

/// `ip`, then `%interface` if the server has an interface, then `#port` unless the port is 53.
// kube-dns writes `[IPv6]#port`, but dnsmasq rejects the brackets.
fn format_address(server: Nameserver) -> String {
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
