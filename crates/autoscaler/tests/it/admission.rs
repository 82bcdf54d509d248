//! The admission webhook.

mod cluster;
mod fixture;
mod pod;
mod replicas;
mod robust;
mod vpa;
