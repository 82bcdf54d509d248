//! The warnings of a response, which handlers, strategies and admission add, as upstream's `warning.Recorder`.

use std::collections::HashSet;
use std::sync::Arc;

/// The most characters of all warnings of a response, and of each of them if all have more.
const MAX_ALL: usize = 4 * 1024;
const MAX_ONE: usize = 256;

/// The warnings of a response, each once.
#[derive(Debug, Default)]
pub struct Warnings(parking_lot::Mutex<Recorded>);

/// Warnings in the order in which they were added.
#[derive(Debug, Default)]
struct Recorded {
    order: Vec<Arc<str>>,
    known: HashSet<Arc<str>>,
}

impl Warnings {
    /// Adds a warning, unless it was added before.
    pub(crate) fn add(&self, text: impl Into<Arc<str>>) {
        let (text, mut recorded) = (text.into(), self.0.lock());
        if recorded.known.insert(text.clone()) {
            recorded.order.push(text);
        }
    }

    /// Adds several.
    pub(crate) fn extend<T: Into<Arc<str>>>(&self, texts: impl IntoIterator<Item = T>) {
        texts.into_iter().for_each(|text| self.add(text));
    }

    /// The warnings for the headers of the response. If all of them are too long, each is truncated, and those that exceed
    /// the limit are left out, as upstream does.
    pub(crate) fn to_send(&self) -> Vec<String> {
        let all = self.0.lock().order.clone();
        let length = |text: &str| text.chars().count();
        if all.iter().map(|text| length(text)).sum::<usize>() <= MAX_ALL {
            return all.iter().map(ToString::to_string).collect();
        }
        let mut written = 0;
        let truncated = all.iter().map(|text| text.chars().take(MAX_ONE).collect::<String>());
        truncated
            .take_while(|text| {
                let fits = written < MAX_ALL;
                written += length(text);
                fits
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Comparing each with each, this would run for minutes.
    #[test]
    fn each_warning_is_sent_once_in_the_order_of_its_first_addition() {
        let warnings = Warnings::default();
        for round in 0..3 {
            for number in (round..100_000).step_by(2) {
                warnings.add(format!("{number:06}"));
            }
        }
        let all = warnings.0.lock().order.clone();
        assert_eq!(all.len(), 100_000);
        assert_eq!([&*all[0], &*all[1], &*all[50_000]], ["000000", "000002", "000001"]);
        let sent = warnings.to_send();
        assert_eq!(sent.first().map(String::as_str), Some("000000"));
        assert_eq!(sent.len(), MAX_ALL.div_ceil(6));
    }
}
