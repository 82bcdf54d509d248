//! Objects by number, whose numbers are used again.

/// Objects per piece of memory: a list that grows piece by piece moves nothing, and leaves little unused.
const PIECE: usize = 256;

/// A list with holes.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    pieces: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { pieces: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    /// Adds an object, and returns its number.
    pub(super) fn insert(&mut self, object: T) -> u32 {
        self.len += 1;
        if let Some(id) = self.free.pop()
            && let Some(hole) = self.entry_mut(id)
        {
            *hole = Some(object);
            return id;
        }
        let full = self.pieces.last().is_none_or(|piece| piece.len() == PIECE);
        if full {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        let before = (self.pieces.len() - 1) * PIECE;
        let mut id = before;
        if let Some(piece) = self.pieces.last_mut() {
            id += piece.len();
            piece.push(Some(object));
        }
        // Four billion objects do not fit into memory.
        u32::try_from(id).unwrap_or(u32::MAX)
    }

    pub(super) fn get(&self, id: u32) -> Option<&T> {
        self.pieces.get(id as usize / PIECE)?.get(id as usize % PIECE)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.entry_mut(id)?.as_mut()
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<T> {
        let removed = self.entry_mut(id)?.take()?;
        self.free.push(id);
        self.len -= 1;
        Some(removed)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The objects with their numbers, in the order of the numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(self.pieces.iter().flatten()).filter_map(|(id, entry)| Some((id, entry.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pieces.iter_mut().flatten().flatten()
    }

    fn entry_mut(&mut self, id: u32) -> Option<&mut Option<T>> {
        self.pieces.get_mut(id as usize / PIECE)?.get_mut(id as usize % PIECE)
    }
}
