//! Sends queries for cluster names, an external name and stub domains to the DNS server that
//! clients query.

use std::net::IpAddr;
use std::str::FromStr as _;
use std::time::Duration;

use cluster::objects::ObjectKey;
use dnsclient::{TIMEOUT, query_with_tcp_retry, rcode_name};
use futures::future::join_all;
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use wire::ServerAddr;

use super::Options;
use super::api_server::KnownServices;
use super::report::{CheckLine, counted, milliseconds};

const GROUP: &str = "names";
/// Maximum number of headless Services to query in search of one that has addresses.
const MAX_HEADLESS: usize = 5;
/// Maximum number of stub domains to query.
const MAX_STUB_DOMAINS: usize = 20;

/// The DNS server to query, and the cluster domain without a dot at the end.
struct NameChecks<'a> {
    server: ServerAddr,
    domain: &'a str,
}

/// The records of an answer, and its latency.
struct RecordAnswer {
    records: Vec<RData>,
    time: Duration,
}

/// The addresses of a name, and the latency of the answer.
struct AddressAnswer {
    addresses: Vec<IpAddr>,
    time: Duration,
}

/// The failure of a query: the RCODE, if there was a response, and a description.
struct QueryFailure {
    rcode: Option<ResponseCode>,
    words: String,
}

/// A check of a Service, and an address of that Service, if one is known.
struct AddressCheck {
    check: CheckLine,
    address: Option<IpAddr>,
}

/// An address of a headless Service, with the namespace of that Service.
struct ServiceMember {
    address: IpAddr,
    namespace: String,
}

/// Checks cluster names of several kinds, the external name if `options` has one, and at most
/// [`MAX_STUB_DOMAINS`] stub domains.
pub(super) async fn check_names(
    options: &Options,
    services: &KnownServices,
    stub_domains: &[String],
) -> Vec<CheckLine> {
    // The command checks the flag `--dns` before the first check runs.
    let Ok(server) = ServerAddr::from_str(&options.dns) else {
        return Vec::new();
    };
    let names = NameChecks {
        server,
        domain: options.domain.first.bare(),
    };

    // The order matters: later queries use addresses from earlier answers.
    let kubernetes = names.check_cluster_ip(services.kubernetes).await;
    let srv = names.check_named_port().await;
    let pointer = names.check_pointer(kubernetes.address).await;
    let (headless, member) = names.check_headless(&services.headless).await;
    let pod = names.check_pod_name(member).await;
    let mut checks = vec![kubernetes.check, srv, pointer, headless, pod];

    if !options.external_name.is_empty() {
        let name = &options.external_name;
        let external = names.check_forwarded(name, RecordType::A, "an external name");
        checks.push(external.await);
    }
    // The stub domains are queried at the same time, so that a stub domain without an answer does
    // not delay the others.
    let stubs = stub_domains.iter().take(MAX_STUB_DOMAINS);
    let stubs = stubs.map(|stub| names.check_forwarded(stub, RecordType::SOA, "a stub domain"));
    checks.extend(join_all(stubs).await);
    checks
}

impl QueryFailure {
    fn without_response(error: &impl ToString) -> Self {
        Self {
            rcode: None,
            words: error.to_string(),
        }
    }

    fn of_response(rcode: ResponseCode) -> Self {
        let name = rcode_name(rcode);
        let words = if rcode == ResponseCode::NoError {
            format!("{name} without records")
        } else {
            name
        };
        Self {
            rcode: Some(rcode),
            words,
        }
    }

    /// Whether the response says that the queried records do not exist.
    fn is_negative_answer(&self) -> bool {
        matches!(
            self.rcode,
            Some(ResponseCode::NoError | ResponseCode::NXDomain)
        )
    }
}

impl NameChecks<'_> {
    async fn query(&self, name: &str, kind: RecordType) -> Result<RecordAnswer, QueryFailure> {
        let name = Name::from_ascii(format!("{}.", name.trim_end_matches('.')))
            .map_err(|error| QueryFailure::without_response(&error))?;
        let answer = query_with_tcp_retry(&self.server, &Query::query(name, kind), TIMEOUT)
            .await
            .map_err(|error| QueryFailure::without_response(&error))?;

        // Only records of the queried type are returned. Other records of the answer, such as CNAME
        // records, are skipped.
        let rcode = answer.message.metadata.response_code;
        let mut records = Vec::new();
        for record in &answer.message.answers {
            if record.record_type() == kind {
                records.push(record.data.clone());
            }
        }
        if rcode != ResponseCode::NoError || records.is_empty() {
            return Err(QueryFailure::of_response(rcode));
        }
        Ok(RecordAnswer {
            records,
            time: answer.latency,
        })
    }

    /// Queries A records. If the answer is NODATA, queries AAAA records, because the Service may
    /// have only IPv6 addresses.
    async fn query_addresses(&self, name: &str) -> Result<AddressAnswer, QueryFailure> {
        match self.query_addresses_of_type(name, RecordType::A).await {
            Err(failure) if failure.rcode == Some(ResponseCode::NoError) => {
                self.query_addresses_of_type(name, RecordType::AAAA).await
            }
            answer => answer,
        }
    }

    async fn query_addresses_of_type(
        &self,
        name: &str,
        record_type: RecordType,
    ) -> Result<AddressAnswer, QueryFailure> {
        let answer = self.query(name, record_type).await?;
        Ok(AddressAnswer {
            addresses: answer.records.iter().filter_map(RData::ip_addr).collect(),
            time: answer.time,
        })
    }

    /// Checks Service `default/kubernetes`, which exists in every cluster. `known` is the address
    /// that the API server has for this Service.
    async fn check_cluster_ip(&self, known: Option<IpAddr>) -> AddressCheck {
        const KIND: &str = "a cluster IP";
        let name = format!("kubernetes.default.svc.{}", self.domain);
        // A dual-stack Service has an IPv4 and an IPv6 address, but `known` is only the first of
        // them. So the query is for the record type of `known`.
        let queried = match known {
            Some(known) => {
                self.query_addresses_of_type(&name, address_type(known))
                    .await
            }
            None => self.query_addresses(&name).await,
        };
        let answer = match queried {
            Ok(answer) => answer,
            Err(failure) => {
                return AddressCheck {
                    check: failed_check(KIND, &name, &failure),
                    address: known,
                };
            }
        };

        // Without the address from the API server, every address passes.
        let shown = join_texts(&answer.addresses);
        let check = match known {
            Some(known) if !answer.addresses.contains(&known) => {
                let text = format!("{KIND}: {name} is {shown}, but the API server has {known}");
                CheckLine::failed(GROUP, text).with_advice(
                    "Check whether kubedns watches this cluster, and when kubedns last received a change.",
                    "records-late",
                )
            }
            _ => {
                let time = milliseconds(answer.time);
                CheckLine::passed(GROUP, format!("{KIND}: {name} is {shown} ({time})"))
            }
        };
        AddressCheck {
            check,
            address: answer.addresses.first().copied().or(known),
        }
    }

    async fn check_named_port(&self) -> CheckLine {
        const KIND: &str = "a named port";
        let name = format!("_https._tcp.kubernetes.default.svc.{}", self.domain);
        let answer = match self.query(&name, RecordType::SRV).await {
            Ok(answer) => answer,
            Err(failure) => return failed_check(KIND, &name, &failure),
        };

        let mut ports = Vec::new();
        for record in &answer.records {
            if let RData::SRV(srv) = record {
                ports.push(srv.port);
            }
        }
        let ports = join_texts(&ports);
        let time = milliseconds(answer.time);
        CheckLine::passed(GROUP, format!("{KIND}: {name} is port {ports} ({time})"))
    }

    async fn check_pointer(&self, address: Option<IpAddr>) -> CheckLine {
        const KIND: &str = "the name of an address";
        let Some(address) = address else {
            let text = "the name of an address: no cluster IP is known";
            return CheckLine::skipped(GROUP, text);
        };

        let name = Name::from(address).to_ascii();
        let name = name.trim_end_matches('.');
        match self.query(name, RecordType::PTR).await {
            Ok(RecordAnswer { records, time }) => {
                let targets = join_texts(&records);
                let time = milliseconds(time);
                CheckLine::passed(GROUP, format!("{KIND}: {address} is {targets} ({time})"))
            }
            Err(failure) => failed_check(KIND, name, &failure),
        }
    }

    /// Queries at most [`MAX_HEADLESS`] headless Services, until one has addresses or a query
    /// fails. Returns one of the addresses, if any.
    async fn check_headless(&self, services: &[ObjectKey]) -> (CheckLine, Option<ServiceMember>) {
        const KIND: &str = "a headless Service";
        if services.is_empty() {
            let check = CheckLine::skipped(GROUP, format!("{KIND}: none is known"));
            return (check, None);
        }

        for ObjectKey { namespace, name } in services.iter().take(MAX_HEADLESS) {
            let name = format!("{name}.{namespace}.svc.{}", self.domain);
            match self.query_addresses(&name).await {
                Ok(AddressAnswer { addresses, time }) => {
                    let count = counted(addresses.len(), "address", "addresses");
                    let text = format!("{KIND}: {name} has {count} ({})", milliseconds(time));
                    let member = addresses.first().map(|address| ServiceMember {
                        address: *address,
                        namespace: namespace.to_string(),
                    });
                    return (CheckLine::passed(GROUP, text), member);
                }
                // The DNS server has no addresses for this Service. The next Service may have some.
                Err(failure) if failure.is_negative_answer() => {}
                Err(failure) => return (failed_check(KIND, &name, &failure), None),
            }
        }

        let text = format!("{KIND}: no queried Service has ready endpoints");
        (CheckLine::skipped(GROUP, text), None)
    }

    /// Checks the name of a pod. The first label of the name is the pod's address, with dashes in
    /// place of dots or colons.
    async fn check_pod_name(&self, member: Option<ServiceMember>) -> CheckLine {
        const KIND: &str = "a pod";
        let ServiceMember { address, namespace } = member.unwrap_or_else(|| ServiceMember {
            address: IpAddr::from([10, 0, 0, 1]),
            namespace: "default".to_owned(),
        });
        // Without `--pods=verified`, kubedns does not check whether a pod has the address. With
        // `--pods=disabled`, no pod name exists.
        let label = address.to_string().replace(['.', ':'], "-");
        let name = format!("{label}.{namespace}.pod.{}", self.domain);
        match self.query(&name, address_type(address)).await {
            Ok(RecordAnswer { records, time }) => {
                let addresses: Vec<IpAddr> = records.iter().filter_map(RData::ip_addr).collect();
                if addresses == [address] {
                    let time = milliseconds(time);
                    let text = format!("{KIND}: {name} is {address} ({time})");
                    return CheckLine::passed(GROUP, text);
                }

                let found = join_texts(&addresses);
                let text =
                    format!("{KIND}: {name} has the address {found}, but should have {address}");
                CheckLine::failed(GROUP, text).with_advice(
                    format!("Run kube-dns explain {name} to see why."),
                    "a-name-is-missing",
                )
            }
            Err(failure) if failure.rcode == Some(ResponseCode::NXDomain) => CheckLine::skipped(
                GROUP,
                format!(
                    "{KIND}: {name} does not exist, which is normal with --pods=disabled or --pods=verified"
                ),
            ),
            Err(failure) => failed_check(KIND, &name, &failure),
        }
    }

    /// Checks a forwarded name. NXDOMAIN and NODATA pass the check, because they are answers, too.
    async fn check_forwarded(&self, name: &str, record_type: RecordType, kind: &str) -> CheckLine {
        let how = match self.query(name, record_type).await {
            Ok(answer) => milliseconds(answer.time),
            Err(failure) if failure.is_negative_answer() => failure.words,
            Err(failure) => {
                return CheckLine::failed(GROUP, format!("{kind}: the query for {name} failed"))
                    .with_detail(failure.words)
                    .with_advice(
                        "Query the upstreams with dig from the node; see also the lines under \"upstreams\" in this report.",
                        "upstream-down",
                    );
            }
        };
        CheckLine::passed(GROUP, format!("{kind}: {name} is answered ({how})"))
    }
}

/// A failed check of a cluster name.
fn failed_check(kind: &str, name: &str, failure: &QueryFailure) -> CheckLine {
    // The RCODE selects the section of docs/troubleshooting.md. For example, kubedns answers
    // REFUSED to queries for cluster names until its records are loaded.
    let section = match failure.rcode {
        Some(ResponseCode::Refused) => "not-synced",
        Some(ResponseCode::ServFail) => "servfail",
        Some(ResponseCode::NoError | ResponseCode::NXDomain) => "a-name-is-missing",
        _ => "no-answers",
    };
    let action = match failure.rcode {
        Some(_) => format!("Run kube-dns explain {name} to see why."),
        None => {
            "Check whether kubedns and dnsmasq answer: see the lines under \"pod\" in this report."
                .to_owned()
        }
    };

    let found = if failure.is_negative_answer() {
        format!("{name} has no records")
    } else {
        format!("the query for {name} failed")
    };
    CheckLine::failed(GROUP, format!("{kind}: {found}"))
        .with_detail(failure.words.as_str())
        .with_advice(action, section)
}

/// The type of the records that hold `address`.
fn address_type(address: IpAddr) -> RecordType {
    if address.is_ipv4() {
        RecordType::A
    } else {
        RecordType::AAAA
    }
}

fn join_texts<T: ToString>(values: &[T]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
