//! Each component with exactly the role that it is installed with: none of its requests is forbidden, and there is no
//! permission that it does not use. So removing a rule breaks a component.
//!
//! ```text
//!   component ──▶ client of its ServiceAccount ──▶ API server with the installed roles
//!                     └──▶ log: verb, resource, status ──▶ compared with the rules
//! ```

mod admission;
mod election;
mod log;
mod node;
mod recommender;
mod rollout;
mod updater;
mod world;
