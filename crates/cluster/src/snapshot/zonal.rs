//! Lookups of zonal names (`--zonal-names`), which select addresses of a headless Service by their
//! topology zone.

use skydns::{Entry, Lookup};

use super::Snapshot;
use crate::records::{ZonalName, is_above_zonal_names};

impl Snapshot {
    /// Looks up a zonal name. `None` if `path` is not a zonal name, or if the Service in `path` has
    /// no zonal names. A label `*` in `path` is not a wildcard.
    pub(super) fn find_zonal<'v>(
        &'v self,
        path: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> Option<Lookup> {
        let ["svc", namespace, service, below @ ..] = path else {
            return None;
        };
        let name = ZonalName::read(below)?;
        let zonal = self.zonal.entry(&[namespace], service)?;

        let node = self.services.entry(&[namespace], service);
        zonal.visit(&name, node.map(AsRef::as_ref), steps, visit);
        // The zonal name exists even if the zone has no addresses.
        Some(Lookup::Exists)
    }

    /// Whether a zonal name is below `path`. A headless Service has zonal names even if it has no
    /// addresses.
    pub(super) fn is_above_zonal_name(&self, path: &[&str]) -> bool {
        match path {
            ["svc"] => self.zonal.root().children().next().is_some(),
            ["svc", namespace] => self.zonal.node(&[namespace]).is_some(),
            ["svc", namespace, service, below @ ..] => {
                is_above_zonal_names(below) && self.zonal.entry(&[namespace], service).is_some()
            }
            _ => false,
        }
    }
}
