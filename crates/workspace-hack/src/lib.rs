//! Nothing: this crate is there for its dependencies.
//!
//! cargo gives a dependency the features that the selected packages ask for, so `cargo test -p plumb-store` and
//! `cargo test --workspace` may want two builds of the same dependency, and of everything that stands on it. What
//! crates ask for themselves is the same everywhere, since it is declared in `[workspace.dependencies]`; what
//! dependencies ask of each other is asked for here, too, by every crate. Only small dependencies are here: those that
//! speak HTTP are evened out by `plumb-client`, which every crate with a Kubernetes client depends on.
//!
//! `cargo xtask features` (and a test of `xtask`) compares what cargo resolves for each crate and for all.
