//! A list that has at least one element: a provider has a key, and a resource has a provider. So no value is stored unencrypted
//! because a list is empty.

/// A list with a first element.
#[derive(Clone)]
pub(crate) struct NonEmpty<T> {
    first: T,
    others: Vec<T>,
}

impl<T> NonEmpty<T> {
    /// A list of one element.
    pub(crate) fn of_one(first: T) -> Self {
        Self { first, others: Vec::new() }
    }

    /// The elements in their order; `None` if there are none.
    pub(crate) fn from_vec(elements: Vec<T>) -> Option<Self> {
        let mut elements = elements.into_iter();
        let first = elements.next()?;
        Some(Self { first, others: elements.collect() })
    }

    pub(crate) fn first(&self) -> &T {
        &self.first
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Adds the elements of another list.
    pub(crate) fn append(&mut self, other: Self) {
        self.others.push(other.first);
        self.others.extend(other.others);
    }
}
