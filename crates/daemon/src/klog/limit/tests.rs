//! Floods of log lines from one call site, and their effect on other call sites.

use super::*;

/// A call site: the place of a log macro in the source.
struct Site(&'static Metadata<'static>);
static HERE: Site = Site(&FLOOD);
static THERE: Site = Site(&QUIET);

impl tracing::callsite::Callsite for Site {
    fn set_interest(&self, _: tracing::subscriber::Interest) {}
    fn metadata(&self) -> &Metadata<'_> {
        self.0
    }
}

static FLOOD: Metadata<'static> = tracing::metadata! {
    name: "flood", target: "daemon", level: tracing::Level::WARN, fields: &[],
    callsite: &HERE, kind: tracing::metadata::Kind::EVENT
};
static QUIET: Metadata<'static> = tracing::metadata! {
    name: "quiet", target: "daemon", level: tracing::Level::WARN, fields: &[],
    callsite: &THERE, kind: tracing::metadata::Kind::EVENT
};

#[test]
fn flood_is_counted_and_reported() {
    let limiter = LineLimiter::default();
    let start = Instant::now();
    let admitted = (0..1000).filter(|_| limiter.admit(&FLOOD, start)).count();
    assert_eq!(admitted, 30);
    assert!(
        limiter.admit(&QUIET, start),
        "another call site must have its own limit"
    );

    let told = limiter.take_suppressed(start);
    assert_eq!(
        told.iter()
            .map(|left_out| left_out.count)
            .collect::<Vec<_>>(),
        [970]
    );
    assert!(
        limiter.take_suppressed(start).is_empty(),
        "suppressed lines must be reported once"
    );

    // A call site may write one more line per second, up to the burst.
    let later = start + Duration::from_secs(2);
    assert_eq!((0..10).filter(|_| limiter.admit(&FLOOD, later)).count(), 2);
    let told: Vec<u64> = limiter
        .take_suppressed(later)
        .iter()
        .map(|left_out| left_out.count)
        .collect();
    assert_eq!(told, [8]);
    let much_later = start + Duration::from_secs(1_000_000);
    let admitted = (0..100)
        .filter(|_| limiter.admit(&FLOOD, much_later))
        .count();
    assert_eq!(admitted, 30);
}

#[test]
fn suppressed_lines_are_reported_at_most_once_per_second() {
    let limiter = LineLimiter::default();
    let start = Instant::now();
    let flood = |count: usize, at| (0..count).filter(|_| limiter.admit(&FLOOD, at)).count();
    assert_eq!(flood(40, start), 30);
    assert_eq!(limiter.take_suppressed(start).len(), 1);
    let soon = start + Duration::from_millis(500);
    assert_eq!(flood(40, soon), 0);
    assert!(limiter.take_suppressed(soon).is_empty());
    let told_later = limiter
        .take_suppressed(start + Duration::from_millis(1500))
        .len();
    assert_eq!(told_later, 1);
}
