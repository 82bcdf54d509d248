//! The rules, seen from outside.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::large_stack_arrays, reason = "tables of pods are built once and read at once")]

mod it {
    mod accounting;
    mod defaulting;
    mod laws_validation;
    mod model;
    mod pods;
    mod policy;
    mod prepare;
    mod qos;
    mod quantity;
    mod seed;
    mod validation;
    mod values;
}
