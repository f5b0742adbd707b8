//! Existing names that are similar to a name that does not exist.

use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;
use wire::Name;
use wire::rtype;

use crate::answer;
use crate::candidate::Candidate;
use crate::document::{Answer, NameKind, NearMiss, Note, Outcome};
use crate::evidence::Evidence;
use dnsconfig::edit_distance;

/// Bound of the suggested names.
const MAX_NEAR: usize = 8;
/// Bound of the similar Services whose names are queried before they are suggested.
const MAX_CHECKED: usize = 64;
/// Bound of the comparisons between Services and readings.
const MAX_COMPARED: usize = 50_000;
/// Bound of the readings.
const MAX_READINGS: usize = 4;
/// Bounds: namespaces that are compared, and namespaces that are suggested.
const MAX_NAMESPACES: (usize, usize) = (50_000, 3);

/// An interpretation of a missing name as a Service, with possible labels before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The labels before the name of the Service, each followed by a dot.
    prefix: String,
    /// The Service that may have been meant; its namespace is empty if the name has none.
    key: ObjectKey,
    /// The mistake in the form of the name, if any.
    slip: Option<String>,
}

impl Reading {
    /// Interprets one candidate. `as_typed` means that the candidate has no search domain appended.
    fn of(candidate: &Candidate, as_typed: bool, domain: &Name) -> Option<Self> {
        let of_service = |prefix: String, key: &ObjectKey| {
            Some(Self {
                prefix,
                key: key.clone(),
                slip: None,
            })
        };
        match &candidate.kind {
            NameKind::Service(key) => of_service(String::new(), key),
            NameKind::Port {
                key,
                port,
                protocol,
            } if !port.is_empty() => of_service(format!("_{port}._{protocol}."), key),
            // With a search domain appended, any name of two labels looks like a member and its
            // Service.
            NameKind::Member { key, label } if as_typed => of_service(format!("{label}."), key),
            NameKind::Namespace {
                namespace: Some(label),
            } => Self::with_slip(&[label], "the namespace is missing"),
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
                let before: Vec<&String> =
                    labels.iter().take(svc.unwrap_or(labels.len())).collect();
                let is_service = match before.len() {
                    2 => true,
                    3..=5 => svc.is_some(),
                    _ => false,
                };
                let domain = domain.to_string();
                let slip = format!(
                    "names of this cluster end with svc.{}",
                    domain.trim_end_matches('.')
                );
                is_service
                    .then(|| Self::with_slip(&before, &slip))
                    .flatten()
            }
            _ => None,
        }
    }

    /// Takes the last two labels as a Service and its namespace, or a single label as a Service.
    fn with_slip(labels: &[&String], slip: &str) -> Option<Self> {
        let (prefix, key) = match labels {
            [] => return None,
            [service] => (&[][..], ObjectKey::new("", service.as_str())),
            [prefix @ .., service, namespace] => {
                (prefix, ObjectKey::new(namespace.as_str(), service.as_str()))
            }
        };
        let prefix = prefix
            .iter()
            .flat_map(|label| [label.as_str(), "."])
            .collect();
        Some(Self {
            prefix,
            key,
            slip: Some(slip.to_owned()),
        })
    }
}

/// The readings of the candidates, in the order of the search, without repeated Services.
pub(crate) fn readings(candidates: &[Candidate], domain: &Name) -> Vec<Reading> {
    let mut readings: Vec<Reading> = Vec::new();
    let last = candidates.len().saturating_sub(1);
    for (at, candidate) in candidates
        .iter()
        .enumerate()
        .filter(|(_, candidate)| !candidate.is_wild())
    {
        let Some(reading) = Reading::of(candidate, at == last, domain) else {
            continue;
        };
        if readings.len() < MAX_READINGS && !readings.iter().any(|known| known.key == reading.key) {
            readings.push(reading);
        }
    }
    readings
}

/// The Services to look up: those of the readings, and Services of the same names in similar
/// namespaces.
pub(crate) fn wanted(snapshot: &Snapshot, readings: &[Reading]) -> Vec<ObjectKey> {
    let keys = || readings.iter().map(|reading| &reading.key);
    let similar = keys().flat_map(|key| {
        let others = similar_namespaces(snapshot, &key.namespace).into_iter();
        others.map(|namespace| ObjectKey::new(namespace, key.name.clone()))
    });
    keys().cloned().chain(similar).collect()
}

/// Namespaces that have Services, and whose names are similar to `wanted`, the most similar first.
pub(crate) fn similar_namespaces(snapshot: &Snapshot, wanted: &str) -> Vec<String> {
    if wanted.is_empty() || snapshot.has_namespace(wanted) {
        return Vec::new();
    }
    let mut similar: Vec<(usize, String)> = snapshot
        .namespaces()
        .take(MAX_NAMESPACES.0)
        .filter_map(|name| Some((edit_distance(wanted, name)?, name.to_string())))
        .collect();
    similar.sort();
    similar
        .into_iter()
        .map(|(_, name)| name)
        .take(MAX_NAMESPACES.1)
        .collect()
}

/// Suggests existing names, the most similar first. `explained` is the candidate in the detail of
/// the explanation. If its Service exists, there are suggestions only for a missing member.
/// Readings with that Service are skipped.
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
    let services = evidence.found.map_or(&[][..], |found| &found.near);
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
        let Some(miss) = existing(evidence.snapshot, service, reading, note, types) else {
            continue;
        };
        if near.len() < MAX_NEAR && !near.iter().any(|known| known.name == miss.name) {
            near.push(miss);
        }
    }
    near
}

/// The distance of a Service from a reading (0 is nearest), and the kind of similarity. `None` if
/// they are not similar.
fn compare(reading: &Reading, service: &ObjectKey) -> Option<(u8, Note)> {
    let Reading {
        key: wanted, slip, ..
    } = reading;
    let ObjectKey { namespace, name } = service;
    let elsewhere = || format!("Service {name} is in namespace {namespace}");
    let (score, code, text) = match (
        edit_distance(&wanted.name, name),
        edit_distance(&wanted.namespace, namespace),
    ) {
        (Some(0), Some(0)) if slip.is_none() => return None,
        (Some(0), Some(0)) => (0, "form", String::new()),
        (Some(0), _) if wanted.namespace.is_empty() => (2, "other_namespace", elsewhere()),
        (Some(0), Some(far)) => (
            1 + far,
            "similar_namespace",
            format!("the namespace differs by {}", letters(far)),
        ),
        (Some(0), None) => (4, "other_namespace", elsewhere()),
        (Some(far), Some(0)) => (
            1 + far,
            "similar_name",
            format!("differs by {}", letters(far)),
        ),
        (Some(far), Some(more)) => (
            3 + far + more,
            "similar_name",
            format!("differs by {}", letters(far + more)),
        ),
        (None, Some(0)) if is_part(&wanted.name, name) => (
            6,
            "part_of_name",
            format!("{:?} is a part of it", wanted.name),
        ),
        _ => return None,
    };
    let texts = [&text]
        .into_iter()
        .chain(slip)
        .filter(|text| !text.is_empty());
    let text = texts.map(String::as_str).collect::<Vec<_>>().join("; ");
    Some((
        u8::try_from(score).unwrap_or(u8::MAX),
        Note::new(code, text),
    ))
}

fn letters(count: usize) -> String {
    if count == 1 {
        "one letter".to_owned()
    } else {
        format!("{count} letters")
    }
}

/// Whether the longer name begins or ends with the shorter name, separated by '-': `redis` and
/// `redis-master`.
fn is_part(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    let ends = long
        .strip_prefix(short)
        .is_some_and(|rest| rest.starts_with('-'));
    ends || long
        .strip_suffix(short)
        .is_some_and(|rest| rest.ends_with('-'))
}

/// Suggests `service`, with the prefix of the reading if the longer name has an answer. The Service
/// may lack ready endpoints. `None` if the name has no answer for another reason.
fn existing(
    snapshot: &Snapshot,
    service: &ObjectKey,
    reading: &Reading,
    mut why: Note,
    types: &[u16],
) -> Option<NearMiss> {
    let plain = format!(
        "{}.{}.svc.{}",
        service.name, service.namespace, snapshot.zone.domain
    );
    let whole = format!("{}{plain}", reading.prefix);
    let is_of_addresses = types.contains(&rtype::A) || types.contains(&rtype::AAAA);
    // No Service has records of types such as MX. The answer to a query for SRV shows whether the
    // name exists.
    let types = if is_of_addresses {
        types
    } else {
        &[rtype::SRV]
    };
    let outcome = |text: &str| {
        let name = Name::parse(text).ok()?;
        let answers: Vec<Answer> = types
            .iter()
            .map(|qtype| Answer::new(snapshot, &name, *qtype))
            .collect();
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
