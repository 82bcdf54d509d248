//! What holds whatever the figures: the rules as laws.

mod capacity;
mod cgroup;
mod fewest;
mod memory;
mod plan;
mod queue;
mod status;

use plumb_resize::resource::{Declared, PerResource, Requirements};
use proptest::prelude::*;

/// Something of both resources.
fn per_resource<T: std::fmt::Debug>(
    each: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = PerResource<T>> + Clone {
    (each.clone(), each).prop_map(|(cpu, memory)| PerResource::new(cpu, memory))
}

/// Amounts, some absent and some zero. They are small, so that they meet.
fn declared() -> impl Strategy<Value = Declared> + Clone {
    per_resource(prop_oneof![2 => Just(None), 1 => Just(Some(0)), 7 => (1i64..500).prop_map(Some)])
}

fn requirements() -> impl Strategy<Value = Requirements> + Clone {
    (declared(), declared()).prop_map(|(requests, limits)| Requirements { requests, limits })
}
