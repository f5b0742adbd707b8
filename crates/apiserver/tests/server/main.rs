//! The server over real loopback sockets.

#[cfg(test)]
mod api;
#[cfg(test)]
mod client;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod kubectl;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod watch;
