//! Each component with exactly the role that it is installed with: nothing that it asks for is forbidden, and there is no
//! right that it does not use. So to take a rule away is to break a component.
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
