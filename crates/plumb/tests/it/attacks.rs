//! Attacks on a cluster, from outside of the binary. docs/security.md has a row for each.

mod containerd;
mod data_dir;
mod exhaustion;
mod http;
mod kubelet_client;
mod network;
mod node;
mod store_quota;
mod streams;
