//! One table of resize cases, run against any cluster that a kubeconfig leads to.
//!
//! A case is data: a pod, what is around it, what happens one after another, and for each what must come of it in
//! either dialect. [`table`] has them all, [`plan`] says which sentence of the proposal each is for; [`run`] performs
//! them with an ordinary client and waits on watches, so a case that is right for the real Kubernetes says the same about
//! any other target.
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

mod ask;
mod case;
mod cgroups;
mod check;
pub mod cli;
pub mod differential;
mod error;
mod failure;
mod follow;
mod glob;
mod ground;
mod junit;
pub mod plan;
mod play;
mod pod;
mod report;
mod roll;
mod runner;
mod scale;
pub mod scenario;
pub mod skips;
mod step;
pub mod table;
mod target;
mod vpa;
mod wait;
mod witness;

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
pub use step::{Act, Call, Door, Expect, Expectation, Field, Refusal, Request, Step, Who};
pub use target::Target;
