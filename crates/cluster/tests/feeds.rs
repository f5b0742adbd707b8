//! Tests of feeds, which list and watch objects. The API server of a test is embedded and reached
//! over loopback, or it is scripted. With a scripted API server, the clock is paused.

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
