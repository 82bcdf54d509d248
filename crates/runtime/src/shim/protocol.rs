//! The protocol between the agent and a shim.
//!
//! One request per connection: a frame each way, four bytes of length (little endian) and that much JSON. Both sides send
//! their version; unknown fields are ignored, an unknown command is refused. A connection that is closed without a response
//! means that the shim has ended. After the response to `Attach` the connection carries pieces of the streams: five bytes of
//! kind and length, and the data.

use serde::{Deserialize, Serialize};

use super::Exit;

/// The version of this code.
pub(crate) const VERSION: u32 = 1;
/// No frame is longer.
pub(crate) const LONGEST: usize = 64 << 10;

/// A request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) version: u32,
    pub(crate) ask: ShimCommand,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ShimCommand {
    /// The response is sent when the container has exited.
    Wait,
    /// Sends a signal to the first process, or to all.
    Signal { number: i32, all: bool },
    /// Opens the log by its name again.
    ReopenLog,
    /// Connects to the standard streams of the container. After the response, pieces go both ways.
    Attach { stdin: bool, stdout: bool, stderr: bool },
    /// Holds the container for this long at most when it reaches its memory limit, instead of having it killed. Zero is off.
    Hold { milliseconds: u64 },
    /// A command of a newer agent.
    #[serde(other)]
    Unknown,
}

/// A reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) version: u32,
    pub(crate) answer: ShimResponse,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ShimResponse {
    /// The container has exited.
    Exited(Exit),
    /// The command succeeded.
    Done,
    /// The command failed, for this reason.
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

/// The length in a frame's head, if it is within the limit.
pub(crate) fn length(head: [u8; 4]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(head)).ok().filter(|length| *length <= LONGEST)
}
