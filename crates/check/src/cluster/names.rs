//! Queries one name of every kind from the DNS server of the clients.

use std::net::IpAddr;
use std::str::FromStr as _;
use std::time::Duration;

use dnsclient::{TIMEOUT, query_with_tcp_retry, rcode_name};
use futures::future::join_all;
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use wire::ServerAddr;

use super::Options;
use super::api::Cluster;
use super::report::{Check, counted, milliseconds};

const GROUP: &str = "names";
/// Bound of the headless Services to query until one has addresses.
const HEADLESS: usize = 5;
/// Bound of the stub domains to query.
const STUB_DOMAINS: usize = 20;

/// The DNS server to query, and the cluster domain without a dot at the end.
struct Names<'a> {
    server: ServerAddr,
    domain: &'a str,
}

/// The records of an answer, and its latency.
struct Answer {
    records: Vec<RData>,
    time: Duration,
}

/// The failure of a query: the RCODE, if there was a response, and a description.
struct Missing {
    rcode: Option<ResponseCode>,
    words: String,
}

/// Checks names of all kinds.
pub(super) async fn checks(
    options: &Options,
    cluster: &Cluster,
    stub_domains: &[String],
) -> Vec<Check> {
    let Ok(server) = ServerAddr::from_str(&options.dns) else {
        return Vec::new();
    };
    let names = Names {
        server,
        domain: options.domain.first.bare(),
    };
    let (mut checks, address) = names.of_kubernetes(cluster).await;
    checks.push(names.srv().await);
    checks.push(match address {
        Some(address) => names.pointer(address).await,
        None => Check::skipped(
            GROUP,
            "the PTR record of a cluster IP: there is none to ask for",
        ),
    });
    let (check, member) = names.headless(cluster).await;
    checks.push(check);
    checks.push(names.pod(member).await);
    if !options.external_name.is_empty() {
        checks.push(
            names
                .external(&options.external_name, RecordType::A, "an external name")
                .await,
        );
    }
    let stubs = stub_domains.iter().take(STUB_DOMAINS);
    checks.extend(
        join_all(stubs.map(|stub| names.external(stub, RecordType::SOA, "a stub domain"))).await,
    );
    checks
}

impl Names<'_> {
    async fn ask(&self, name: &str, kind: RecordType) -> Result<Answer, Missing> {
        let wrong = |words: String| Missing { rcode: None, words };
        let parsed = Name::from_ascii(format!("{}.", name.trim_end_matches('.')));
        let parsed = parsed.map_err(|error| wrong(error.to_string()))?;
        let asked = query_with_tcp_retry(&self.server, &Query::query(parsed, kind), TIMEOUT).await;
        let answer = asked.map_err(|error| wrong(error.to_string()))?;
        let rcode = answer.message.metadata.response_code;
        let of_kind = answer
            .message
            .answers
            .iter()
            .filter(|record| record.record_type() == kind);
        let records: Vec<RData> = of_kind.map(|record| record.data.clone()).collect();
        if rcode == ResponseCode::NoError && !records.is_empty() {
            return Ok(Answer {
                records,
                time: answer.latency,
            });
        }
        let words = format!(
            "{} {}",
            rcode_name(rcode),
            if rcode == ResponseCode::NoError {
                "without records"
            } else {
                ""
            }
        );
        Err(Missing {
            rcode: Some(rcode),
            words: words.trim_end().to_owned(),
        })
    }

    /// Queries A, and AAAA if A is NODATA.
    async fn addresses(&self, name: &str) -> Result<(Vec<IpAddr>, Duration), Missing> {
        let asked = match self.ask(name, RecordType::A).await {
            Err(Missing {
                rcode: Some(ResponseCode::NoError),
                ..
            }) => self.ask(name, RecordType::AAAA).await,
            asked => asked,
        };
        let Answer { records, time } = asked?;
        Ok((records.iter().filter_map(RData::ip_addr).collect(), time))
    }

    /// Checks Service `default/kubernetes`, which exists in every cluster, and returns its address.
    async fn of_kubernetes(&self, cluster: &Cluster) -> (Vec<Check>, Option<IpAddr>) {
        let name = format!("kubernetes.default.svc.{}", self.domain);
        let (addresses, time) = match self.addresses(&name).await {
            Ok(found) => found,
            Err(missing) => {
                return (
                    vec![failed("a cluster IP", &name, &missing)],
                    cluster.kubernetes,
                );
            }
        };
        let known = cluster.kubernetes;
        let shown = addresses
            .iter()
            .map(IpAddr::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        let check = if known.is_some_and(|known| !addresses.contains(&known)) {
            let right = known.map(|known| known.to_string()).unwrap_or_default();
            Check::failed(
                GROUP,
                format!("a cluster IP: {name} is {shown}, and {right} at the API server"),
            )
            .with_advice(
                "Check that the pod watches this cluster, and when it last received a change.",
                "records-late",
            )
        } else {
            Check::passed(
                GROUP,
                format!("a cluster IP: {name} is {shown} ({})", milliseconds(time)),
            )
        };
        (vec![check], addresses.first().copied().or(known))
    }

    async fn srv(&self) -> Check {
        let name = format!("_https._tcp.kubernetes.default.svc.{}", self.domain);
        match self.ask(&name, RecordType::SRV).await {
            Ok(Answer { records, time }) => {
                let ports: Vec<String> = records
                    .iter()
                    .filter_map(|data| match data {
                        RData::SRV(srv) => Some(srv.port.to_string()),
                        _ => None,
                    })
                    .collect();
                let ports = ports.join(", ");
                Check::passed(
                    GROUP,
                    format!(
                        "a named port: {name} is port {ports} ({})",
                        milliseconds(time)
                    ),
                )
            }
            Err(missing) => failed("a named port", &name, &missing),
        }
    }

    async fn pointer(&self, address: IpAddr) -> Check {
        let name = Name::from(address)
            .to_ascii()
            .trim_end_matches('.')
            .to_owned();
        match self.ask(&name, RecordType::PTR).await {
            Ok(Answer { records, time }) => {
                let targets = records
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ");
                Check::passed(
                    GROUP,
                    format!(
                        "the name of an address: {address} is {targets} ({})",
                        milliseconds(time)
                    ),
                )
            }
            Err(missing) => failed("the name of an address", &name, &missing),
        }
    }

    /// Checks the first headless Service that has addresses. Returns its namespace and one of its
    /// addresses.
    async fn headless(&self, cluster: &Cluster) -> (Check, Option<(IpAddr, String)>) {
        const KIND: &str = "a headless Service";
        if cluster.headless.is_empty() {
            return (
                Check::skipped(GROUP, format!("{KIND}: none is known")),
                None,
            );
        }
        for (namespace, service) in cluster.headless.iter().take(HEADLESS) {
            let name = format!("{service}.{namespace}.svc.{}", self.domain);
            match self.addresses(&name).await {
                Ok((addresses, time)) => {
                    let count = counted(addresses.len(), "address", "addresses");
                    let text = format!("{KIND}: {name} has {count} ({})", milliseconds(time));
                    let member = addresses
                        .first()
                        .map(|address| (*address, namespace.clone()));
                    return (Check::passed(GROUP, text), member);
                }
                // This Service has no ready endpoints; try the next.
                Err(Missing {
                    rcode: Some(ResponseCode::NoError | ResponseCode::NXDomain),
                    ..
                }) => {}
                Err(missing) => return (failed(KIND, &name, &missing), None),
            }
        }
        (
            Check::skipped(
                GROUP,
                format!("{KIND}: no queried Service has ready endpoints"),
            ),
            None,
        )
    }

    async fn pod(&self, member: Option<(IpAddr, String)>) -> Check {
        let (address, namespace) =
            member.unwrap_or((IpAddr::from([10, 0, 0, 1]), "default".to_owned()));
        let label = address.to_string().replace(['.', ':'], "-");
        let name = format!("{label}.{namespace}.pod.{}", self.domain);
        let kind = if address.is_ipv4() {
            RecordType::A
        } else {
            RecordType::AAAA
        };
        match self.ask(&name, kind).await {
            Ok(Answer { time, .. }) => Check::passed(
                GROUP,
                format!("a pod: {name} is {address} ({})", milliseconds(time)),
            ),
            Err(Missing {
                rcode: Some(ResponseCode::NXDomain),
                ..
            }) => Check::skipped(
                GROUP,
                format!("a pod: {name} does not exist, as with --pods=disabled or verified"),
            ),
            Err(missing) => failed("a pod", &name, &missing),
        }
    }

    /// Checks a forwarded name. NXDOMAIN and NODATA count as answers.
    async fn external(&self, name: &str, kind: RecordType, what: &str) -> Check {
        match self.ask(name, kind).await {
            Ok(Answer { time, .. }) => Check::passed(
                GROUP,
                format!("{what}: {name} is answered ({})", milliseconds(time)),
            ),
            Err(Missing {
                rcode: Some(ResponseCode::NoError | ResponseCode::NXDomain),
                words,
            }) => Check::passed(GROUP, format!("{what}: {name} is answered ({words})")),
            Err(Missing { words, .. }) => {
                Check::failed(GROUP, format!("{what}: {name} is not answered"))
                    .with_detail(words)
                    .with_advice(
                        "Ask the upstreams with dig from the node; see the group upstreams.",
                        "upstream-down",
                    )
            }
        }
    }
}

/// A failed check of a cluster name.
fn failed(kind: &str, name: &str, missing: &Missing) -> Check {
    let section = match missing.rcode {
        Some(ResponseCode::Refused) => "not-synced",
        Some(ResponseCode::ServFail) => "servfail",
        Some(ResponseCode::NoError | ResponseCode::NXDomain) => "a-name-is-missing",
        _ => "no-answers",
    };
    let action = match missing.rcode {
        Some(_) => format!("Ask why: kube-dns explain {name}."),
        None => "See above which part does not answer.".to_owned(),
    };
    Check::failed(GROUP, format!("{kind}: {name} is not answered"))
        .with_detail(&missing.words)
        .with_advice(action, section)
}
