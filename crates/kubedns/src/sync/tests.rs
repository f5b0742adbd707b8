//! The index task, fed with events and settings.
