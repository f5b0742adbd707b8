//! Addresses of stub servers (the servers of stub domains) that are given by name, kept up to date
//! for nanny and kubedns.
//!
//! Names in the domains of [`LookupSources::cluster_domains`] are looked up at kubedns. All other
//! names are looked up in `/etc/hosts`, then with the servers and the search list of resolv.conf.
//! If DNS returns addresses, the lookup is repeated after the shortest TTL, at the earliest after 5
//! seconds and at the latest after an hour. If `/etc/hosts` has addresses, the lookup is repeated
//! after 30 seconds. A lookup without addresses is repeated after at most 30 seconds. If servers
//! report that the name has no address, the known addresses are dropped. If the lookup fails, the
//! known addresses are kept.

mod entry;
mod lookup;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;

use dnsconfig::Config;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use wire::ServerAddr;

use self::entry::{LookupPace, NameEntry};
use self::lookup::LookupOutcome;
pub use self::lookup::LookupSources;
use crate::resolv_conf::ResolvConf;

/// Maximum number of names that are looked up. If there are more names, only the first ones in
/// alphabetical order are looked up.
const MAX_NAMES: usize = 512;
/// Maximum number of concurrent lookups.
const MAX_LOOKUPS: usize = 16;

/// The addresses of each resolved name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedNames(BTreeMap<String, Vec<IpAddr>>);

impl ResolvedNames {
    /// The addresses of a name; empty if the name is not resolved.
    pub fn addresses(&self, name: &str) -> &[IpAddr] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }
}

impl<const N: usize> From<[(&str, Vec<IpAddr>); N]> for ResolvedNames {
    fn from(entries: [(&str, Vec<IpAddr>); N]) -> Self {
        Self(
            entries
                .into_iter()
                .map(|(name, addresses)| (name.to_owned(), addresses))
                .collect(),
        )
    }
}

/// The names of stub servers in a configuration.
fn server_names(config: &Config) -> BTreeSet<String> {
    let servers = config.stub_domains.values().flatten();
    let names = servers.filter_map(|server| match server {
        ServerAddr::Name { name, .. } => Some(name.clone()),
        ServerAddr::Address(_) => None,
    });
    names.collect()
}

/// Sets `wanted`, the names that a [`ServerNameResolver`] looks up, to the server names in
/// `config`.
pub fn set_wanted_names(wanted: &watch::Sender<BTreeSet<String>>, config: &Config) {
    let names = server_names(config);
    // A change of other settings must not wake the resolver.
    wanted.send_if_modified(|wanted| {
        let changed = *wanted != names;
        *wanted = names;
        changed
    });
}

/// Resolves names, and keeps their addresses up to date.
#[derive(Debug)]
pub struct ServerNameResolver {
    sources: Arc<LookupSources>,
    pace: LookupPace,
    wanted: watch::Receiver<BTreeSet<String>>,
    resolv_conf: watch::Receiver<ResolvConf>,
    results: watch::Sender<ResolvedNames>,
    entries: BTreeMap<String, NameEntry>,
}

impl ServerNameResolver {
    /// A resolver of the names in `wanted`. Lookups begin with [`run`](Self::run).
    pub fn new(
        sources: LookupSources,
        wanted: watch::Receiver<BTreeSet<String>>,
        resolv_conf: watch::Receiver<ResolvConf>,
    ) -> Self {
        Self {
            sources: Arc::new(sources),
            pace: LookupPace::default(),
            wanted,
            resolv_conf,
            results: watch::Sender::new(ResolvedNames::default()),
            entries: BTreeMap::new(),
        }
    }

    /// The current addresses and their changes.
    pub fn subscribe(&self) -> watch::Receiver<ResolvedNames> {
        self.results.subscribe()
    }

    /// Resolves names until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.resolve()).await;
    }

    async fn resolve(&mut self) {
        let mut lookups = JoinSet::new();
        self.sync_wanted();

        loop {
            self.start_due_lookups(&mut lookups);
            // A running lookup has no due time: it wakes the loop when it ends.
            let due = self.entries.values().filter_map(NameEntry::due).min();

            tokio::select! {
                Some(done) = lookups.join_next() => {
                    if let Ok(finished) = done {
                        self.record_outcome(finished);
                    }
                }
                // While the maximum number of lookups is running, a due name waits until one of the
                // lookups ends, so the timer is off.
                () = sleep_until_due(due), if lookups.len() < MAX_LOOKUPS => {}
                Ok(()) = self.wanted.changed() => self.sync_wanted(),
                Ok(()) = self.resolv_conf.changed() => self.repeat_external_lookups(),
                else => return,
            }
        }
    }

    fn sync_wanted(&mut self) {
        let wanted: BTreeSet<String> = self
            .wanted
            .borrow_and_update()
            .iter()
            .take(MAX_NAMES)
            .cloned()
            .collect();

        // Names that are still wanted keep their addresses and the time of their next lookup.
        self.entries.retain(|name, _| wanted.contains(name));
        for name in wanted {
            self.entries.entry(name).or_default();
        }
        self.publish();
    }

    /// Makes new lookups due for all names that are not looked up at kubedns. Called when
    /// resolv.conf has changed, because the new servers may return other addresses.
    fn repeat_external_lookups(&mut self) {
        self.resolv_conf.mark_unchanged();
        for (name, entry) in &mut self.entries {
            // Names of the cluster are looked up at kubedns, whatever resolv.conf says.
            if !self.sources.is_cluster_name(name) {
                entry.make_due();
            }
        }
    }

    fn start_due_lookups(&mut self, lookups: &mut JoinSet<FinishedLookup>) {
        let now = Instant::now();
        for (name, entry) in &mut self.entries {
            if lookups.len() >= MAX_LOOKUPS {
                return;
            }
            if entry.due().is_none_or(|due| due > now) {
                continue;
            }

            entry.start_lookup();
            // Each lookup is a separate task, so that a slow lookup delays no other name.
            let sources = Arc::clone(&self.sources);
            let name = name.clone();
            let resolv_conf = self.resolv_conf.borrow().clone();
            lookups.spawn(async move {
                let outcome = sources.look_up(&name, &resolv_conf).await;
                FinishedLookup { name, outcome }
            });
        }
    }

    fn record_outcome(&mut self, finished: FinishedLookup) {
        let FinishedLookup { name, outcome } = finished;
        // The name may have been removed from the configuration during its lookup.
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.record_outcome(&name, outcome, &self.pace);
            self.publish();
        }
    }

    fn publish(&self) {
        let mut addresses = BTreeMap::new();
        for (name, entry) in &self.entries {
            if !entry.addresses().is_empty() {
                addresses.insert(name.clone(), entry.addresses().to_vec());
            }
        }

        // A repeated lookup with the same addresses must not wake the subscribers.
        let now = ResolvedNames(addresses);
        self.results.send_if_modified(|before| {
            let changed = *before != now;
            *before = now;
            changed
        });
    }
}

/// A lookup that has ended.
struct FinishedLookup {
    name: String,
    outcome: LookupOutcome,
}

/// Waits until `due`, or forever if `due` is `None`.
async fn sleep_until_due(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
