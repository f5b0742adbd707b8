//! Existing names that are similar to a missing one.

use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;
use skydns::Name;
use skydns::wire::rtype;

use crate::answer;
use crate::candidate::Candidate;
use crate::document::{Answer, NameKind, NearMiss, Note, Outcome};
use crate::evidence::Evidence;
use dnsconfig::distance::distance;

/// The most names that are suggested.
const MAX_NEAR: usize = 8;
/// The most Services whose names are looked up to find the suggestions.
const MAX_CHECKED: usize = 64;
/// The most Services that are compared with the readings.
const MAX_COMPARED: usize = 50_000;
/// The most readings of the names tried.
const MAX_READINGS: usize = 4;
/// The most namespaces that are compared, and that are suggested.
const MAX_NAMESPACES: (usize, usize) = (50_000, 3);

/// A reading of a missing name as the name of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The labels before the Service, each with its dot.
    prefix: String,
    /// The Service; its namespace is empty if the name has none.
    key: ObjectKey,
    /// The mistake in the form of the name, if there is one.
    slip: Option<String>,
}

impl Reading {
    /// `as_typed`: the name was typed as it is, without a search domain.
    fn of(candidate: &Candidate, as_typed: bool, domain: &Name) -> Option<Self> {
        let of_service =
            |prefix: String, key: &ObjectKey| Some(Self { prefix, key: key.clone(), slip: None });
        match &candidate.kind {
            NameKind::Service(key) => of_service(String::new(), key),
            NameKind::Port { key, port, protocol } if !port.is_empty() => {
                of_service(format!("_{port}._{protocol}."), key)
            }
            // Only as typed: with a search list, any name of two labels could be a member and its Service.
            NameKind::Member { key, label } if as_typed => of_service(format!("{label}."), key),
            NameKind::Namespace { namespace: Some(label) } => {
                Self::with_slip(&[label], "the namespace is missing")
            }
            NameKind::Formless => {
                let labels: Vec<&String> = candidate.path.iter().flatten().rev().collect();
                match labels.last()?.as_str() {
                    "svc" | "pod" | "dns" => None,
                    _ if labels.len() == 1 => Self::with_slip(&labels, "the namespace is missing"),
                    _ => Self::with_slip(&labels, "the label svc is missing"),
                }
            }
            NameKind::External => {
                let labels = candidate.name.to_lowercase().labels();
                let svc = labels.iter().position(|label| label == "svc");
                let before: Vec<&String> = labels.iter().take(svc.unwrap_or(labels.len())).collect();
                let is_service = match before.len() {
                    2 => true,
                    3..=5 => svc.is_some(),
                    _ => false,
                };
                let domain = domain.to_string();
                let slip = format!("names of this cluster end with svc.{}", domain.trim_end_matches('.'));
                is_service.then(|| Self::with_slip(&before, &slip)).flatten()
            }
            _ => None,
        }
    }

    /// Reads `labels` as a Service's name with labels before it.
    fn with_slip(labels: &[&String], slip: &str) -> Option<Self> {
        let (prefix, key) = match labels {
            [] => return None,
            [service] => (&[][..], ObjectKey::new("", service.as_str())),
            [prefix @ .., service, namespace] => {
                (prefix, ObjectKey::new(namespace.as_str(), service.as_str()))
            }
        };
        let prefix = prefix.iter().flat_map(|label| [label.as_str(), "."]).collect();
        Some(Self { prefix, key, slip: Some(slip.to_owned()) })
    }
}

/// The readings of the names tried, the likeliest first.
pub(crate) fn readings(candidates: &[Candidate], domain: &Name) -> Vec<Reading> {
    let mut readings: Vec<Reading> = Vec::new();
    let last = candidates.len().saturating_sub(1);
    for (at, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| !candidate.is_wild()) {
        let Some(reading) = Reading::of(candidate, at == last, domain) else { continue };
        if readings.len() < MAX_READINGS && !readings.iter().any(|known| known.key == reading.key) {
            readings.push(reading);
        }
    }
    readings
}

/// The Services to ask the index for: those of the readings, and the same names in namespaces with similar names.
pub(crate) fn wanted(snapshot: &Snapshot, readings: &[Reading]) -> Vec<ObjectKey> {
    let keys = || readings.iter().map(|reading| &reading.key);
    let similar = keys().flat_map(|key| {
        let others = similar_namespaces(snapshot, &key.namespace).into_iter();
        others.map(|namespace| ObjectKey::new(namespace, key.name.clone()))
    });
    keys().cloned().chain(similar).collect()
}

/// Namespaces with Services whose names are similar, the most similar first.
pub(crate) fn similar_namespaces(snapshot: &Snapshot, wanted: &str) -> Vec<String> {
    if wanted.is_empty() || snapshot.has_namespace(wanted) {
        return Vec::new();
    }
    let mut similar: Vec<(usize, String)> = snapshot
        .namespaces()
        .take(MAX_NAMESPACES.0)
        .filter_map(|name| Some((distance(wanted, name)?, name.to_string())))
        .collect();
    similar.sort();
    similar.into_iter().map(|(_, name)| name).take(MAX_NAMESPACES.1).collect()
}

/// Names that may have been meant, the likeliest first. `explained` is the candidate that is explained: if its Service
/// exists and no member is missing, there are none; if only the member is missing, its own Service is not suggested.
pub(crate) fn find(
    evidence: Evidence<'_>,
    readings: &[Reading],
    explained: &Candidate,
    types: &[u16],
) -> Vec<NearMiss> {
    let own = match evidence.service(explained) {
        Some(_) if !evidence.lacks_member(explained) => return Vec::new(),
        Some(_) => explained.kind.service(),
        None => None,
    };
    let services = evidence.reply.map_or(&[][..], |reply| &reply.near);
    let open = readings.iter().filter(|reading| Some(&reading.key) != own);
    let mut scored: Vec<(u8, &ObjectKey, &Reading, Note)> = open
        .flat_map(|reading| services.iter().map(move |service| (reading, service)))
        .take(MAX_COMPARED)
        .filter_map(|(reading, service)| {
            let (score, note) = compare(reading, service)?;
            Some((score, service, reading, note))
        })
        .collect();
    scored.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let mut near: Vec<NearMiss> = Vec::new();
    for (_, service, reading, note) in scored.into_iter().take(MAX_CHECKED) {
        let Some(miss) = existing(evidence.snapshot, service, reading, note, types) else { continue };
        if near.len() < MAX_NEAR && !near.iter().any(|known| known.name == miss.name) {
            near.push(miss);
        }
    }
    near
}

/// The distance of a Service from a reading (0 is nearest), and the reason.
fn compare(reading: &Reading, service: &ObjectKey) -> Option<(u8, Note)> {
    let Reading { key: wanted, slip, .. } = reading;
    let ObjectKey { namespace, name } = service;
    let elsewhere = || format!("Service {name} is in namespace {namespace}");
    let (score, code, text) = match (distance(&wanted.name, name), distance(&wanted.namespace, namespace)) {
        (Some(0), Some(0)) if slip.is_none() => return None,
        (Some(0), Some(0)) => (0, "form", String::new()),
        (Some(0), _) if wanted.namespace.is_empty() => (2, "other_namespace", elsewhere()),
        (Some(0), Some(far)) => {
            (1 + far, "similar_namespace", format!("the namespace differs by {}", letters(far)))
        }
        (Some(0), None) => (4, "other_namespace", elsewhere()),
        (Some(far), Some(0)) => (1 + far, "similar_name", format!("differs by {}", letters(far))),
        (Some(far), Some(more)) => {
            (3 + far + more, "similar_name", format!("differs by {}", letters(far + more)))
        }
        (None, Some(0)) if is_part(&wanted.name, name) => {
            (6, "part_of_name", format!("{:?} is a part of it", wanted.name))
        }
        _ => return None,
    };
    let texts = [&text].into_iter().chain(slip).filter(|text| !text.is_empty());
    let text = texts.map(String::as_str).collect::<Vec<_>>().join("; ");
    Some((u8::try_from(score).unwrap_or(u8::MAX), Note::new(code, text)))
}

fn letters(count: usize) -> String {
    if count == 1 { "one letter".to_owned() } else { format!("{count} letters") }
}

/// Whether the shorter name is made of whole words of the longer one: `redis` and `redis-master`.
fn is_part(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    let ends = long.strip_prefix(short).is_some_and(|rest| rest.starts_with('-'));
    ends || long.strip_suffix(short).is_some_and(|rest| rest.ends_with('-'))
}

/// The suggestion: with the labels before the Service's name if that name is answered, else without them; `None` if
/// neither helps.
fn existing(
    snapshot: &Snapshot,
    service: &ObjectKey,
    reading: &Reading,
    mut why: Note,
    types: &[u16],
) -> Option<NearMiss> {
    let plain = format!("{}.{}.svc.{}", service.name, service.namespace, snapshot.zone.domain);
    let whole = format!("{}{plain}", reading.prefix);
    let is_of_addresses = types.contains(&rtype::A) || types.contains(&rtype::AAAA);
    // For types that no Service has, the answer of the engine does not show whether the name exists.
    let types = if is_of_addresses { types } else { &[rtype::SRV] };
    let outcome = |text: &str| {
        let name = Name::parse(text).ok()?;
        let answers: Vec<Answer> = types.iter().map(|qtype| Answer::new(snapshot, &name, *qtype)).collect();
        Some(answer::outcome(&answers))
    };
    if outcome(&whole) == Some(Outcome::Answered) {
        return Some(NearMiss { name: whole, why });
    }
    match outcome(&plain)? {
        Outcome::Answered => {}
        Outcome::NoData if !is_of_addresses => {}
        Outcome::NxDomain => why.text.push_str("; it has no ready endpoints"),
        _ => return None,
    }
    Some(NearMiss { name: plain, why })
}
