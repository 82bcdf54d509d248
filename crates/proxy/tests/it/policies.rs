//! Network policies: decisions compared with a model of who may reach whom, and real connections.

mod kernel;
mod machine;
mod model;
mod random;
mod table;
