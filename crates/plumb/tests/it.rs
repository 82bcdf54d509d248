//! The binary, as its users meet it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod it {
    mod accounts;
    mod attacks;
    mod audit;
    mod authorization;
    mod autoscaler;
    mod backup;
    mod beside_kubelet;
    mod cluster;
    mod command_line;
    mod commands;
    mod conformance;
    mod containerd;
    mod csi;
    mod dashboard;
    mod descriptors;
    mod dice;
    mod differential;
    mod encryption;
    mod exec;
    mod failover;
    mod gates;
    mod horizontal_autoscaling;
    mod hostile;
    mod images;
    mod in_place_rollout;
    mod installed;
    mod join;
    mod kills;
    mod kubeconfigs;
    mod kubectl;
    mod kubectl_apply;
    mod kubectl_streams;
    mod life;
    mod node_address;
    mod node_allocatable;
    mod node_shutdown;
    mod nodes;
    mod persistent_volumes;
    mod postgresql;
    mod processes;
    mod prometheus;
    mod race;
    mod real_registry;
    mod recommend;
    mod reflectors;
    mod rollouts;
    mod run;
    mod scheduler;
    mod secrets;
    mod sets;
    mod soak;
    mod startup_boost;
    mod static_pods;
    mod status_vpa;
    mod storms;
    mod streams;
    mod support_bundle;
    mod tasks;
    mod top;
    mod upstream;
    mod walk_through;
    mod wire;
}
