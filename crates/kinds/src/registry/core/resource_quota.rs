//! `ResourceQuotas`.

mod validation;

use plumb_resize::Quantity;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;
use plumb_apiserver::validation::Errors;

/// The strategy of `ResourceQuotas`.
#[derive(Debug)]
pub(in crate::registry) struct ResourceQuotaStrategy;

impl Strategy for ResourceQuotaStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::create(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update(old, new, errors);
    }

    fn validate_status_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update_status(new, errors);
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        warnings(&new["spec"]["hard"])
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

/// Warns if the quota of requests exceeds the quota of limits.
fn warnings(hard: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for name in ["cpu", "ephemeral-storage", "memory"] {
        let long = format!("requests.{name}");
        let bare = (name != "ephemeral-storage").then_some(name);
        let request =
            [Some(long.as_str()), bare].into_iter().flatten().find(|name| hard.get(*name).is_some());
        let limit = format!("limits.{name}");
        let amount = |name: &str| hard[name].as_str().and_then(|text| text.parse::<Quantity>().ok());
        if let Some(request) = request
            && let (Some(requested), Some(limited)) = (amount(request), amount(&limit))
            && requested > limited
        {
            let written = |name: &str| hard[name].as_str().unwrap_or_default().to_owned();
            warnings.push(format!(
                "ResourceQuota {request} ({}) should be less than {limit} ({})",
                written(request),
                written(&limit)
            ));
        }
    }
    warnings
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Request", "what is used of each amount, and how much may be"),
        Column::text("Limit", "what is used of each amount of limits, and how much may be"),
        AGE,
    ],
    quota,
);

fn quota(quota: View<'_>) -> Value {
    let mut hard: Vec<(&str, &str)> = quota.entries("/status/hard").collect();
    hard.sort_unstable();
    let column = |limits: bool| {
        let shown = hard.iter().filter(|(resource, _)| resource.starts_with("limits.") == limits);
        let texts = shown.map(|(resource, hard)| {
            let used = quota.entry("/status/used", resource).unwrap_or("0");
            format!("{resource}: {used}/{hard}")
        });
        texts.collect::<Vec<_>>().join(", ")
    };
    json!([quota.name(), column(false), column(true), quota.age()])
}
