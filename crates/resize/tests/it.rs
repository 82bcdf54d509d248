//! The rules, seen from outside.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::large_stack_arrays, reason = "tables of pods are built once and read at once")]

mod it {
    mod accounting;
    mod admission;
    mod cluster;
    mod defaulting;
    mod fuzz;
    mod growth;
    mod laws;
    mod laws_validation;
    mod matrix;
    mod model;
    mod plan;
    mod pods;
    mod policy;
    mod prepare;
    mod qos;
    mod quantity;
    mod quota;
    mod seed;
    mod sizes;
    mod status;
    mod validation;
    mod values;
}
