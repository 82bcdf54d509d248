//! Label selectors, and an index of what has one.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// A label selector that can be compared, matched and indexed.
#[derive(Clone, Debug)]
pub struct PodSelector {
    /// `None` if it is invalid: it matches nothing.
    selector: Option<Selector>,
    /// A label that everything that matches has.
    required: Option<(String, String)>,
    /// Equal selectors have the same text.
    text: String,
}

impl PodSelector {
    /// A selector of the API.
    pub fn from_api(selector: &LabelSelector) -> Self {
        let required = selector.match_labels.as_ref().and_then(BTreeMap::first_key_value);
        let mut expressions: Vec<_> = selector
            .match_expressions
            .iter()
            .flatten()
            .map(|requirement| {
                let mut values = requirement.values.clone().unwrap_or_default();
                values.sort_unstable();
                values.dedup();
                (&requirement.key, &requirement.operator, values)
            })
            .collect();
        expressions.sort_unstable();
        let labels = selector.match_labels.as_ref().filter(|labels| !labels.is_empty());
        Self {
            text: format!("{:?} {expressions:?}", labels.into_iter().flatten().collect::<Vec<_>>()),
            required: required.map(|(key, value)| (key.clone(), value.clone())),
            selector: Selector::try_from(selector.clone()).ok(),
        }
    }

    /// Whether it matches an object with these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// Equal selectors have the same text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for PodSelector {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for PodSelector {}

impl PartialOrd for PodSelector {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PodSelector {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// Things that have a selector, by a label that the selector requires: most are found without looking at the others.
#[derive(Debug)]
pub(crate) struct SelectorIndex<T> {
    by_label: HashMap<(String, String), BTreeSet<T>>,
    /// Those that require no label.
    others: BTreeSet<T>,
}

impl<T> Default for SelectorIndex<T> {
    fn default() -> Self {
        Self { by_label: HashMap::new(), others: BTreeSet::new() }
    }
}

impl<T: Ord + Clone> SelectorIndex<T> {
    pub(crate) fn insert(&mut self, selector: &PodSelector, item: T) {
        match &selector.required {
            Some(label) => self.by_label.entry(label.clone()).or_default().insert(item),
            None => self.others.insert(item),
        };
    }

    pub(crate) fn remove(&mut self, selector: &PodSelector, item: &T) {
        let Some(label) = &selector.required else {
            self.others.remove(item);
            return;
        };
        if let Some(items) = self.by_label.get_mut(label) {
            items.remove(item);
            if items.is_empty() {
                self.by_label.remove(label);
            }
        }
    }

    /// Those whose selectors may match these labels.
    pub(crate) fn candidates(&self, labels: &Labels) -> Vec<T> {
        let required = labels.iter().filter_map(|(key, value)| {
            if self.by_label.is_empty() { None } else { self.by_label.get(&(key.clone(), value.clone())) }
        });
        required.flatten().chain(&self.others).cloned().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_label.is_empty() && self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    use super::*;

    fn requirement(key: &str, operator: &str, values: &[&str]) -> LabelSelectorRequirement {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        LabelSelectorRequirement { key: key.into(), operator: operator.into(), values: Some(values) }
    }

    #[test]
    fn equal_selectors_are_equal_in_whatever_order_they_are_written() {
        let one = LabelSelector {
            match_labels: Some(Labels::new()),
            match_expressions: Some(vec![
                requirement("a", "In", &["x", "y"]),
                requirement("b", "NotIn", &["z"]),
            ]),
        };
        let two = LabelSelector {
            match_labels: None,
            match_expressions: Some(vec![
                requirement("b", "NotIn", &["z"]),
                requirement("a", "In", &["y", "x"]),
            ]),
        };
        assert_eq!(PodSelector::from_api(&one), PodSelector::from_api(&two));
        assert_ne!(PodSelector::from_api(&one), PodSelector::from_api(&LabelSelector::default()));
    }

    #[test]
    fn an_index_finds_whatever_may_match() {
        let labels = |pairs: &[(&str, &str)]| -> Labels {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let select = |pairs| {
            PodSelector::from_api(&LabelSelector {
                match_labels: Some(labels(pairs)),
                match_expressions: None,
            })
        };
        let (web, all) = (select(&[("app", "web"), ("tier", "1")]), select(&[]));
        let mut index = SelectorIndex::default();
        index.insert(&web, 1);
        index.insert(&all, 2);
        assert_eq!(index.candidates(&labels(&[("app", "web")])), [1, 2]);
        assert_eq!(index.candidates(&labels(&[("app", "other")])), [2]);
        index.remove(&web, &1);
        index.remove(&all, &2);
        assert!(index.is_empty());
    }
}
