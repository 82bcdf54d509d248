//! `CustomResourceDefinitions`.

use plumb_crd::definition;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use crate::registry::{Context, Strategy};
use plumb_apiserver::custom;
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::moment;
use plumb_apiserver::table::{NAME_AND_CREATED_AT, PrintColumns};
use plumb_apiserver::validation::Errors;

/// The strategy of `CustomResourceDefinitions`.
#[derive(Debug)]
pub(in crate::registry) struct CustomResourceDefinitionStrategy;

impl Strategy for CustomResourceDefinitionStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &NAME_AND_CREATED_AT
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn prepare_for_create(&self, cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        new["status"] = json!({});
        custom::prepare(cx, new)?;
        Ok(Vec::new())
    }

    fn prepare_for_update(&self, cx: Context<'_>, _old: &Value, new: &mut Value) -> Result<(), ApiError> {
        custom::prepare(cx, new)
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        errors.extend(definition::create(new));
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        errors.extend(definition::update(old, new));
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        definition::warnings(new, None)
    }

    fn warnings_on_update(&self, old: &Value, new: &Value) -> Vec<String> {
        definition::warnings(new, Some(old))
    }

    fn defines_kinds(&self) -> bool {
        true
    }

    fn prepare_for_delete(&self, cx: Context<'_>, object: &mut Value) {
        custom::release(object, &moment(cx.now()));
    }
}
