//! Limits in proportion to requests, and requests in proportion to limits.

use plumb_resize::Quantity;
use plumb_resize::list::quantity_of;
use plumb_resize::resource::Resource;

use super::Note;

/// To which side an amount is rounded that is not whole.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    Down,
    Up,
}

/// The limit that goes with a request, in the ratio that a container's own limit has to its own request.
///
/// A container without a limit gets none. One with a limit but without a request gets a limit equal to the request.
pub fn proportional_limit(
    resource: Resource,
    own_limit: Option<Quantity>,
    own_request: Option<Quantity>,
    request: Option<Quantity>,
) -> Result<Quantity, Note> {
    let own_limit = own_limit.filter(|limit| limit.is_positive()).ok_or(Note::NoLimit(resource))?;
    let request = request.filter(|request| request.is_positive()).ok_or(Note::NoRequest(resource))?;
    let Some(own_request) = own_request.filter(|own| own.is_positive()) else { return Ok(request) };
    if own_request.saturating_milli() == own_limit.saturating_milli() {
        return Ok(request);
    }
    scale(resource, own_limit, request, own_request, Round::Down).ok_or(Note::LimitOverflow(resource))
}

/// The largest limit that can be written.
pub(super) fn largest(resource: Resource, like: Quantity) -> Quantity {
    quantity_of(resource, i64::MAX).with_format(like.format())
}

/// `amount × by ÷ of` in whole millicores or bytes, in the format of `amount`; `None` if that is too large a number.
/// Nothing is divided by zero: then the amount stays.
pub(super) fn scale(
    resource: Resource,
    amount: Quantity,
    by: Quantity,
    of: Quantity,
    round: Round,
) -> Option<Quantity> {
    let whole = |quantity: Quantity| match resource {
        Resource::Cpu => i128::from(quantity.saturating_milli()),
        Resource::Memory => i128::from(quantity.saturating_units()),
    };
    if whole(of) <= 0 {
        return Some(amount);
    }
    // Both factors fit an i64, so the product fits.
    let product = whole(amount) * whole(by);
    let quotient = match round {
        Round::Down => product.div_euclid(whole(of)),
        Round::Up => (product + whole(of) - 1).div_euclid(whole(of)),
    };
    let scaled = i64::try_from(quotient).ok()?;
    Some(quantity_of(resource, scaled).with_format(amount.format()))
}
