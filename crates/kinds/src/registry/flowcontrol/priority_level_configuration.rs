//! `PriorityLevelConfigurations`.

use plumb_flowcontrol::EXEMPT;
use plumb_flowcontrol::shuffle::{MAX_HASH_BITS, required_entropy_bits};
use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::{Value, json};

use super::validation::{validate_mandatory, validate_status};
use crate::registry::{FieldPaths, Strategy};
use crate::warnings::no_effect;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;
use plumb_apiserver::validation::json::{int, text};
use plumb_apiserver::validation::{Errors, validate_one_of};

/// The annotation that preserves zero shares between versions of the API; objects of this version must not have it.
const PRESERVE_ZERO: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
/// The most queues of a level.
const MAX_QUEUES: i64 = 10_000_000;

/// The strategy of `PriorityLevelConfigurations`.
#[derive(Debug)]
pub(in crate::registry) struct PriorityLevelConfigurationStrategy;

impl Strategy for PriorityLevelConfigurationStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["metadata"]]
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        if !new["metadata"]["annotations"][PRESERVE_ZERO].is_null() {
            let rule = format!("annotation '{PRESERVE_ZERO}' is forbidden");
            errors.push(FieldError::forbidden("metadata.annotations", rule));
        }
        validate_spec(&new["spec"], text(&new["metadata"], "name"), errors);
        let free = (text(&new["metadata"], "name") == EXEMPT).then_some("exempt");
        validate_mandatory(new, "PriorityLevelConfiguration", free, errors);
        validate_status(new, errors);
    }

    fn validate_status_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_status(new, errors);
    }

    fn warnings(&self, _new: &Value) -> Vec<String> {
        vec![no_effect::of_kind(no_effect::NO_FAIRNESS)]
    }
}

fn validate_spec(spec: &Value, name: &str, errors: &mut Errors) {
    let path = Path::root("spec");
    let type_ = text(spec, "type");
    if (name == EXEMPT) != (type_ == "Exempt") {
        let rule = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.push(FieldError::invalid(path.child("type"), type_, rule));
    }
    let (exempt, limited) = (&spec["exempt"], &spec["limited"]);
    match type_ {
        "Exempt" => {
            if !limited.is_null() {
                let rule = "must be nil if the type is not Limited";
                errors.push(FieldError::forbidden(path.child("limited"), rule));
            }
            let path = path.child("exempt");
            validate_nonnegative(exempt, "nominalConcurrencyShares", &path, errors);
            validate_lendable_percent(exempt, &path, errors);
        }
        "Limited" => {
            if !exempt.is_null() {
                errors
                    .push(FieldError::forbidden(path.child("exempt"), "must be nil if the type is Limited"));
            }
            let path = path.child("limited");
            if limited.is_null() {
                errors.push(FieldError::required(path, "must not be empty when type is Limited"));
            } else {
                validate_limited(limited, &path, errors);
            }
        }
        type_ => validate_one_of(Some(type_), &["Exempt", "Limited"], &path.child("type"), errors),
    }
}

fn validate_limited(limited: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_nonnegative(limited, "nominalConcurrencyShares", path, errors);
    validate_limit_response(&limited["limitResponse"], &path.child("limitResponse"), errors);
    validate_lendable_percent(limited, path, errors);
    if let Some(percent) = int(limited, "borrowingLimitPercent").filter(|percent| *percent < 0) {
        let rule = "if specified, must be a non-negative integer";
        errors.push(FieldError::invalid(path.child("borrowingLimitPercent"), percent, rule));
    }
}

fn validate_nonnegative(of: &Value, field: &'static str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(number) = int(of, field).filter(|number| *number < 0) {
        errors.push(FieldError::invalid(path.child(field), number, "must be a non-negative integer"));
    }
}

fn validate_lendable_percent(of: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(percent) = int(of, "lendablePercent").filter(|percent| !(0..=100).contains(percent)) {
        let rule = "must be between 0 and 100, inclusive";
        errors.push(FieldError::invalid(path.child("lendablePercent"), percent, rule));
    }
}

fn validate_limit_response(response: &Value, path: &Path<'_>, errors: &mut Errors) {
    let queuing = &response["queuing"];
    match (text(response, "type"), path.child("queuing")) {
        ("Reject", path) => {
            if !queuing.is_null() {
                // Upstream's words, which mean `Queue`.
                let rule = "must be nil if limited.limitResponse.type is not Limited";
                errors.push(FieldError::forbidden(path, rule));
            }
        }
        ("Queue", path) if queuing.is_null() => {
            let rule = "must not be empty if limited.limitResponse.type is Limited";
            errors.push(FieldError::required(path, rule));
        }
        ("Queue", path) => validate_queuing(queuing, &path, errors),
        (type_, _) => validate_one_of(Some(type_), &["Queue", "Reject"], &path.child("type"), errors),
    }
}

fn validate_queuing(queuing: &Value, path: &Path<'_>, errors: &mut Errors) {
    let number = |field| int(queuing, field).unwrap_or(0);
    let mut invalid = |field: &'static str, rule: String| {
        errors.push(FieldError::invalid(path.child(field), number(field), rule));
    };
    let (queues, hand) = (number("queues"), number("handSize"));
    if number("queueLengthLimit") <= 0 {
        invalid("queueLengthLimit", "must be positive".to_owned());
    }
    if queues <= 0 {
        invalid("queues", "must be positive".to_owned());
    } else if queues > MAX_QUEUES {
        invalid("queues", format!("must not be greater than {MAX_QUEUES}"));
    }
    if hand <= 0 {
        invalid("handSize", "must be positive".to_owned());
    } else if hand > queues {
        invalid("handSize", format!("should not be greater than queues ({queues})"));
    } else {
        // Both are positive and have 32 bits.
        let bits = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        if required_entropy_bits(bits(queues), bits(hand)) > MAX_HASH_BITS {
            let needs = format!("required entropy bits of deckSize {queues} and handSize {hand}");
            invalid("handSize", format!("{needs} should not be greater than {MAX_HASH_BITS}"));
        }
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Type", "whether the level has a limit"),
        Column::text("NominalConcurrencyShares", "its share of what may be under way at once"),
        Column::text("Queues", "how many queues it has"),
        Column::text("HandSize", "how many queues a flow may use"),
        Column::text("QueueLengthLimit", "how many requests may wait in a queue"),
        AGE,
    ],
    priority_level,
);

fn priority_level(level: View<'_>) -> Value {
    let limited = level.at("/spec/limited");
    let queuing = limited.and_then(|limited| limited.at("/limitResponse/queuing"));
    let cell = |part: Option<View<'_>>, path, default| match part {
        Some(part) => json!(part.number_or(path, default)),
        None => json!("<none>"),
    };
    json!([
        level.name(),
        level.text("/spec/type"),
        cell(limited, "/nominalConcurrencyShares", 30),
        cell(queuing, "/queues", 64),
        cell(queuing, "/handSize", 8),
        cell(queuing, "/queueLengthLimit", 50),
        level.age(),
    ])
}
