//! The Pod Security Standards, as the admission plugin `PodSecurity` of Kubernetes 1.36 evaluates them.
//!
//! ```text
//!   labels of a namespace ─┐
//!   defaults ──────────────┴▶ Policy { enforce, audit, warn }, each a level and a version: restricted:v1.35
//!                                │
//!   metadata and spec of a pod ──┴▶ evaluate ──▶ Violations: reasons and details in upstream's words
//! ```
//!
//! | question | function |
//! |---|---|
//! | does a pod comply with a level in a version? | [`evaluate`] |
//! | what do the labels of a namespace ask for? | [`Policy::from_labels`] |
//! | do the existing pods of a namespace comply with a new policy? | [`ExistingPods`] |
//! | which defaults and exemptions does the cluster have? | [`Configuration`] |
//!
//! The functions are pure. `plumb-kinds` has the plugin, which reads namespaces and pods from the store.

mod check;
mod checks;
mod configuration;
mod evaluation;
mod existing;
mod level;
mod message;
mod pod;
mod policy;

pub use configuration::{Configuration, Exemptions, PodSecurityConfiguration};
pub use evaluation::{Violation, Violations, evaluate};
pub use existing::{ExistingPods, MAX_PODS};
pub use level::{Level, LevelVersion, Version};
pub use policy::{Policy, labels};
