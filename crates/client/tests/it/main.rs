//! What the client sends and how it reads the answers.

mod api;
mod codec;
