//! The DNS server: records behind a Backend, the query engine, transports and forwarding.
