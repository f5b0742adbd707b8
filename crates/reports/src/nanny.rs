//! The document of the nanny's page `/status`. It describes dnsmasq, the configuration, and the
//! routes (which servers dnsmasq uses for which names).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A field that only the nanny's own page has. A program that reads the status drops the field. So
/// the sidecar, whose status contains the status of the nanny, does not pass the field on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct NannyOnly<T>(Option<T>);

impl<T> NannyOnly<T> {
    /// The value; always `None` in a parsed status.
    pub fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }

    /// Whether there is no value, as in a parsed status.
    fn is_left_out(&self) -> bool {
        self.0.is_none()
    }
}

impl NannyOnly<u64> {
    /// Adds one.
    pub fn increment(&mut self) {
        self.0 = Some(self.0.unwrap_or_default() + 1);
    }
}

impl<T> From<T> for NannyOnly<T> {
    fn from(value: T) -> Self {
        Self(Some(value))
    }
}

/// The whole document. A missing value is written as null. A parsed status is written without the
/// [`NannyOnly`] fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NannyStatus {
    /// The version of the nanny.
    pub version: Option<String>,
    /// The commit that the nanny was built from, or `unknown`.
    pub commit: Option<String>,
    /// The time of the start of the nanny.
    pub started_at: Option<String>,
    /// The dnsmasq that the nanny supervises.
    pub dnsmasq: DnsmasqProcess,
    /// The configuration in force, and its edits.
    pub configuration: ConfigurationStatus,
    /// The servers for each name.
    pub routes: RoutesStatus,
}

/// The process of dnsmasq.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsmasqProcess {
    /// The version of dnsmasq.
    pub version: Option<String>,
    /// The options of dnsmasq from its command line and its configuration files, under their long
    /// names; without the options that the nanny adds.
    pub arguments: Vec<String>,
    /// Security fixes that this dnsmasq lacks.
    pub missing_fixes: Vec<String>,
    /// The process ID.
    #[serde(skip_deserializing, skip_serializing_if = "NannyOnly::is_left_out")]
    pub pid: NannyOnly<Option<i32>>,
    /// Whether dnsmasq runs: it has started, and has not ended.
    #[serde(skip_deserializing, skip_serializing_if = "NannyOnly::is_left_out")]
    pub up: NannyOnly<bool>,
    /// The time of the last start.
    pub started_at: Option<String>,
    /// Restarts by reason: `died`, `hung`, `configuration`.
    pub restarts: BTreeMap<String, u64>,
    /// The way in which the last process ended.
    pub last_end: Option<String>,
    /// The most recent deaths and hangs, oldest first. Planned restarts, such as for a new
    /// configuration, are not among them.
    pub recent_ends: Vec<DnsmasqEnd>,
}

/// An unplanned end of dnsmasq: it died, or it hung and the nanny killed it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsmasqEnd {
    /// The time.
    pub at: String,
    /// The way in which dnsmasq ended.
    pub how: String,
}

/// The configuration in force, and its edits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigurationStatus {
    /// The effect of an edit: `reload` or `restart`; `none` when edits are not applied.
    #[serde(skip_deserializing, skip_serializing_if = "NannyOnly::is_left_out")]
    pub edits_by: NannyOnly<&'static str>,
    /// The version of the configuration in force: a hash of all its values except the key
    /// `queryLog`.
    pub version: Option<String>,
    /// The time when that version was loaded.
    pub loaded_at: Option<String>,
    /// The number of edits that have come into force since the start.
    #[serde(skip_deserializing, skip_serializing_if = "NannyOnly::is_left_out")]
    pub edits: NannyOnly<u64>,
    /// The number of rejections since the start. A configuration that cannot be read counts, too.
    pub rejected: u64,
    /// The error of the newest configuration; null if that configuration is in force.
    pub error: Option<ConfigurationFault>,
    /// Warnings about unknown keys of the ConfigMap. Each warning is one line about one key.
    pub warnings: Vec<String>,
    /// Stub domains and their servers, as configured.
    pub stub_domains: BTreeMap<String, Vec<String>>,
    /// The servers for all other names, as configured.
    pub upstream_nameservers: Vec<String>,
    /// The number of times that dnsmasq has reloaded its servers.
    #[serde(skip_deserializing, skip_serializing_if = "NannyOnly::is_left_out")]
    pub reloads: NannyOnly<u64>,
    /// The time of the last reload.
    #[serde(skip_deserializing, skip_serializing_if = "NannyOnly::is_left_out")]
    pub last_reload_at: NannyOnly<Option<String>>,
}

/// The error of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigurationFault {
    /// The description of the error. If a value is wrong, the text contains the accepted form.
    pub text: Option<String>,
    /// The key, if a value was wrong.
    #[serde(skip_deserializing, skip_serializing_if = "NannyOnly::is_left_out")]
    pub key: NannyOnly<Option<String>>,
    /// The wrong value.
    #[serde(skip_deserializing, skip_serializing_if = "NannyOnly::is_left_out")]
    pub value: NannyOnly<Option<String>>,
    /// The time of the rejection.
    pub at: Option<String>,
}

/// The servers that dnsmasq uses now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoutesStatus {
    /// The server addresses of each stub domain; server names are resolved.
    pub stub_domains: BTreeMap<String, Vec<String>>,
    /// The servers for all other names.
    pub upstreams: Vec<String>,
    /// The source of `upstreams`: `configuration`, `resolv.conf` or `kubedns`. With `kubedns`, the
    /// only upstream is kubedns or the `servfail_server`.
    pub upstreams_from: Option<String>,
    /// The address of kubedns. If the servers for a name include this address and `loops` does not,
    /// dnsmasq can forward queries for the name to kubedns.
    pub kubedns_server: Option<String>,
    /// The servers that dnsmasq's arguments give for all other names. dnsmasq queries these servers
    /// in addition to `upstreams`.
    pub argument_servers: Vec<String>,
    /// Whether dnsmasq queries only `upstreams` and `argument_servers` for external names. False if
    /// dnsmasq itself reads resolv.conf, or if its arguments may name other servers.
    pub lists_all_upstreams: bool,
    /// Names of stub domain servers that have no address yet.
    pub unresolved: BTreeSet<String>,
    /// Servers left out because queries to them come back to dnsmasq.
    pub loops: BTreeSet<String>,
    /// The address at which the nanny answers every query with SERVFAIL. dnsmasq forwards the
    /// queries for a stub domain to this address if the domain has no usable server. Until kubedns
    /// is known to have the nanny's configuration, queries that only kubedns can forward, for
    /// example over TLS, also go to this address.
    #[serde(rename = "nowhere")]
    pub servfail_server: Option<String>,
    /// The version of the configuration that kubedns reports, if the nanny polls kubedns.
    pub kubedns_configuration: Option<String>,
    /// The reason why the newest routes are pending; null when dnsmasq has them.
    pub pending: Option<PendingRoutes>,
}

/// Routes that are not yet in force in dnsmasq.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PendingRoutes {
    /// The reason.
    pub reason: Option<String>,
    /// The time since which dnsmasq has lacked the newest routes.
    pub since: Option<String>,
}

impl NannyStatus {
    /// The status of a nanny that has just started.
    pub fn of_start(version: &str, commit: &str) -> Self {
        // The nanny's own page always has every field. So each `NannyOnly` field gets a value,
        // which may be null.
        Self {
            version: Some(version.to_owned()),
            commit: Some(commit.to_owned()),
            started_at: None,
            dnsmasq: DnsmasqProcess {
                version: Some(String::new()),
                pid: None.into(),
                up: false.into(),
                ..DnsmasqProcess::default()
            },
            configuration: ConfigurationStatus {
                edits_by: "".into(),
                version: Some(String::new()),
                edits: 0.into(),
                reloads: 0.into(),
                last_reload_at: None.into(),
                ..ConfigurationStatus::default()
            },
            routes: RoutesStatus {
                upstreams_from: Some(String::new()),
                ..RoutesStatus::default()
            },
        }
    }

    /// Parses a document.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("not a status of the nanny: {error}"))
    }
}

impl RoutesStatus {
    /// Whether dnsmasq forwards the names of `route` to kubedns. The route is a stub domain or
    /// [`EXTERNAL_NAMES`](crate::EXTERNAL_NAMES). The names of a domain that is not in
    /// `stub_domains` are external names. For external names, the result is also true while the
    /// `servfail_server` takes the place of kubedns.
    pub fn forwards_to_kubedns(&self, route: &str) -> bool {
        if let Some(servers) = self.stub_domains.get(route) {
            return self.has_kubedns(servers);
        }
        let is_upstream = self.upstreams_from.as_deref() == Some("kubedns");
        is_upstream || self.has_kubedns(&self.argument_servers)
    }

    /// Whether kubedns is one of `servers` and is not in `loops`.
    fn has_kubedns(&self, servers: &[String]) -> bool {
        let kubedns = self.kubedns_server.as_ref();
        kubedns.is_some_and(|server| servers.contains(server) && !self.loops.contains(server))
    }

    /// The servers from dnsmasq's arguments that dnsmasq queries for external names in addition to
    /// kubedns or `upstreamNameservers`. Empty if the source of `upstreams` is resolv.conf or not
    /// known.
    pub fn added_servers(&self) -> Vec<String> {
        match self.upstreams_from.as_deref() {
            Some("configuration" | "kubedns") => {
                let mut servers = self.argument_servers.clone();
                servers.retain(|server| !self.upstreams.contains(server));
                servers
            }
            _ => Vec::new(),
        }
    }

    /// Whether dnsmasq is known to have no server for external names. The result is false if a
    /// server for external names was only left out because of a loop. `loops` does not say whether
    /// a server was for external names or for a stub domain. So the result is false if `loops`
    /// contains any server.
    pub fn lacks_upstreams(&self) -> bool {
        // Until the first routes are in force, their source is empty or unknown.
        let source = self.upstreams_from.as_deref().unwrap_or_default();
        let is_known = !source.is_empty() && self.lists_all_upstreams;
        let lists = [&self.upstreams, &self.argument_servers];
        is_known && self.loops.is_empty() && lists.iter().all(|servers| servers.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_have_defaults() {
        assert_eq!(NannyStatus::parse("{}"), Ok(NannyStatus::default()));
        assert_eq!(
            NannyStatus::parse("{\"dnsmasq\":{},\"configuration\":{\"error\":null},\"new\":[1]}"),
            Ok(NannyStatus::default())
        );

        let error = NannyStatus::parse("<html>").unwrap_err();
        assert!(error.starts_with("not a status of the nanny: "), "{error}");
        assert!(NannyStatus::parse("7").is_err());
    }

    #[test]
    fn rejected_configuration_is_read() {
        let text = r#"{
            "dnsmasq": {"version": "2.90", "pid": 7, "up": true, "restarts": {"died": 1, "hung": 0}, "missingFixes": []},
            "configuration": {
                "version": "00ff", "loadedAt": "2026-11-21T01:00:00.000Z", "edits": 3, "rejected": 1,
                "error": {"text": "stubDomains: not JSON", "key": "stubDomains", "value": "[", "at": "2026-11-21T02:00:00.000Z"},
                "stubDomains": {"acme.local": ["192.0.2.1"]}, "upstreamNameservers": []
            },
            "routes": {"stubDomains": {"acme.local": ["192.0.2.1#53"]}, "upstreams": ["192.0.2.9"], "upstreamsFrom": "resolv.conf",
                       "unresolved": [], "loops": ["127.0.0.53"]}
        }"#;
        let nanny = NannyStatus::parse(text).unwrap();
        assert_eq!(nanny.dnsmasq.restarts["died"], 1);
        assert_eq!(
            nanny.configuration.error.unwrap().text.as_deref(),
            Some("stubDomains: not JSON")
        );
        assert_eq!(
            nanny.configuration.stub_domains["acme.local"],
            ["192.0.2.1"]
        );
        assert!(nanny.routes.loops.contains("127.0.0.53"));
    }

    /// The nanny's document has every field, even fields without a value. The document that the
    /// sidecar passes on lacks the fields that only the nanny's own page has.
    #[test]
    fn readers_leave_out_nanny_fields() {
        let mut status = NannyStatus::of_start("1.2.3", "abc1234");
        status.configuration.error = Some(ConfigurationFault {
            text: Some("not JSON".to_owned()),
            key: Some("stubDomains".to_owned()).into(),
            value: None.into(),
            at: Some("noon".to_owned()),
        });
        let written = serde_json::to_string(&status).unwrap();
        let whole = "{\"version\":\"1.2.3\",\"commit\":\"abc1234\",\
            \"startedAt\":null,\"dnsmasq\":{\"version\":\"\",\"arguments\":[],\"missingFixes\":[],\"pid\":null,\"up\":false,\
            \"startedAt\":null,\"restarts\":{},\"lastEnd\":null,\"recentEnds\":[]},\
            \"configuration\":{\"editsBy\":\"\",\"version\":\"\",\"loadedAt\":null,\"edits\":0,\
            \"rejected\":0,\"error\":{\"text\":\"not JSON\",\"key\":\"stubDomains\",\
            \"value\":null,\"at\":\"noon\"},\"warnings\":[],\"stubDomains\":{},\
            \"upstreamNameservers\":[],\"reloads\":0,\"lastReloadAt\":null},\
            \"routes\":{\"stubDomains\":{},\"upstreams\":[],\"upstreamsFrom\":\"\",\"kubednsServer\":null,\
            \"argumentServers\":[],\"listsAllUpstreams\":false,\"unresolved\":[],\"loops\":[],\"nowhere\":null,\"kubednsConfiguration\":null,\
            \"pending\":null}}";
        assert_eq!(written, whole);

        let mut passed_on = whole.to_owned();
        for left_out in [
            "\"pid\":null,\"up\":false,",
            "\"editsBy\":\"\",",
            "\"edits\":0,",
            "\"key\":\"stubDomains\",\"value\":null,",
            ",\"reloads\":0,\"lastReloadAt\":null",
        ] {
            passed_on = passed_on.replacen(left_out, "", 1);
        }
        let read = NannyStatus::parse(&written).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), passed_on);
    }
}
