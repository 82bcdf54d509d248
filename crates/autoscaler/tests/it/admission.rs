//! The admission webhook.

mod pod;
mod vpa;
