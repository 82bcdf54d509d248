//! Label selectors, parsed once and evaluated often.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A requirement of a label: an entry of `matchLabels` or `matchExpressions`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
    /// An unknown operator, or a bound that is not a number.
    Never,
}

impl Requirement {
    /// Requires a value of a label.
    pub fn equals(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), test: Test::In(vec![value.to_owned()]) }
    }

    /// Parses an entry of `matchExpressions`. Only node affinity has `Gt` and `Lt`; validation rejects them elsewhere.
    pub fn expression(key: &str, operator: &str, values: &[String]) -> Self {
        let bound = || values.first().and_then(|value| value.parse().ok());
        let test = match operator {
            "In" => Test::In(values.to_vec()),
            "NotIn" => Test::NotIn(values.to_vec()),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::Absent,
            "Gt" => bound().map_or(Test::Never, Test::Above),
            "Lt" => bound().map_or(Test::Never, Test::Below),
            _ => Test::Never,
        };
        Self { key: key.to_owned(), test }
    }

    /// The key of the label.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The allowed values, if the operator is `In`.
    pub fn allowed(&self) -> Option<&[String]> {
        match &self.test {
            Test::In(values) => Some(values),
            _ => None,
        }
    }

    /// Whether the value of the label, or its absence, satisfies the requirement.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Above(bound) => number().is_some_and(|number| number > *bound),
            Test::Below(bound) => number().is_some_and(|number| number < *bound),
            Test::Never => false,
        }
    }
}

/// A label selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// Selects nothing.
    Nothing,
    /// Selects objects that match all requirements, or every object if there are none.
    All(Vec<Requirement>),
}

impl Selector {
    /// Parses a selector. A missing selector selects nothing, an empty one everything.
    pub fn read(selector: Option<&LabelSelector>) -> Self {
        let Some(selector) = selector else { return Self::Nothing };
        let equal = selector.match_labels.iter().flatten();
        let equal = equal.map(|(key, value)| Requirement::equals(key, value));
        let expressions = selector.match_expressions.iter().flatten().map(|expression| {
            let values = expression.values.as_deref().unwrap_or_default();
            Requirement::expression(&expression.key, &expression.operator, values)
        });
        Self::All(equal.chain(expressions).collect())
    }

    /// Adds a requirement.
    #[must_use]
    pub fn and(self, requirement: Requirement) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::All(mut all) => {
                all.push(requirement);
                Self::All(all)
            }
        }
    }

    /// Whether the selector has no requirements and selects everything.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::All(all) if all.is_empty())
    }

    /// Whether the selector matches these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(all) => all.iter().all(|one| one.matches(labels.get(&one.key).map(String::as_str))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_label_matches_only_not_in_and_does_not_exist() {
        let values = ["5".to_owned()];
        let table = [
            ("In", Some("5"), true),
            ("In", Some("6"), false),
            ("In", None, false),
            ("NotIn", Some("5"), false),
            ("NotIn", None, true),
            ("Exists", Some(""), true),
            ("Exists", None, false),
            ("DoesNotExist", None, true),
            ("Gt", Some("6"), true),
            ("Gt", Some("5"), false),
            ("Gt", Some("x"), false),
            ("Lt", Some("4"), true),
            ("Lt", None, false),
            ("Sounds", Some("5"), false),
        ];
        for (operator, value, expected) in table {
            let matches = Requirement::expression("k", operator, &values).matches(value);
            assert_eq!(matches, expected, "{operator} {value:?}");
        }
    }

    #[test]
    fn a_missing_selector_selects_nothing_and_an_empty_one_everything() {
        assert!(!Selector::read(None).matches(&Labels::new()));
        let empty = Selector::read(Some(&LabelSelector::default()));
        assert!(empty.is_empty() && empty.matches(&Labels::new()));
    }
}
