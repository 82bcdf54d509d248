//! `ConfigMaps`.

use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::{Value, json};

use super::data::{MAX_SIZE, decoded_length, validate_immutable_data};
use crate::registry::{MetadataChecks, Strategy};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::validation::json::{entries, map as object};
use plumb_apiserver::validation::{Errors, add_invalid, format};

const DATA: Path<'_> = Path::root("data");

/// The strategy of `ConfigMaps`.
#[derive(Debug)]
pub(in crate::registry) struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_config_map(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_immutable_data(old, new, &["data", "binaryData"], errors);
        validate_config_map(new, errors);
    }
}

fn validate_config_map(map: &Value, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in entries(map, "data") {
        add_invalid(errors, &DATA.key(key), key, format::config_key(key));
        if object(map, "binaryData").is_some_and(|binary| binary.contains_key(key)) {
            errors.push(FieldError::invalid(DATA.key(key), key, "duplicate of key present in binaryData"));
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(map, "binaryData") {
        add_invalid(errors, &Path::root("binaryData").key(key), key, format::config_key(key));
        size += decoded_length(value);
    }
    if size > MAX_SIZE {
        errors.push(FieldError::too_long("", MAX_SIZE));
    }
}

static PRINT_COLUMNS: PrintColumns =
    PrintColumns::new(&[NAME, Column::text("Data", "how many entries it holds"), AGE], |object| {
        json!([object.name(), object.count("/data") + object.count("/binaryData"), object.age()])
    });
