//! The position of dnsmasq, seen from kubedns.

/// The position of dnsmasq, seen from kubedns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DnsmasqTopology {
    /// dnsmasq is in front: clients ask dnsmasq, which asks kubedns for names of the cluster, as in
    /// kube-dns.
    #[default]
    DropIn,
    /// dnsmasq is in front, only as a cache: it asks kubedns for all names (`-forward=kubedns` of
    /// the nanny).
    Cache,
    /// dnsmasq is behind kubedns: clients ask kubedns, which asks dnsmasq for external names.
    /// dnsmasq asks the servers of stub domains and the upstream servers.
    Direct,
    /// dnsmasq is absent: clients ask kubedns, which asks the upstream servers itself.
    Alone,
}

impl DnsmasqTopology {
    /// Whether clients query dnsmasq, which forwards to kubedns.
    pub fn is_behind_dnsmasq(self) -> bool {
        matches!(self, Self::DropIn | Self::Cache)
    }

    /// Whether upstream servers receive queries only from kubedns. kubedns then also forwards
    /// queries for external names that kube-dns does not forward, such as queries of type ANY and
    /// queries for most single-label names.
    pub fn forwards_all(self) -> bool {
        matches!(self, Self::Cache | Self::Alone)
    }
}
