//! Estimated and actual costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use plumb_cel::{Bindings, Budget, Decl, DeclKind, Env, EvalError, Field, ListOrder, Program, Value};
use serde_json::json;

fn list(of: Arc<Decl>, max: u64) -> Arc<Decl> {
    Arc::new(Decl { kind: DeclKind::List(of), max_elements: max, min_size: 2, order: ListOrder::Listed })
}

fn env() -> Env {
    let mut fields = BTreeMap::new();
    let mut add = |name: &str, decl| {
        fields.insert(name.to_owned(), Field { json: name.to_owned(), decl });
    };
    add("n", Decl::simple(DeclKind::Int, 0, 1));
    add("text", Decl::simple(DeclKind::Text, 40, 2));
    add("list", list(Decl::simple(DeclKind::Text, 40, 2), 10));
    add("endless", list(Decl::simple(DeclKind::Text, 3_145_726, 2), 1_048_575));
    let object = DeclKind::Object { name: "it".to_owned(), fields };
    Env::kubernetes().with("self", Decl::simple(object, 0, 2))
}

/// The numbers are the estimates of kube-apiserver.
#[test]
fn the_worst_cost_depends_on_the_declared_bounds() {
    let table = [
        ("self.n == 1", 2),
        ("self.text == 'abc'", 3),
        ("has(self.text)", 1),
        ("self.text.startsWith('ab')", 3),
        ("self.list.all(x, x == 'a')", 2 + 10 * (1 + 1 + 1 + 1 + 1) + 1),
        ("self.list.size() < 5 || self.n == 1", 6),
        ("self.list.sort().size() == 1", 2 + 210 + 11 + 1 + 1),
        ("self.list.distinct().size() == 1", 2 + 200 + 11 + 1 + 1),
        ("self.list.reverse().size() == 1", 2 + 10 + 11 + 1 + 1),
        ("self.list.slice(2, 5).size() == 1", 2 + 3 + 11 + 1 + 1),
        ("lists.range(7).size() == 1", 7 + 11 + 1 + 1),
        ("sets.contains(self.list, self.list)", 2 + 2 + 100 + 1),
        ("sets.equivalent(self.list, self.list)", 2 + 2 + 200 + 1),
    ];
    for (text, cost) in table {
        assert_eq!(Program::compile(text, &env()).unwrap().worst_cost(), cost, "{text}");
    }
    let nested = "self.endless.all(x, self.endless.exists(y, x == y))";
    assert!(Program::compile(nested, &env()).unwrap().worst_cost() > 100_000_000_000);
}

#[test]
fn evaluation_stops_when_the_budget_is_exhausted() {
    let env = env();
    let data = json!({"n": 1, "text": "a", "endless": vec!["aaaaaaaa"; 2_000]});
    let program =
        Program::compile("self.endless.all(x, self.endless.exists(y, x == y + 'b'))", &env).unwrap();
    let mut values = Bindings::new();
    values.json("self", &data, env.decl("self").unwrap());
    let mut budget = Budget::new(10_000);
    assert_eq!(program.evaluate(&values, &mut budget), Err(EvalError::TooExpensive));
    assert!(budget.spent() < 10_100);
}

/// The cost is that of traversing both lists once. With a comparison of all pairs, this test would run for many minutes.
#[test]
fn sets_and_keyed_lists_are_compared_and_concatenated_in_linear_time() {
    const LENGTH: usize = 200_000;
    let unordered = |of, order| {
        let kind = DeclKind::List(of);
        Arc::new(Decl { kind, max_elements: u64::MAX, min_size: 2, order })
    };
    let mut fields = BTreeMap::new();
    let set = unordered(Decl::simple(DeclKind::Text, 40, 2), ListOrder::Set);
    let keyed = unordered(Decl::dynamic(), ListOrder::Keyed(vec!["k".to_owned()]));
    for (name, decl) in [("set", &set), ("otherSet", &set), ("keyed", &keyed), ("otherKeyed", &keyed)] {
        fields.insert(name.to_owned(), Field { json: name.to_owned(), decl: decl.clone() });
    }
    let object = DeclKind::Object { name: "it".to_owned(), fields };
    let env = Env::kubernetes().with("self", Decl::simple(object, 0, 2));
    let texts: Vec<String> = (0..LENGTH).map(|n| format!("element-{n}")).collect();
    let objects: Vec<_> = texts.iter().map(|text| json!({ "k": text })).collect();
    let data = json!({
        "set": texts, "otherSet": texts.iter().rev().collect::<Vec<_>>(),
        "keyed": objects, "otherKeyed": objects.iter().rev().collect::<Vec<_>>(),
    });
    let mut values = Bindings::new();
    values.json("self", &data, env.decl("self").unwrap());
    for text in [
        "self.set == self.otherSet",
        "self.keyed == self.otherKeyed",
        "(self.set + self.otherSet).size() == self.set.size()",
        "(self.keyed + self.otherKeyed).size() == self.keyed.size()",
    ] {
        let mut budget = Budget::new(1_000_000);
        let program = Program::compile(text, &env).unwrap();
        assert_eq!(program.evaluate(&values, &mut budget), Ok(Value::Bool(true)), "{text}");
    }
}
