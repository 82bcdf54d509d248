//! Writes of objects: create, update, patch and apply.
//!
//! A write is a list of stages. Each is a function from one type of [`stages`] to the next, so that none can be left out or
//! come too early:
//!
//! ```text
//!              create                                   update, patch, apply
//!   read                                                the stored object
//!                                                         ▼ Current
//!   request    the body                                 the body, the patched or the applied object
//!                ▼ Requested                              ▼ Requested
//!   default    namespace, defaults, field managers      defaults, field managers
//!                ▼ Defaulted                              ▼ Defaulted
//!   mutate     mutating admission                       mutating admission
//!                ▼ Mutated                                ▼ Mutated
//!   prepare    system fields, strategy, allocations     strategy, allocations, generation
//!                ▼ Prepared                               ▼ Prepared
//!   validate   strategy, warnings                       strategy, warnings
//!                ▼ Validated                              ▼ Validated
//!   admit      validating admission, canonical form     validating admission, canonical form
//!                ▼ Admitted                               ▼ Admitted
//!   store      one transaction with the quotas          one transaction with the quotas
//! ```
//!
//! The transaction has the precondition that the object is as it was read. After a conflict with another writer an update
//! starts again, so that two patches of one object never overwrite each other. [`crate::admission`] says which plugins take
//! part in admission, and in which order.

mod attempt;
mod create;
mod metadata;
mod part;
mod stages;
mod update;

pub(crate) use attempt::Attempts;
pub(crate) use create::create;
pub(crate) use metadata::check_url;
pub(crate) use part::Part;
pub(crate) use update::update;

use serde_json::Value;

use crate::codec::of_another_kind;
use crate::endpoints::write_options::WriteOptions;
use crate::error::ApiError;
use crate::request::Call;

/// When an object was found to have duplicate owner references, in the words of the warning.
const AFTER_ADMISSION: &str = " after mutating admission happens";

/// Decodes the object in the body of a request, and converts it to the stored version.
fn read_body(call: &Call, options: &WriteOptions) -> Result<Value, ApiError> {
    let (row, rules) = (call.scope.request_row(), call.cluster().rules());
    let decoded = call.http.decode(row, rules)?;
    call.state.warnings.extend(options.field_validation.judge(row, &decoded)?);
    let object = of_another_kind(row, &decoded.value).map_or(Ok(decoded.value), Err)?;
    Ok(call.scope.to_storage_version(object, rules))
}
