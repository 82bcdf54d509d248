//! `LimitRanges`.

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::object::{meta, metadata};
use crate::registry::{Context, Strategy};

/// The strategy of `LimitRanges`.
#[derive(Debug)]
pub(in crate::registry) struct LimitRangeStrategy;

impl Strategy for LimitRangeStrategy {
    /// A limit range without a name gets one.
    fn prepare_for_create(&self, _cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        if meta(new, "name").is_empty() {
            metadata(new).insert("name".into(), json!(uuid::Uuid::new_v4().to_string()));
        }
        Ok(Vec::new())
    }
}
