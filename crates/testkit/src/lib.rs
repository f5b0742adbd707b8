//! What tests share: a scripted upstream, builders, dig-like text, processes, eventually.
