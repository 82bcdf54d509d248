//! Tests of the toolkit through its public API.

mod metrics;
