//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write as _};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// A text that metrics are written to.
#[derive(Clone, Debug, Default)]
pub struct Text(String);

impl Text {
    /// Begins a family of counters.
    pub fn counter(&mut self, name: &str, help: &str) {
        self.family(name, help, "counter");
    }

    /// Begins a family of gauges.
    pub fn gauge(&mut self, name: &str, help: &str) {
        self.family(name, help, "gauge");
    }

    /// Begins a family of histograms.
    pub fn histogram(&mut self, name: &str, help: &str) {
        self.family(name, help, "histogram");
    }

    fn family(&mut self, name: &str, help: &str, kind: &str) {
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// Writes a sample.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.series(name, labels);
        self.write(format_args!(" {value}\n"));
    }

    /// Writes a sample with a timestamp in milliseconds since the epoch.
    pub fn sample_at(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display, millis: i64) {
        self.series(name, labels);
        self.write(format_args!(" {value} {millis}\n"));
    }

    fn series(&mut self, name: &str, labels: &[(&str, &str)]) {
        self.0.push_str(name);
        for (i, (label, value)) in labels.iter().enumerate() {
            self.write(format_args!("{}{label}=\"", if i == 0 { '{' } else { ',' }));
            for character in value.chars() {
                match character {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.0
    }

    fn write(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(arguments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.gauge("a", "b");
        text.sample("a", &[("x", "q\"\\\n"), ("y", "")], 1);
        text.sample("a", &[], 2);
        text.sample_at("a", &[], 3, 4);
        assert_eq!(text.finish(), "# HELP a b\n# TYPE a gauge\na{x=\"q\\\"\\\\\\n\",y=\"\"} 1\na 2\na 3 4\n");
    }
}
