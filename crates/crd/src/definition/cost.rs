//! The estimated cost of a schema's CEL rules.

use plumb_validation::field::{FieldError, Path};

use super::Errors;
use crate::schema::Schema;

/// The limit on the estimated cost of one rule (`StaticEstimatedCostLimit`).
pub(super) const RULE_LIMIT: u64 = 10_000_000;
/// The limit on the estimated cost of all rules together (`StaticEstimatedCRDCostLimit`).
const SCHEMA_LIMIT: u64 = 100_000_000;

/// How many of the most expensive rules the error names, as upstream's `TotalCost` does.
const MAX_NAMED: usize = 4;

/// The estimated cost of the rules so far.
#[derive(Default)]
pub(super) struct Total {
    sum: u64,
    most_expensive: Vec<(String, u64)>,
}

impl Total {
    /// Adds the cost of the rule at a path.
    pub(super) fn add(&mut self, path: String, cost: u64) {
        self.sum = self.sum.saturating_add(cost);
        // The error names only rules that contribute at least a hundredth of the limit.
        if cost < SCHEMA_LIMIT / 100 {
            return;
        }
        self.most_expensive.push((path, cost));
        self.most_expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        self.most_expensive.truncate(MAX_NAMED);
    }

    /// Adds errors if all rules together exceed the limit.
    pub(super) fn check(self, path: &Path<'_>, errors: &mut Errors) {
        if self.sum <= SCHEMA_LIMIT {
            return;
        }
        for (path, _) in self.most_expensive {
            let rule =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(path, rule));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, exceeds(what, self.sum, SCHEMA_LIMIT)));
    }
}

/// The message that a cost exceeds its limit, with the factor.
#[expect(clippy::cast_precision_loss, reason = "the message has a rounded factor")]
pub(super) fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        // More digits: "a factor of 1.0x" would not read as an excess.
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// The maximum number of elements of a list or map; `None` if it is unbounded.
pub(super) fn max_elements(schema: &Schema) -> Option<u64> {
    let bound = |max: Option<i64>| max.map(|max| u64::try_from(max).unwrap_or_default());
    match schema.ty.as_str() {
        "object" if schema.additional.is_some() => bound(schema.max_properties),
        "array" => bound(schema.max_items),
        _ => Some(1),
    }
}
