//! One table of resize cases, which runs against any cluster with a kubeconfig.
//!
//! A case is data: a pod, its environment, and steps with the expected result of each in both dialects. [`table`] has
//! all cases, and [`plan`] maps each to a sentence of the proposal; [`run`] performs them with an ordinary client and
//! waits with watches. So a case that passes on Kubernetes has the same meaning on any other target.
//!
//! ```no_run
//! # async fn example(client: kube::Client) -> Result<(), plumb_conformance::Error> {
//! use plumb_conformance::{Dialect, Options, run, table};
//!
//! let options = Options { dialect: Dialect::V1_36, ..Options::default() };
//! let summary = run(client, &table::all(), &options, |report| println!("{report}")).await?;
//! println!("{summary}");
//! # Ok(())
//! # }
//! ```

mod capability;
mod case;
mod cgroups;
mod check;
pub mod cli;
pub mod differential;
mod error;
mod failure;
mod follow;
mod glob;
mod junit;
pub mod plan;
mod play;
mod pod;
mod report;
mod request;
mod roll;
mod runner;
mod scale;
pub mod scenario;
mod setup;
pub mod skips;
mod step;
pub mod table;
mod target;
mod vpa;
mod wait;
mod witness;

pub use capability::Capability;
pub use case::{Amounts, Case, Container, Dialect, Gate, Policy, Rule};
pub use cgroups::{Cgroups, Figure, Group};
pub use error::Error;
pub use failure::Failure;
pub use glob::matches;
pub use junit::junit;
pub use report::{Report, Summary, Verdict};
pub use roll::{Roll, Rolled};
pub use runner::{Inspect, Options, run};
pub use scale::{Pods, Readiness, Resources, Scale, Scaled, Workload, WorkloadKind};
pub use step::{Act, Call, Expect, Expectation, Field, Refusal, Request, ResizeRequest, Step, Who};
pub use target::Target;
