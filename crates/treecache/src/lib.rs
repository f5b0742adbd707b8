//! A generic, persistent label tree: cheap to copy, cheap to change.
