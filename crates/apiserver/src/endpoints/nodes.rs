//! Requests to the node agents (kubelets), which the API server forwards: logs, exec, attach, port forwards and proxies. Bodies
//! are streamed.

pub(crate) mod log;
pub(crate) mod proxy;
pub(crate) mod streams;
