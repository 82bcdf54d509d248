//! Validation that several kinds share, beside that of [`plumb_apiserver::validation`].

pub(crate) mod resource_name;
pub(crate) mod template;
