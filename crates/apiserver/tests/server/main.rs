//! Tests of the server, with clients that connect over loopback sockets.

#![cfg(test)]

mod api;
mod client;
mod faults;
mod kubectl;
mod samples;
mod watch;
