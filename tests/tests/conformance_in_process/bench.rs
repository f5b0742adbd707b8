//! Passes the questions of one scenario to the engine.

use skydns::Zone;
use skydns::engine::{EngineOutcome, Identity, PendingAnswer, answer_message};
use skydns::external::{ExternalAnswer, ExternalAnswers, ExternalQuery};
use skydns::resolve::extract_external_answer;
use testkit::{codes, name};
use tests::conformance::answer::Observed;
use tests::conformance::difference::{Differences, Mode};
use tests::conformance::memory::{Memory, Recalled};
use tests::conformance::vector::{self, Case, Scenario};
use tests::conformance::verdict::{Bench, Outcome as Agreement, Verdict};
use wire::Transport;

use crate::cluster::Cluster;

/// Maximum number of rounds of upstream queries for one answer.
const ROUNDS: usize = 4;

/// The results of one scenario.
pub(crate) struct Played {
    pub(crate) verdicts: Vec<Verdict>,
    /// Number of queries that were forwarded.
    pub(crate) forwarded: usize,
}

/// Runs a scenario from its first list to its last question.
pub(crate) fn play(
    scenario: &Scenario,
    mode: Mode,
    differences: &Differences,
    memory: &Memory,
) -> Played {
    let mut cluster = Cluster::new(scenario, mode == Mode::Strict);
    let bench = Bench {
        differences,
        mode,
        scenario,
    };
    let memory = has_resolver(scenario).then_some(memory);
    let mut played = Played {
        verdicts: Vec::new(),
        forwarded: 0,
    };
    for (at, step) in scenario.steps.iter().enumerate() {
        cluster.happen(step);
        for (number, case) in step.queries.iter().enumerate() {
            if let Some(observed) = ask(&cluster, memory, case) {
                played.verdicts.push(bench.verdict(at, number, &observed));
            } else {
                played.forwarded += 1;
                played
                    .verdicts
                    .extend(wrongly_forwarded(&bench, at, number, case));
            }
        }
    }
    played
}

/// Returns whether the server of the scenario has a resolver that answers.
fn has_resolver(scenario: &Scenario) -> bool {
    let texts = scenario.flags.iter().chain(&scenario.resolv_conf);
    let files = scenario.config_dir.iter().flat_map(|files| files.values());
    texts
        .chain(files)
        .any(|text| text.contains("$UPSTREAM") || text.contains("$RESOLV_IP"))
}

/// The verdict on a forwarded query; `None` if forwarding is right. Forwarding is wrong in two
/// cases: the expected answer has the SOA record of the cluster domain, or has a PTR record that
/// kube-dns did not get from its resolver.
fn wrongly_forwarded(
    bench: &Bench<'_>,
    step: usize,
    number: usize,
    case: &Case,
) -> Option<Verdict> {
    let expected = bench
        .differences
        .expected(bench.mode, &bench.scenario.name, step, number, case);
    let ours = |response: &vector::Response| {
        response
            .authority
            .iter()
            .any(|record| record.contains(" SOA ns.dns."))
    };
    let pointer =
        |response: &vector::Response| response.flags == "qr rd ra" && !response.answer.is_empty();
    let sent_on = case
        .upstream
        .iter()
        .any(|exchange| exchange.question.starts_with(&case.query.name));
    let wrong = expected
        .responses
        .iter()
        .any(|response| ours(response) || pointer(response) && !sent_on);
    let mut verdict = bench.verdict(step, number, &Observed::Nothing("sent on".to_owned()));
    verdict.outcome = Agreement::Unlisted("+ ;; the question was sent on".to_owned());
    wrong.then_some(verdict)
}

/// The answer of the engine to a question; `None` if the engine forwards the query.
fn ask(cluster: &Cluster, memory: Option<&Memory>, case: &Case) -> Option<Observed> {
    let packet = case.query.packet(1).expect("a packet");
    let identity = Identity {
        version: format!("kube-dns-rs {}", env!("CARGO_PKG_VERSION")),
    };
    let view = cluster.published.get();
    let mut outside = ExternalAnswers::none();
    for _ in 0..ROUNDS {
        let mut out = Vec::new();
        match answer_message(
            &*view,
            &identity,
            &packet,
            case.query.transport,
            &outside,
            &mut out,
        ) {
            EngineOutcome::Reply(_) => return Some(Observed::Packet(out)),
            EngineOutcome::Ignore => return Some(Observed::Nothing("timeout".to_owned())),
            EngineOutcome::Pending(PendingAnswer::Forward(_)) => return None,
            EngineOutcome::Search(_) => {
                return Some(Observed::Nothing("to be completed".to_owned()));
            }
            EngineOutcome::Transfer => return Some(Observed::Nothing("a transfer".to_owned())),
            EngineOutcome::Pending(PendingAnswer::Expensive) => {
                return Some(Observed::Nothing("too much work".to_owned()));
            }
            EngineOutcome::Pending(PendingAnswer::External(questions)) => {
                for question in questions {
                    let told = look_up(memory, case, &view.zone, &question);
                    outside.insert(question, told);
                }
            }
        }
    }
    Some(Observed::Nothing("the engine asks and asks".to_owned()))
}

fn look_up(
    memory: Option<&Memory>,
    case: &Case,
    zone: &Zone,
    question: &ExternalQuery,
) -> ExternalAnswer {
    let name = name::from_wire(question.name.wire(), &mut 0).expect("a name");
    let text = format!("{name} IN {}", codes::type_name(question.qtype));
    let recorded = case
        .upstream
        .iter()
        .find(|exchange| exchange.question.eq_ignore_ascii_case(&text));
    let recorded = recorded.map(|exchange| exchange.to_replay().expect("an exchange"));
    let Some(memory) = memory else {
        return ExternalAnswer::Failed;
    };
    let packets = match (&recorded, memory.recall(&text, Transport::Udp, false)) {
        (Some(exchange), _) | (None, Recalled::Exchange(exchange)) => &exchange.responses,
        (None, Recalled::Unknown("NXDOMAIN")) => return ExternalAnswer::Records(Vec::new()),
        (None, Recalled::Unknown(_) | Recalled::OnlyTruncated) => return ExternalAnswer::Failed,
    };
    let rcode = |packet: &[u8]| packet.get(3).map_or(0, |octet| u16::from(octet & 0x0f));
    packets.last().map_or(ExternalAnswer::Failed, |packet| {
        extract_external_answer(question, |name| zone.owns(name), packet, rcode(packet))
    })
}
