//! The node agent, through its public API.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod it {
    mod access;
    mod agent;
    mod allocator;
    mod cluster;
    mod cri_config;
    mod csi;
    mod env;
    mod eviction;
    mod journal;
    mod lifecycle;
    mod objects;
    mod persistent_volumes;
    mod probe;
    mod pull_secrets;
    mod register;
    mod server;
    mod site;
    mod termination_message;
    mod tokens;
    mod usage;
    mod volumes;
}
