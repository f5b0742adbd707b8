//! The server over real loopback sockets.

#![cfg(test)]

mod api;
mod client;
mod faults;
mod kubectl;
mod samples;
mod watch;
