//! Queries and their answers, followed live (`tap`) and ranked by client and name (`top`).
//!
//! * [`QueryLine`]: one query with its answer, in the format that taps and the query log share.
//! * [`TapRequest`]: the queries to follow, the maximum number of lines a second, and the duration.
//! * [`serve`]: `GET /tap`, which returns the lines of a [`LineSource`].
//! * [`log`]: the query log, which writes the lines of a [`LineSource`].
//! * [`run_command`]: the commands `tap` and `top`. All three binaries have both commands, so that
//!   the commands run in any container of the pod.
//!
//! The callers of this crate supply the sources of lines.

mod command;
mod line;
pub mod log;
pub mod ranking;
pub mod serve;
mod tap_request;

pub use command::{command_lines, run_command};
pub use line::{QueryLine, format_timestamp};
pub use serve::LineSource;
pub use tap_request::{TapRequest, TapRequestError};
