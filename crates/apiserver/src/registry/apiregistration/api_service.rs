//! `APIServices`.

use crate::registry::Strategy;

/// The strategy of `APIServices`.
#[derive(Debug)]
pub(in crate::registry) struct ApiServiceStrategy;

impl Strategy for ApiServiceStrategy {}
