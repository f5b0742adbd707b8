//! Checks that dnsmasq in front of kubedns gives the same answers as kubedns itself, whatever was
//! queried before. The function `is_harmless` lists the permitted differences. dnsmasq caches every
//! CNAME. It then answers queries of all types for the owner name of the CNAME with the target's
//! records. So one answer can change the answers to other questions.
//!
//! The tests never clear the cache. Each pair or order of questions uses a Service in a namespace
//! of its own.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test helper may panic if the set-up fails"
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

/// Number of pairs whose questions are sent together. The second questions must be sent before the
/// TTL of the first answers, 30 seconds, has passed.
const AT_A_TIME: usize = 300;
/// Number of random orders of all questions about one kind of Service.
const ORDERS: usize = 24;

/// Whether dnsmasq caches negative answers. In the pod the flag `--no-negcache` forbids that.
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

/// Returns whether a difference between dnsmasq's answer and kubedns' answer is harmless.
fn is_harmless(kind: &Kind, question: &Question, negatives: Negatives) -> bool {
    let of_alias = kind.is_alias(question.name);
    match question.rtype {
        // kubedns answers an SRV query for an ExternalName Service with port 0 and the target, as
        // kube-dns does. dnsmasq follows the cached CNAME, and answers with the target's SRV
        // records.
        "SRV" if of_alias => true,
        // kubedns completes the name with a search list, and answers with SRV records that have the
        // queried name as owner. If dnsmasq has cached the CNAME of the queried name, dnsmasq
        // answers with the CNAME and the target's SRV records.
        "SRV" if question.is_completed() => true,
        // `ext` is the name of an ExternalName Service. kubedns also finds this Service for a
        // wildcard, and for the name of its namespace. For these names, kubedns answers an A query
        // with the CNAME, but a CNAME query with NODATA. dnsmasq answers the CNAME query from its
        // cache. Programs do not send CNAME queries for such names.
        "CNAME" if of_alias && question.name != "ext" => true,
        // kubedns answers ANY with REFUSED. dnsmasq may answer with a cached NXDOMAIN.
        "ANY" => negatives == Negatives::Cached,
        // If the target of the CNAME does not exist, the RCODEs may differ: one server answers
        // NOERROR, and the other answers NXDOMAIN.
        _ => negatives == Negatives::Cached && kind.leads_nowhere,
    }
}

/// The differences that are not harmless, by kind of Service and question.
struct Findings {
    negatives: Negatives,
    stories: BTreeMap<String, String>,
}

impl Findings {
    fn new(negatives: Negatives) -> Self {
        Self {
            negatives,
            stories: BTreeMap::new(),
        }
    }

    fn compare(
        &mut self,
        kind: &Kind,
        before: &str,
        question: &Question,
        fresh: &str,
        cached: &str,
    ) {
        if fresh != cached && !is_harmless(kind, question, self.negatives) {
            let story = format!("after {before}:\n  kubedns {fresh}\n  dnsmasq {cached}");
            self.stories
                .entry(format!("{}: {question}", kind.name))
                .or_insert(story);
        }
    }

    fn assert_none(&self) {
        let all: Vec<String> = self
            .stories
            .iter()
            .map(|(what, story)| format!("{what} {story}"))
            .collect();
        assert!(
            all.is_empty(),
            "kubedns and dnsmasq answer {} questions differently:\n{}",
            all.len(),
            all.join("\n")
        );
    }
}

/// Sends every pair of questions about a Service, in both orders, and compares the answers to the
/// second question.
async fn pairs(negatives: Negatives) {
    let mut findings = Findings::new(negatives);
    for kind in KINDS {
        let questions = kind.questions();
        let pairs: Vec<(&Question, &Question)> = questions
            .iter()
            .flat_map(|first| questions.iter().map(move |second| (first, second)))
            .collect();
        let behind = Behind::start(kind, pairs.len(), negatives.flags()).await;
        let numbered: Vec<_> = pairs.into_iter().enumerate().collect();
        for some in numbered.chunks(AT_A_TIME) {
            let firsts: Vec<_> = some.iter().map(|(n, (first, _))| first.query(*n)).collect();
            let seconds: Vec<_> = some
                .iter()
                .map(|(n, (_, second))| second.query(*n))
                .collect();
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

/// Sends all questions about a Service in many orders, and compares all answers. This test finds
/// differences that appear only if more than one answer is cached.
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
            let asked: Vec<_> = orders
                .iter()
                .enumerate()
                .map(|(n, order)| order[step].query(n))
                .collect();
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
async fn answers_to_question_pairs_differ_only_harmlessly() {
    pairs(Negatives::Dropped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_shuffled_questions_differ_only_harmlessly() {
    orders(Negatives::Dropped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn negative_cache_causes_only_harmless_differences() {
    orders(Negatives::Cached).await;
}
