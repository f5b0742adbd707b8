//! Extracts the name from pasted text: a URL, a name with a port, `svc/NAME` of kubectl, or
//! `NAMESPACE/NAME`.

use std::net::IpAddr;

use wire::rfc1123::is_label;

/// The name or the address in `text`; the whole text if no form matches. An IPv4-mapped IPv6
/// address becomes the IPv4 address.
pub(super) fn name_in_text(text: &str) -> String {
    // The scheme is checked first, because a URL contains slashes as well.
    let name = match (text.split_once("://"), text.split_once('/')) {
        (Some((_, rest)), _) => without_port(authority_of_url(rest)).to_owned(),
        (None, Some(("svc" | "service" | "services", name))) => without_port(name).to_owned(),
        (None, Some((namespace, name))) if is_label(namespace) && is_label(without_port(name)) => {
            format!("{}.{namespace}", without_port(name))
        }
        // Without a port, a slash may be part of the name, as in 0/25.2.0.192.in-addr.arpa.
        (None, Some((host, _))) if without_port(host) != host => without_port(host).to_owned(),
        _ => without_port(text).to_owned(),
    };

    match name.parse::<IpAddr>() {
        Ok(address) if address != address.to_canonical() => address.to_canonical().to_string(),
        _ => name,
    }
}

/// Host and port in `rest`, a URL without its scheme.
fn authority_of_url(rest: &str) -> &str {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

fn without_port(host: &str) -> &str {
    let host = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    };

    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    #[test]
    fn pasted_text_yields_name() {
        for (text, expected) in [
            ("web.default:80", "web.default"),
            ("web.default.:80", "web.default."),
            ("svc/web", "web"),
            ("service/web.apps:80", "web.apps"),
            ("apps/web", "web.apps"),
            ("apps/web:80", "web.apps"),
            ("10.96.0.2:80", "10.96.0.2"),
            ("[fd00::1]:80", "fd00::1"),
            ("[fd00::1]", "fd00::1"),
            ("::ffff:10.96.0.10", "10.96.0.10"),
            ("[::ffff:10.96.0.10]:80", "10.96.0.10"),
            ("http://web.apps:80/x", "web.apps"),
            ("postgres://u:p@db.apps/x?y#z", "db.apps"),
            ("http://[::1]:80", "::1"),
            ("web.apps:80/healthz", "web.apps"),
            ("://", ""),
            // No form matches, so the whole text is the name.
            ("fd00::10", "fd00::10"),
            ("FD00::1A", "FD00::1A"),
            ("web:http", "web:http"),
            ("0/25.2.0.192.in-addr.arpa", "0/25.2.0.192.in-addr.arpa"),
            (
                "_http._tcp.*.apps.svc.cluster.local.",
                "_http._tcp.*.apps.svc.cluster.local.",
            ),
        ] {
            assert_eq!(super::name_in_text(text), expected, "{text}");
        }
    }
}
