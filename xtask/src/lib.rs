//! What `cargo xtask` and the tests of the repository's rules share. The rules are in `tests/tidy`.

pub mod repository;
pub mod summary;
