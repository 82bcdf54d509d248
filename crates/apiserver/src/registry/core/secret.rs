//! Secrets.

use crate::registry::Strategy;

/// The strategy of Secrets.
#[derive(Debug)]
pub(in crate::registry) struct SecretStrategy;

impl Strategy for SecretStrategy {}
