//! The admission webhook.

mod certificates;
mod cluster;
mod fixture;
mod pod;
mod replicas;
mod robust;
mod vpa;
