//! What agent and shim say to each other.
//!
//! One question per connection: a frame each way, four bytes of length (little end first) and that much JSON.
//! Both sides say which version they speak; unknown fields are ignored, an unknown question is refused. A
//! connection that is closed without an answer means that the shim is gone. A connection that attaches goes on after the
//! answer with pieces of the streams: five bytes of kind and length, and the data.

use serde::{Deserialize, Serialize};

use super::Exit;

/// The version that this code speaks.
pub(crate) const VERSION: u32 = 1;
/// No frame is longer.
pub(crate) const LONGEST: usize = 64 << 10;

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) version: u32,
    pub(crate) ask: Ask,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Ask {
    /// Answered when the container has ended.
    Wait,
    /// Sends a signal to the first process, or to all.
    Signal { number: i32, all: bool },
    /// Opens the log by its name again.
    ReopenLog,
    /// Connects to the standard streams of the container. After the answer, [`Piece`]s go both ways.
    Attach { stdin: bool, stdout: bool, stderr: bool },
    /// Anything that a newer agent may ask.
    #[serde(other)]
    Unknown,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) version: u32,
    pub(crate) answer: Answer,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Answer {
    /// It ended.
    Exited(Exit),
    /// It was done.
    Done,
    /// It was not, for this reason.
    Refused(String),
}

/// What is in a piece: the same numbers as the channels of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// For standard input. An empty piece is its end.
    Stdin = 0,
    Stdout = 1,
    Stderr = 2,
    /// The size of the terminal: columns and rows, two bytes each, little end first.
    Resize = 4,
}

/// The head of a piece: its kind, and its length in four bytes, little end first.
pub(crate) const PIECE_HEAD: usize = 5;
/// No piece is longer.
pub(crate) const LONGEST_PIECE: usize = 16 << 10;

/// A piece of what a client that is attached sends or receives.
pub(crate) fn piece(kind: Kind, data: &[u8]) -> Vec<u8> {
    // Nothing longer than [`LONGEST_PIECE`] is sent.
    let mut piece = vec![kind as u8];
    piece.extend(u32::try_from(data.len()).unwrap_or(0).to_le_bytes());
    piece.extend(data);
    piece
}

/// The kind and length of a piece by its head; `None` if it is none.
pub(crate) fn piece_head(head: [u8; PIECE_HEAD]) -> Option<(Kind, usize)> {
    let [kind, length @ ..] = head;
    let kind = match kind {
        0 => Kind::Stdin,
        1 => Kind::Stdout,
        2 => Kind::Stderr,
        4 => Kind::Resize,
        _ => return None,
    };
    let length =
        usize::try_from(u32::from_le_bytes(length)).ok().filter(|length| *length <= LONGEST_PIECE)?;
    Some((kind, length))
}

/// A frame with this in it.
pub(crate) fn frame<T: Serialize>(value: &T) -> Vec<u8> {
    // Serialising plain structs into memory cannot fail; an empty frame would be refused by the other side.
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut frame = u32::try_from(body.len()).unwrap_or(0).to_le_bytes().to_vec();
    frame.extend(body);
    frame
}

/// The length that a frame's head announces, if it is one to believe.
pub(crate) fn length(head: [u8; 4]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(head)).ok().filter(|length| *length <= LONGEST)
}
