use super::*;

const UDP: Transport = Transport::Udp;
const SECOND: Duration = Duration::from_secs(1);

fn health() -> Health {
    Health::new(Probation { first: SECOND, longest: 4 * SECOND })
}

fn upstream(n: u8) -> Peer {
    (([192, 0, 2, n], 53).into(), UDP)
}

fn ordered(health: &Health, upstreams: &[u8], now: Instant) -> (Vec<u8>, bool) {
    let upstreams: Vec<_> = upstreams.iter().map(|n| upstream(*n).0).collect();
    let order = health.order(&upstreams, UDP, now);
    let last_octet =
        |upstream: &SocketAddr| upstream.to_string().split(['.', ':']).nth(3).unwrap().parse().unwrap();
    (order.upstreams.iter().map(last_octet).collect(), order.hopeless)
}

#[test]
fn keeps_the_order_of_configuration_and_each_upstream_once() {
    let now = Instant::now();
    assert_eq!(ordered(&health(), &[3, 1, 3, 2, 1], now), (vec![3, 1, 2], false));
    assert_eq!(ordered(&health(), &[], now), (vec![], true));
}

#[test]
fn a_refusal_means_probation_at_once() {
    let (health, now) = (health(), Instant::now());
    health.failed(upstream(1), now, now, Symptom::Refusal);
    assert_eq!(ordered(&health, &[1, 2, 3], now), (vec![2, 3, 1], false));
    health.failed(upstream(3), now, now, Symptom::Refusal);
    assert_eq!(ordered(&health, &[1, 2, 3], now), (vec![2, 1, 3], false));
    health.failed(upstream(2), now, now, Symptom::Refusal);
    assert_eq!(ordered(&health, &[1, 2, 3], now), (vec![1, 2, 3], true), "all dead: as configured");
}

#[test]
fn transports_are_dead_separately() {
    let (health, now) = (health(), Instant::now());
    health.failed((upstream(1).0, Transport::Tcp), now, now, Symptom::Refusal);
    assert_eq!(ordered(&health, &[1, 2], now), (vec![1, 2], false));
}

#[test]
fn silence_counts_the_second_time_unless_there_was_an_answer() {
    let (health, start) = (health(), Instant::now());
    let silent = |asked: Instant| health.failed(upstream(1), asked, asked + SECOND, Symptom::Silence);
    let in_front = |now: Instant| ordered(&health, &[1, 2], now).0 == [1, 2];

    silent(start);
    assert!(in_front(start + SECOND), "one silence proves nothing");
    health.answered(upstream(1), start + 2 * SECOND);
    silent(start + 3 * SECOND);
    assert!(in_front(start + 4 * SECOND), "the answer between them cleared the first");
    health.answered(upstream(1), start + 5 * SECOND);
    silent(start + 4 * SECOND);
    silent(start + 4 * SECOND);
    assert!(in_front(start + 5 * SECOND), "somebody got an answer in the mean time");
    silent(start + 6 * SECOND);
    silent(start + 6 * SECOND);
    assert!(!in_front(start + 7 * SECOND), "silent to two, and to everybody else");
}

#[test]
fn probation_ends_with_one_question_and_grows_each_time() {
    let (health, mut now) = (health(), Instant::now());
    let refuse = |asked| health.failed(upstream(1), asked, asked, Symptom::Refusal);
    let in_front = |now| ordered(&health, &[1, 2], now).0 == [1, 2];

    refuse(now);
    for (seconds, what) in
        [(1, "first"), (2, "doubled"), (4, "doubled again"), (4, "no longer than the longest")]
    {
        let almost = now + SECOND * seconds - Duration::from_millis(1);
        assert!(!in_front(almost), "{what}");
        refuse(almost); // asked as a last resort: nothing new
        now += SECOND * seconds;
        assert!(in_front(now), "{what}: put to the test");
        assert!(!in_front(now), "{what}: by one question only");
        refuse(now - Duration::from_millis(5)); // was under way before the test
        refuse(now);
        refuse(now); // the same question's second round
    }
    now += 4 * SECOND;
    assert!(in_front(now));
    health.answered(upstream(1), now);
    assert!(in_front(now) && in_front(now), "an answer clears it");
}

#[test]
fn trusts_who_answered_of_late_and_was_not_overtaken_since() {
    let (health, now) = (health(), Instant::now());
    let state = |now| (health.is_trusted(upstream(1), now), health.is_suspect(upstream(1)));
    assert_eq!(state(now), (false, false), "unknown");
    health.answered(upstream(1), now);
    assert_eq!(state(now), (true, false), "alive");
    assert_eq!(state(now + ALIVE_FOR), (false, false), "that was long ago");
    health.overtaken(upstream(1), now);
    assert_eq!(state(now), (false, true), "overtaken");
    health.answered(upstream(1), now);
    assert_eq!(state(now), (true, false), "slow, not dead");
    health.failed(upstream(1), now, now + SECOND, Symptom::Refusal);
    assert_eq!(state(now), (false, true), "dead");
}

#[test]
fn forgets_whom_nobody_asked_for_longest() {
    let (health, start) = (health(), Instant::now());
    let numbered = |n: usize| (SocketAddr::from(([192, 0, 2, 1], u16::try_from(n).unwrap())), UDP);
    for n in 0..MAX_REMEMBERED {
        let now = start + Duration::from_millis(n as u64);
        health.failed(numbered(n), now, now, Symptom::Refusal);
    }
    health.order(&[numbered(0).0], UDP, start + SECOND);
    health.answered(numbered(1000), start + 2 * SECOND);
    assert_eq!(health.lock().len(), MAX_REMEMBERED);
    assert!(health.is_suspect(numbered(0)), "asked since");
    assert!(!health.is_suspect(numbered(1)), "forgotten");
}
