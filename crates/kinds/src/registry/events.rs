//! The kinds of `events.k8s.io`.

mod event;
pub(super) mod print;
pub(super) mod validation;

pub(super) use event::EventStrategy;
