//! A compiled version of a custom kind.

use plumb_validation::field::{BadValue, ErrorType, FieldError, Path};
use serde_json::{Map, Value};

use crate::columns::JsonPath;
use crate::object::{
    Patterns, decode_error, defaults, embedded, for_each_embedded, lists, prune_root, types, without_nulls,
};
use crate::rules::Rules;
use crate::schema::Schema;

/// One served version of a custom kind.
#[derive(Debug)]
pub struct Version {
    /// The name of the version, such as `v1`.
    pub name: String,
    /// The structural schema.
    pub schema: Schema,
    /// The schema as JSON.
    pub json: Value,
    /// Whether the version has the status subresource.
    pub status: bool,
    /// The scale subresource, if the version has one.
    pub scale: Option<Scale>,
    /// The printer columns that follow the column with the name.
    pub columns: Vec<Column>,
    /// The selectable fields, without the leading dot.
    pub selectable: Vec<(String, JsonPath)>,
    /// The warning of a deprecated version.
    pub deprecation: Option<String>,
    keeps_all: bool,
    patterns: Patterns,
    rules: Option<Rules>,
}

/// The scale subresource.
#[derive(Clone, Debug)]
pub struct Scale {
    /// The path of the desired replicas.
    pub spec: Vec<String>,
    /// The path of the current replicas.
    pub status: Vec<String>,
    /// The path of the label selector.
    pub selector: Option<Vec<String>>,
    /// `specReplicasPath`.
    pub spec_path: String,
    /// `statusReplicasPath`.
    pub status_path: String,
}

impl Scale {
    /// The scale subresource of a version, if it has one.
    pub fn from_version(version: &Value) -> Option<Self> {
        let scale = version["subresources"].get("scale").filter(|scale| scale.is_object())?;
        let text = |field: &str| scale[field].as_str().unwrap_or_default();
        Some(Self {
            spec: steps(text("specReplicasPath")),
            status: steps(text("statusReplicasPath")),
            selector: Some(text("labelSelectorPath")).filter(|path| !path.is_empty()).map(steps),
            spec_path: text("specReplicasPath").to_owned(),
            status_path: text("statusReplicasPath").to_owned(),
        })
    }
}

/// A printer column.
#[derive(Clone, Debug)]
pub struct Column {
    /// The name of the column.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub ty: String,
    /// The format of its values.
    pub format: String,
    /// The description.
    pub description: String,
    /// The priority: columns with priority 0 are always displayed, others only with `-o wide`.
    pub priority: i64,
    /// The JSON path of its values.
    pub path: JsonPath,
}

fn steps(path: &str) -> Vec<String> {
    path.strip_prefix('.').unwrap_or(path).split('.').map(str::to_owned).collect()
}

/// The value at a path of field names.
pub(crate) fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, step| value.get(step))
}

impl Version {
    /// Compiles a version of a valid definition.
    pub fn compile(definition: &Value, version: &Value) -> Self {
        let json = version["schema"]["openAPIV3Schema"].clone();
        let schema = Schema::from_json(&json);
        let keeps_all = definition["spec"]["preserveUnknownFields"] == true;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let listed = version["additionalPrinterColumns"].as_array().into_iter().flatten();
        let mut columns: Vec<Column> = listed
            .filter_map(|column| {
                let path = text(&column["jsonPath"]);
                let description = match column["description"].as_str().unwrap_or_default() {
                    "" => format!("Custom resource definition column (in JSONPath format): {path}"),
                    description => description.to_owned(),
                };
                Some(Column {
                    name: text(&column["name"]),
                    ty: text(&column["type"]),
                    format: text(&column["format"]),
                    description,
                    priority: column["priority"].as_i64().unwrap_or_default(),
                    path: JsonPath::parse(&path)?,
                })
            })
            .collect();
        if columns.is_empty() {
            columns.extend(age_column());
        }
        let selectable = version["selectableFields"].as_array().into_iter().flatten();
        let kind = text(&definition["spec"]["names"]["kind"]);
        let group = text(&definition["spec"]["group"]);
        let name = text(&version["name"]);
        let deprecation =
            (version["deprecated"] == true).then(|| match version["deprecationWarning"].as_str() {
                Some(warning) => warning.to_owned(),
                None => default_deprecation(definition, &group, &name, &kind),
            });
        Self {
            status: version["subresources"].get("status").is_some_and(|status| !status.is_null()),
            scale: Scale::from_version(version),
            columns,
            selectable: selectable
                .filter_map(|field| {
                    let path = field["jsonPath"].as_str()?;
                    Some((path.strip_prefix('.').unwrap_or(path).to_owned(), JsonPath::parse(path)?))
                })
                .collect(),
            deprecation,
            keeps_all,
            patterns: Patterns::for_schema(&schema),
            rules: Rules::for_schema(&schema),
            name,
            schema,
            json,
        }
    }

    /// Prunes an object. Returns the paths of the dropped fields.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        if self.keeps_all { Vec::new() } else { prune_root(object, &self.schema) }
    }

    /// Prunes an object and applies defaults. Nulls go first, so that a default can replace them.
    pub fn complete(&self, object: &mut Value) {
        self.prune(object);
        without_nulls(object, Some(&self.schema));
        defaults(object, &self.schema);
    }

    /// Visits the embedded resources of an object with their paths, until the visitor fails.
    pub fn for_each_embedded<E>(
        &self,
        object: &mut Value,
        visitor: &mut impl FnMut(&mut Map<String, Value>, &Path<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for_each_embedded(object, &self.schema, &Path::NOWHERE, visitor)
    }

    /// The error of an object that cannot be decoded.
    pub fn decode_error(&self, object: &Value) -> Option<FieldError> {
        decode_error(object, &self.schema)
    }

    /// Validates a new object. `errors` are those of its metadata.
    pub fn create(&self, new: &Value, mut errors: Vec<FieldError>) -> Vec<FieldError> {
        errors.extend(types(new, None, &self.schema, &self.patterns, ""));
        self.check_replicas(new, true, &mut errors);
        errors.extend(embedded(new, &self.schema));
        errors.extend(lists(new, &self.schema));
        self.evaluate_rules(new, None, &mut errors, &mut Vec::new());
        errors
    }

    /// Validates an updated object. `errors` are those of its metadata. Returns errors and warnings.
    pub fn update(
        &self,
        old: &Value,
        new: &Value,
        mut errors: Vec<FieldError>,
    ) -> (Vec<FieldError>, Vec<String>) {
        errors.extend(types(new, Some(old), &self.schema, &self.patterns, ""));
        self.check_replicas(new, true, &mut errors);
        errors.extend(embedded(new, &self.schema));
        // An object that was stored with duplicates can still be updated (ratcheting).
        if lists(old, &self.schema).is_empty() {
            errors.extend(lists(new, &self.schema));
        }
        let mut warnings = Vec::new();
        self.evaluate_rules(new, Some(old), &mut errors, &mut warnings);
        (errors, warnings)
    }

    /// Validates an object that has another kind or API version; `wrong` is the error about that. Like upstream, validates only
    /// its lists and its rules.
    pub fn validate_other_kind(
        &self,
        old: Option<&Value>,
        new: &Value,
        wrong: FieldError,
    ) -> Vec<FieldError> {
        let mut errors = vec![wrong];
        if old.is_none_or(|old| lists(old, &self.schema).is_empty()) {
            errors.extend(lists(new, &self.schema));
        }
        self.evaluate_rules(new, old, &mut errors, &mut Vec::new());
        errors
    }

    /// Validates an updated status. `errors` are those of the metadata. Returns errors and warnings.
    pub fn update_status(
        &self,
        old: &Value,
        new: &Value,
        mut errors: Vec<FieldError>,
    ) -> (Vec<FieldError>, Vec<String>) {
        if let (Some(status), Some(schema)) = (new.get("status"), self.schema.properties.get("status")) {
            let old_status = old.get("status").unwrap_or(&Value::Null);
            let type_errors = types(status, Some(old_status), schema, &self.patterns, "");
            errors.extend(type_errors.into_iter().map(|mut error| {
                error.path = match error.path.as_str() {
                    "<nil>" => "status".to_owned(),
                    path => format!("status.{path}"),
                };
                error
            }));
        }
        self.check_replicas(new, false, &mut errors);
        if lists(old, &self.schema).is_empty() {
            errors.extend(lists(new, &self.schema));
        }
        let mut warnings = Vec::new();
        self.evaluate_rules(new, Some(old), &mut errors, &mut warnings);
        (errors, warnings)
    }

    /// Evaluates the CEL rules, unless the errors so far mean that the object does not have the declared types.
    fn evaluate_rules(
        &self,
        new: &Value,
        old: Option<&Value>,
        errors: &mut Vec<FieldError>,
        warnings: &mut Vec<String>,
    ) {
        let Some(rules) = &self.rules else { return };
        let blocking = |error: &FieldError| {
            matches!(
                error.kind,
                ErrorType::NotSupported
                    | ErrorType::Required
                    | ErrorType::TooLong
                    | ErrorType::TooMany
                    | ErrorType::TypeInvalid
            )
        };
        if errors.iter().any(blocking) {
            let rule = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.push(FieldError::invalid("<nil>", BadValue::Bare("null".to_owned()), rule));
            return;
        }
        let evaluation = rules.evaluate(new, old);
        errors.extend(evaluation.errors);
        warnings.extend(evaluation.warnings);
    }

    /// Validates the replicas that the scale subresource reads: of the status, and with `spec` those of the spec first.
    fn check_replicas(&self, object: &Value, spec: bool, errors: &mut Vec<FieldError>) {
        let Some(scale) = &self.scale else { return };
        let mut paths = vec![(&scale.status, &scale.status_path)];
        if spec {
            paths.insert(0, (&scale.spec, &scale.spec_path));
        }
        for (path, text) in paths {
            if let Some(wrong) =
                (1..path.len()).find(|end| at(object, &path[..*end]).is_some_and(|v| !v.is_object()))
            {
                let actual = at(object, &path[..wrong]).map(value_and_go_type).unwrap_or_default();
                let prefix = path[..=wrong].join(".");
                let rule = format!(".{prefix} accessor error: {actual}, expected map[string]interface{{}}");
                errors.push(FieldError::invalid(text, 0, rule));
                continue;
            }
            let Some(value) = at(object, path) else { continue };
            let Some(number) = value.as_i64() else {
                let rule = format!("{text} accessor error: {}, expected int64", value_and_go_type(value));
                errors.push(FieldError::invalid(text, 0, rule));
                continue;
            };
            if number < 0 {
                errors.push(FieldError::invalid(text, number, "should be a non-negative integer"));
            } else if number > i64::from(i32::MAX) {
                let rule = format!("should be less than or equal to {}", i32::MAX);
                errors.push(FieldError::invalid(text, number, rule));
            }
        }
    }
}

/// The default warning of a deprecated version: it names the newest version that is not deprecated.
fn default_deprecation(definition: &Value, group: &str, name: &str, kind: &str) -> String {
    let others = crate::definition::versions(definition).iter();
    let others = others.filter(|other| other["served"] == true && other["deprecated"] != true);
    let others = others.filter_map(|other| other["name"].as_str());
    let newest = others.filter(|other| rank(other) > rank(name)).max_by_key(|other| rank(other));
    let instead = newest.map(|newest| format!("; use {group}/{newest} {kind}")).unwrap_or_default();
    format!("{group}/{name} {kind} is deprecated{instead}")
}

/// The sort key of a version name, as Kubernetes orders versions: stable after beta after alpha, newer after older. Names
/// that are not versions come first, in reverse alphabetical order.
fn rank(version: &str) -> (u8, u64, u64, std::cmp::Reverse<&str>) {
    let other = (0, 0, 0, std::cmp::Reverse(version));
    let Some(rest) = version.strip_prefix('v') else { return other };
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with(['0', '+']));
    let known = |stage, major, minor| (stage, major, minor, std::cmp::Reverse(""));
    for (stage, word) in [(2, "beta"), (1, "alpha")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return number(major)
                .zip(number(minor))
                .map_or(other, |(major, minor)| known(stage, major, minor));
        }
    }
    number(rest).map_or(other, |major| known(3, major, 0))
}

/// A value and its type, as Go prints them.
fn value_and_go_type(value: &Value) -> String {
    let go = match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Null => "<nil>",
    };
    format!("{} is of the type {go}", go_value(value))
}

/// A value as Go's `%v` prints it.
fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        Value::Array(list) => format!("[{}]", list.iter().map(go_value).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

/// The default column of a kind without printer columns.
fn age_column() -> Option<Column> {
    Some(Column {
        name: "Age".to_owned(),
        ty: "date".to_owned(),
        format: String::new(),
        description: "how long ago the object was created".to_owned(),
        priority: 0,
        path: JsonPath::parse(".metadata.creationTimestamp")?,
    })
}
