//! Counters with labels.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;

use crate::text::Text;

/// The value of a label.
pub type LabelValue = Cow<'static, str>;

/// A family of counters, with one counter for each combination of label values.
pub struct CounterVec<const N: usize>(Mutex<BTreeMap<[LabelValue; N], u64>>);

impl<const N: usize> Default for CounterVec<N> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<const N: usize> CounterVec<N> {
    /// Increments a counter.
    pub fn inc(&self, values: [LabelValue; N]) {
        *self.0.lock().entry(values).or_default() += 1;
    }

    /// The value of a counter.
    pub fn get(&self, values: [LabelValue; N]) -> u64 {
        self.0.lock().get(&values).copied().unwrap_or_default()
    }

    /// Writes the family; `labels` are the names of the labels.
    pub fn render(&self, text: &mut Text, name: &str, help: &str, labels: [&str; N]) {
        text.counter(name, help);
        self.render_samples(text, name, labels, &[]);
    }

    /// Writes the samples without the header, for a family that consists of several `CounterVec`s with different extra labels.
    pub fn render_samples(&self, text: &mut Text, name: &str, labels: [&str; N], extra: &[(&str, &str)]) {
        for (values, count) in self.0.lock().iter() {
            let values = labels.iter().zip(values).map(|(label, value)| (*label, value.as_ref()));
            let labels: Vec<(&str, &str)> = values.chain(extra.iter().copied()).collect();
            text.sample(name, &labels, count);
        }
    }
}

impl<const N: usize> fmt::Debug for CounterVec<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.lock().iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_combination_of_label_values_has_a_counter() {
        let counters = CounterVec::default();
        counters.inc(["b".into(), "x".into()]);
        counters.inc(["a".into(), "x".into()]);
        counters.inc(["b".into(), "x".into()]);
        assert_eq!(counters.get(["b".into(), "x".into()]), 2);
        assert_eq!(counters.get(["b".into(), "y".into()]), 0);
        let mut text = Text::default();
        counters.render(&mut text, "n", "help", ["k", "l"]);
        assert_eq!(
            text.finish(),
            "# HELP n help\n# TYPE n counter\nn{k=\"a\",l=\"x\"} 1\nn{k=\"b\",l=\"x\"} 2\n"
        );
    }
}
