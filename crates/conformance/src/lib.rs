//! One table of resize cases, run against any cluster that a kubeconfig leads to.
//!
//! A case is data: a pod, the resizes that are asked of it one after another, and for each what must come of it in
//! either dialect. [`table`] has them all; [`run`] performs them with an ordinary client and waits on watches, so a case
//! that is right for the real Kubernetes says the same about any other target.
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

mod case;
mod cgroups;
mod check;
pub mod cli;
pub mod differential;
mod error;
mod pod;
mod runner;
pub mod table;

pub use case::{Amounts, Case, Container, Dialect, Door, Expect, Expectation, Refusal, Step};
pub use cgroups::Cgroups;
pub use error::Error;
pub use runner::{Inspect, Options, Report, Summary, Verdict, run};
