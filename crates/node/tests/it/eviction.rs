//! Node-pressure eviction: what is decided, and what an agent does.

mod agent;
mod decisions;
