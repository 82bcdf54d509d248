use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use super::{Quantity, QuantityError};

/// Reads what an API object holds.
///
/// White space around the text is dropped, because the API server's decoder does so before it reads a quantity;
/// [`Quantity::parse`] and [`FromStr`](std::str::FromStr) take the text as it stands.
impl TryFrom<&ApiQuantity> for Quantity {
    type Error = QuantityError;

    fn try_from(quantity: &ApiQuantity) -> Result<Self, Self::Error> {
        quantity.0.trim().parse()
    }
}

/// Writes the canonical form into an API object.
impl From<&Quantity> for ApiQuantity {
    fn from(quantity: &Quantity) -> Self {
        Self(quantity.to_string())
    }
}

/// Writes the canonical form into an API object.
impl From<Quantity> for ApiQuantity {
    fn from(quantity: Quantity) -> Self {
        Self::from(&quantity)
    }
}
