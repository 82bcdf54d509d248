//! `CloneSet` of `apps.kruise.io`: field for field that of OpenKruise, so that manifests written for it are served.
//!
//! # Two versions, one schema
//!
//! OpenKruise serves `v1alpha1`, whose update strategy is flat (`type: InPlaceIfPossible, partition: 1`), and `v1beta1`,
//! which nests it (`rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, partition: 1}`), and converts between them with a
//! webhook. Here both versions have the same schema, which has the fields of both, and no conversion is needed: an object
//! is stored as it was written, and [`CloneSet::settings`] reads either form. Where an object has a field in both forms
//! the nested one counts.
//!
//! # Reading
//!
//! The schema leaves templates open, as OpenKruise's does. So that one template which is none does not make a whole LIST
//! unreadable, templates are read when they are used: [`CloneSet::template`].

mod crd;
mod lifecycle;
mod schema;
mod settings;
mod spec;
mod status;
mod strategy;
mod template;
mod validation;

pub use crd::crd;
pub use lifecycle::{Lifecycle, LifecycleHook};
pub use settings::{PodUpdatePolicy, Settings};
pub use spec::{CloneSet, CloneSetSpec, ScaleStrategy};
pub use status::{CloneSetCondition, CloneSetStatus};
pub use strategy::{
    InPlaceUpdateStrategy, OrderTerm, PriorityStrategy, RollingUpdate, ScatterTerm, UpdateStrategy,
    WeightTerm,
};
pub use template::TemplateError;
pub use validation::{Invalid, validate};

/// The API group.
pub const GROUP: &str = "apps.kruise.io";

plumb_client::codec!(CloneSet);
