//! `kubedns explain` and `GET /explain` on the real binary, against the embedded API server.

mod explain {
    mod command;
    mod endpoint;
    mod support;
    mod trust;
}
