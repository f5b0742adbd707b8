//! Parser of whole numbers, for flags that kube-dns does not have.

use std::fmt::{Debug, Display};

use thiserror::Error;

use super::value::int;

/// A value that is not a whole number within the accepted range.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("must be a whole number from 0 to {0}")]
pub struct WholeNumberError<T: Debug + Display>(T);

/// An unsigned integer type of a flag.
pub trait Unsigned: TryFrom<i128> + Debug + Display {
    /// The largest value.
    const MAX: Self;
}

impl Unsigned for u16 {
    const MAX: Self = Self::MAX;
}

impl Unsigned for u64 {
    const MAX: Self = Self::MAX;
}

/// Parses a number in the syntax of [`int`], for flags that kube-dns does not have. The error names
/// the accepted range. Use [`int`] for flags that kube-dns also has: its error has the text of Go's
/// `strconv`.
pub fn whole_number<T: Unsigned>(text: &str) -> Result<T, WholeNumberError<T>> {
    int(text).map_err(|_| WholeNumberError(T::MAX))
}
