//! Cluster IPs: which are taken, and which comes next.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The ranges of the cluster, the first one being of the default family.
pub(crate) fn service_ranges() -> [IpNet; 2] {
    [
        Ipv4Net::new_assert([10, 96, 0, 0].into(), 16).into(),
        Ipv6Net::new_assert([0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0].into(), 112).into(),
    ]
}

/// Addresses in use, counted because raw objects may share them.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    addresses: HashMap<IpAddr, u32>,
    last: HashMap<IpNet, u128>,
}

impl Ledger {
    pub(crate) fn take(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            *self.addresses.entry(*address).or_default() += 1;
        }
    }

    pub(crate) fn release(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            if let Some(count) = self.addresses.get_mut(address) {
                *count -= 1;
                if *count == 0 {
                    self.addresses.remove(address);
                }
            }
        }
    }

    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.contains_key(&address)
    }

    /// The next free address of `range`. As on a real server, the lower end of the range is left to those who choose
    /// their address themselves, until nothing else is free.
    pub(crate) fn next_address(&mut self, range: IpNet) -> Option<IpAddr> {
        let size = usable(range);
        let start = self.last.get(&range).copied().unwrap_or_else(|| static_band(size));
        let offset = (start + 1..=size)
            .chain(static_band(size) + 1..=start.min(size))
            .chain(1..=static_band(size).min(size))
            .find(|offset| nth(range, *offset).is_some_and(|address| !self.has_address(address)))?;
        self.last.insert(range, offset);
        nth(range, offset)
    }
}

/// Whether an address of `range` may be given to a Service.
pub(crate) fn assignable(range: IpNet, address: IpAddr) -> bool {
    range.contains(&address)
        && address != range.network()
        && !(range.network().is_ipv4() && address == range.broadcast())
}

/// The `offset`-th address of `range` (the first one that may be given is 1).
pub(crate) fn nth(range: IpNet, offset: u128) -> Option<IpAddr> {
    let address = match range.network() {
        IpAddr::V4(base) => IpAddr::V4(u32::from(base).checked_add(u32::try_from(offset).ok()?)?.into()),
        IpAddr::V6(base) => IpAddr::V6(u128::from(base).checked_add(offset)?.into()),
    };
    assignable(range, address).then_some(address)
}

/// How many addresses may be given, the same bound as on a real server for large ranges.
fn usable(range: IpNet) -> u128 {
    let bits = u32::from(range.max_prefix_len() - range.prefix_len()).min(64);
    let all = 1_u128 << bits;
    // The network address never, the broadcast address not either.
    all.saturating_sub(if range.network().is_ipv4() { 2 } else { 1 })
}

/// `min(max(16, size/16), 256)`, or nothing in ranges too small for it.
fn static_band(size: u128) -> u128 {
    if size <= 16 { 0 } else { (size / 16).clamp(16, 256) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_above_the_static_band_and_wraps_into_it() {
        let mut ledger = Ledger::default();
        let range: IpNet = "10.96.0.0/16".parse().unwrap();
        assert_eq!(ledger.next_address(range).unwrap().to_string(), "10.96.1.1");
        assert_eq!(ledger.next_address(range).unwrap().to_string(), "10.96.1.2");
        let small: IpNet = "10.0.0.0/27".parse().unwrap();
        let mut seen = Vec::new();
        while let Some(address) = ledger.next_address(small) {
            ledger.take(&[address]);
            seen.push(address.to_string());
        }
        assert_eq!(seen.len(), 30, "{seen:?}");
        assert_eq!((seen[0].as_str(), seen[14].as_str()), ("10.0.0.17", "10.0.0.1"));
        ledger.release(&["10.0.0.20".parse().unwrap()]);
        assert_eq!(ledger.next_address(small).unwrap().to_string(), "10.0.0.20");
    }

    #[test]
    fn reaches_the_end_of_an_ipv6_range() {
        let mut ledger = Ledger::default();
        let range: IpNet = "fd00:10:96::/126".parse().unwrap();
        let mut seen = Vec::new();
        while let Some(address) = ledger.next_address(range) {
            ledger.take(&[address]);
            seen.push(address.to_string());
        }
        assert_eq!(seen, ["fd00:10:96::1", "fd00:10:96::2", "fd00:10:96::3"]);
    }

    #[test]
    fn shared_addresses_stay_taken_until_the_last_is_gone() {
        let mut ledger = Ledger::default();
        let address: IpAddr = "10.96.0.5".parse().unwrap();
        ledger.take(&[address]);
        ledger.take(&[address]);
        ledger.release(&[address]);
        assert!(ledger.has_address(address));
        ledger.release(&[address]);
        assert!(!ledger.has_address(address));
    }
}
