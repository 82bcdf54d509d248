//! `IPAddresses`.

use crate::registry::Strategy;

/// The strategy of `IPAddresses`.
#[derive(Debug)]
pub(in crate::registry) struct IpAddressStrategy;

impl Strategy for IpAddressStrategy {}
