//! A cache in front of kubedns, as in the pod, never changes an answer, whatever was queried before. dnsmasq caches
//! every CNAME it sees and answers all types of a name through it, so one answer can change the answers to other
//! questions.
//!
//! The cache is never cleared: each pair of questions has a Service in a namespace of its own.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests: a broken set-up ends the test with its reason"
)]

#[path = "cache_in_front/behind.rs"]
mod behind;
#[path = "in_process/engine.rs"]
mod engine;
#[path = "cache_in_front/kinds.rs"]
mod kinds;

use std::collections::BTreeMap;

use behind::Behind;
use kinds::{KINDS, Kind, Question};

/// Pairs asked concurrently. Answers live for 30 seconds, so no more can be asked in time.
const AT_A_TIME: usize = 300;
/// Orders of all questions about one Service.
const ORDERS: usize = 24;

/// Caching of negative answers. In the pod it is off (`--no-negcache`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Negatives {
    Dropped,
    Cached,
}

impl Negatives {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Dropped => &["--no-negcache"],
            Self::Cached => &[],
        }
    }
}

/// Harmless differences, each with its reason. All but the last exist with kube-dns, too.
fn is_harmless(kind: &Kind, question: &Question, negatives: Negatives) -> bool {
    let of_alias = kind.is_alias(question.name);
    match question.rtype {
        // An ExternalName answers SRV with a record of port 0 for its target, as in kube-dns. Through the cached
        // CNAME, dnsmasq gives the answer to SRV of the target: its own records, or its ports if it is an SRV name.
        "SRV" if of_alias => true,
        // If dnsmasq knows the CNAME from the addresses, it answers the same records under the name of the target.
        "SRV" if question.is_completed() => true,
        // A wildcard or a namespace stands for any of its CNAMEs, but has none for the type CNAME. Only people query
        // that.
        "CNAME" if of_alias && question.name != "ext" => true,
        // kubedns refuses ANY; dnsmasq knows that the name does not exist.
        "ANY" => negatives == Negatives::Cached,
        // The target does not exist: its name gets NXDOMAIN, and the name of the CNAME gets NOERROR. Either may be
        // cached.
        _ => negatives == Negatives::Cached && kind.leads_nowhere,
    }
}

/// Differences, each with its question, the question before, and the two answers.
struct Findings {
    negatives: Negatives,
    stories: BTreeMap<String, String>,
}

impl Findings {
    fn new(negatives: Negatives) -> Self {
        Self { negatives, stories: BTreeMap::new() }
    }

    fn compare(&mut self, kind: &Kind, before: &str, question: &Question, fresh: &str, cached: &str) {
        if fresh != cached && !is_harmless(kind, question, self.negatives) {
            let story = format!("after {before}:\n  kubedns {fresh}\n  dnsmasq {cached}");
            self.stories.entry(format!("{}: {question}", kind.name)).or_insert(story);
        }
    }

    fn assert_none(&self) {
        let all: Vec<String> = self.stories.iter().map(|(what, story)| format!("{what} {story}")).collect();
        assert!(all.is_empty(), "{} questions are answered otherwise:\n{}", all.len(), all.join("\n"));
    }
}

/// Asks every pair of questions about a Service, in both orders.
async fn pairs(negatives: Negatives) {
    let mut findings = Findings::new(negatives);
    for kind in KINDS {
        let questions = kind.questions();
        let pairs: Vec<(&Question, &Question)> =
            questions.iter().flat_map(|first| questions.iter().map(move |second| (first, second))).collect();
        let behind = Behind::start(kind, pairs.len(), negatives.flags()).await;
        let numbered: Vec<_> = pairs.into_iter().enumerate().collect();
        for some in numbered.chunks(AT_A_TIME) {
            let firsts: Vec<_> = some.iter().map(|(n, (first, _))| first.query(*n)).collect();
            let seconds: Vec<_> = some.iter().map(|(n, (_, second))| second.query(*n)).collect();
            let fresh = behind.fresh(&seconds).await;
            behind.cached(&firsts).await;
            let cached = behind.cached(&seconds).await;
            for (((_, (first, second)), fresh), cached) in some.iter().zip(fresh).zip(cached) {
                findings.compare(kind, &first.to_string(), second, &fresh, &cached);
            }
        }
    }
    findings.assert_none();
}

/// Asks all questions about a Service, in many orders: finds faults that need more than one answer in the cache.
async fn orders(negatives: Negatives) {
    let mut findings = Findings::new(negatives);
    let mut random = fastrand::Rng::with_seed(7);
    for kind in KINDS {
        let questions = kind.questions_with_completed();
        let behind = Behind::start(kind, ORDERS, negatives.flags()).await;
        let orders: Vec<Vec<&Question>> = (0..ORDERS)
            .map(|_| {
                let mut order: Vec<&Question> = questions.iter().collect();
                random.shuffle(&mut order);
                order
            })
            .collect();
        for step in 0..questions.len() {
            let asked: Vec<_> = orders.iter().enumerate().map(|(n, order)| order[step].query(n)).collect();
            let (fresh, cached) = (behind.fresh(&asked).await, behind.cached(&asked).await);
            for ((order, fresh), cached) in orders.iter().zip(fresh).zip(cached) {
                let before: Vec<String> = order[..step].iter().map(ToString::to_string).collect();
                findings.compare(kind, &before.join(", "), order[step], &fresh, &cached);
            }
        }
    }
    findings.assert_none();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pair_of_questions_is_answered_as_without_a_cache() {
    pairs(Negatives::Dropped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_questions_in_any_order_are_answered_as_without_a_cache() {
    orders(Negatives::Dropped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_they_are_with_negative_answers_cached() {
    orders(Negatives::Cached).await;
}

/// The sidecar of a stock pod queries SRV of a plain name every five seconds. With a CNAME of the SRV name in the
/// cache, the ports in its answers became 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_of_srv_names_survive_their_addresses() {
    for kind in KINDS.iter().filter(|kind| kind.has_ports) {
        let behind = Behind::start(kind, 1, Negatives::Dropped.flags()).await;
        let ask = |name, rtype| Question { name, rtype }.query(0);
        let srv = [ask("_http._tcp.web", "SRV")];
        let fresh = behind.fresh(&srv).await;
        assert!(fresh.iter().all(|answer| answer.contains(" 80 ")), "{}: {fresh:?}", kind.name);
        for before in [("_http._tcp.web", "A"), ("_http._tcp.web", "AAAA"), ("web", "SRV")] {
            behind.cached(&[ask(before.0, before.1)]).await;
        }
        assert_eq!(behind.cached(&srv).await, fresh, "{}", kind.name);
    }
}
