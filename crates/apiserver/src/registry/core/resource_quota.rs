//! `ResourceQuotas`.

use crate::registry::Strategy;

/// The strategy of `ResourceQuotas`.
#[derive(Debug)]
pub(in crate::registry) struct ResourceQuotaStrategy;

impl Strategy for ResourceQuotaStrategy {}
