//! Results of cases as `JUnit` XML.

use std::fmt::Write as _;

use plumb_go::escape_xml;

use crate::report::{Report, Summary, Verdict};

/// The reports of a run, as a suite of this name.
pub fn junit(suite: &str, reports: &[Report]) -> String {
    let mut summary = Summary::default();
    for report in reports {
        summary.count(&report.verdict);
    }
    let time: f64 = reports.iter().map(|report| report.took.as_secs_f64()).sum();
    let (suite, tests) = (escape_xml(suite), reports.len());
    let counts = format!("tests=\"{tests}\" failures=\"{}\" skipped=\"{}\"", summary.failed, summary.skipped);
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string does not fail.
    let _ = writeln!(text, "<testsuites {counts} time=\"{time:.3}\">");
    let _ = writeln!(text, "  <testsuite name=\"{suite}\" {counts} errors=\"0\" time=\"{time:.3}\">");
    for report in reports {
        let (name, time) = (escape_xml(report.name), report.took.as_secs_f64());
        let _ = write!(text, "    <testcase classname=\"{suite}\" name=\"{name}\" time=\"{time:.3}\"");
        let _ = match &report.verdict {
            Verdict::Passed => writeln!(text, "/>"),
            Verdict::Failed(why) => {
                writeln!(text, "><failure message=\"{}\"/></testcase>", escape_xml(why))
            }
            Verdict::Skipped(why) => {
                writeln!(text, "><skipped message=\"{}\"/></testcase>", escape_xml(why))
            }
        };
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_verdict_has_its_element_and_every_text_is_escaped() {
        let report = |name, verdict| Report { name, verdict, took: Duration::from_millis(1500) };
        let reports = [
            report("a", Verdict::Passed),
            report("b", Verdict::Failed("1 < 2 & \"3\"\n\u{7}".to_owned())),
            report("c", Verdict::Skipped("no node".to_owned())),
        ];
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="1" skipped="1" time="4.500">
  <testsuite name="virtual.kep" tests="3" failures="1" skipped="1" errors="0" time="4.500">
    <testcase classname="virtual.kep" name="a" time="1.500"/>
    <testcase classname="virtual.kep" name="b" time="1.500"><failure message="1 &lt; 2 &amp; &#34;3&#34;&#xA;�"/></testcase>
    <testcase classname="virtual.kep" name="c" time="1.500"><skipped message="no node"/></testcase>
  </testsuite>
</testsuites>
"#;
        assert_eq!(junit("virtual.kep", &reports), expected);
    }
}
