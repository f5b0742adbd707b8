//! Names that exist and look like what was meant.

mod distance;

use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;
use skydns::Name;
use skydns::wire::{rcode, rtype};

use crate::candidate::Candidate;
use crate::document::{NameKind, NearMiss, Note};
use crate::evidence::Evidence;
use distance::distance;

/// The most names that are suggested.
const MAX_NEAR: usize = 8;
/// The most names that are checked before that.
const MAX_CHECKED: usize = 64;
/// The most Services that are compared with what was read.
const MAX_COMPARED: usize = 50_000;
/// The most readings of the names tried that are followed.
const MAX_READINGS: usize = 4;
/// The most namespaces that are compared, and that are suggested.
const MAX_NAMESPACES: (usize, usize) = (50_000, 3);

/// A way to read a name that does not exist as the name of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The labels before the Service, each with its dot.
    prefix: String,
    /// The Service; its namespace is empty where the name has none.
    key: ObjectKey,
    slip: Slip,
}

/// The mistake in the form of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slip {
    Nothing,
    LacksSvc,
    LacksNamespace,
    OtherDomain,
}

impl Reading {
    fn new(prefix: String, service: &str, namespace: &str, slip: Slip) -> Self {
        Self { prefix, key: ObjectKey::new(namespace, service), slip }
    }

    /// `as_typed`: no search list made the name of this candidate.
    fn of(candidate: &Candidate, as_typed: bool) -> Option<Self> {
        let of_service =
            |prefix: String, key: &ObjectKey| Some(Self { prefix, key: key.clone(), slip: Slip::Nothing });
        let without_namespace =
            |service: &str| Some(Self::new(String::new(), service, "", Slip::LacksNamespace));
        match &candidate.kind {
            NameKind::Service(key) => of_service(String::new(), key),
            NameKind::Port { key, port, protocol } if !port.is_empty() => {
                of_service(format!("_{port}._{protocol}."), key)
            }
            // With a search list, any name of two labels could be one.
            NameKind::Member { key, label } if as_typed => of_service(format!("{label}."), key),
            NameKind::Namespace { namespace: Some(label) } => without_namespace(label),
            NameKind::Formless => match candidate.path.as_deref()? {
                [] => None,
                [first, ..] if ["svc", "pod", "dns"].contains(&first.as_str()) => None,
                [service] => without_namespace(service),
                [namespace, service, rest @ ..] => {
                    Some(Self::new(dotted(rest.iter().rev()), service, namespace, Slip::LacksSvc))
                }
            },
            NameKind::External => Self::in_other_domain(&candidate.name.to_lowercase().labels()),
            _ => None,
        }
    }

    /// A name with the labels of a Service's name, in another domain or in none.
    fn in_other_domain(labels: &[String]) -> Option<Self> {
        let svc = labels.iter().position(|label| label == "svc");
        match labels.get(..svc.unwrap_or(labels.len()))? {
            [prefix @ .., service, namespace]
                if prefix.len() <= 3 && (svc.is_some() || prefix.is_empty()) =>
            {
                Some(Self::new(dotted(prefix), service, namespace, Slip::OtherDomain))
            }
            _ => None,
        }
    }
}

/// Labels, each with its dot.
fn dotted<'l>(labels: impl IntoIterator<Item = &'l String>) -> String {
    labels.into_iter().flat_map(|label| [label, "."]).collect()
}

/// The ways to read the names tried, the likeliest first.
pub(crate) fn readings(candidates: &[Candidate]) -> Vec<Reading> {
    let mut readings: Vec<Reading> = Vec::new();
    let last = candidates.len().saturating_sub(1);
    for (at, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| !candidate.is_wild()) {
        let Some(reading) = Reading::of(candidate, at == last) else { continue };
        if readings.len() < MAX_READINGS && !readings.iter().any(|known| known.key == reading.key) {
            readings.push(reading);
        }
    }
    readings
}

/// The Services to ask the index about: those that were read, and the same in namespaces of similar names.
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
    if wanted.is_empty() || snapshot.tree.node(&["svc", wanted]).is_some() {
        return Vec::new();
    }
    let all = snapshot.tree.node(&["svc"]).into_iter().flat_map(treecache::Node::children);
    let mut similar: Vec<(usize, String)> = all
        .take(MAX_NAMESPACES.0)
        .filter_map(|(name, _)| Some((distance(wanted, name)?, name.to_string())))
        .collect();
    similar.sort();
    similar.into_iter().map(|(_, name)| name).take(MAX_NAMESPACES.1).collect()
}

/// Names that may have been meant, the likeliest first. `explained` is the candidate that is explained: there are none
/// where all that it is about is there, and else none of its own Service if that is there.
pub(crate) fn find(evidence: Evidence<'_>, readings: &[Reading], explained: &Candidate) -> Vec<NearMiss> {
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
            let (score, note) = compare(reading, service, &evidence.snapshot.zone.domain)?;
            Some((score, service, reading, note))
        })
        .collect();
    scored.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let mut near: Vec<NearMiss> = Vec::new();
    for (_, service, reading, note) in scored.into_iter().take(MAX_CHECKED) {
        let miss = existing(evidence.snapshot, service, reading, note);
        if near.len() < MAX_NEAR && !near.iter().any(|known| known.name == miss.name) {
            near.push(miss);
        }
    }
    near
}

/// The distance of a Service from a reading (0 is nearest), and why.
fn compare(reading: &Reading, service: &ObjectKey, domain: &Name) -> Option<(u8, Note)> {
    let Reading { key: wanted, slip, .. } = reading;
    let ObjectKey { namespace, name } = service;
    let elsewhere = || format!("Service {name} is in namespace {namespace}");
    let (score, code, text) = match (distance(&wanted.name, name), distance(&wanted.namespace, namespace)) {
        (Some(0), Some(0)) if *slip == Slip::Nothing => return None,
        (Some(0), Some(0)) => (0, "form", String::new()),
        (Some(0), _) if *slip == Slip::LacksNamespace => (2, "other_namespace", elsewhere()),
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
    let slip = match slip {
        Slip::Nothing => String::new(),
        Slip::LacksSvc => "the label svc is missing".to_owned(),
        Slip::LacksNamespace => "the namespace is missing".to_owned(),
        Slip::OtherDomain => {
            format!("names of this cluster end with svc.{}", domain.to_string().trim_end_matches('.'))
        }
    };
    let texts: Vec<String> = [text, slip].into_iter().filter(|text| !text.is_empty()).collect();
    Some((u8::try_from(score).unwrap_or(u8::MAX), Note::new(code, texts.join("; "))))
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

/// The suggestion: with the labels before the Service's name if that exists, and else without.
fn existing(snapshot: &Snapshot, service: &ObjectKey, reading: &Reading, mut why: Note) -> NearMiss {
    let plain = format!("{}.{}.svc.{}", service.name, service.namespace, snapshot.zone.domain);
    let whole = format!("{}{plain}", reading.prefix);
    let exists = |text: &str| {
        let name = Name::parse(text).ok();
        name.is_some_and(|name| skydns::ask(snapshot, &name, rtype::SRV).rcode == Some(rcode::NOERROR))
    };
    if exists(&whole) {
        return NearMiss { name: whole, why };
    }
    if !exists(&plain) {
        why.text.push_str("; it has no ready endpoints");
    }
    NearMiss { name: plain, why }
}
