//! The configuration in force, and the last one that was refused.

use std::fmt::Write as _;

use super::facts::unknown;
use super::text::escape;
use crate::peers::Nanny;
use crate::status::Status;

/// The section of the page.
pub(super) fn section(out: &mut String, status: &Status) {
    out.push_str("<section aria-label=\"configuration\">\n<h2>Configuration</h2>\n");
    if let Some(nanny) = &status.nanny.known {
        in_force(out, nanny);
        refused(out, nanny);
    } else {
        let why = unknown("configuration", &status.nanny.source, status.nanny.error.as_deref());
        let _ = writeln!(out, "<p>{}</p>", escape(&why));
    }
    out.push_str("</section>\n");
}

fn in_force(out: &mut String, nanny: &Nanny) {
    let (configuration, routes) = (&nanny.configuration, &nanny.routes);
    let known = |text: &Option<String>| escape(text.as_deref().unwrap_or("unknown"));
    let _ = writeln!(
        out,
        "<p>version {} in force since {}</p>\n<table><tr><th>names<th>servers<th>as configured</tr>",
        known(&configuration.version),
        known(&configuration.loaded_at)
    );
    for (domain, servers) in &configuration.stub_domains {
        let now = routes.stub_domains.get(domain).map(|servers| servers.join(" ")).unwrap_or_default();
        row(out, domain, &now, &servers.join(" "));
    }
    let from = match configuration.upstream_nameservers.as_slice() {
        // With --no-resolv and without upstreamNameservers, nobody else is asked than dnsmasq's command line says.
        [] if routes.upstreams.is_empty() => "the arguments of dnsmasq".to_owned(),
        [] => routes.upstreams_from.clone().unwrap_or_default(),
        servers => servers.join(" "),
    };
    row(out, "everything else", &routes.upstreams.join(" "), &from);
    out.push_str("</table>\n");
    let note = |out: &mut String, what: &str, servers: &std::collections::BTreeSet<String>| {
        if !servers.is_empty() {
            let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
            let _ = writeln!(out, "<p class=\"failed\">{what}: {}</p>", escape(&servers.join(" ")));
        }
    };
    note(out, "servers whose names have no address", &routes.unresolved);
    note(out, "servers left out because their queries come back", &routes.loops);
    if let Some(pending) = &routes.pending {
        let _ = writeln!(
            out,
            "<p class=\"failed\">dnsmasq has not got the newest servers since {}: {}</p>",
            known(&pending.since),
            known(&pending.reason)
        );
    }
}

fn row(out: &mut String, names: &str, servers: &str, configured: &str) {
    let shown = |text: &str| if text.is_empty() { "-".to_owned() } else { escape(text) };
    let (names, servers, configured) = (shown(names), shown(servers), shown(configured));
    let _ = writeln!(out, "<tr><td>{names}<td>{servers}<td>{configured}</tr>");
}

fn refused(out: &mut String, nanny: &Nanny) {
    match (&nanny.configuration.error, nanny.configuration.rejected) {
        (Some(refusal), _) => {
            let _ = writeln!(
                out,
                "<p class=\"failed\">the newest one was refused {}</p>\n<pre>{}</pre>",
                escape(refusal.at.as_deref().unwrap_or_default()),
                escape(refusal.text.as_deref().unwrap_or("unknown why"))
            );
        }
        (None, 0) => out.push_str("<p>none was refused</p>\n"),
        (None, count) => {
            let _ = writeln!(out, "<p>the newest one is good; {count} were refused before</p>");
        }
    }
}
