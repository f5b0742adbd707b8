//! Tests of explanations in a small cluster.

mod aliases;
mod arguments;
mod cluster;
mod external_rules;
mod members;
mod options;
mod own_names;
mod properties;
mod readings;
mod transcript;
mod warnings;
mod ways;
mod zones;
