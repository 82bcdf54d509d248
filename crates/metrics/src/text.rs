//! The text that Prometheus reads: format 0.0.4.

use std::fmt::{Display, Write as _};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// A text in the making.
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
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// One value of a series.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.series(name, labels);
        self.line(format_args!(" {value}\n"));
    }

    /// One value of a series, of a moment in milliseconds since 1970.
    pub fn sample_at(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display, millis: i64) {
        self.series(name, labels);
        self.line(format_args!(" {value} {millis}\n"));
    }

    fn series(&mut self, name: &str, labels: &[(&str, &str)]) {
        self.0.push_str(name);
        for (i, (label, value)) in labels.iter().enumerate() {
            self.line(format_args!("{}{label}=\"", if i == 0 { '{' } else { ',' }));
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

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, arguments: std::fmt::Arguments<'_>) {
        // To write into a string never fails.
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
