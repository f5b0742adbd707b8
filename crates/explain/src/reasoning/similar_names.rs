//! Existing names that are similar to a name that does not exist.

use cluster::objects::ObjectKey;
use cluster::snapshot::Snapshot;
use daemon::edit_distance::edit_distance;
use wire::Name;
use wire::rtype;

use crate::document::{CodedNote, LookupOutcome, NameKind, SimilarName};
use crate::facts::candidate::NameCandidate;
use crate::facts::evidence::Evidence;
use crate::facts::namespaces::similar_namespaces;
use crate::list::join_first;
use crate::request::DEFAULT_TYPES;

/// Maximum number of suggested names.
const MAX_SUGGESTED: usize = 8;
/// Maximum number of [`SimilarService`]s whose names are queried.
const MAX_CHECKED: usize = 64;
/// Maximum number of comparisons of a Service with a [`NameReading`].
const MAX_COMPARED: usize = 50_000;
/// Maximum number of names in the remark on similar names without records.
const MAX_REMARKED: usize = 3;
/// Maximum number of [`NameReading`]s.
const MAX_READINGS: usize = 4;

/// A missing name, interpreted as the name of a Service. The name may have further labels before
/// the Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameReading {
    /// The labels before the name of the Service, each followed by a dot.
    prefix: String,
    /// The Service that may have been meant; its namespace is empty if the name has none.
    key: ObjectKey,
    /// The mistake in the form of the name, if any.
    slip: Option<String>,
}

impl NameReading {
    /// Interprets one candidate. `as_typed` means that no search domain was appended to the
    /// candidate.
    fn interpret(candidate: &NameCandidate, as_typed: bool, domain: &Name) -> Option<Self> {
        match &candidate.kind {
            NameKind::Service(key) => Some(Self::without_slip(String::new(), key)),
            NameKind::Port {
                key,
                port,
                protocol,
            } if !port.is_empty() => Some(Self::without_slip(format!("_{port}._{protocol}."), key)),
            // A member is an endpoint with its own name. With a search domain such as
            // `default.svc.cluster.local` appended, many names of two labels look like a member and
            // its Service.
            NameKind::Member { key, label } if as_typed => {
                Some(Self::without_slip(format!("{label}."), key))
            }
            NameKind::Namespace {
                namespace: Some(label),
            } => Self::with_slip(&[label], "the given name has no namespace"),
            NameKind::Formless => Self::interpret_formless(candidate),
            NameKind::External => Self::interpret_external(candidate, domain),
            _ => None,
        }
    }

    /// Interprets a name in the cluster domain that has none of the known forms.
    fn interpret_formless(candidate: &NameCandidate) -> Option<Self> {
        let labels: Vec<&String> = candidate.path.iter().flatten().rev().collect();
        match labels.last()?.as_str() {
            "svc" | "pod" | "dns" => None,
            _ if labels.len() == 1 => Self::with_slip(&labels, "the given name has no namespace"),
            _ => Self::with_slip(&labels, "the given name has no label svc"),
        }
    }

    /// Interprets an external name, such as `web.apps` or `web.apps.svc.other.example`.
    fn interpret_external(candidate: &NameCandidate, domain: &Name) -> Option<Self> {
        let labels = candidate.name.to_lowercase().labels();
        let svc = labels.iter().position(|label| label == "svc");
        let before: Vec<&String> = labels.iter().take(svc.unwrap_or(labels.len())).collect();
        // Two labels may mean a Service and its namespace, even without `svc` after them. More
        // than two labels mean a Service only if `svc` follows them.
        let is_service = match before.len() {
            2 => true,
            3..=5 => svc.is_some(),
            _ => false,
        };
        if !is_service {
            return None;
        }

        let domain = domain.to_string();
        let domain = domain.trim_end_matches('.');
        Self::with_slip(
            &before,
            &format!("names of this cluster end with svc.{domain}"),
        )
    }

    fn without_slip(prefix: String, key: &ObjectKey) -> Self {
        Self {
            prefix,
            key: key.clone(),
            slip: None,
        }
    }

    /// Takes the last two labels as a Service and its namespace, or a single label as a Service.
    fn with_slip(labels: &[&String], slip: &str) -> Option<Self> {
        let (before, key) = match labels {
            [] => return None,
            [service] => (&[][..], ObjectKey::new("", service.as_str())),
            [before @ .., service, namespace] => {
                (before, ObjectKey::new(namespace.as_str(), service.as_str()))
            }
        };

        let mut prefix = String::new();
        for label in before {
            prefix.push_str(label);
            prefix.push('.');
        }
        Some(Self {
            prefix,
            key,
            slip: Some(slip.to_owned()),
        })
    }
}

/// The readings of the candidates, in the order of the search, without repeated Services.
pub(crate) fn read_candidates(candidates: &[NameCandidate], domain: &Name) -> Vec<NameReading> {
    let mut readings: Vec<NameReading> = Vec::new();
    // A search domain only adds labels, so the shortest name is the one without a search domain.
    let labels = |candidate: &NameCandidate| candidate.name.label_count();
    let fewest = candidates.iter().map(labels).min();
    for candidate in candidates {
        if candidate.is_wildcard() {
            continue;
        }
        let as_typed = Some(labels(candidate)) == fewest;
        let Some(reading) = NameReading::interpret(candidate, as_typed, domain) else {
            continue;
        };
        if readings.len() < MAX_READINGS && !readings.iter().any(|known| known.key == reading.key) {
            readings.push(reading);
        }
    }
    readings
}

/// The Services to look up: the Services of the readings, and Services with the same names in
/// similar namespaces.
pub(crate) fn services_to_look_up(snapshot: &Snapshot, readings: &[NameReading]) -> Vec<ObjectKey> {
    let mut keys: Vec<ObjectKey> = readings.iter().map(|reading| reading.key.clone()).collect();
    for NameReading { key, .. } in readings {
        for namespace in similar_namespaces(snapshot, &key.namespace) {
            keys.push(ObjectKey::new(namespace, key.name.clone()));
        }
    }
    keys
}

/// The names that are similar to a missing one.
#[derive(Debug, Default)]
pub(crate) struct SimilarNames {
    /// Names that have an answer, the most similar first.
    pub(crate) names: Vec<SimilarName>,
    /// Names of similar Services that have no records, such as headless Services without ready
    /// endpoints.
    without_records: Vec<String>,
}

impl SimilarNames {
    /// A remark on the similar Services without records; `None` if there are none.
    pub(crate) fn remark(&self) -> Option<CodedNote> {
        if self.without_records.is_empty() {
            return None;
        }
        let names = join_first(&self.without_records, MAX_REMARKED);
        let text = format!(
            "similar Services exist, but their names have no records now (kube-dns explain \
             NAME says why): {names}"
        );
        Some(CodedNote::new("similar_without_records", text))
    }
}

/// Suggests existing names, the most similar first. `explained` is the candidate that the
/// explanation describes in detail. If the Service of this candidate exists, names are suggested
/// only if the candidate denotes a missing member of the Service. Readings with this Service are
/// then skipped.
pub(crate) fn suggest_names(
    evidence: Evidence<'_>,
    readings: &[NameReading],
    explained: &NameCandidate,
    types: &[u16],
) -> SimilarNames {
    let existing = match evidence.existing_service(explained) {
        Some(_) if !evidence.lacks_member(explained) => return SimilarNames::default(),
        Some(_) => explained.kind.service(),
        None => None,
    };

    let mut suggestions = SimilarNames::default();
    for similar in similar_services(evidence, readings, existing) {
        suggestions.add(evidence, similar, types);
    }
    suggestions
}

/// A Service that is similar to a reading.
struct SimilarService<'s> {
    /// The distance from the reading; 0 is the most similar.
    distance: usize,
    service: &'s ObjectKey,
    reading: &'s NameReading,
    /// The kind of similarity.
    why: CodedNote,
}

/// The Services that are similar to a reading, the most similar first. Readings with Service
/// `existing` are skipped.
fn similar_services<'s>(
    evidence: Evidence<'s>,
    readings: &'s [NameReading],
    existing: Option<&ObjectKey>,
) -> Vec<SimilarService<'s>> {
    let services = evidence.found.map_or(&[][..], |found| &found.neighbours);
    let mut similar: Vec<SimilarService<'s>> = readings
        .iter()
        .filter(|reading| Some(&reading.key) != existing)
        .flat_map(|reading| services.iter().map(move |service| (reading, service)))
        .take(MAX_COMPARED)
        .filter_map(|(reading, service)| compare_service(reading, service))
        .collect();

    similar.sort_by(|a, b| (a.distance, a.service).cmp(&(b.distance, b.service)));
    similar.truncate(MAX_CHECKED);
    similar
}

/// The similarity of a Service to a reading; `None` if they are not similar.
fn compare_service<'s>(
    reading: &'s NameReading,
    service: &'s ObjectKey,
) -> Option<SimilarService<'s>> {
    let NameReading {
        key: wanted, slip, ..
    } = reading;
    let ObjectKey { namespace, name } = service;
    let name_distance = edit_distance(&wanted.name, name);
    let namespace_distance = edit_distance(&wanted.namespace, namespace);

    let (distance, code, text) = match (name_distance, namespace_distance) {
        // The Service itself exists, so it is suggested only if the form of the name is wrong.
        (Some(0), Some(0)) if slip.is_none() => return None,
        (Some(0), Some(0)) => (0, "form", String::new()),
        (Some(0), _) if wanted.namespace.is_empty() => {
            (2, "other_namespace", in_namespace_text(service))
        }
        (Some(0), Some(far)) => {
            let text = format!("the namespace differs by {}", typing_error_text(far));
            (1 + far, "similar_namespace", text)
        }
        (Some(0), None) => (4, "other_namespace", in_namespace_text(service)),
        (Some(far), Some(0)) => {
            let text = format!("differs by {}", typing_error_text(far));
            (1 + far, "similar_name", text)
        }
        // Both parts differ, which is less likely than a difference in one of them.
        (Some(far), Some(more)) => {
            let text = format!("differs by {}", typing_error_text(far + more));
            (3 + far + more, "similar_name", text)
        }
        (None, Some(0)) if is_part_of_name(&wanted.name, name) => {
            let (part, whole) = shorter_first(&wanted.name, name);
            let text = format!("{part:?} is a part of {whole:?}");
            (6, "part_of_name", text)
        }
        _ => return None,
    };

    // The mistake in the form of the name comes last. If there is no other text, the mistake is the
    // whole text.
    let text = match slip {
        Some(slip) if text.is_empty() => slip.clone(),
        Some(slip) => format!("{text}; {slip}"),
        None => text,
    };
    Some(SimilarService {
        distance,
        service,
        reading,
        why: CodedNote::new(code, text),
    })
}

fn in_namespace_text(ObjectKey { namespace, name }: &ObjectKey) -> String {
    format!("Service {name} is in namespace {namespace}")
}

fn typing_error_text(count: usize) -> String {
    if count == 1 {
        "one typing error".to_owned()
    } else {
        format!("{count} typing errors")
    }
}

/// Whether the longer name begins or ends with the shorter name, separated by '-': `redis` and
/// `redis-master`.
fn is_part_of_name(a: &str, b: &str) -> bool {
    let (short, long) = shorter_first(a, b);
    let is_prefix = long
        .strip_prefix(short)
        .is_some_and(|rest| rest.starts_with('-'));
    let is_suffix = long
        .strip_suffix(short)
        .is_some_and(|rest| rest.ends_with('-'));
    is_prefix || is_suffix
}

fn shorter_first<'n>(a: &'n str, b: &'n str) -> (&'n str, &'n str) {
    if a.len() < b.len() { (a, b) } else { (b, a) }
}

impl SimilarNames {
    /// Suggests the Service's name with the reading's prefix. If this name has no answer, tries the
    /// Service's name without the prefix. If that name does not exist, it goes into
    /// [`remark`](Self::remark). A name with any other outcome is left out.
    fn add(&mut self, evidence: Evidence<'_>, similar: SimilarService<'_>, types: &[u16]) {
        let ObjectKey { namespace, name } = similar.service;
        let plain = format!("{name}.{namespace}.svc.{}", evidence.snapshot.zone.domain);
        let whole = format!("{}{plain}", similar.reading.prefix);

        if outcome_of_name(evidence, &whole, types) == Some(LookupOutcome::Answered) {
            self.offer(whole, similar.why);
            return;
        }
        match outcome_of_name(evidence, &plain, types) {
            Some(LookupOutcome::Answered) => self.offer(plain, similar.why),
            Some(LookupOutcome::NxDomain) if !self.without_records.contains(&plain) => {
                self.without_records.push(plain);
            }
            _ => {}
        }
    }

    fn offer(&mut self, name: String, why: CodedNote) {
        // Two readings can result in the same suggestion.
        let is_new = !self.names.iter().any(|known| known.name == name);
        if self.names.len() < MAX_SUGGESTED && is_new {
            self.names.push(SimilarName { name, why });
        }
    }
}

/// The outcome of queries for this name; `None` if the text is not a name.
fn outcome_of_name(evidence: Evidence<'_>, text: &str, types: &[u16]) -> Option<LookupOutcome> {
    let Evidence {
        snapshot, front, ..
    } = evidence;
    let name = Name::parse(text).ok()?;
    // Only address queries show whether a name is usable: no Service has records such as MX, and an
    // ExternalName Service has an SRV record even if its target does not exist.
    let is_of_addresses = types.contains(&rtype::A) || types.contains(&rtype::AAAA);
    let types = if is_of_addresses {
        types
    } else {
        &DEFAULT_TYPES
    };
    Some(NameCandidate::survey(snapshot, front, name, types).outcome())
}
