//! The last values of a series.

use std::collections::VecDeque;

/// The last `MAX` values, oldest first. A further value drops the oldest one.
#[derive(Clone, Debug)]
pub(crate) struct Recent<T, const MAX: usize>(VecDeque<T>);

impl<T, const MAX: usize> Recent<T, MAX> {
    pub(crate) fn push(&mut self, value: T) {
        if self.0.len() == MAX {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.0.iter()
    }
}

impl<T, const MAX: usize> Default for Recent<T, MAX> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_value_drops_oldest() {
        let mut recent = Recent::<u8, 3>::default();
        for value in 1..=5 {
            recent.push(value);
        }
        assert_eq!(recent.iter().collect::<Vec<_>>(), [&3, &4, &5]);
    }
}
