//! The rules, seen from outside.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says why and stops")]

mod it {
    mod model;
    mod pods;
    mod prepare;
    mod quantity;
    mod seed;
}
