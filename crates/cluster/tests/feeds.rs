//! Tests of feeds, which list and watch objects. The API server has faults. It is embedded and
//! reached over loopback, or it is scripted and the clock is paused.

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
