//! The engine that all workloads share: what changes, at which pace, and what a failure leads to. Pure.
