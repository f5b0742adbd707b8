//! Queries as they are answered: followed live (`tap`), and those who ask most (`top`).
//!
//! * [`Line`]: one answered query, the same in a tap and in the log.
//! * [`Choice`]: which queries a reader wants, how many a second and for how long.
//! * [`serve`]: `GET /tap`, over any [`Source`] of lines.
//! * [`command`]: `tap` and `top`, which ask for it. All three binaries have them, so that they can be run in any container
//!   of the pod.
//!
//! The source of the lines is not known here.

mod choice;
mod command;
mod line;
pub mod ranking;
pub mod serve;

pub use choice::{Choice, ChoiceError};
pub use command::{command, command_lines};
pub use line::{Line, timestamp};
pub use serve::Source;
