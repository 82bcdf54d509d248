//! What expressions cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use plumb_cel::{Bindings, Budget, Decl, DeclKind, Env, EvalError, Field, ListOrder, Program};
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

/// The figures are those that kube-apiserver's estimate comes to.
#[test]
fn the_worst_cost_grows_with_what_is_declared() {
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
fn whoever_runs_out_of_budget_stops() {
    let env = env();
    let data = json!({"n": 1, "text": "a", "endless": vec!["aaaaaaaa"; 2_000]});
    let program =
        Program::compile("self.endless.all(x, self.endless.exists(y, x == y + 'b'))", &env).unwrap();
    let mut values = Bindings::new();
    values.json("self", &data, env.decl("self").unwrap());
    let mut budget = Budget::of(10_000);
    assert_eq!(program.evaluate(&values, &mut budget), Err(EvalError::TooExpensive));
    assert!(budget.spent() < 10_100);
}
