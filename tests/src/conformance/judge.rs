//! Compares an answer with the expected ones.

use super::answer::Answer;
use super::vector::{Case, Response};

/// Compares `answer` with the `expected` answers to `case`. The error is the diff from the first
/// expected answer.
///
/// The order of records does not matter, with one exception. If `case` has `cname_first`, and the
/// expected answer has no `answer_count`, each CNAME must precede the records of its target. If the
/// expected answer has `answer_count`, the answer records are compared only by their number. This
/// number may differ by one if the SRV targets in `answer` have different lengths. If the expected
/// answer has `cname_choice`, any of several CNAMEs is accepted. A malformed answer is always
/// wrong, and so is an answer above the size limit of the query.
pub fn judge(case: &Case, expected: &[&Response], answer: &Answer) -> Result<(), String> {
    let mut first = None;
    for candidate in expected {
        match compare(case, candidate, answer) {
            Ok(()) => return Ok(()),
            Err(difference) => first = first.or(Some(difference)),
        }
    }
    Err(first.unwrap_or_else(|| "the case has no expected answer".to_owned()))
}

fn compare(case: &Case, expected: &Response, answer: &Answer) -> Result<(), String> {
    let observed = comparable(expected, answer);
    let mut lines = diff(expected, &observed);
    lines.extend(answer.defect.iter().map(|defect| format!("+ ;; {defect}")));
    if case.cname_first && expected.answer_count.is_none() && !answer.aliases_come_first() {
        lines.push("+ ;; a CNAME follows the records of its target".to_owned());
    }
    let limit = case.query.limit();
    if answer.size > limit {
        lines.push(format!(
            "+ ;; the answer has {} octets, but the limit is {limit}",
            answer.size
        ));
    }
    if lines.is_empty() {
        Ok(())
    } else {
        Err(lines.join("\n"))
    }
}

/// The answer in a form that can be compared with `expected`. If `expected` has `answer_count`, the
/// result has `answer_count` in place of the answer records. If `expected` has `cname_choice`, the
/// result comes from [`Answer::with_choice_marked`].
fn comparable(expected: &Response, answer: &Answer) -> Response {
    let mut observed = if expected.cname_choice {
        answer.with_choice_marked()
    } else {
        answer.response.clone()
    };
    if let Some(count) = expected.answer_count {
        let observed_count = observed.answer.len();
        // The server chooses the records of a truncated answer at random. If the records have
        // different sizes, the number of records that fit may differ by one.
        let usual =
            observed_count.abs_diff(count) <= 1 && answer.has_srv_targets_of_different_lengths();
        observed.answer_count = Some(if usual { count } else { observed_count });
        observed.answer.clear();
    }
    observed
}

/// The diff of two answers: `-` marks a line of the expected answer, `+` a line of the observed
/// one.
pub fn diff(expected: &Response, observed: &Response) -> Vec<String> {
    let (expected, observed) = (expected.to_lines(), observed.to_lines());
    let gone = beyond(&expected, &observed).map(|line| format!("- {line}"));
    let added = beyond(&observed, &expected).map(|line| format!("+ {line}"));
    gone.chain(added).collect()
}

/// The lines that are missing from `others`. If a line occurs twice in `lines` but once in
/// `others`, one copy of the line is missing.
fn beyond<'a>(lines: &'a [String], others: &[String]) -> impl Iterator<Item = &'a String> {
    let mut others = others.to_vec();
    lines.iter().filter(
        move |line| match others.iter().position(|other| other == *line) {
            Some(at) => {
                others.swap_remove(at);
                false
            }
            None => true,
        },
    )
}

impl Response {
    /// The answer as text like dig's. The line of a record begins with the name of its section.
    pub fn to_lines(&self) -> Vec<String> {
        if let Some(how) = &self.no_answer {
            return vec![format!(";; no answer: {how}")];
        }
        let opcode = self
            .opcode
            .as_ref()
            .map_or_else(String::new, |opcode| format!("{opcode} "));
        let mut lines = vec![format!(";; {opcode}{}, flags: {}", self.rcode, self.flags)];
        if let Some(edns) = &self.edns {
            lines.push(format!(";; {edns:?}"));
        }
        lines.extend(self.question.iter().map(|line| format!(";{line}")));
        if let Some(count) = self.answer_count {
            lines.push(format!(";; {count} answers"));
        }
        if self.cname_choice {
            lines.push(";; any of several CNAMEs is accepted".to_owned());
        }
        let sections = [
            ("answer", &self.answer),
            ("authority", &self.authority),
            ("additional", &self.additional),
        ];
        for (name, records) in sections {
            lines.extend(records.iter().map(|record| format!("{name:<10} {record}")));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use testkit::query::Query;
    use testkit::reply::Reply;

    use super::*;
    use crate::conformance::answer::Observed;

    #[allow(clippy::needless_pass_by_value, reason = "called with json!(..)")]
    fn case(extra: Value) -> Case {
        let mut case =
            json!({"query": {"name": "x.", "type": "A", "class": "IN", "transport": "udp"}});
        let fields = case.as_object_mut().expect("the JSON must be an object");
        fields.extend(
            extra
                .as_object()
                .expect("the JSON must be an object")
                .clone(),
        );
        serde_json::from_value(case).expect("the JSON must be a case")
    }

    #[allow(clippy::needless_pass_by_value, reason = "called with json!(..)")]
    fn expecting(extra: Value) -> Case {
        let mut response =
            json!({"rcode": "NOERROR", "flags": "qr rd ra", "question": ["x. IN A"]});
        let fields = response
            .as_object_mut()
            .expect("the JSON must be an object");
        fields.extend(
            extra
                .as_object()
                .expect("the JSON must be an object")
                .clone(),
        );
        case(json!({"response": response}))
    }

    fn reply(records: &[&str]) -> Reply {
        let query = Query::new("x.", "A").wire();
        records
            .iter()
            .fold(Reply::to(&query), |reply, record| reply.answer(record))
    }

    /// The difference between a reply and the recorded answers; empty if a recorded answer fits.
    fn difference(case: &Case, reply: &Reply) -> String {
        difference_of(case, &Observed::Packet(reply.wire()))
    }

    fn difference_of(case: &Case, observed: &Observed) -> String {
        let judged = judge(case, &case.recorded(), &Answer::read(observed));
        judged.err().unwrap_or_default()
    }

    #[test]
    fn record_order_is_ignored_but_count_is_compared() {
        let case = expecting(json!({"answer": ["x. 30 IN A 10.0.0.1", "x. 30 IN A 10.0.0.2"]}));
        let both = reply(&["x. 30 IN A 10.0.0.2", "x. 30 IN A 10.0.0.1"]);
        assert_eq!(difference(&case, &both), "");
        let twice = both.answer("x. 30 IN A 10.0.0.1");
        let shown = difference(&case, &twice);
        assert_eq!(shown, "+ answer     x. 30 IN A 10.0.0.1");
    }

    #[test]
    fn a_difference_shows_both_sides() {
        let case = expecting(json!({"answer": ["x. 30 IN A 10.0.0.1"]}));
        let expected = "\
- ;; NOERROR, flags: qr rd ra
- answer     x. 30 IN A 10.0.0.1
+ ;; NXDOMAIN, flags: qr rd ra";
        assert_eq!(difference(&case, &reply(&[]).rcode("NXDOMAIN")), expected);
    }

    #[test]
    fn truncated_answers_match_by_count() {
        let case = expecting(json!({"answer_count": 2, "flags": "qr tc rd ra"}));
        let two = reply(&["x. 30 IN A 10.0.0.7", "x. 30 IN A 10.0.0.9"]);
        assert_eq!(difference(&case, &two.clone().truncated()), "");
        assert_ne!(
            difference(&case, &two),
            "",
            "an answer without TC must not match"
        );
        let one = reply(&["x. 30 IN A 10.0.0.7"]).truncated();
        assert_eq!(difference(&case, &one), "- ;; 2 answers\n+ ;; 1 answers");
    }

    #[test]
    fn count_may_differ_by_one_if_srv_target_lengths_differ() {
        let case = expecting(json!({"answer_count": 3, "flags": "qr tc rd ra"}));
        let two = |other: &str| reply(&["x. 30 IN SRV 10 1 1 a.", other]).truncated();
        assert_eq!(difference(&case, &two("x. 30 IN SRV 10 1 1 bb.")), "");
        assert_ne!(difference(&case, &two("x. 30 IN SRV 10 1 1 b.")), "");
    }

    #[test]
    fn answer_above_limit_is_a_difference() {
        let case = expecting(json!({"answer_count": 40, "flags": "qr tc rd ra"}));
        let large = (0..40).fold(reply(&[]), |reply, n| {
            reply.answer(&format!("x. 30 IN A 10.0.0.{n}"))
        });
        let expected = "+ ;; the answer has 699 octets, but the limit is 512";
        assert_eq!(difference(&case, &large.truncated()), expected);
    }

    #[test]
    fn any_recorded_answer_passes() {
        let variant = |ip: &str| {
            json!({"rcode": "NOERROR", "flags": "qr rd ra", "question": ["x. IN A"],
            "answer": [format!("x. 30 IN A {ip}")]})
        };
        let variants = [variant("10.0.0.1"), variant("10.0.0.2")];
        let case = case(json!({"unstable": true, "responses": variants}));
        assert_eq!(difference(&case, &reply(&["x. 30 IN A 10.0.0.2"])), "");
        assert_ne!(difference(&case, &reply(&["x. 30 IN A 10.0.0.3"])), "");
    }

    #[test]
    fn alias_order_matters_only_with_cname_first() {
        let mut case = expecting(json!({"answer": ["x. 30 IN CNAME y.", "y. 30 IN A 10.0.0.1"]}));
        let behind = reply(&["y. 30 IN A 10.0.0.1", "x. 30 IN CNAME y."]);
        assert_eq!(difference(&case, &behind), "");
        case.cname_first = true;
        let expected = "+ ;; a CNAME follows the records of its target";
        assert_eq!(difference(&case, &behind), expected);
        let before = reply(&["x. 30 IN CNAME y.", "y. 30 IN A 10.0.0.1"]);
        assert_eq!(difference(&case, &before), "");
    }

    #[test]
    fn silence_matches_only_silence() {
        let case = case(json!({"response": {"no_answer": "timeout"}}));
        let silence = Observed::Nothing("timeout".to_owned());
        assert_eq!(difference_of(&case, &silence), "");
        let expected = "- ;; no answer: timeout\n+ ;; NOERROR, flags: qr rd ra\n+ ;x. IN A";
        assert_eq!(difference(&case, &reply(&[])), expected);
    }

    #[test]
    fn broken_packet_is_a_difference() {
        let (case, packet) = (expecting(json!({})), reply(&[]).wire());
        let trailing = Observed::Packet([&packet[..], &[0]].concat());
        let expected = "+ ;; 1 octets after the last record";
        assert_eq!(difference_of(&case, &trailing), expected);
        let cut = Observed::Packet(packet[..packet.len() - 1].to_vec());
        let found = difference_of(&case, &cut);
        let expected = "+ ;; malformed: octet 17: class of a question";
        assert!(found.ends_with(expected), "{found}");
    }
}
