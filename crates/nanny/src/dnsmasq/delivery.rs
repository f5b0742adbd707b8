//! Delivery of routes to dnsmasq: the routes in force, and newer routes that are pending.
//!
//! Routes stay pending until dnsmasq uses them. A failed delivery is repeated until it succeeds,
//! until newer routes arrive, or until the newest routes equal the routes in force. Each reason is
//! logged once, and shown in the status.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{error, info};

use crate::config::routes::Routes;
use crate::or_never::or_never;
use crate::report::{Pending, Report};

/// The pause before a failed delivery is repeated.
const AGAIN: Duration = Duration::from_secs(3);

/// The reason why dnsmasq does not have the newest routes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Obstacle {
    #[error("cannot write the servers file {path:?}: {reason}")]
    Unwritable { path: PathBuf, reason: io::Error },
    #[error("dnsmasq rejects the new arguments: {0}")]
    Refused(String),
    #[error("dnsmasq cannot be signalled: {0}")]
    Signal(Errno),
    #[error("a restart of dnsmasq is needed, and -restartDnsmasq is off")]
    NoRestart,
}

/// The routes in force, and the newest routes.
#[derive(Debug)]
pub(crate) struct Delivery {
    newest: watch::Receiver<Routes>,
    in_force: Routes,
    /// The time of the next try.
    again: Option<Instant>,
    /// The last logged reason for the failed delivery.
    reason: Option<String>,
    report: Report,
}

impl Delivery {
    /// Starts with no routes in force.
    pub(crate) fn new(newest: watch::Receiver<Routes>, report: Report) -> Self {
        Self {
            newest,
            in_force: Routes::default(),
            again: None,
            reason: None,
            report,
        }
    }

    pub(crate) fn in_force(&self) -> &Routes {
        &self.in_force
    }

    pub(crate) fn newest(&mut self) -> Routes {
        self.newest.borrow_and_update().clone()
    }

    /// Waits until there are routes to deliver. Returns the same routes again every [`AGAIN`] until
    /// [`Self::done`] marks them as in force. Cancel safe.
    pub(crate) async fn due(&mut self) -> Routes {
        loop {
            tokio::select! {
                Ok(()) = self.newest.changed() => {}
                () = or_never(self.again.map(sleep_until)) => {}
            }
            let routes = self.newest();
            if routes != self.in_force {
                self.again = Some(Instant::now() + AGAIN);
                return routes;
            }
            self.settle();
        }
    }

    pub(crate) fn done(&mut self, routes: Routes) {
        self.report.routes(&routes);
        self.in_force = routes;
        self.settle();
    }

    /// Records that dnsmasq cannot get the newest routes now.
    pub(crate) fn failed(&mut self, obstacle: &Obstacle) {
        self.again = Some(Instant::now() + AGAIN);
        let pending = match obstacle {
            Obstacle::NoRestart => Pending::Restart,
            _ => Pending::Failed,
        };
        if pending == Pending::Failed {
            self.report.reload_failed();
        }
        let reason = obstacle.to_string();
        if self.reason.as_ref() == Some(&reason) {
            return;
        }
        match pending {
            // -restartDnsmasq=false is the user's choice, so this is no error.
            Pending::Restart => info!(
                reason,
                "dnsmasq keeps the previous servers until it is restarted"
            ),
            Pending::Failed => {
                error!(
                    reason,
                    "dnsmasq does not have the newest servers, the previous ones stay in force"
                );
            }
        }
        self.report.pending(Some((pending, &reason)));
        self.reason = Some(reason);
    }

    /// Records that the newest routes are in force.
    fn settle(&mut self) {
        self.again = None;
        if self.reason.take().is_some() {
            info!("the newest servers are in force now");
            self.report.pending(None);
        }
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

    fn refused() -> Obstacle {
        Obstacle::Refused("exit status 1: no".to_owned())
    }

    /// A delivery with the route to `192.0.2.1` in force.
    fn delivery() -> (watch::Sender<Routes>, Report, Delivery) {
        let report = Report::new().unwrap();
        let (sender, newest) = watch::channel(routes("192.0.2.1"));
        let mut delivery = Delivery::new(newest, report.clone());
        let first = delivery.newest();
        delivery.done(first);
        (sender, report, delivery)
    }

    /// The upstreams in force, and the reason why the newest are pending.
    fn shown(report: &Report) -> (Value, Value) {
        let status: Value = serde_json::from_str(&report.json()).unwrap();
        (
            status["routes"]["upstreams"].clone(),
            status["routes"]["pending"]["reason"].clone(),
        )
    }

    /// The metrics of failed deliveries.
    fn gauges(report: &Report) -> String {
        let text = report.metrics().render().unwrap();
        let names = [
            "nanny_reload_failures_total",
            "nanny_restart_needed",
            "nanny_routes_pending",
        ];
        let lines = text
            .lines()
            .filter(|line| names.iter().any(|name| line.starts_with(name)));
        lines.collect::<Vec<_>>().join(", ")
    }

    /// The routes that become due within this time, if any.
    async fn due(delivery: &mut Delivery, within: Duration) -> Option<Routes> {
        timeout(within, delivery.due()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_comes_again_until_it_is_done_and_shows_meanwhile() {
        let (sender, report, mut delivery) = delivery();
        assert_eq!(due(&mut delivery, LONG).await, None, "nothing new");
        sender.send_replace(routes("192.0.2.2"));
        for _ in 0..3 {
            assert_eq!(due(&mut delivery, LONG).await, Some(routes("192.0.2.2")));
            delivery.failed(&refused());
            assert_eq!(due(&mut delivery, AGAIN / 2).await, None, "not at once");
            let reason = "dnsmasq rejects the new arguments: exit status 1: no";
            assert_eq!(shown(&report), (json!(["192.0.2.1:53"]), json!(reason)));
        }
        delivery.failed(&Obstacle::Signal(Errno::EPERM));
        let (_, reason) = shown(&report);
        assert_eq!(
            reason,
            "dnsmasq cannot be signalled: EPERM: Operation not permitted"
        );
        assert_eq!(
            gauges(&report),
            "nanny_reload_failures_total 4, nanny_restart_needed 0, nanny_routes_pending 1"
        );

        let newest = due(&mut delivery, LONG).await.unwrap();
        delivery.done(newest);
        assert_eq!(shown(&report), (json!(["192.0.2.2:53"]), Value::Null));
        assert_eq!(due(&mut delivery, LONG).await, None, "done");
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_not_be_brought_shows_and_alarms_nobody() {
        let (sender, report, mut delivery) = delivery();
        sender.send_replace(routes("192.0.2.2"));
        for _ in 0..3 {
            due(&mut delivery, LONG).await.unwrap();
            delivery.failed(&Obstacle::NoRestart);
        }
        assert_eq!(
            shown(&report),
            (
                json!(["192.0.2.1:53"]),
                json!(Obstacle::NoRestart.to_string())
            )
        );
        assert_eq!(
            gauges(&report),
            "nanny_reload_failures_total 0, nanny_restart_needed 1, nanny_routes_pending 0"
        );
        delivery.done(routes("192.0.2.2"));
        assert_eq!(
            gauges(&report),
            "nanny_reload_failures_total 0, nanny_restart_needed 0, nanny_routes_pending 0"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn something_newer_comes_at_once() {
        let (sender, _, mut delivery) = delivery();
        sender.send_replace(routes("192.0.2.2"));
        due(&mut delivery, LONG).await.unwrap();
        delivery.failed(&refused());
        sender.send_replace(routes("192.0.2.3"));
        assert_eq!(
            due(&mut delivery, AGAIN / 2).await,
            Some(routes("192.0.2.3"))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_reports_on_comes_again_too() {
        let (sender, _, mut delivery) = delivery();
        sender.send_replace(routes("192.0.2.2"));
        for _ in 0..2 {
            assert_eq!(due(&mut delivery, LONG).await, Some(routes("192.0.2.2")));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_edit_that_is_taken_back_is_not_pending() {
        let (sender, report, mut delivery) = delivery();
        sender.send_replace(routes("192.0.2.2"));
        due(&mut delivery, LONG).await.unwrap();
        delivery.failed(&refused());
        sender.send_replace(routes("192.0.2.1"));
        assert_eq!(due(&mut delivery, LONG).await, None);
        assert_eq!(shown(&report), (json!(["192.0.2.1:53"]), Value::Null));
    }
}
