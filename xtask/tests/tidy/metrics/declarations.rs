//! The metrics that a source file declares.
//!
//! A component writes a family with its name and help text as literals, in one of these forms:
//!
//! ```text
//! let name = "a_total";                    text.counter("a_total", "how many");
//! text.counter(name, "how many");          counters.render(text, "a_total", "how many", ["label"]);
//!
//! for (name, help, value) in [("a_bytes", "how many", bytes)] { text.gauge(name, help); … }
//! ```

use std::collections::BTreeSet;

/// How the names of metrics begin. Other words with underscores in such a file are labels and their values.
const PREFIXES: &[&str] = &[
    "apiserver_",
    "container_",
    "controller_runtime_",
    "coredns_",
    "etcd_",
    "horizontal_pod_autoscaler_controller_",
    "kubelet_",
    "kubeproxy_",
    "kubernetes_",
    "leader_election_",
    "machine_",
    "node_",
    "plumb_",
    "pod_",
    "process_",
    "prober_",
    "reflector_",
    "resource_scrape_error",
    "rest_client_",
    "scheduler_",
    "scrape_error",
    "vpa_",
    "workqueue_",
];

/// Labels, and values of labels, that begin like metrics.
const NOT_METRICS: &[&str] =
    &["node_busy", "node_full", "pod_uid", "vpa_name", "vpa_namespace", "vpa_size_log2"];

/// A metric family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declaration {
    pub(super) name: String,
    /// `counter`, `gauge` or `histogram`.
    pub(super) kind: &'static str,
    pub(super) help: String,
    /// The labels that stand between this family and the next one.
    pub(super) labels: Vec<String>,
}

/// A string literal: where its first quotation mark is, where it ends, and its text.
struct Literal {
    start: usize,
    end: usize,
    text: String,
}

/// The metrics that a file declares, each once.
pub(super) fn declarations(text: &str) -> Vec<Declaration> {
    let text = without_tests(text);
    if !text.contains("plumb_metrics") {
        return Vec::new();
    }
    let literals = literals(&text);
    let names: Vec<usize> = (0..literals.len()).filter(|at| is_name(&literals[*at].text)).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (nth, at) in names.iter().copied().enumerate() {
        let name = &literals[at];
        if !seen.insert(name.text.clone()) {
            continue;
        }
        let next = names[nth + 1..].iter().find(|next| literals[**next].text != name.text);
        let until = next.map_or(text.len(), |next| literals[*next].start);
        let (kind, help) = kind_and_help(&text, &literals, at);
        found.push(Declaration {
            name: name.text.clone(),
            kind,
            help: help.to_owned(),
            labels: labels(&text[name.end..until]),
        });
    }
    found
}

fn is_name(text: &str) -> bool {
    let is_word = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    is_word
        && !text.ends_with('_')
        && PREFIXES.iter().any(|prefix| text.starts_with(prefix))
        && !NOT_METRICS.contains(&text)
}

/// The file without its unit tests and comments.
fn without_tests(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |all, line| all + line + "\n")
}

fn literals(text: &str) -> Vec<Literal> {
    let bytes = text.as_bytes();
    let mut literals = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        // A quotation mark as a character is no literal.
        if bytes[at] != b'"' || bytes[at.saturating_sub(1)] == b'\'' || bytes[at.saturating_sub(1)] == b'\\' {
            at += 1;
            continue;
        }
        let mut end = at + 1;
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let raw = text.get(at + 1..end).unwrap_or_default();
        literals.push(Literal { start: at, end: end + 1, text: unescaped(raw) });
        at = end + 1;
    }
    literals
}

/// A literal that continues on the next line, as one line.
fn unescaped(raw: &str) -> String {
    let mut lines = raw.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |all, line| all + line.trim_start()).replace("\\\"", "\"")
}

fn kind_and_help<'a>(text: &str, literals: &'a [Literal], at: usize) -> (&'static str, &'a str) {
    let name = &literals[at];
    let before = text[..name.start].trim_end();
    let after = text[name.end..].trim_start();
    let is_passed = before.ends_with("text,");
    let is_followed = after.strip_prefix(',').is_some_and(|rest| rest.trim_start().starts_with('"'))
        && literals.len() > at + 1;
    let help_at = if after.starts_with(", help") && is_passed {
        at.checked_sub(1)
    } else if is_followed && !is_name(&literals[at + 1].text) {
        Some(at + 1)
    } else {
        (at + 1..literals.len()).find(|next| literals[*next].text.contains(' '))
    };
    let help = help_at.and_then(|help| literals.get(help));
    let text_of_help = help.map_or("", |help| help.text.as_str());
    // `counters.render(text, name, help, labels)` writes a family of counters.
    let between = help.map_or("", |help| text.get(name.end..help.start).unwrap_or_default());
    if is_passed || between.contains(".render(") {
        return ("counter", text_of_help);
    }
    if let Some(kind) = KINDS.into_iter().find(|kind| before.ends_with(&format!("text.{kind}("))) {
        return (kind, text_of_help);
    }
    let rest = help.map_or("", |help| text[help.end..].trim_start_matches([',', ' ', '\n']));
    // A table of counters and gauges has a boolean behind the help text.
    for (is_counter, kind) in [("true", "counter"), ("false", "gauge")] {
        if rest.starts_with(is_counter) && text.contains("if grows {") {
            return (kind, text_of_help);
        }
    }
    let tail = &text[name.end..];
    let first = KINDS.into_iter().filter_map(|kind| Some((tail.find(&format!("text.{kind}("))?, kind))).min();
    // `let (name, help) = …; counters.render(text, name, help, labels)`.
    let rendered = tail.find("text, name, help");
    let kind = match (first, rendered) {
        (Some((offset, kind)), rendered) if rendered.is_none_or(|at| offset < at) => kind,
        (_, Some(_)) => "counter",
        // A table below the function that uses it.
        _ => {
            let last =
                KINDS.into_iter().filter_map(|kind| Some((before.rfind(&format!("text.{kind}("))?, kind)));
            last.max().map_or("gauge", |(_, kind)| kind)
        }
    };
    (kind, text_of_help)
}

const KINDS: [&str; 3] = ["counter", "gauge", "histogram"];

/// The labels in a piece of source: the first parts of `("label", value)`, and arrays of nothing but words.
fn labels(text: &str) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    let mut add = |label: &str| {
        let is_label =
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if is_label && !labels.iter().any(|known| known == label) {
            labels.push(label.to_owned());
        }
    };
    for piece in text.split("(\"").skip(1) {
        if let Some((label, rest)) = piece.split_once('"')
            && rest.starts_with(", ")
        {
            add(label);
        }
    }
    for array in text.split(['[']).skip(1).filter_map(|rest| rest.split(']').next()) {
        let words: Vec<&str> = array.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        let is_list =
            !words.is_empty() && words.iter().all(|word| word.starts_with('"') && word.ends_with('"'));
        if is_list {
            for word in words {
                add(word.trim_matches('"'));
            }
        }
    }
    labels
}

#[test]
fn every_form_of_a_declaration_is_found() {
    let text = r#"
use plumb_metrics::Text;
fn render(text: &mut Text) {
    let name = "plumb_a_total";
    text.counter(name, "how many a");
    text.sample(name, &[("by", by)], 1);
    // "plumb_comment_total"
    text.gauge("plumb_b", "how many b");
    counters.render(text, "plumb_c_total", "how many \
                    c", ["code", "method"]);
    let help = "how many d";
    counters.render(text, "plumb_d_total", help, ["result"]);
    let name = "plumb_e_total";
    counters.render(&mut text, name, "how many e", labels);
    for (name, help, value) in [("plumb_f_bytes", "bytes", f), ("plumb_g_bytes", "bytes of g", g)] {
        text.gauge(name, help);
    }
    let (name, help) = ("plumb_l_total", "how many l");
    counters.render(text, name, help, ["of"]);
    for (names, help) in [(["plumb_h_cores", "plumb_i_bytes"], "h and i")] {
        text.histogram(name, help);
    }
}
const GROWING: [Family; 2] = [("container_j_total", "all j", true), ("container_k", "k now", false)];
fn begin() {
    if grows { text.counter(name, help) } else { text.gauge(name, help) }
}
#[cfg(test)]
mod tests { const A: &str = "plumb_test_total"; }
"#;
    let found = declarations(text);
    let found: Vec<(&str, &str, &str, String)> =
        found.iter().map(|one| (&*one.name, one.kind, &*one.help, one.labels.join(","))).collect();
    let expected = [
        ("plumb_a_total", "counter", "how many a", "by"),
        ("plumb_b", "gauge", "how many b", ""),
        ("plumb_c_total", "counter", "how many c", "code,method"),
        ("plumb_d_total", "counter", "how many d", "result"),
        ("plumb_e_total", "counter", "how many e", ""),
        ("plumb_f_bytes", "gauge", "bytes", ""),
        ("plumb_g_bytes", "gauge", "bytes of g", ""),
        ("plumb_l_total", "counter", "how many l", "of"),
        ("plumb_h_cores", "histogram", "h and i", ""),
        ("plumb_i_bytes", "histogram", "h and i", ""),
        ("container_j_total", "counter", "all j", ""),
        ("container_k", "gauge", "k now", ""),
    ];
    assert_eq!(found, expected.map(|(name, kind, help, labels)| (name, kind, help, labels.to_owned())));
}
