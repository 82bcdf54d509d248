//! No expression panics or runs without end.

use plumb_cel::{Bindings, Budget, Decl, Env, Program};
use proptest::prelude::*;
use serde_json::{Value, json};

fn compile_and_evaluate(text: &str, data: &Value) {
    let env = Env::kubernetes().with("self", Decl::dynamic());
    let (Ok(program), Some(decl)) = (Program::compile(text, &env), env.decl("self")) else { return };
    let mut values = Bindings::new();
    values.json("self", data, decl);
    let mut budget = Budget::new(20_000);
    let _ = program.evaluate(&values, &mut budget);
    assert!(budget.spent() < 1_000_000, "{text}");
}

#[test]
fn deep_and_long_expressions_neither_panic_nor_run_without_end() {
    let data = json!({});
    for text in [
        "(".repeat(100_000),
        "[".repeat(50_000),
        "!".repeat(99_000) + "true",
        "-".repeat(99_000) + "1",
        "1".to_owned() + &"+1".repeat(40_000),
        "true".to_owned() + &"&&true".repeat(15_000),
        "self".to_owned() + &".a".repeat(40_000),
        "self".to_owned() + &"[0]".repeat(30_000),
        "true?".repeat(300) + "1" + &":1".repeat(300),
        "[1]".to_owned() + &".map(x, [1]".repeat(120) + &")".repeat(120),
        "[1].all(x, ".repeat(200) + "true" + &")".repeat(200),
        "'".repeat(99_999),
        "x".repeat(200_000),
        "timestamp('ä€😀') == timestamp(self.t)".to_owned(),
        // The size of the type doubles at each level.
        (0..60)
            .map(|n| format!("cel.bind(v{}, {{v{n}: v{n}}}, ", n + 1))
            .fold("cel.bind(v0, {1: 1}, ".to_owned(), |all, one| all + &one)
            + "true"
            + &")".repeat(61),
        format!("[{}1+1]", "1+1,".repeat(20_000)),
    ] {
        compile_and_evaluate(&text, &data);
    }
}

#[test]
fn the_first_hundred_issues_are_reported_and_a_long_line_is_not_displayed() {
    let wrong = |elements: usize| {
        let text = format!("[{}]", vec!["a"; elements].join(","));
        Program::compile(&text, &Env::kubernetes()).unwrap_err().to_string()
    };
    let hundred = wrong(100);
    assert_eq!(hundred.lines().filter(|line| line.starts_with("ERROR")).count(), 100);
    assert!(!hundred.contains("truncated"));
    let more = wrong(103);
    assert_eq!(more.lines().filter(|line| line.starts_with("ERROR")).count(), 100);
    assert_eq!(more.lines().last(), Some("3 more errors were truncated"));
    assert!(more.contains("\n | [a,a,"));
    let long = wrong(40_000);
    assert!(!long.contains(" | "), "a line of more than 16384 bytes is not displayed");
    assert!(long.len() < 10_000);
}

const FRAGMENTS: &[&str] = &[
    "self",
    ".a",
    ".b",
    "[0]",
    "['k']",
    "1",
    "2.5",
    "'x'",
    "b'y'",
    "true",
    "null",
    "+",
    "-",
    "*",
    "/",
    "%",
    "==",
    "<",
    "&&",
    "||",
    "!",
    "?",
    ":",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".all(x, ",
    ".map(x, ",
    "x",
    ".exists(",
    "has(",
    "size(",
    ".matches('a+')",
    ".split(',')",
    ".format([self])",
    " in ",
    ".?c",
    "[?0]",
    "quantity('1Gi')",
    "ip('::1')",
    "cidr('1.2.3.4/8')",
    "duration('1s')",
    "timestamp('2020-01-01T00:00:00Z')",
    "optional.of(",
    ".orValue(1)",
    ".sort()",
    ".sum()",
    ".substring(1)",
    "lists.range(9)",
    ".getHours()",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615u",
    "1e308",
    ".value()",
    ".charAt(3)",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn random_fragments_never_panic(
        fragments in prop::collection::vec(prop::sample::select(FRAGMENTS), 1..14),
        number in any::<i64>(),
    ) {
        let data = json!({"a": {"b": [number, "t", null]}, "b": "text, more", "k": [1, 2, 3]});
        compile_and_evaluate(&fragments.concat(), &data);
    }

    #[test]
    fn random_text_never_panics(text in "\\PC{0,60}") {
        compile_and_evaluate(&text, &json!({}));
    }

    #[test]
    fn no_text_makes_a_conversion_panic(
        text in prop_oneof![
            any::<String>(),
            "[+-]?[0-9]{0,20}[.]?[0-9]{0,20}([kMGTPE]i?|[num]|e[+-]?[0-9]{1,10})?",
            "[0-9a-f:.%/]{0,40}",
            "[0-9]{0,4}-[0-9]{0,2}-[0-9]{0,2}T[0-9]{0,2}:[0-9]{0,2}:[0-9]{0,2}[.,]?[0-9]{0,12}[Z+-]?[0-9:]{0,5}",
            "v?[0-9]{0,3}[.]?[0-9]{0,3}[.]?[0-9]{0,22}[-+.a0]{0,6}",
            "[-+]?[0-9]{0,11}:[-+]?[0-9]{0,11}",
            "%[.]?[0-9]{0,4}[sdfeboxX]?",
        ],
    ) {
        let data = json!({ "t": text });
        for call in [
            "quantity(self.t).add(quantity(self.t)).sub(7).asApproximateFloat() == 1.0",
            "quantity(self.t).isInteger()",
            "ip(self.t).isLoopback()",
            "cidr(self.t).containsIP(self.t)",
            "url(self.t).getHost() == ''",
            "semver(self.t, true) == semver(self.t)",
            "timestamp(self.t) == timestamp(self.t) + duration(self.t)",
            "timestamp(0).getHours(self.t) == 0",
            "self.t.format([2.5]) == self.t.format([7])",
            "format.datetime().validate(self.t) == format.uri().validate(self.t)",
            "self.t.findAll('', 3) == self.t.split('', 3)",
        ] {
            compile_and_evaluate(call, &data);
        }
    }
}
