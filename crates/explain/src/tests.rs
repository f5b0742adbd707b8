//! Names on a small cluster, and the whole text of their explanations.

mod aliases;
mod cluster;
mod members;
mod options;
mod properties;
mod readings;
mod transcript;
mod warnings;
mod ways;
mod zones;
