//! Streaming of lists: the caller gets each object before the next one is read.
//!
//! A decoded list needs a multiple of the memory of its text. A client with the text, the decoded objects and its own form of
//! them in memory at the same time would need memory for all three, of which allocators return little to the system.

use std::mem;

use kube::Error;
use kube::core::{ListMeta, ObjectList, TypeMeta};

use crate::send::decode_error;

/// The function that is called with the text of each item.
pub(crate) type Each<'a> = dyn FnMut(&str) -> Result<(), Error> + Send + 'a;

/// The fields of a list besides its items.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) types: TypeMeta,
    pub(crate) metadata: ListMeta,
}

/// The item type of a list without its items, which has no values.
#[derive(Clone, serde::Deserialize)]
enum NoItem {}

/// The depth of the items in the array.
const ITEMS: usize = 2;

/// Splits the text of a list into its items, for any division into chunks.
#[derive(Debug, Default)]
pub(crate) struct ItemSplitter {
    /// The text of the list without its items.
    head: Vec<u8>,
    /// The text of the current item so far.
    item: Vec<u8>,
    /// The number of objects and arrays around the next byte.
    depth: usize,
    /// Whether the next byte is in the array of items.
    in_items: bool,
    /// Whether the next byte is in a string.
    in_string: bool,
    /// Whether the next byte is escaped by a backslash.
    is_escaped: bool,
}

impl ItemSplitter {
    /// Reads a chunk of the text, and calls the function with each item that ends in it.
    pub(crate) fn feed(&mut self, mut text: &[u8], each: &mut Each<'_>) -> Result<(), Error> {
        while let Some((byte, rest)) = text.split_first() {
            if self.in_string {
                let (read, rest) = text.split_at(self.length_in_string(text));
                self.text().extend_from_slice(read);
                text = rest;
            } else {
                self.read(*byte, each)?;
                text = rest;
            }
        }
        Ok(())
    }

    /// The length of the part of a text that belongs to the current string.
    fn length_in_string(&mut self, text: &[u8]) -> usize {
        for (at, byte) in text.iter().enumerate() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => {
                    self.in_string = false;
                    return at + 1;
                }
                _ => {}
            }
        }
        text.len()
    }

    /// Reads a byte outside of strings.
    fn read(&mut self, byte: u8, each: &mut Each<'_>) -> Result<(), Error> {
        match byte {
            b'[' if self.depth + 1 == ITEMS && self.is_after_items_key() => {
                self.text().push(byte);
                (self.in_items, self.depth) = (true, ITEMS);
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.text().push(byte);
            }
            b'}' | b']' => {
                self.text().push(byte);
                self.depth = self.depth.saturating_sub(1);
                self.in_items &= self.depth >= ITEMS;
                if self.in_items && self.depth == ITEMS {
                    return self.emit_item(each);
                }
            }
            // Separators between items are dropped.
            b',' | b' ' | b'\t' | b'\r' | b'\n' if self.in_items && self.depth == ITEMS => {}
            _ => {
                self.in_string = byte == b'"';
                self.text().push(byte);
            }
        }
        Ok(())
    }

    /// Whether the next byte is the beginning of the value of `items`.
    fn is_after_items_key(&self) -> bool {
        let key = self.head.trim_ascii_end().strip_suffix(b":");
        key.is_some_and(|key| key.trim_ascii_end().ends_with(br#""items""#))
    }

    fn emit_item(&mut self, each: &mut Each<'_>) -> Result<(), Error> {
        let item = String::from_utf8(mem::take(&mut self.item)).map_err(Error::FromUtf8)?;
        each(&item)?;
        self.item = item.into_bytes();
        self.item.clear();
        Ok(())
    }

    /// Decodes the fields of the list besides its items.
    pub(crate) fn finish(self) -> Result<Head, Error> {
        let head = String::from_utf8(self.head).map_err(Error::FromUtf8)?;
        let list: ObjectList<NoItem> =
            serde_json::from_str(&head).map_err(|error| decode_error(&head, error))?;
        Ok(Head { types: list.types, metadata: list.metadata })
    }

    /// The text that the next byte belongs to. An element of `items` that is not an object remains in the text of the list,
    /// where it is a decoding error.
    fn text(&mut self) -> &mut Vec<u8> {
        if self.in_items && self.depth > ITEMS { &mut self.item } else { &mut self.head }
    }
}
