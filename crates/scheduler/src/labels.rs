//! Selectors of labels, read once and asked often.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// What one label has to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Requirement {
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
    /// An operator that nobody knows, or a bound that is no number.
    Never,
}

impl Requirement {
    /// That a label has this value.
    pub(crate) fn equals(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), test: Test::In(vec![value.to_owned()]) }
    }

    /// What an expression asks for, in the words of the API.
    pub(crate) fn expression(key: &str, operator: &str, values: &[String]) -> Self {
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

    /// The label that it is about.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The values that it allows, if it lists them.
    pub(crate) fn allowed(&self) -> Option<&[String]> {
        match &self.test {
            Test::In(values) => Some(values),
            _ => None,
        }
    }

    /// Whether a value, or the lack of one, is as it has to be.
    pub(crate) fn holds(&self, value: Option<&str>) -> bool {
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

/// A label selector: every requirement must hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Selector {
    /// Nothing is selected.
    Nothing,
    /// What all of these hold for; everything, if there are none.
    All(Vec<Requirement>),
}

impl Selector {
    /// Reads a selector. One that is not there selects nothing, an empty one everything.
    pub(crate) fn read(selector: Option<&LabelSelector>) -> Self {
        let Some(selector) = selector else { return Self::Nothing };
        let equal = selector.match_labels.iter().flatten();
        let equal = equal.map(|(key, value)| Requirement::equals(key, value));
        let expressions = selector.match_expressions.iter().flatten().map(|expression| {
            let values = expression.values.as_deref().unwrap_or_default();
            Requirement::expression(&expression.key, &expression.operator, values)
        });
        Self::All(equal.chain(expressions).collect())
    }

    /// The same, with one more requirement.
    #[must_use]
    pub(crate) fn and(self, requirement: Requirement) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::All(mut all) => {
                all.push(requirement);
                Self::All(all)
            }
        }
    }

    /// Whether it asks for nothing and so selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::All(all) if all.is_empty())
    }

    /// Whether labels are selected.
    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(all) => all.iter().all(|one| one.holds(labels.get(&one.key).map(String::as_str))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_is_not_there_fails_what_compares_and_passes_what_excludes() {
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
            let holds = Requirement::expression("k", operator, &values).holds(value);
            assert_eq!(holds, expected, "{operator} {value:?}");
        }
    }

    #[test]
    fn no_selector_selects_nothing_and_an_empty_one_everything() {
        assert!(!Selector::read(None).matches(&Labels::new()));
        let empty = Selector::read(Some(&LabelSelector::default()));
        assert!(empty.is_empty() && empty.matches(&Labels::new()));
    }
}
