//! Leader election: the decisions, a model of many candidates, and electors on an API server in this process.

mod decisions;
mod electors;
mod model;
