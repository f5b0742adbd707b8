//! Faults of upstreams that forward queries back to the pod. While such a loop lasts, kubedns and
//! dnsmasq do not send these upstreams the queries that would come back.

use reports::EXTERNAL_NAMES;
use reports::finding::FindingKind;
use reports::sidecar::SidecarStatus;

use super::routes::has_upstream;
use super::{PodFault, join_words};

pub(super) fn loop_faults(status: &SidecarStatus) -> Vec<PodFault> {
    let kubedns = loop_of_kubedns(status);
    let dnsmasq = loop_of_dnsmasq(status);

    // If the container that forwards external names has loops, and every upstream of these names is
    // in a loop, no external name is answered. This outage is then reported instead of the loops of
    // that container.
    let by_kubedns = status.forwards_by_kubedns(EXTERNAL_NAMES);
    let of_forwarder = if by_kubedns { &kubedns } else { &dnsmasq };
    if of_forwarder.is_some() && !has_upstream(status) {
        let other = if by_kubedns { dnsmasq } else { kubedns };
        return [Some(outage(status)), other]
            .into_iter()
            .flatten()
            .collect();
    }
    [kubedns, dnsmasq].into_iter().flatten().collect()
}

/// The fault of loops through kubedns. kubedns reports only the number of upstreams in a loop, not
/// their addresses.
fn loop_of_kubedns(status: &SidecarStatus) -> Option<PodFault> {
    let kubedns = status.kubedns.known.as_ref()?;
    if kubedns.forward_loops == 0.0 {
        return None;
    }
    let text = if kubedns.forward_loops > 1.0 {
        let count = kubedns.forward_loops;
        format!(
            "{count} upstreams of kubedns forward queries back to kubedns: until the loops end, kubedns does not send them the queries that would come back"
        )
    } else {
        "an upstream of kubedns forwards queries back to kubedns: until the loop ends, kubedns does not send it the queries that would come back"
            .to_owned()
    };
    Some(PodFault::new(FindingKind::ForwardingLoop, "kubedns", text))
}

fn loop_of_dnsmasq(status: &SidecarStatus) -> Option<PodFault> {
    let loops = list_loops(status)?;
    let text = format!("dnsmasq does not use upstreams that forward queries back to it: {loops}");
    Some(PodFault::new(FindingKind::ForwardingLoop, "dnsmasq", text))
}

/// The outage of external names.
fn outage(status: &SidecarStatus) -> PodFault {
    let reason =
        "external names are not answered: each of their upstreams forwards back to this pod";
    let text = match list_loops(status) {
        Some(loops) if !status.forwards_by_kubedns(EXTERNAL_NAMES) => format!("{reason} ({loops})"),
        _ => reason.to_owned(),
    };
    PodFault::new(FindingKind::UpstreamsDown, EXTERNAL_NAMES, text)
}

/// The upstreams of dnsmasq that the nanny has found in a loop.
fn list_loops(status: &SidecarStatus) -> Option<String> {
    let loops = &status.nanny.known.as_ref()?.routes.loops;
    (!loops.is_empty()).then(|| join_words(loops))
}
