//! The door, through real sockets.

mod ending;
mod hostile;
mod identity;
mod server;
