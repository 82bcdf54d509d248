//! The objects of a list, one by one as the response comes.
//!
//! A decoded list takes a multiple of the memory of its text. A client that holds the text, all decoded objects, and what it
//! makes of them at the same time needs memory for all three, and allocators give back little of that. Here the caller gets
//! each object before the next one is read.

use std::mem;

use kube::Error;
use kube::core::{ListMeta, ObjectList, TypeMeta};

use crate::send::undecodable;

/// What is called with the text of each item.
pub(crate) type Each<'a> = dyn FnMut(&str) -> Result<(), Error> + Send + 'a;

/// What a list has besides its objects.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) types: TypeMeta,
    pub(crate) metadata: ListMeta,
}

/// An item that was not handed out: none is left.
#[derive(Clone, serde::Deserialize)]
enum NoItem {}

/// The depth inside the array of items.
const ITEMS: usize = 2;

/// Finds the items in the text of a list, however it is cut into chunks.
#[derive(Debug, Default)]
pub(crate) struct ItemSplitter {
    /// The text of the list without its items.
    head: Vec<u8>,
    /// The text of an item, as far as it has come.
    item: Vec<u8>,
    /// How many objects and arrays surround the next byte.
    depth: usize,
    /// Whether one of them is the array of items.
    in_items: bool,
    /// Whether the next byte is in a string.
    in_string: bool,
    /// Whether it is escaped by a backslash.
    is_escaped: bool,
}

impl ItemSplitter {
    /// Reads more of the text, and hands out the items that end in it.
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

    /// How much of a text is in the string that it begins in.
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

    /// Reads a byte that is in no string.
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
                    return self.hand_out(each);
                }
            }
            // What separates items stays in no text.
            b',' | b' ' | b'\t' | b'\r' | b'\n' if self.in_items && self.depth == ITEMS => {}
            _ => {
                self.in_string = byte == b'"';
                self.text().push(byte);
            }
        }
        Ok(())
    }

    /// Whether the text of the list has come to the value of its `items`.
    fn is_after_items_key(&self) -> bool {
        let key = self.head.trim_ascii_end().strip_suffix(b":");
        key.is_some_and(|key| key.trim_ascii_end().ends_with(br#""items""#))
    }

    fn hand_out(&mut self, each: &mut Each<'_>) -> Result<(), Error> {
        let item = String::from_utf8(mem::take(&mut self.item)).map_err(Error::FromUtf8)?;
        each(&item)?;
        self.item = item.into_bytes();
        self.item.clear();
        Ok(())
    }

    /// What the list has besides its items, at its end.
    pub(crate) fn finish(self) -> Result<Head, Error> {
        let head = String::from_utf8(self.head).map_err(Error::FromUtf8)?;
        let list: ObjectList<NoItem> =
            serde_json::from_str(&head).map_err(|error| undecodable(&head, error))?;
        Ok(Head { types: list.types, metadata: list.metadata })
    }

    /// Which text the next byte belongs to. What is no object in the array of
    /// items stays in the text of the list, where it is an error.
    fn text(&mut self) -> &mut Vec<u8> {
        if self.in_items && self.depth > ITEMS { &mut self.item } else { &mut self.head }
    }
}
