//! Explanations of recommendations, and the state of the pods of a VPA, for people and for programs.
//!
//! ```text
//!   samples of a file   (plumb recommend --explain)      ──┐
//!   checkpoints of a VPA (plumb status vpa/X --explain)  ──┼──▶ model::estimate::explain ──▶ text, JSON
//!   the running recommender (/debug/vpa/NAMESPACE/NAME)  ──┘
//! ```
//!
//! Names and messages of API objects are written by others. The text escapes what would change a terminal: see
//! [`printable`].

mod boost;
mod container;
mod pods;
mod printable;
mod vpa;

pub use boost::BoostView;
pub use container::{json, text};
pub use pods::{ContainerView, PodEvents, PodUpdateState, PodView, pods};
pub use printable::{MAX_PRINTABLE, printable};
pub use vpa::{ExplainedContainer, HistorySource, Unexplained, VpaExplanation};
