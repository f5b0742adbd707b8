//! Names that exist and look like what was meant.

mod distance;

use skydns::wire::rtype;
use skydns::{Name, wire::rcode};

use crate::asked::Asked;
use crate::candidate::Candidate;
use crate::document::{NearMiss, Note, Place};
use crate::place;
use crate::reasons::Known;
use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;
use distance::distance;

/// How many names are suggested.
const MAX_NEAR: usize = 8;
/// How many names are checked before that.
const MAX_CHECKED: usize = 64;
/// How many Services are compared with what was read.
const MAX_COMPARED: usize = 50_000;
/// How many ways to read the names tried are followed.
const MAX_READINGS: usize = 4;
/// How many namespaces are compared, and how many are suggested.
const MAX_NAMESPACES: (usize, usize) = (50_000, 3);

/// A way to read a name that does not exist as the name of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    /// What stands before the Service, with its dot.
    prefix: String,
    /// The Service; its namespace is empty where the name has none.
    key: ObjectKey,
    slip: Slip,
}

/// What is wrong with the form of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slip {
    Nothing,
    LacksSvc,
    LacksNamespace,
    OtherDomain,
}

impl Reading {
    fn new(prefix: &[&str], service: &str, namespace: &str, slip: Slip) -> Self {
        let prefix = prefix.iter().flat_map(|label| [*label, "."]).collect();
        Self { prefix, key: ObjectKey::new(namespace, service), slip }
    }

    /// The Service.
    pub(crate) fn key(&self) -> &ObjectKey {
        &self.key
    }
}

/// The ways to read the names tried, the likeliest first.
pub(crate) fn readings(snapshot: &Snapshot, candidates: &[Candidate]) -> Vec<Reading> {
    let mut readings: Vec<Reading> = Vec::new();
    let last = candidates.len().saturating_sub(1);
    for (at, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| !candidate.is_wild()) {
        let Some(reading) = reading(snapshot, candidate, at == last) else { continue };
        if readings.len() < MAX_READINGS && !readings.iter().any(|known| known.key == reading.key) {
            readings.push(reading);
        }
    }
    readings
}

/// `as_typed`: no search list made this name.
fn reading(snapshot: &Snapshot, candidate: &Candidate, as_typed: bool) -> Option<Reading> {
    let (port, protocol);
    Some(match &candidate.place {
        Place::Service { namespace, name } => Reading::new(&[], name, namespace, Slip::Nothing),
        Place::Port { namespace, name, port: number, protocol: transport } if !number.is_empty() => {
            (port, protocol) = (format!("_{number}"), format!("_{transport}"));
            Reading::new(&[&port, &protocol], name, namespace, Slip::Nothing)
        }
        // With a search list, any name of two labels could be one.
        Place::Member { namespace, name, label } if as_typed => {
            Reading::new(&[label], name, namespace, Slip::Nothing)
        }
        Place::Namespace { namespace: Some(label) } => Reading::new(&[], label, "", Slip::LacksNamespace),
        Place::Formless => match place::path(&candidate.labels, &snapshot.zone)?.as_slice() {
            ["svc" | "pod" | "dns", ..] | [] => return None,
            [service] => Reading::new(&[], service, "", Slip::LacksNamespace),
            [namespace, service, rest @ ..] => {
                let rest: Vec<&str> = rest.iter().rev().copied().collect();
                Reading::new(&rest, service, namespace, Slip::LacksSvc)
            }
        },
        Place::Outside => of_other_domain(&candidate.labels.all())?,
        _ => return None,
    })
}

/// A name with the labels of a Service's name, in another domain or in none.
fn of_other_domain(labels: &[&str]) -> Option<Reading> {
    let svc = labels.iter().position(|label| *label == "svc").unwrap_or(labels.len());
    match labels.get(..svc)? {
        [prefix @ .., service, namespace]
            if prefix.len() <= 3 && (svc < labels.len() || prefix.is_empty()) =>
        {
            Some(Reading::new(prefix, service, namespace, Slip::OtherDomain))
        }
        _ => None,
    }
}

/// The Services to ask the index about: those that were read, and the same in namespaces of similar names.
pub(crate) fn wanted(snapshot: &Snapshot, readings: &[Reading]) -> Vec<ObjectKey> {
    let similar = |reading: &Reading| {
        let key = reading.key.clone();
        let others = namespaces(snapshot, &key.namespace);
        others.into_iter().map(move |namespace| ObjectKey::new(namespace, key.name.clone()))
    };
    readings.iter().map(|reading| reading.key.clone()).chain(readings.iter().flat_map(similar)).collect()
}

/// Namespaces with Services whose names are similar, the most similar first.
pub(crate) fn namespaces(snapshot: &Snapshot, wanted: &str) -> Vec<String> {
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

/// What may have been meant, the likeliest first.
pub(crate) fn find(known: Known<'_>, readings: &[Reading]) -> Vec<NearMiss> {
    let services = known.told.map_or(&[][..], |told| &told.near);
    let mut scored: Vec<(u8, &ObjectKey, &Reading, Note)> = readings
        .iter()
        .flat_map(|reading| services.iter().map(move |service| (reading, service)))
        .take(MAX_COMPARED)
        .filter_map(|(reading, service)| {
            let (score, note) = compare(reading, service, &known.snapshot.zone.domain)?;
            Some((score, service, reading, note))
        })
        .collect();
    scored.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let mut near: Vec<NearMiss> = Vec::new();
    for (_, service, reading, note) in scored.into_iter().take(MAX_CHECKED) {
        let miss = existing(known.snapshot, service, reading, note);
        if near.len() < MAX_NEAR && !near.iter().any(|known| known.name == miss.name) {
            near.push(miss);
        }
    }
    near
}

/// How near a Service is to a reading (0 is nearest), and why.
fn compare(reading: &Reading, service: &ObjectKey, domain: &Name) -> Option<(u8, Note)> {
    let Reading { key: wanted, slip, .. } = reading;
    let namespace = distance(&wanted.namespace, &service.namespace);
    let (score, code, text) = match (distance(&wanted.name, &service.name), namespace) {
        (Some(0), Some(0)) if *slip == Slip::Nothing => return None,
        (Some(0), Some(0)) => (0, "form", String::new()),
        (Some(0), _) if *slip == Slip::LacksNamespace => {
            (2, "other_namespace", format!("Service {} is in namespace {}", service.name, service.namespace))
        }
        (Some(0), Some(far)) => {
            (1 + far, "similar_namespace", format!("the namespace differs by {}", letters(far)))
        }
        (Some(0), None) => {
            (4, "other_namespace", format!("Service {} is in namespace {}", service.name, service.namespace))
        }
        (Some(far), Some(0)) => (1 + far, "similar_name", format!("differs by {}", letters(far))),
        (Some(far), Some(more)) => {
            (3 + far + more, "similar_name", format!("differs by {}", letters(far + more)))
        }
        (None, Some(0)) if is_part(&wanted.name, &service.name) => {
            (6, "part_of_name", format!("{:?} is a part of it", wanted.name))
        }
        _ => return None,
    };
    let slip = match slip {
        Slip::Nothing => String::new(),
        Slip::LacksSvc => "the label svc is missing".to_owned(),
        Slip::LacksNamespace => "the namespace is missing".to_owned(),
        Slip::OtherDomain => {
            let domain = domain.to_string();
            format!("names of this cluster end with svc.{}", domain.trim_end_matches('.'))
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

/// The suggestion: with what stood before the Service's name if that exists, and else without.
fn existing(snapshot: &Snapshot, service: &ObjectKey, reading: &Reading, mut why: Note) -> NearMiss {
    let plain = format!("{}.{}.svc.{}", service.name, service.namespace, snapshot.zone.domain);
    let whole = format!("{}{plain}", reading.prefix);
    let exists = |text: &str| {
        let name = Name::parse(text).ok();
        name.is_some_and(|name| Asked::new(snapshot, &name, rtype::SRV).rcode == Some(rcode::NOERROR))
    };
    if exists(&whole) {
        return NearMiss { name: whole, why };
    }
    if !exists(&plain) {
        why.text.push_str("; it has no ready endpoints");
    }
    NearMiss { name: plain, why }
}
