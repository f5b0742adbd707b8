//! A name that kubedns resolves with a search list on behalf of the client.

use std::sync::Arc;

use skydns::engine::System;
use skydns::resolve::search_walk::SearchWalk;
use skydns::search::SearchList;
use skydns::{Search, Zone};
use wire::Name;
use wire::{HEADER, Query, Section, rcode, rtype};

use crate::{example, message};

/// The value of `--search-suffix`. kubedns resolves names below it with a search list.
const SUFFIX: &str = "search.cluster.local";
/// The search domains that follow those of the cluster.
const FURTHER: [&str; 2] = ["corp.example", "net"];
/// The number of states in an input, one for each name of the search list. The list has at most six
/// names, so some states are not used.
const STATES: usize = 12;

/// The records that exist at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Missing,
    /// The response is SERVFAIL.
    Broken,
    /// The numbers of A records, of AAAA records, and of records of other types.
    Exists([u8; 3]),
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Missing,
    Failed,
    /// The target of the CNAME in the answer, and the number of records of the queried type.
    At(Option<Name>, usize),
}

/// For any set of existing names, kubedns finds the same result as a client that searches the list
/// itself. A and AAAA records come from the same name of the list. If the responses are malformed,
/// the answer is still a well-formed message.
///
/// The first octet of the input selects the search list and the query. The next twelve octets
/// select the records of the names in the list. The other octets are a name and, as its last label,
/// the client's namespace.
pub fn search(input: &[u8]) {
    let Some((&[choice, states @ ..], text)) = input.split_first_chunk::<{ STATES + 1 }>() else {
        return;
    };
    let Some((bare, namespace)) = parts(text) else {
        return;
    };
    let autopath = choice & 1 != 0;
    let transport = message::transport(choice >> 1);
    let qtype = [rtype::A, rtype::AAAA, rtype::TXT, rtype::CNAME][usize::from(choice >> 2 & 3)];
    let suffix = example::name(SUFFIX);
    let further = FURTHER.map(example::name);
    let search = Search::new(Some(&suffix), autopath, further);
    let zone = Zone {
        search: Some(Arc::new(search)),
        ..example::zone(false)
    };
    let below = if autopath {
        format!("{namespace}.svc.cluster.local")
    } else {
        format!("{namespace}.{SUFFIX}")
    };
    let Ok(name) = Name::parse(&format!("{bare}.{below}")) else {
        return;
    };
    let list = if autopath {
        zone.search_list_of_client(name.wire(), &namespace)
    } else {
        zone.search_list(name.wire())
    };
    let Some(list) = list else {
        unreachable!("{name} has no search list")
    };
    assert_eq!(list.names, expected_names(&bare, &namespace, &zone));
    let asked = message::query(name.wire(), qtype, (choice & 16 != 0).then_some(1232));
    let Ok(query) = Query::parse(&asked, transport) else {
        unreachable!("our own query is malformed: {asked:02x?}")
    };
    let states = states.map(State::of);
    let answer = walk(&query, list.clone(), &zone, |at, question| {
        respond(question, states[at % STATES])
    });
    message::answers(&asked, transport, &answer);
    if !message::read(&answer).header().is_truncated() {
        assert_eq!(
            ended(&answer, &name, qtype),
            own_walk(&name, &list.names, &states, qtype),
            "{name}"
        );
    }
    // Malformed responses are only tried without autopath. With autopath, the first name of the
    // list is the queried name, and the walk may return a copy of the response for this name. That
    // name is in the cluster domain, so kubedns itself makes this response, and it is well-formed.
    if !autopath {
        message::answers_with_any_records(
            &asked,
            transport,
            &walk(&query, list, &zone, |_, _| input.to_vec()),
        );
    }
}

/// Splits the text before its last label. The last label is a namespace, and the rest is a name of
/// at least one label. Returns `None` if one of them is missing or invalid.
fn parts(text: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(text).ok()?;
    let (bare, namespace) = text.rsplit_once('.')?;
    let labels = |name: &str| name.split('.').all(|label| (1..64).contains(&label.len()));
    let is_namespace = namespace.bytes().all(|octet| octet.is_ascii_lowercase());
    (labels(bare) && labels(namespace) && is_namespace)
        .then(|| (bare.to_owned(), namespace.to_owned()))
}

/// The expected names of the search list, in order.
fn expected_names(bare: &str, namespace: &str, zone: &Zone) -> Vec<Name> {
    let cluster = [
        format!("{namespace}.svc.cluster.local"),
        "svc.cluster.local".into(),
        "cluster.local".into(),
    ];
    let domains = cluster
        .into_iter()
        .chain(FURTHER.map(str::to_owned))
        .map(|domain| format!("{bare}.{domain}"));
    let mut names: Vec<Name> = Vec::new();
    for text in domains.chain([bare.to_owned()]) {
        let Ok(name) = Name::parse(&text) else {
            continue;
        };
        let lower = text.to_ascii_lowercase();
        let completed = format!(".{lower}").ends_with(&format!(".{SUFFIX}"));
        let kept_back =
            !lower.contains('.') && zone.servers_for(name.to_lowercase().wire()).1.is_none();
        let known = names
            .iter()
            .any(|known| known.to_lowercase() == name.to_lowercase());
        if !completed && !kept_back && !known {
            names.push(name);
        }
    }
    names
}

impl State {
    fn of(octet: u8) -> Self {
        match octet & 3 {
            0 => Self::Missing,
            1 if octet & 0x0c == 0 => Self::Broken,
            _ => Self::Exists([octet >> 2 & 3, octet >> 4 & 3, octet >> 6]),
        }
    }

    fn records(self, qtype: u16) -> u8 {
        match (self, qtype) {
            (Self::Exists([a, _, _]), rtype::A) => a,
            (Self::Exists([_, aaaa, _]), rtype::AAAA) => aaaa,
            (Self::Exists([_, _, other]), _) => other,
            _ => 0,
        }
    }
}

/// The result of a client that searches the list itself. For every type but TXT, the client queries
/// A and AAAA together. The client stops at SERVFAIL.
fn own_walk(asked: &Name, names: &[Name], states: &[State], qtype: u16) -> End {
    let aliased = qtype != rtype::TXT;
    let at = |name: &Name, records| {
        let alias = (aliased && name != asked).then(|| name.clone());
        let records = if qtype == rtype::CNAME {
            usize::from(alias.is_some())
        } else {
            records
        };
        End::At(alias, records)
    };
    let types: &[u16] = if qtype == rtype::TXT {
        &[rtype::TXT]
    } else {
        &[rtype::A, rtype::AAAA]
    };
    let mut empty = None;
    for (name, state) in names.iter().zip(states) {
        match state {
            State::Missing => {}
            State::Broken => return End::Failed,
            State::Exists(_) if types.iter().any(|rtype| state.records(*rtype) > 0) => {
                return at(name, state.records(qtype).into());
            }
            State::Exists(_) => empty = Some(at(name, 0)),
        }
    }
    empty.unwrap_or(End::Missing)
}

/// Lets kubedns search the list, and returns its answer. `respond` returns the response to the
/// query for the name at the given position of the list.
fn walk(
    query: &Query<'_>,
    list: SearchList,
    zone: &Zone,
    respond: impl Fn(usize, &Query<'_>) -> Vec<u8>,
) -> Vec<u8> {
    let names = list.names.clone();
    let (mut walk, mut answer) = (SearchWalk::new(query, list, zone), Vec::new());
    for _ in 0..=2 * names.len() {
        let Some(message) = walk.next_question(query) else {
            walk.append_answer(query, &mut answer);
            return answer;
        };
        let Ok(question) = Query::parse(&message, query.transport) else {
            unreachable!("our own query is malformed: {message:02x?}")
        };
        let at = names.iter().position(|name| name.wire() == question.name);
        walk.take_response(
            &respond(at.unwrap_or_default(), &question),
            System::Recursive,
            None,
        );
    }
    unreachable!("kubedns asks more than two questions per name of {names:?}")
}

/// The response to a query for a name in `state`.
fn respond(question: &Query<'_>, state: State) -> Vec<u8> {
    let code = match state {
        State::Missing => rcode::NXDOMAIN,
        State::Broken => rcode::SERVFAIL,
        State::Exists(_) => rcode::NOERROR,
    };
    let count = state.records(question.qtype);
    let mut message = question
        .message
        .get(..question.question_end())
        .unwrap_or_default()
        .to_vec();
    let edns = u8::from(question.edns.is_some());
    let header = [0x80, code.to_be_bytes()[1], 0, 1, 0, count, 0, 0, 0, edns];
    message.splice(2..HEADER, header);
    for number in 0..count {
        let data = vec![1 + number; if question.qtype == rtype::AAAA { 16 } else { 4 }];
        let data = if question.qtype == rtype::TXT {
            vec![1, number]
        } else {
            data
        };
        message.extend_from_slice(&[0xc0, 12]);
        message.extend_from_slice(&question.qtype.to_be_bytes());
        message.extend_from_slice(&[0, 1, 0, 0, 0, 60, 0]);
        message.extend([u8::try_from(data.len()).unwrap_or_default()]);
        message.extend(data);
    }
    if edns > 0 {
        message.extend_from_slice(&[0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
    }
    message
}

/// The result of the search as the client sees it in the answer.
fn ended(answer: &[u8], asked: &Name, qtype: u16) -> End {
    let message = message::read(answer);
    let records: Vec<_> = message.section(Section::Answer).collect();
    let alias = records
        .iter()
        .find(|record| record.rtype == rtype::CNAME)
        .map(|record| {
            let mut data = Vec::new();
            let appended = record.append_data(&mut data);
            assert!(
                appended.is_ok() && record.owner().as_ref() == Ok(asked),
                "{record:?}"
            );
            Name::from_wire(&data).unwrap_or_default()
        });
    let of_type = records
        .iter()
        .filter(|record| record.rtype == qtype)
        .count();
    match message.header().rcode() {
        rcode::NXDOMAIN => End::Missing,
        rcode::SERVFAIL => End::Failed,
        _ => End::At(alias, of_type),
    }
}
