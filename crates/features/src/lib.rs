//! Feature gates, like those of Kubernetes' component-base.
//!
//! The crate that reads a feature gate declares it:
//!
//! ```
//! use plumb_features::{Feature, FeatureGates, KnownFeatures, Stage};
//!
//! /// Places pods on the moon.
//! pub const MOON_PLACEMENT: Feature = Feature {
//!     name: "MoonPlacement",
//!     stage: Stage::Alpha,
//!     default: false,
//!     locked: false,
//!     since: "Kubernetes 1.36",
//!     doc: "pods may be placed on the moon",
//! };
//!
//! // The binary collects the declarations of all crates, and reads the flag.
//! let known = KnownFeatures::new([&MOON_PLACEMENT]);
//! let gates = known.parse("MoonPlacement=true")?;
//! assert!(gates.enabled(&MOON_PLACEMENT));
//!
//! // A gate that is not set has its default; tests need no list of gates.
//! assert!(!FeatureGates::default().enabled(&MOON_PLACEMENT));
//! # Ok::<(), plumb_features::FeatureError>(())
//! ```
//!
//! This crate depends on no other crate of the workspace, and declares only the gates [`ALL_ALPHA`] and [`ALL_BETA`].

mod feature;
mod gates;
mod known;

pub use feature::{Feature, Stage};
pub use gates::FeatureGates;
pub use known::{ALL_ALPHA, ALL_BETA, FeatureError, KnownFeatures};
