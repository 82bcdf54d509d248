//! The rules that the whole workspace follows: `cargo xtask tidy`.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read has failed the test")]

mod annotations;
mod documents;
mod layout;
mod metrics;
mod pages;
mod words;
