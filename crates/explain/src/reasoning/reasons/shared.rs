//! Reasons for a missing answer that apply to names of Services and to other names.

use crate::document::{CodedNote, LookupOutcome, NameKind};
use crate::facts::candidate::NameCandidate;
use crate::list::join;

pub(super) fn namespace_not_served(namespace: &str) -> CodedNote {
    let text =
        format!("namespace {namespace} is not served (--namespaces or --namespace-selector)");
    CodedNote::new("namespace_not_served", text)
}

/// The name has no records, or none of the types of the query.
pub(super) fn no_such_records(candidate: &NameCandidate) -> CodedNote {
    // Like kube-dns, kubedns answers NXDOMAIN to A queries for the cluster domain itself, although
    // this name has other records.
    let is_apex = matches!(candidate.kind, NameKind::Apex);
    if candidate.outcome() == LookupOutcome::NxDomain && !is_apex {
        let text = "this name has no records of any type";
        return CodedNote::new("no_such_name", text);
    }

    let types: Vec<&str> = candidate
        .answers
        .iter()
        .map(|answer| answer.qtype.as_str())
        .collect();
    // If Services never have records of these types, the text says which types they can have.
    // Names without a Service, such as those of a zone from etcd, can have other types.
    let is_type_of_services = types
        .iter()
        .any(|qtype| ["A", "AAAA", "SRV", "CNAME", "PTR"].contains(qtype));
    let is_of_service = candidate.kind.service().is_some();

    let types = join(&types);
    let text = match candidate.outcome() {
        LookupOutcome::NoData if is_type_of_services || !is_of_service => {
            format!("the name exists and has no {types} records")
        }
        LookupOutcome::NoData => {
            format!("Services have A, AAAA, SRV, CNAME and PTR records, and none of type {types}")
        }
        _ => format!("this name has no records of type {types}"),
    };
    CodedNote::new("no_such_type", text)
}
