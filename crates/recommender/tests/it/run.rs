//! The loop in a cluster: an API server in this process, pods that only exist in it, and usage that the test sets.

mod bed;
mod checkpoints;
mod environment;
mod external_metrics;
mod history;
mod inputs;
mod node_groups;
mod shards;
mod statuses;
mod targets;
