//! The estimated cost of a schema's CEL rules.

use plumb_validation::field::{FieldError, Path};

use super::Errors;
use crate::schema::Schema;

/// The limits on the estimated cost of one rule, and of all rules together.
pub(super) const RULE_LIMIT: u64 = 10_000_000;
const SCHEMA_LIMIT: u64 = 100_000_000;

/// How many of the most expensive rules the error names.
const NAMED: usize = 4;

/// The estimated cost of the rules so far.
#[derive(Default)]
pub(super) struct Total {
    sum: u64,
    dearest: Vec<(String, u64)>,
}

impl Total {
    pub(super) fn add(&mut self, path: String, cost: u64) {
        self.sum = self.sum.saturating_add(cost);
        if cost < SCHEMA_LIMIT / 100 {
            return;
        }
        self.dearest.push((path, cost));
        self.dearest.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        self.dearest.truncate(NAMED);
    }

    pub(super) fn judge(self, path: &Path<'_>, errors: &mut Errors) {
        if self.sum <= SCHEMA_LIMIT {
            return;
        }
        for (path, _) in self.dearest {
            let rule =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(path, rule));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, exceeds(what, self.sum, SCHEMA_LIMIT)));
    }
}

/// The factor by which a cost exceeds its limit.
#[expect(clippy::cast_precision_loss, reason = "a factor for people")]
pub(super) fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// The maximum number of elements of a list or map; none if it is unbounded.
pub(super) fn elements(schema: &Schema) -> Option<u64> {
    let bound = |most: Option<i64>| most.map(|most| u64::try_from(most).unwrap_or_default());
    match schema.ty.as_str() {
        "object" if schema.additional.is_some() => bound(schema.max_properties),
        "array" => bound(schema.max_items),
        _ => Some(1),
    }
}
