//! Values by index, where indexes are used again: once it has grown, adding a value allocates nothing.

/// The index of a value.
pub(crate) type Index = usize;

#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<Index>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> Index {
        if let Some(index) = self.free.pop() {
            self.entries[index] = Some(value);
            return index;
        }
        self.entries.push(Some(value));
        self.entries.len() - 1
    }

    pub(crate) fn get(&self, index: Index) -> Option<&T> {
        self.entries.get(index)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: Index) -> Option<&mut T> {
        self.entries.get_mut(index)?.as_mut()
    }

    pub(crate) fn remove(&mut self, index: Index) -> Option<T> {
        let removed = self.entries.get_mut(index)?.take()?;
        self.free.push(index);
        Some(removed)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten()
    }
}
