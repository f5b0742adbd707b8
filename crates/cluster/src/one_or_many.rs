//! A list that nearly always has one element.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An immutable list. A single element is stored in place; any other number of elements is stored
/// in an `Arc`.
///
/// Most Services have one cluster IP, most members of a headless Service have one address, and most
/// addresses have one reverse record. Storing the element in place saves an allocation and an
/// indirection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "Vec<T>",
    into = "Vec<T>",
    bound(serialize = "T: Clone + Serialize")
)]
pub struct OneOrMany<T>(ListElements<T>);

// A single element is always `One`. The derived `PartialEq` would treat an `Other` with the same
// element as a different list.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ListElements<T> {
    One(T),
    Other(Arc<[T]>),
}

impl<T> OneOrMany<T> {
    /// A list of one element.
    pub fn one(element: T) -> Self {
        Self(ListElements::One(element))
    }
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(ListElements::Other(Arc::default()))
    }
}

impl<T> From<Vec<T>> for OneOrMany<T> {
    fn from(mut elements: Vec<T>) -> Self {
        if elements.len() == 1
            && let Some(only) = elements.pop()
        {
            return Self::one(only);
        }

        // Unlike the conversion of an empty vector, the default makes no allocation.
        if elements.is_empty() {
            return Self::default();
        }
        Self(ListElements::Other(elements.into()))
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
    fn from(list: OneOrMany<T>) -> Self {
        list.to_vec()
    }
}

impl<T> Deref for OneOrMany<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            ListElements::One(element) => std::slice::from_ref(element),
            ListElements::Other(elements) => elements,
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
    fn elements_survive_conversions() {
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
    fn list_of_one_address_takes_24_bytes() {
        assert_eq!(size_of::<OneOrMany<std::net::IpAddr>>(), 24);
    }
}
