//! The service proxy: connections to the addresses of a Service go to one of its endpoints.

mod name;

pub use name::{Protocol, ServiceName, ServicePortName};
