//! Delivery of new routes to dnsmasq: the servers for each domain, and for all other names.
//!
//! New routes are pending until dnsmasq uses them; then they are in force. A failed delivery is
//! repeated until it succeeds, until newer routes arrive, or until the newest routes equal the
//! routes in force. The reason for the failure is shown in the status. It is logged at the first
//! failure, and again only when the reason changes.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use daemon::tasks::pending_if_none;
use nix::errno::Errno;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{error, info};

use crate::config::routes::Routes;
use crate::report::{PendingStep, Report};

/// The pause before a failed delivery is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(3);

/// The reason why dnsmasq does not have the newest routes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeliveryError {
    #[error("cannot write the servers file {path:?}: {reason}")]
    Unwritable { path: PathBuf, reason: io::Error },
    #[error("dnsmasq has not accepted the new arguments: {0}")]
    ArgumentsRejected(String),
    #[error("dnsmasq cannot be signalled: {0}")]
    Signal(Errno),
    #[error("a restart of dnsmasq is needed, and -restartDnsmasq is off")]
    RestartForbidden,
}

/// The routes in force, and the newest routes.
#[derive(Debug)]
pub(crate) struct RouteDelivery {
    newest: watch::Receiver<Routes>,
    in_force: Routes,
    /// The time of the next try.
    next_try: Option<Instant>,
    /// The last logged reason for the failed delivery.
    logged_reason: Option<String>,
    report: Report,
}

impl RouteDelivery {
    /// Starts with no routes in force.
    pub(crate) fn new(newest: watch::Receiver<Routes>, report: Report) -> Self {
        Self {
            newest,
            in_force: Routes::default(),
            next_try: None,
            logged_reason: None,
            report,
        }
    }

    pub(crate) fn in_force(&self) -> &Routes {
        &self.in_force
    }

    /// Returns the newest routes. The caller has to deliver them, and to call
    /// [`Self::mark_in_force`] or [`Self::mark_failed`]. Otherwise [`Self::next_due`] may never
    /// return these routes.
    pub(crate) fn take_newest(&mut self) -> Routes {
        self.newest.borrow_and_update().clone()
    }

    /// Waits until the newest routes have to be delivered: when they change, and again after each
    /// [`RETRY_PAUSE`] until they are in force. Cancel safe.
    pub(crate) async fn next_due(&mut self) -> Routes {
        loop {
            tokio::select! {
                Ok(()) = self.newest.changed() => {}
                () = pending_if_none(self.next_try.map(sleep_until)) => {}
            }

            let routes = self.take_newest();
            if routes != self.in_force {
                self.next_try = Some(Instant::now() + RETRY_PAUSE);
                return routes;
            }
            // The newest routes are already in force.
            self.end_pending();
        }
    }

    pub(crate) fn mark_in_force(&mut self, routes: Routes) {
        self.report.set_routes(&routes);
        self.in_force = routes;
        self.end_pending();
    }

    /// Records that the newest routes could not be delivered to dnsmasq.
    pub(crate) fn mark_failed(&mut self, cause: &DeliveryError) {
        self.next_try = Some(Instant::now() + RETRY_PAUSE);
        // A forbidden restart is the operator's choice, so it does not count as a failure.
        let pending = match cause {
            DeliveryError::RestartForbidden => PendingStep::Restart,
            _ => PendingStep::Retry,
        };
        if pending == PendingStep::Retry {
            self.report.count_reload_failure();
        }

        let reason = cause.to_string();
        // A lasting failure is logged only once.
        if self.logged_reason.as_ref() == Some(&reason) {
            return;
        }
        log_pending(pending, &reason);
        self.report.set_pending(pending, &reason);
        self.logged_reason = Some(reason);
    }

    /// Records that the newest routes are in force.
    fn end_pending(&mut self) {
        self.next_try = None;
        if self.logged_reason.take().is_some() {
            info!("the newest servers are in force now");
            self.report.clear_pending();
        }
    }
}

fn log_pending(pending: PendingStep, reason: &str) {
    match pending {
        // -restartDnsmasq=false is the operator's choice, so this is not an error.
        PendingStep::Restart => info!(
            reason,
            "dnsmasq keeps the previous servers until it is restarted"
        ),
        PendingStep::Retry => error!(
            reason,
            "dnsmasq does not have the newest servers: the previous servers stay in force"
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    fn routes(server: &str) -> Routes {
        Routes {
            upstreams: vec![server.parse().unwrap()],
            ..Routes::default()
        }
    }

    fn rejected() -> DeliveryError {
        DeliveryError::ArgumentsRejected("exit status 1: no".to_owned())
    }

    /// A delivery with the route to `192.0.2.1` in force.
    fn delivery() -> (watch::Sender<Routes>, Report, RouteDelivery) {
        let report = Report::new().unwrap();
        let (sender, newest) = watch::channel(routes("192.0.2.1"));
        let mut delivery = RouteDelivery::new(newest, report.clone());
        let first = delivery.take_newest();
        delivery.mark_in_force(first);
        (sender, report, delivery)
    }

    /// The upstreams in force, and the reason why the newest are pending.
    fn shown(report: &Report) -> (Value, Value) {
        let status: Value = serde_json::from_str(&report.status_json()).unwrap();
        (
            status["routes"]["upstreams"].clone(),
            status["routes"]["pending"]["reason"].clone(),
        )
    }

    /// The number of failed reloads, whether pending routes need a forbidden restart, and whether
    /// routes are pending for another reason.
    fn gauges(report: &Report) -> [u64; 3] {
        let text = report.metrics().render().unwrap();
        let value = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        ["reload_failures_total", "restart_needed", "routes_pending"]
            .map(|name| value(&format!("nanny_{name}")).unwrap())
    }

    /// The routes that become due within this time, if any.
    async fn due(delivery: &mut RouteDelivery, within: Duration) -> Option<Routes> {
        timeout(within, delivery.next_due()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn failed_delivery_is_repeated_and_reported() {
        let (sender, report, mut delivery) = delivery();
        assert_eq!(
            due(&mut delivery, LONG).await,
            None,
            "no routes may be due before an edit"
        );
        sender.send_replace(routes("192.0.2.2"));
        for _ in 0..3 {
            assert_eq!(due(&mut delivery, LONG).await, Some(routes("192.0.2.2")));
            delivery.mark_failed(&rejected());
            let soon = due(&mut delivery, RETRY_PAUSE / 2).await;
            assert_eq!(soon, None, "the delivery must not be repeated at once");
            let reason = "dnsmasq has not accepted the new arguments: exit status 1: no";
            assert_eq!(shown(&report), (json!(["192.0.2.1:53"]), json!(reason)));
        }
        delivery.mark_failed(&DeliveryError::Signal(Errno::EPERM));
        let (_, reason) = shown(&report);
        let expected = "dnsmasq cannot be signalled: EPERM: Operation not permitted";
        assert_eq!(reason, expected);
        assert_eq!(gauges(&report), [4, 0, 1]);

        let newest = due(&mut delivery, LONG).await.unwrap();
        delivery.mark_in_force(newest);
        assert_eq!(shown(&report), (json!(["192.0.2.2:53"]), Value::Null));
        assert_eq!(
            due(&mut delivery, LONG).await,
            None,
            "no routes may be due after the delivery"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn forbidden_restart_is_pending_without_failure() {
        let (sender, report, mut delivery) = delivery();
        sender.send_replace(routes("192.0.2.2"));
        for _ in 0..3 {
            due(&mut delivery, LONG).await.unwrap();
            delivery.mark_failed(&DeliveryError::RestartForbidden);
        }
        let reason = DeliveryError::RestartForbidden.to_string();
        assert_eq!(shown(&report), (json!(["192.0.2.1:53"]), json!(reason)));
        assert_eq!(gauges(&report), [0, 1, 0]);
        delivery.mark_in_force(routes("192.0.2.2"));
        assert_eq!(gauges(&report), [0, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn newer_routes_are_due_at_once() {
        let (sender, _, mut delivery) = delivery();
        sender.send_replace(routes("192.0.2.2"));
        due(&mut delivery, LONG).await.unwrap();
        delivery.mark_failed(&rejected());
        sender.send_replace(routes("192.0.2.3"));
        let soon = due(&mut delivery, RETRY_PAUSE / 2).await;
        assert_eq!(soon, Some(routes("192.0.2.3")));
    }

    #[tokio::test(start_paused = true)]
    async fn delivery_without_outcome_is_repeated() {
        let (sender, _, mut delivery) = delivery();
        sender.send_replace(routes("192.0.2.2"));
        for _ in 0..2 {
            assert_eq!(due(&mut delivery, LONG).await, Some(routes("192.0.2.2")));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reverted_edit_is_not_pending() {
        let (sender, report, mut delivery) = delivery();
        sender.send_replace(routes("192.0.2.2"));
        due(&mut delivery, LONG).await.unwrap();
        delivery.mark_failed(&rejected());
        sender.send_replace(routes("192.0.2.1"));
        assert_eq!(due(&mut delivery, LONG).await, None);
        assert_eq!(shown(&report), (json!(["192.0.2.1:53"]), Value::Null));
    }
}
