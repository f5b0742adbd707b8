//! Compares zone transfers with the answers of the engine, for random clusters, options and edits.
//! A transfer must have the records of the engine's answers. A zone must have a new version exactly
//! when the zone has changed. Each difference in an incremental transfer must turn one version into
//! the next.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use cluster::clusterset::ClusterSetZone;
use cluster::index::{Index, IndexOptions};
use cluster::objects::{
    Change, EndpointsSource, Event, ExternalAddress, FromApi as _, ObjectKey, Protocol, Service,
    ServiceImport, ServiceKind, ServicePort,
};
use cluster::records::{ExternalRecords, RecordOptions};
use cluster::snapshot::{PodNames, Published, RecordsFrom, Snapshot};
use etcd::records::ZoneRecords;
use etcd::{MessageTree, SkydnsMessage};
use proptest::prelude::*;
use proptest::sample::select;
use skydns::engine::{self, EngineOutcome, Identity, PendingAnswer};
use skydns::external::{ExternalAnswer, ExternalAnswers, ExternalQuery, ExternalRecord};
use skydns::own_names::OwnTarget;
use skydns::{Authority, EntryVisit, FurtherZone, Host, OwnNames};
use testkit::objects::mk_service_import;
use wire::Name;
use wire::name::is_within;
use wire::{Message, Section, Transport, rtype};

use super::secondary::{self, Record, ZoneCopies, ZoneCopy};
use super::{
    ClusterEdit, ClusterObjects, apply_edit, change, index_with, list, options, own_node, pods,
    step,
};

/// The zones that the server may have.
const ZONES: [&str; 6] = [
    "cluster.local",
    "other.example",
    "k8s.example",
    "clusterset.local",
    "sky.test",
    "b.svc.cluster.local",
];
/// Stub domains that edits add and remove. Each is below one of [`ZONES`].
const STUBS: [&str; 3] = ["y.a.svc.cluster.local", "stub.sky.test", "b.k8s.example"];
/// Own names (hosts and aliases of the configuration) that edits add and remove.
const OWN: [&str; 7] = [
    "x.a.svc.cluster.local",
    "own.cluster.local",
    "own.sky.test",
    "al.sky.test",
    "x.a.k8s.example",
    "in.y.a.svc.cluster.local",
    "ns.dns.sky.test",
];
/// The addresses of hosts and the targets of aliases.
const TARGETS: [&str; 6] = [
    "10.7.7.7",
    "fd00::7",
    "z.a.svc.cluster.local",
    "www.outside.test",
    "b.sky.test",
    "own.cluster.local",
];
/// Keys of the zone from etcd, below the key of the zone itself. external-dns writes a child key
/// below each name.
const KEYS: [&str; 9] = [
    "al",
    "al/1a2b",
    "al/3c4d",
    "b",
    "b/1a2b",
    "b/c/x",
    "dns/ns/1",
    "dns/apex/1",
    "stub/x",
];
const ALIAS: &str = r#"{"host":"www.outside.test","ttl":60}"#;
const TEXT: &str = r#"{"text":"note","ttl":9}"#;
const MAIL: &str = r#"{"host":"mail.outside.test","mail":true}"#;
const VALUES: [&str; 7] = [
    r#"{"host":"192.0.2.1","ttl":300}"#,
    r#"{"host":"2001:db8::1","port":8080,"ttl":7}"#,
    ALIAS,
    r#"{"host":"b.sky.test","port":80,"weight":3}"#,
    r#"{"host":"z.a.svc.cluster.local","priority":1}"#,
    TEXT,
    MAIL,
];
const TYPES: [&str; 8] = ["A", "AAAA", "CNAME", "MX", "NS", "PTR", "SRV", "TXT"];

/// A change of anything that a zone may depend on.
#[derive(Debug, Clone)]
enum Edit {
    Cluster(ClusterEdit),
    Stub(&'static str),
    Own(&'static str, Option<&'static str>),
    Etcd(&'static str, Option<&'static str>),
    Import(bool),
    Pods(u64),
    /// A publication without a change.
    Nothing,
}

fn edit() -> impl Strategy<Value = Edit> {
    let target = || proptest::option::weighted(0.8, select(&TARGETS[..]));
    let value = || proptest::option::weighted(0.8, select(&VALUES[..]));
    prop_oneof![
        8 => step().prop_map(Edit::Cluster),
        1 => select(&STUBS[..]).prop_map(Edit::Stub),
        3 => (select(&OWN[..]), target()).prop_map(|(name, target)| Edit::Own(name, target)),
        4 => (select(&KEYS[..]), value()).prop_map(|(key, value)| Edit::Etcd(key, value)),
        1 => any::<bool>().prop_map(Edit::Import),
        1 => (0_u64..6).prop_map(Edit::Pods),
        1 => Just(Edit::Nothing),
    ]
}

/// Options of the server that do not change while it runs.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the server"
)]
struct Fixed {
    options: IndexOptions,
    strict: bool,
    ttl: Option<u32>,
    verified: bool,
    /// Whether there is a second zone from etcd, inside the cluster's zone.
    nested: bool,
    fallthrough: bool,
}

fn fixed() -> impl Strategy<Value = Fixed> {
    let ttl = proptest::option::of(Just(5));
    (
        options(),
        any::<bool>(),
        ttl,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(options, strict, ttl, verified, nested, fallthrough)| {
            let domain = Name::parse("clusterset.local").unwrap();
            let clusterset = Some(ClusterSetZone {
                domain,
                ttl,
                negative_ttl: 5,
            });
            let options = IndexOptions {
                clusterset,
                ..options
            };
            Fixed {
                options,
                strict,
                ttl,
                verified,
                nested,
                fallthrough,
            }
        })
}

/// The state of the server. After each edit, [`World::view`] makes a snapshot of the state.
struct World {
    fixed: Fixed,
    cluster: ClusterObjects,
    index: Index,
    published: Arc<Published>,
    stubs: BTreeSet<&'static str>,
    own: BTreeMap<&'static str, &'static str>,
    own_names: Option<Arc<OwnNames>>,
    etcd: MessageTree,
    records: Arc<ZoneRecords>,
    time: u64,
}

impl World {
    fn new(fixed: Fixed, start: &[ClusterEdit]) -> Self {
        let mut cluster = ClusterObjects::default();
        cluster.apply_all(start);
        let (mut index, published) = index_with(&fixed.options);
        index.apply(own_node(cluster.zone.clone()));
        list(&mut index, &cluster);
        index.apply(Event::EndpointsFrom(EndpointsSource::Endpoints));
        index.apply(Event::ServiceImport(Change::RelistDone));
        index.apply(Event::ImportedSlice(Change::RelistDone));
        index.publish();
        let records = Arc::new(ZoneRecords::from(MessageTree::default()));
        let (stubs, own, etcd) = (BTreeSet::new(), BTreeMap::new(), MessageTree::default());
        Self {
            fixed,
            cluster,
            index,
            published,
            stubs,
            own,
            own_names: None,
            etcd,
            records,
            time: 0,
        }
    }

    fn apply(&mut self, edit: &Edit) {
        match edit {
            Edit::Cluster(step) => {
                self.cluster.apply(step);
                apply_edit(&mut self.index, &self.cluster, step);
            }
            Edit::Stub(at) => {
                if !self.stubs.remove(at) {
                    self.stubs.insert(*at);
                }
            }
            Edit::Own(name, target) => {
                match target {
                    Some(target) => drop(self.own.insert(*name, *target)),
                    None => drop(self.own.remove(name)),
                }
                self.own_names = (!self.own.is_empty()).then(|| Arc::new(own_names(&self.own)));
            }
            Edit::Etcd(key, value) => {
                let path = key.split('/').collect();
                match value {
                    Some(value) => {
                        let message = SkydnsMessage::parse(value.as_bytes()).unwrap();
                        self.etcd.set(&path, message);
                    }
                    None => self.etcd.remove(&path),
                }
                self.records = Arc::new(ZoneRecords::from(self.etcd.clone()));
            }
            Edit::Import(exists) => self.index.apply(import(*exists)),
            Edit::Pods(time) => self.time = *time,
            Edit::Nothing => {}
        }
        self.index.publish();
    }

    fn view(&self) -> Arc<Snapshot> {
        let mut view = Snapshot::clone(&self.published.get());
        view.zone.strict = self.fixed.strict;
        view.zone.ttl = self.fixed.ttl;
        view.zone.other_domains = [name("other.example")].into();
        view.zone.own_names.clone_from(&self.own_names);
        if self.fixed.fallthrough {
            view.zone.fallthrough = [name("cluster.local")].into();
        }
        let stubs = self.stubs.iter().map(|stub| (name(stub), Arc::from([])));
        view.zone = view.zone.with_stub_domains(stubs);
        let nested = self.fixed.nested.then_some("b.svc.cluster.local");
        for domain in [Some("sky.test"), nested].into_iter().flatten() {
            let records = Arc::clone(&self.records);
            let zone = FurtherZone {
                skydns: true,
                ..FurtherZone::new(&name(domain), records)
            };
            view.zones = view.zones.with(zone);
        }
        if self.fixed.verified {
            view.pods = PodNames::Verified(pods(self.time));
        }
        Arc::new(view)
    }
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn own_names(own: &BTreeMap<&str, &str>) -> OwnNames {
    let mut names = OwnNames::new();
    for (owner, target) in own {
        let owner = name(owner);
        match target.parse::<IpAddr>() {
            Ok(address) => names.add_host(&owner, &[address]),
            Err(_) => names.add_alias(&owner, &name(target)),
        }
    }
    names
}

fn import(exists: bool) -> Event {
    if !exists {
        return Event::ServiceImport(Change::Deleted(ObjectKey::new("a", "x")));
    }
    let object = mk_service_import("a", "x", "ClusterSetIP", &["10.112.0.1"], &["http:80"]);
    Event::ServiceImport(Change::Apply(
        ServiceImport::from_api(&object.to_string()).unwrap().object,
    ))
}

/// The zone that contains a name. If several zones contain the name, the zone with the longest
/// domain. `None` if there is no such zone, or if the name is in a stub domain below the zone.
fn holder(view: &Snapshot, owner: &str) -> Option<Name> {
    let is_below = |domain: &str| owner == domain || owner.ends_with(&format!(".{domain}"));
    let further = view.zones.iter().map(|zone| &zone.domain);
    let ours = std::iter::once(&view.zone.domain)
        .chain(view.zone.other_domains.iter())
        .chain(further);
    let stubs = view.zone.stub_domains().iter().map(|(domain, _)| domain);
    let of = |domain: &Name| domain.to_string().trim_end_matches('.').to_owned();
    let zone = ours
        .filter(|domain| is_below(&of(domain)))
        .max_by_key(|domain| of(domain).len())?;
    let stub = stubs
        .filter(|domain| is_below(&of(domain)))
        .max_by_key(|domain| of(domain).len());
    stub.is_none_or(|stub| of(stub).len() <= of(zone).len())
        .then(|| zone.clone())
}

/// All names that may have records in this test.
fn candidates(view: &Snapshot) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = OWN.iter().map(|name| format!("{name}.")).collect();
    for own in OWN {
        names.extend(["_http._tcp", "_sql._udp"].map(|port| format!("{port}.{own}.")));
    }
    for domain in ["sky.test", "b.svc.cluster.local"] {
        for key in KEYS {
            let labels: Vec<&str> = key.split('/').rev().collect();
            names.extend(
                (0..labels.len()).map(|cut| format!("{}.{domain}.", labels[cut..].join("."))),
            );
        }
    }
    let mut labels: BTreeSet<String> = ["one", "two"].map(str::to_owned).into();
    view.services
        .visit(&["*", "*"], &mut usize::MAX.clone(), &mut |_, service| {
            labels.extend(
                service
                    .members
                    .iter()
                    .map(|member| member.label.to_string()),
            );
        });
    let ports = ["", "_http._tcp.", "_http._udp.", "_sql._tcp.", "_sql._udp."];
    for (namespace, service) in ["a", "b"]
        .iter()
        .flat_map(|a| ["x", "y", "z"].map(|b| (*a, b)))
    {
        for domain in [
            "svc.cluster.local",
            "svc.other.example",
            "k8s.example",
            "svc.clusterset.local",
        ] {
            for port in ports {
                let base = format!("{port}{service}.{namespace}.{domain}.");
                names.extend(labels.iter().map(|label| format!("{label}.{base}")));
                names.insert(base);
            }
        }
    }
    if matches!(view.pods, PodNames::Verified(_)) {
        for namespace in ["a", "b"] {
            let pods = (0..6).map(|n| format!("10-0-0-{n}.{namespace}.pod.cluster.local."));
            names.extend(pods);
        }
    }
    names.insert("dns-version.cluster.local.".to_owned());
    names.extend(ZONES.map(|zone| format!("{zone}.")));
    names
}

/// An upstream that has one address of each family for every name.
fn upstream(question: &ExternalQuery) -> ExternalAnswer {
    let rdata = match question.qtype {
        rtype::A => [192, 0, 2, 99].into_iter().collect(),
        _ => [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 99]
            .into_iter()
            .collect(),
    };
    let (owner, rtype) = (question.name.clone(), question.qtype);
    ExternalAnswer::Records(vec![ExternalRecord {
        owner,
        rtype,
        rdata,
    }])
}

/// The records in the engine's answer for a name and type. Records of other owners are left out.
fn answered(view: &Snapshot, owner: &str, rtype: &str) -> BTreeSet<Record> {
    let query = testkit::query::Query::new(owner, rtype).wire();
    let identity = Identity {
        version: String::new(),
    };
    let mut external = ExternalAnswers::none();
    let mut out = Vec::new();
    loop {
        out.clear();
        match engine::answer_message(view, &identity, &query, Transport::Tcp, &external, &mut out) {
            EngineOutcome::Pending(PendingAnswer::External(questions)) => {
                for question in questions {
                    let answer = upstream(&question);
                    external.insert(question, answer);
                }
            }
            EngineOutcome::Reply(_) => break,
            _ => return BTreeSet::new(),
        }
    }
    let message = Message::parse(&out).unwrap();
    let records = message.section(Section::Answer).filter_map(|record| {
        let own = record.owner().unwrap().to_string().to_lowercase();
        let mut data = Vec::new();
        record.append_data(&mut data).unwrap();
        (own == owner).then_some((own, record.rtype, record.ttl, data))
    });
    records.collect()
}

/// Whether `owner` is a port name (such as `_http._tcp.ALIAS`) below an alias of the configuration
/// whose target is outside our zones or in a domain of `--fallthrough`. The engine answers every
/// port name below such an alias with a CNAME, unless our zones have records for the target of this
/// CNAME. The number of these names is not limited, so a transfer cannot list them.
fn is_port_of_external_alias(view: &Snapshot, owner: &str) -> bool {
    let is_port = owner.split('.').take(2).all(|label| label.starts_with('_'));
    match view.zone.own(name(owner).wire()) {
        Some(OwnTarget::Name(target)) if is_port => {
            let mut through = view.zone.fallthrough.iter();
            Authority::of(view, target.wire()).is_none()
                || through.any(|zone| is_within(target.wire(), zone.wire()))
        }
        _ => false,
    }
}

/// Whether `owner` is in a zone that answers in SkyDNS style, such as a zone from etcd. If `owner`
/// is an alias of the configuration, the zone of its target is checked instead.
fn is_answered_by_skydns(view: &Snapshot, owner: &str) -> bool {
    let target = stored_name(view, owner);
    let holder = Authority::of(view, target.wire());
    holder
        .and_then(|holder| holder.further)
        .is_some_and(|zone| zone.skydns)
}

/// The name whose stored records are in the answers for `owner`: the target if `owner` is an alias
/// of the configuration, otherwise `owner` itself.
fn stored_name(view: &Snapshot, owner: &str) -> Name {
    let name = name(owner);
    match view.zone.own(name.wire()) {
        Some(OwnTarget::Name(target)) => target.into_owned(),
        _ => name,
    }
}

/// The targets of the aliases that a look-up of a name finds, for all query types except CNAME. In
/// a zone of etcd, as in SkyDNS, such a look-up does not find an alias that has further keys below
/// its key. A CNAME query finds it.
fn stored_aliases(view: &Snapshot, owner: &str) -> Vec<Vec<u8>> {
    let owner = stored_name(view, owner);
    let Some(holder) = Authority::of(view, owner.wire()) else {
        return Vec::new();
    };
    let labels = wire::name::labels(holder.relative(owner.wire()));
    let mut path: Vec<&str> = labels
        .map(|label| std::str::from_utf8(label).unwrap())
        .collect();
    path.reverse();
    let mut targets = Vec::new();
    holder.records.visit_entries(EntryVisit {
        path: &path,
        exact: false,
        steps: &mut usize::MAX.clone(),
        on_entry: &mut |entry| {
            if let Host::Name(target) = &entry.record.host {
                targets.push(target.wire().to_vec());
            }
        },
    });
    targets
}

/// The records of one name: those in the engine's answers, and those in a transfer.
struct CheckedName<'a> {
    view: &'a Snapshot,
    zone: &'a str,
    owner: &'a str,
    /// The CNAME records in the engine's answers.
    aliases: BTreeSet<Record>,
    /// All other records in the engine's answers.
    others: BTreeSet<Record>,
    copy: &'a BTreeSet<Record>,
}

fn without_ttl(records: &BTreeSet<Record>) -> BTreeSet<(u16, Vec<u8>)> {
    records
        .iter()
        .map(|(_, rtype, _, data)| (*rtype, data.clone()))
        .collect()
}

impl<'a> CheckedName<'a> {
    fn new(view: &'a Snapshot, zone: &'a str, owner: &'a str, copy: &'a BTreeSet<Record>) -> Self {
        let live = TYPES.iter().flat_map(|rtype| answered(view, owner, rtype));
        let (aliases, others) = live.partition(|record| record.1 == rtype::CNAME);
        Self {
            view,
            zone,
            owner,
            aliases,
            others,
            copy,
        }
    }

    fn describe(&self, what: &str) -> String {
        let Self {
            zone,
            owner,
            aliases,
            others,
            copy,
            ..
        } = self;
        format!("{what}: {owner} in {zone}\nanswers {aliases:?} {others:?}\ntransfer {copy:?}")
    }

    /// Checks the transfer against the answers. docs/transfer.md lists where they may differ.
    fn check(&self) -> Result<(), TestCaseError> {
        let Self {
            view, zone, owner, ..
        } = *self;
        // A secondary cannot load a zone without a name server, so a transfer always has one.
        // Without --strict-dns, the engine answers queries for the name server of the cluster's
        // zone with NXDOMAIN.
        if owner == format!("{zone}.") || owner == format!("ns.dns.{zone}.") {
            return self.check_apex();
        }

        let is_cut = self.copy.iter().any(|record| record.1 == rtype::NS);
        if is_cut {
            let holder = holder(view, owner.trim_end_matches('.'));
            prop_assert!(holder.is_none_or(|of| of != name(zone)));
            return Ok(());
        }

        // A transfer has no records for the name of a namespace. The engine answers such a name
        // with the records of the ExternalName Services in the namespace. A transfer also has no
        // port names that the engine answers with only a CNAME whose target the upstreams resolve.
        let mut labels = owner.splitn(3, '.').skip(1);
        let is_namespace =
            labels.next() == Some("svc") && labels.next() == Some(format!("{zone}.").as_str());
        let is_left_out =
            is_namespace || (self.others.is_empty() && is_port_of_external_alias(view, owner));
        if self.copy.is_empty() && is_left_out {
            return Ok(());
        }

        if self.aliases.is_empty() {
            self.check_without_alias()
        } else {
            self.check_alias()
        }
    }

    fn check_apex(&self) -> Result<(), TestCaseError> {
        prop_assert!(
            without_ttl(self.copy).is_superset(&without_ttl(&self.others)),
            "{}",
            self.describe("the transfer lacks records of the apex or of its name server")
        );
        prop_assert!(
            self.copy.iter().all(|record| record.1 != rtype::CNAME),
            "{}",
            self.describe("the apex or its name server is an alias")
        );
        Ok(())
    }

    fn check_without_alias(&self) -> Result<(), TestCaseError> {
        let copy = self.copy;
        let is_dangling = copy.iter().all(|record| record.1 == rtype::CNAME) && !copy.is_empty();
        // In a zone in SkyDNS style, a CNAME query finds only an alias at the key of the name
        // itself. Address queries also find an alias at a key below, but get NODATA if its target
        // has no addresses. A transfer has the alias nevertheless.
        let is_listed = is_dangling && is_answered_by_skydns(self.view, self.owner);
        prop_assert!(
            *copy == self.others || is_listed,
            "{}",
            self.describe("the transfer must have the records of the answers")
        );
        Ok(())
    }

    fn check_alias(&self) -> Result<(), TestCaseError> {
        let Self {
            view,
            owner,
            aliases,
            others,
            copy,
            ..
        } = self;
        // As in SkyDNS, if there are keys below the key of an alias, only CNAME queries get the
        // alias. A CNAME in the transfer would exclude the records that all other queries get.
        let stored = stored_aliases(view, owner);
        if is_answered_by_skydns(view, owner) && stored.is_empty() {
            prop_assert_eq!(
                *copy,
                others,
                "{}",
                self.describe("an alias with keys below its key must be left out")
            );
            return Ok(());
        }

        let has_addresses = others
            .iter()
            .any(|record| matches!(record.1, rtype::A | rtype::AAAA));
        let is_port = owner.starts_with('_') && others.iter().any(|record| record.1 == rtype::SRV);
        if has_addresses || is_port {
            prop_assert_eq!(
                without_ttl(copy),
                without_ttl(others),
                "{}",
                self.describe("the transfer must have the other records instead of the alias")
            );
            return Ok(());
        }

        // The engine chooses one of several aliases at random.
        let mut targets = without_ttl(aliases);
        targets.extend(stored.into_iter().map(|target| (rtype::CNAME, target)));
        prop_assert!(
            copy.len() == 1 && without_ttl(copy).is_subset(&targets),
            "{}",
            self.describe("the transfer must have one alias, as in the answers")
        );
        Ok(())
    }
}

fn check_zone(view: &Snapshot, zone: &Name, copy: &ZoneCopy) -> Result<(), TestCaseError> {
    let zone = zone.to_string();
    let zone = zone.trim_end_matches('.');
    let mut by_owner: BTreeMap<&str, BTreeSet<Record>> = BTreeMap::new();
    for record in &copy.records {
        by_owner
            .entry(&record.0)
            .or_default()
            .insert(record.clone());
    }
    let candidates = candidates(view);
    let in_zone = |owner: &&String| {
        holder(view, owner.trim_end_matches('.')).is_some_and(|of| of == name(zone))
    };
    let names = candidates.iter().filter(in_zone).map(String::as_str);
    let names: BTreeSet<&str> = names.chain(by_owner.keys().copied()).collect();
    for owner in names {
        let nothing = BTreeSet::new();
        let copy = by_owner.get(owner).unwrap_or(&nothing);
        CheckedName::new(view, zone, owner, copy).check()?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn transfers_equal_answers_and_differences_update_old_copies(
        fixed in fixed(),
        start in proptest::collection::vec(change(), 0..24),
        edits in proptest::collection::vec(edit(), 0..12),
    ) {
        let mut world = World::new(fixed, &start);
        let transfers = secondary::start_transfers();
        let mut known: BTreeMap<&str, ZoneCopies> = BTreeMap::new();
        for (number, edit) in edits.iter().enumerate() {
            world.apply(edit);
            let view = world.view();
            let time = 3_000_000_000 + u64::try_from(number).unwrap();
            let has_changed = transfers.update_versions(&view, time);
            let mut any_new = false;
            // A check queries every name, which is slow. So the zones are checked only after every
            // fourth edit and after the last edit.
            let is_checked = number % 4 == 3 || number + 1 == edits.len();
            for domain in ZONES {
                let zone = name(domain);
                let Some(whole) = secondary::transfer_whole(&transfers, &zone) else { continue };
                if is_checked {
                    check_zone(&view, &zone, &whole)?;
                }

                let copies = known.entry(domain).or_default();
                let before = copies.values().next_back().cloned();
                let is_new = before.is_none_or(|before| before.records != whole.records);
                any_new |= is_new;
                prop_assert_eq!(is_new, !copies.contains_key(&whole.serial()), "{} must have a new version exactly when its records have changed", domain);
                copies.insert(whole.serial(), whole.clone());
                for copy in copies.values() {
                    let mut copy = copy.clone();
                    prop_assert!(copy.update(&transfers, &zone, copies), "{} must be sent as a difference", domain);
                    prop_assert_eq!(&copy, &whole);
                }
            }
            prop_assert_eq!(has_changed, any_new);
        }
        for domain in ["cluster.local", "other.example", "sky.test", "clusterset.local"] {
            prop_assert!(edits.is_empty() || known.contains_key(domain), "{} must be transferred", domain);
        }
    }
}

/// A Service whose load balancer has the address or hostname `external`.
fn load_balancer(external: ExternalAddress) -> ClusterEdit {
    ClusterEdit::Service(Service {
        key: ObjectKey::new("a", "x"),
        kind: ServiceKind::ClusterIp([IpAddr::from([10, 96, 0, 1])].into_iter().collect()),
        ports: [ServicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
        }]
        .into_iter()
        .collect(),
        publish_not_ready: false,
        created: 0,
        external: [external].into_iter().collect(),
    })
}

#[test]
fn alias_above_further_keys_is_left_out() {
    let mut world = World::new(Fixed::default(), &[]);
    let alias = Edit::Etcd("b", Some(ALIAS));
    let text_below = Edit::Etcd("b/1a2b", Some(TEXT));
    for edit in [alias, text_below] {
        world.apply(&edit);
    }

    let view = world.view();
    let transfers = secondary::start_transfers();
    transfers.update_versions(&view, 3_000_000_000);
    let zone = name("sky.test");
    let copy = secondary::transfer_whole(&transfers, &zone).unwrap();

    check_zone(&view, &zone, &copy).unwrap();
    assert_eq!(types_at(&copy, "b.sky.test."), [rtype::TXT]);
}

/// The types of the records of a name.
fn types_at(copy: &ZoneCopy, owner: &str) -> Vec<u16> {
    let records = copy.records.iter().filter(|record| record.0 == owner);
    records.map(|record| record.1).collect()
}

/// A server with a zone of external addresses.
fn world_with_external_zone() -> World {
    let records = RecordOptions {
        external: ExternalRecords::Exposed,
        ..RecordOptions::default()
    };
    let options = IndexOptions {
        records,
        external_zone: Some(name("k8s.example")),
        ..IndexOptions::default()
    };
    let fixed = Fixed {
        options,
        ..Fixed::default()
    };
    World::new(fixed, &[])
}

/// Asserts that `edit` gives a name one record, of type `rtype`, and that the record is
/// transferred in a whole zone and as a difference.
fn assert_transferred(what: &str, edit: &Edit, owner: &str, rtype: u16) {
    let mut world = world_with_external_zone();
    let zone =
        holder(&world.view(), owner.trim_end_matches('.')).expect("the name must be in a zone");
    let transfers = secondary::start_transfers();
    transfers.update_versions(&world.view(), 3_000_000_000);
    let mut copy = secondary::transfer_whole(&transfers, &zone).unwrap();
    let known = ZoneCopies::from([(copy.serial(), copy.clone())]);

    world.apply(edit);
    assert!(
        transfers.update_versions(&world.view(), 3_000_000_001),
        "{what} must make a new version"
    );
    let whole = secondary::transfer_whole(&transfers, &zone).unwrap();
    assert_eq!(types_at(&whole, owner), [rtype], "{what}");

    assert!(
        copy.update(&transfers, &zone, &known),
        "{what} must be sent as a difference"
    );
    assert_eq!(copy, whole, "{what}");
}

#[test]
fn added_record_is_transferred() {
    use wire::rtype::{A, CNAME, NS, SRV};

    let hostname = || ExternalAddress::Name("lb.example".into());
    let balanced = || Edit::Cluster(load_balancer(hostname()));
    let alias_at = |key| Edit::Etcd(key, Some(ALIAS));
    let mail = Edit::Etcd("al", Some(MAIL));
    let host = Edit::Own("own.cluster.local", Some("10.7.7.7"));
    let own_alias = Edit::Own("own.sky.test", Some("www.outside.test"));
    let stub = Edit::Stub("y.a.svc.cluster.local");
    let port = "_http._tcp.x.a.k8s.example.";
    for (what, edit, owner, rtype) in [
        ("a load balancer", balanced(), "x.a.k8s.example.", CNAME),
        ("a port of a load balancer", balanced(), port, SRV),
        (
            "an alias one level below the key of the name",
            alias_at("al/1a2b"),
            "al.sky.test.",
            CNAME,
        ),
        (
            "an alias two levels below the key of the name",
            alias_at("b/c/x"),
            "b.sky.test.",
            CNAME,
        ),
        (
            "an alias that is also a mail exchange",
            mail,
            "al.sky.test.",
            CNAME,
        ),
        ("a host", host, "own.cluster.local.", A),
        (
            "an alias of the configuration",
            own_alias,
            "own.sky.test.",
            CNAME,
        ),
        ("a stub domain", stub, "y.a.svc.cluster.local.", NS),
    ] {
        assert_transferred(what, &edit, owner, rtype);
    }
}

/// If an alias of the configuration has the name of a Service, the alias hides the records of this
/// name, and those of the port names below it.
#[test]
fn port_name_hidden_by_alias_is_not_transferred() {
    let port = "_http._tcp.x.a.k8s.example.";
    let zone = name("k8s.example");
    for (what, target) in [
        ("a target outside our zones", "www.outside.test"),
        ("a target inside our zones", "z.a.svc.cluster.local"),
    ] {
        let mut world = world_with_external_zone();
        let address = ExternalAddress::Ip(IpAddr::from([203, 0, 113, 7]));
        world.apply(&Edit::Cluster(load_balancer(address)));
        let edit = Edit::Own("x.a.k8s.example", Some(target));
        let (before, after) = edited_zone(what, &mut world, &zone, &edit);
        assert!(
            types_at(&before, port).contains(&rtype::SRV),
            "{what}: the port must be listed before the edit"
        );
        assert_eq!(
            types_at(&after, port),
            [0_u16; 0],
            "{what}: the port must not be in the whole zone"
        );
    }
}

/// The whole zone before and after an edit. Checks that the change is sent as a difference.
fn edited_zone(what: &str, world: &mut World, zone: &Name, edit: &Edit) -> (ZoneCopy, ZoneCopy) {
    let transfers = secondary::start_transfers();
    transfers.update_versions(&world.view(), 3_000_000_000);
    let before = secondary::transfer_whole(&transfers, zone).unwrap();

    world.apply(edit);
    transfers.update_versions(&world.view(), 3_000_000_001);
    let whole = secondary::transfer_whole(&transfers, zone).unwrap();

    let mut copy = before.clone();
    let known = ZoneCopies::from([(before.serial(), before.clone())]);
    assert!(
        copy.update(&transfers, zone, &known),
        "{what}: the change must be sent as a difference"
    );
    assert_eq!(
        copy, whole,
        "{what}: the difference must make the copy equal to the whole zone"
    );
    (before, whole)
}

/// The target of the alias is a Service that does not exist at first. So, with `--fallthrough`, the
/// answer for the port name below the alias is a CNAME whose target is forwarded. Then the Service
/// is created, and has this port.
#[test]
fn new_port_below_alias_is_added_to_copy() {
    let fixed = Fixed {
        fallthrough: true,
        ..Fixed::default()
    };
    let mut world = World::new(fixed, &[]);
    let zone = name("cluster.local");
    let port = "_http._tcp.w.a.svc.cluster.local.";
    world.apply(&Edit::Own(
        "w.a.svc.cluster.local",
        Some("x.a.svc.cluster.local"),
    ));

    let address = ExternalAddress::Ip(IpAddr::from([203, 0, 113, 7]));
    let service = Edit::Cluster(load_balancer(address));
    let (before, after) = edited_zone("a new Service", &mut world, &zone, &service);
    assert_eq!(types_at(&before, port), [0_u16; 0]);
    assert!(types_at(&after, port).contains(&rtype::SRV));
}

/// If a zone has no address of its own for its name server, the name server has the address of the
/// DNS Service. Such a zone is not transferred until the first lists of the cluster are complete.
#[test]
fn zone_with_address_for_name_server_does_not_wait_for_cluster() {
    let mut world = World::new(Fixed::default(), &[]);
    world.apply(&Edit::Etcd("dns/ns", Some(r#"{"host":"192.0.2.53"}"#)));
    let transfers = secondary::start_transfers();
    let view = world.view();
    let early = Arc::new(Snapshot {
        records_from: RecordsFrom::Nowhere,
        ..Snapshot::clone(&view)
    });
    assert!(transfers.update_versions(&early, 3_000_000_000));
    let missing = secondary::transfer_whole(&transfers, &name("cluster.local"));
    assert_eq!(missing, None);
    let sky = secondary::transfer_whole(&transfers, &name("sky.test")).unwrap();

    assert!(transfers.update_versions(&view, 3_000_000_001));
    assert!(secondary::transfer_whole(&transfers, &name("cluster.local")).is_some());
    let kept = secondary::transfer_whole(&transfers, &name("sky.test"));
    assert_eq!(kept, Some(sky));
}

/// A secondary may have newer records than a snapshot file.
#[test]
fn zones_of_snapshot_file_are_not_transferred() {
    let mut world = world_with_external_zone();
    (world.index, world.published) = index_with(&world.fixed.options);
    let address = ExternalAddress::Ip(IpAddr::from([203, 0, 113, 7]));
    world.apply(&Edit::Cluster(load_balancer(address)));
    world.index.serve_stale(EndpointsSource::Endpoints);
    world.index.publish();

    let transfers = secondary::start_transfers();
    transfers.update_versions(&world.view(), 3_000_000_000);
    let zones = ["cluster.local", "other.example", "k8s.example"].map(name);
    for zone in &zones {
        let view = world.view();
        let authority = Authority::of(&*view, zone.wire()).expect("the zone must exist");
        assert!(authority.records.has_synced(), "{zone} must be served");
        let copy = secondary::transfer_whole(&transfers, zone);
        assert_eq!(copy, None, "{zone} must not be transferred");
    }

    list(&mut world.index, &world.cluster);
    world.index.publish();
    transfers.update_versions(&world.view(), 3_000_000_001);
    for zone in &zones {
        let copy = secondary::transfer_whole(&transfers, zone);
        assert!(copy.is_some(), "{zone} must be transferred after the lists");
    }
}
