use wire::Transport;

use super::*;
use crate::engine::Reply;
use crate::engine::System;
use crate::metrics::Took;

fn query(label: &str) -> Vec<u8> {
    let name = [
        &[u8::try_from(label.len()).unwrap()][..],
        label.as_bytes(),
        b"\x00",
    ]
    .concat();
    [
        &[0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..],
        &name,
        &[0, 1, 0, 1],
    ]
    .concat()
}

fn take_due_sample(
    sampler: &mut AnswerSampler,
    client: [u8; 4],
    label: &str,
    code: u16,
    now: Instant,
) {
    if !sampler.is_due() {
        return;
    }
    let query = query(label);
    let answered = AnsweredQuery {
        client: (client, 5353).into(),
        transport: Transport::Udp,
        query: &query,
        response: &[],
        reply: Reply {
            system: System::Auth,
            qtype: 1,
            rcode: code,
            truncated: false,
            zone: None,
        },
        took: Took::AtOnce(Duration::ZERO),
    };
    sampler.take_sample(&answered, now);
}

/// The shares of eight names and of eight clients, in thousandths. All other names and clients
/// occur once.
const MIX: [u32; 8] = [200, 120, 80, 60, 40, 30, 25, 21];

fn client(at: usize) -> [u8; 4] {
    [10, 0, 0, u8::try_from(at).unwrap()]
}

/// The ranking after two threads have answered `per_second` queries a second in total for a minute.
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
                take_due_sample(&mut sampler, client(at), &format!("Name{at}"), code, now);
            } else {
                let stranger = rng.u32(..).to_be_bytes();
                take_due_sample(
                    &mut sampler,
                    stranger,
                    &format!("x{}", rng.u32(..)),
                    rcode::SERVFAIL,
                    now,
                );
            }
        }
    }
    top.ranking(20)
}

#[test]
fn large_shares_are_within_a_tenth() {
    for per_second in [700, 20_000] {
        let ranking = ranking_of_mix(per_second);
        let sent = f64::from(per_second) * 60.0;
        let close = |count: u64, share: u32| {
            #[allow(clippy::cast_precision_loss, reason = "a test")]
            let ratio = count as f64 / (sent * f64::from(share) / 1000.0);
            (0.9..1.1).contains(&ratio)
        };
        assert!(
            close(ranking.queries, 1000),
            "{} of {sent}",
            ranking.queries
        );
        for (at, share) in MIX.into_iter().enumerate() {
            let found = ranking
                .clients
                .iter()
                .find(|row| row.key == IpAddr::from(client(at)))
                .unwrap();
            assert!(
                close(found.queries, share),
                "{per_second}: client {at}: {}",
                found.queries
            );
            let name = ranking
                .names
                .iter()
                .find(|row| row.key == format!("name{at}."))
                .unwrap();
            assert!(
                close(name.queries, share),
                "{per_second}: name {at}: {}",
                name.queries
            );
            let missing = ranking
                .nxdomain
                .iter()
                .find(|row| row.key == format!("name{at}."));
            assert_eq!(missing.is_some(), at % 2 == 1, "{at}");
            assert!(
                missing.is_none_or(|row| close(row.queries, share)),
                "{missing:?}"
            );
        }
        assert!(
            close(ranking.missing, 231) && close(ranking.failed, 424),
            "{ranking:?}"
        );
        assert_eq!(
            (ranking.clients[0].key, ranking.clients.len()),
            ([10, 0, 0, 0].into(), 20)
        );
    }
}

#[test]
fn busy_thread_samples_at_most_rate() {
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
            take_due_sample(&mut sampler, [10, 0, 0, 1], "a", rcode::NOERROR, now);
        }
        let ranking = top.ranking(1);
        assert!(
            samples.contains(&ranking.samples),
            "{per_second} a second: {}",
            ranking.samples
        );
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
    take_due_sample(&mut sampler, [10, 0, 0, 1], "a", rcode::NOERROR, start);
    assert_eq!(counts(&sampler, start + WINDOW / 2), (0, 1));
    assert_eq!(counts(&sampler, start + WINDOW), (1, 0));
    take_due_sample(
        &mut sampler,
        [10, 0, 0, 1],
        "a",
        rcode::NOERROR,
        start + WINDOW,
    );
    take_due_sample(
        &mut sampler,
        [10, 0, 0, 1],
        "a",
        rcode::NOERROR,
        start + WINDOW,
    );
    assert_eq!(counts(&sampler, start + WINDOW), (1, 2));
    assert_eq!(counts(&sampler, start + 2 * WINDOW), (2, 0));
    assert_eq!(counts(&sampler, start + 9 * WINDOW), (0, 0));
}

#[test]
fn sample_is_dropped_while_ranking_is_read() {
    let top = TopQueries::default();
    let mut sampler = top.add_sampler();
    let windows = Arc::clone(&sampler.windows);
    let held = windows.lock();
    take_due_sample(
        &mut sampler,
        [10, 0, 0, 1],
        "a",
        rcode::NOERROR,
        Instant::now(),
    );
    drop(held);
    take_due_sample(
        &mut sampler,
        [10, 0, 0, 1],
        "a",
        rcode::NOERROR,
        Instant::now(),
    );
    assert_eq!(top.ranking(1).queries, 1);
}
