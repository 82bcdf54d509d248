//! Connections, through real sockets.

mod crowded;
mod ending;
mod hostile;
mod identity;
mod overload;
mod server;
mod slow;
