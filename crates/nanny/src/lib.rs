//! Supervises a real dnsmasq: the dnsmasq-nanny binary.
