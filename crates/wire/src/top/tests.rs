use super::*;
use crate::Name;

/// Offers the sampler an answer with the RCODE `code` to a query for `label`.
fn answer(sampler: &mut AnswerSampler, client: [u8; 4], label: &str, code: u16, now: Instant) {
    if !sampler.is_due() {
        return;
    }
    let name = Name::parse(label).unwrap();
    let answer = SampledAnswer {
        client: client.into(),
        name: name.wire(),
        rcode: code,
    };
    sampler.take_sample(answer, now);
}

/// Offers the sampler an answer. The name and the client are always the same.
fn answer_one(sampler: &mut AnswerSampler, now: Instant) {
    answer(sampler, [10, 0, 0, 1], "a", rcode::NOERROR, now);
}

/// The shares of eight names and of eight clients, in thousandths. All other names and clients
/// occur once.
const MIX: [u32; 8] = [200, 120, 80, 60, 40, 30, 25, 21];

fn client(at: usize) -> [u8; 4] {
    [10, 0, 0, u8::try_from(at).unwrap()]
}

/// The ranking after two threads have each answered `per_second` queries a second for half a
/// minute.
fn ranking_of_mix(per_second: u32) -> TopRanking {
    let top = TopQueries::default();
    let samplers = [top.add_sampler(), top.add_sampler()];
    let start = Instant::now();
    let mut rng = fastrand::Rng::with_seed(1);
    for mut sampler in samplers {
        for n in 0..per_second * 30 {
            let now =
                start + Duration::from_micros(u64::from(n) * 1_000_000 / u64::from(per_second));
            let mut left = rng.u32(..1000);
            let found = MIX.iter().position(|share| {
                let hit = left < *share;
                left = left.wrapping_sub(*share);
                hit
            });
            if let Some(at) = found {
                let code = if at % 2 == 0 {
                    rcode::NOERROR
                } else {
                    rcode::NXDOMAIN
                };
                answer(&mut sampler, client(at), &format!("Name{at}"), code, now);
            } else {
                let stranger = rng.u32(..).to_be_bytes();
                let label = format!("x{}", rng.u32(..));
                answer(&mut sampler, stranger, &label, rcode::SERVFAIL, now);
            }
        }
    }
    top.ranking(20)
}

/// The number of queries in the row of `key`.
fn queries_of<K: PartialEq>(rows: &[TopRow<K>], key: &K) -> Option<u64> {
    rows.iter()
        .find(|row| row.key == *key)
        .map(|row| row.queries)
}

#[test]
fn counts_of_large_shares_are_within_ten_percent() {
    for per_second in [700, 20_000] {
        let ranking = ranking_of_mix(per_second);
        let sent = f64::from(per_second) * 60.0;
        let close = |count: u64, share: u32| {
            #[allow(clippy::cast_precision_loss, reason = "a test")]
            let ratio = count as f64 / (sent * f64::from(share) / 1000.0);
            (0.9..1.1).contains(&ratio)
        };
        let all = ranking.queries;
        assert!(close(all, 1000), "{all} of {sent}");
        for (at, share) in MIX.into_iter().enumerate() {
            let name = format!("name{at}.");
            let of_client = queries_of(&ranking.clients, &client(at).into()).unwrap();
            assert!(
                close(of_client, share),
                "{per_second}: client {at}: {of_client}"
            );
            let of_name = queries_of(&ranking.names, &name).unwrap();
            assert!(close(of_name, share), "{per_second}: {name} {of_name}");
            let missing = queries_of(&ranking.nxdomain, &name);
            assert_eq!(missing.is_some(), at % 2 == 1, "{name}");
            assert!(
                missing.is_none_or(|count| close(count, share)),
                "{missing:?}"
            );
        }
        assert!(close(ranking.missing, 231), "{ranking:?}");
        assert!(close(ranking.failed, 424), "{ranking:?}");
        assert_eq!(ranking.clients[0].key, IpAddr::from([10, 0, 0, 0]));
        assert_eq!(ranking.clients.len(), 20);
    }
}

#[test]
fn busy_thread_limits_its_sample_rate() {
    for (per_second, samples) in [
        (10, 300..=300),
        (900, 26_990..=27_000),
        (100_000, 20_000..=45_000),
    ] {
        let top = TopQueries::default();
        let mut sampler = top.add_sampler();
        let start = Instant::now();
        for n in 0..per_second * 30_u64 {
            let now = start + Duration::from_micros(n * 1_000_000 / per_second);
            answer_one(&mut sampler, now);
        }
        let ranking = top.ranking(1);
        let found = ranking.samples;
        assert!(samples.contains(&found), "{per_second} a second: {found}");
    }
}

#[test]
fn window_rotates_after_its_length() {
    let top = TopQueries::default();
    let mut sampler = top.add_sampler();
    let start = top.started;
    let counts = |sampler: &AnswerSampler, now| {
        let mut windows = sampler.windows.lock();
        windows.rotate(now);
        (windows.last.queries, windows.current.queries)
    };
    answer_one(&mut sampler, start);
    assert_eq!(counts(&sampler, start + WINDOW / 2), (0, 1));
    assert_eq!(counts(&sampler, start + WINDOW), (1, 0));
    answer_one(&mut sampler, start + WINDOW);
    answer_one(&mut sampler, start + WINDOW);
    assert_eq!(counts(&sampler, start + WINDOW), (1, 2));
    assert_eq!(counts(&sampler, start + 2 * WINDOW), (2, 0));
    assert_eq!(counts(&sampler, start + 9 * WINDOW), (0, 0));
}

#[test]
fn late_rotation_does_not_delay_next_rotation() {
    let top = TopQueries::default();
    let mut sampler = top.add_sampler();
    let start = top.started;
    let state = |sampler: &AnswerSampler, now| {
        let mut windows = sampler.windows.lock();
        windows.rotate(now);
        let queries = (windows.last.queries, windows.current.queries);
        (queries, windows.ranked_time(start, now))
    };

    answer_one(&mut sampler, start);
    let late = start + WINDOW * 3 / 2;
    assert_eq!(state(&sampler, late), ((1, 0), WINDOW * 3 / 2));
    answer_one(&mut sampler, late);
    let next = start + 2 * WINDOW;
    assert_eq!(state(&sampler, next), ((1, 0), WINDOW));
    assert_eq!(state(&sampler, next + WINDOW), ((0, 0), WINDOW));
}

#[test]
fn sample_is_dropped_while_ranking_is_read() {
    let top = TopQueries::default();
    let mut sampler = top.add_sampler();
    let windows = Arc::clone(&sampler.windows);
    let held = windows.lock();
    answer_one(&mut sampler, Instant::now());
    drop(held);
    answer_one(&mut sampler, Instant::now());
    assert_eq!(top.ranking(1).queries, 1);
}

#[test]
fn answers_to_some_clients_are_counted() {
    let top = TopQueries::default();
    let now = Instant::now();
    for mut sampler in [top.add_sampler(), top.add_sampler()] {
        for (client, answers) in [([10, 0, 0, 1], 3), ([10, 0, 0, 2], 1)] {
            for _ in 0..answers {
                answer(&mut sampler, client, "a", rcode::NOERROR, now);
            }
        }
    }
    let second = IpAddr::from([10, 0, 0, 2]);
    assert_eq!(top.count_clients(|client| client == second), (2, 8));
    assert_eq!(TopQueries::default().count_clients(|_| true), (0, 0));
}
