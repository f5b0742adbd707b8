//! The fields that kinds have, as far as they are known: to read protobuf, and to tell writers of fields that there are not.

mod check;
mod fields;

pub(crate) use self::check::{Unknown, check};
pub(crate) use self::fields::{ENVELOPE, Field, Message, NUMBER_OR_TEXT, Type, entry, of};
