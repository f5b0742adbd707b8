//! Feeds against an API server with faults: embedded over loopback, or scripted with paused time.

#[cfg(test)]
mod feeds {
    mod api_server_faults;
    mod client_certificates;
    mod endpoints_source;
    mod object_mirror;
    mod requests;
    mod running_feed;
    mod scoped;
    mod scripted_server;
    mod turns;
}
