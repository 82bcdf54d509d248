//! The rules, seen from outside.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says why and stops")]

mod it {
    mod admission;
    mod cluster;
    mod laws;
    mod matrix;
    mod model;
    mod plan;
    mod pods;
    mod quantity;
    mod seed;
    mod sizes;
    mod status;
}
