//! A list that nearly always has one element.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An immutable list. A single element is stored in place; any other number of elements is stored
/// in an `Arc`.
///
/// Most Services have one address, most labels one record, and most addresses one owner. Storing
/// the element in place saves an allocation and an indirection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "Vec<T>",
    into = "Vec<T>",
    bound(serialize = "T: Clone + Serialize")
)]
pub struct OneOrMany<T>(Number<T>);

// A single element is always `One`, never `Other`. Otherwise equal lists could differ in the
// derived `PartialEq`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Number<T> {
    One(T),
    Other(Arc<[T]>),
}

impl<T> OneOrMany<T> {
    /// A list of one element.
    pub fn one(element: T) -> Self {
        Self(Number::One(element))
    }
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(Number::Other(Arc::default()))
    }
}

impl<T> From<Vec<T>> for OneOrMany<T> {
    fn from(mut elements: Vec<T>) -> Self {
        match (elements.pop(), elements.is_empty()) {
            (None, _) => Self::default(),
            (Some(only), true) => Self::one(only),
            (Some(last), false) => {
                elements.push(last);
                Self(Number::Other(elements.into()))
            }
        }
    }
}

impl<T, const N: usize> From<[T; N]> for OneOrMany<T> {
    fn from(elements: [T; N]) -> Self {
        elements.into_iter().collect()
    }
}

impl<T> FromIterator<T> for OneOrMany<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        elements.into_iter().collect::<Vec<_>>().into()
    }
}

impl<T: Clone> From<OneOrMany<T>> for Vec<T> {
    fn from(few: OneOrMany<T>) -> Self {
        few.to_vec()
    }
}

impl<T> Deref for OneOrMany<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Number::One(element) => std::slice::from_ref(element),
            Number::Other(elements) => elements,
        }
    }
}

impl<'f, T> IntoIterator for &'f OneOrMany<T> {
    type Item = &'f T;
    type IntoIter = std::slice::Iter<'f, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_elements_comes_out_as_it_went_in() {
        for elements in [vec![], vec![1], vec![1, 2], vec![1, 2, 3]] {
            let few = OneOrMany::from(elements.clone());
            assert_eq!(*few, *elements);
            assert_eq!(few, elements.iter().copied().collect());
            let json = serde_json::to_string(&few).unwrap();
            assert_eq!(json, serde_json::to_string(&elements).unwrap());
            assert_eq!(serde_json::from_str::<OneOrMany<i32>>(&json).unwrap(), few);
        }
    }

    #[test]
    fn an_address_takes_no_more_room_than_a_pointer_and_a_length_and_its_kind() {
        assert_eq!(size_of::<OneOrMany<std::net::IpAddr>>(), 24);
    }
}
