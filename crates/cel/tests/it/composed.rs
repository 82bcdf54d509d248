//! Named expressions, the authorizer library and message literals.

use plumb_cel::{
    AUTHORIZER, Access, AccessRequest, Authorizer, Bindings, Budget, Composition, Decision, Decl, Env,
    Program, Type, Value, Variables,
};
use serde_json::json;

/// Allows requests with `allowed` in the name or path.
struct ByName;

impl Authorizer for ByName {
    fn decide(&self, account: Option<(&str, &str)>, request: &AccessRequest<'_>) -> Decision {
        let (name, verb) = match request {
            AccessRequest::Path { path, verb } => (*path, *verb),
            AccessRequest::Resource { check, verb } => (check.name.as_str(), *verb),
        };
        let who = account.map(|(namespace, name)| format!("{namespace}/{name}"));
        let reason = format!("{verb} {name} {}", who.unwrap_or_default());
        Decision { allowed: name.contains("allowed"), reason: reason.trim().to_owned(), error: None }
    }
}

fn authorized(text: &str) -> (String, u64) {
    let env = Env::kubernetes().with_type("authorizer", Type::Opaque(AUTHORIZER));
    let program = Program::compile(text, &env).unwrap_or_else(|issues| panic!("{text}: {issues}"));
    let mut values = Bindings::new();
    values.set("authorizer", Value::Access(Access::authorizer(&ByName).into()));
    let mut budget = Budget::new(1_000_000);
    let result = match program.evaluate(&values, &mut budget) {
        Ok(Value::Bool(truth)) => truth.to_string(),
        Ok(value) => value.as_text().unwrap_or("?").to_owned(),
        Err(error) => error.to_string(),
    };
    (result, budget.spent())
}

#[test]
fn checks_are_built_step_by_step_and_have_the_costs_of_upstream() {
    let table = [
        ("authorizer.path('/allowed').check('get').allowed()", "true", 350_003),
        ("authorizer.path('/x').check('get').reason()", "get /x", 350_003),
        ("authorizer.path('/x').check('get').errored()", "false", 350_003),
        ("authorizer.path(' ').check('get').allowed()", "path must not be empty", 2),
        (
            "authorizer.group('').resource('pods').name('allowed').namespace('a').check('get').allowed()",
            "true",
            350_006,
        ),
        (
            "authorizer.serviceAccount('a', 'b').group('').resource('pods').name('x').check('list').reason()",
            "list x a/b",
            350_006,
        ),
        (
            "authorizer.serviceAccount('a', 'B b').path('/').check('x').allowed()",
            "Invalid service account name",
            2,
        ),
    ];
    for (text, expected, cost) in table {
        assert_eq!(authorized(text), (expected.to_owned(), cost), "{text}");
    }
}

#[test]
fn a_variable_is_evaluated_once_when_it_is_first_read() {
    let mut env = Env::kubernetes().with("object", Decl::dynamic()).composed();
    let mut variables = Variables::default();
    for (name, text) in [
        ("bad", "object.missing"),
        ("list", "[1, 2, 3].map(x, x * object.factor)"),
        ("sum", "variables.list.size() + variables.list.size()"),
    ] {
        variables.compile(name, text, &mut env).unwrap();
    }
    assert!(variables.compile("late", "variables.unknown", &mut env.clone()).is_err());
    let object = json!({ "factor": 2 });
    let decl = Decl::dynamic();
    let mut values = Bindings::new();
    values.json("object", &object, &decl);
    let composition = Composition::new(&variables, &values, 1_000, 10_000);
    let program = Program::compile("variables.sum == 6 || variables.bad", &env).unwrap();
    let mut budget = Budget::new(1_000);
    assert_eq!(program.evaluate_composed(&values, &composition, &mut budget), Ok(Value::Bool(true)));
    let first = composition.take_spent();
    assert!(first > 50, "{first}");
    assert_eq!(program.evaluate_composed(&values, &composition, &mut budget), Ok(Value::Bool(true)));
    assert_eq!(composition.take_spent(), 0);
    let failing = Program::compile("variables.bad == 1", &env).unwrap();
    let error = failing.evaluate_composed(&values, &composition, &mut budget).unwrap_err();
    assert_eq!(error.to_string(), "composited variable \"bad\" fails to evaluate: no such key: missing");
}

/// Declares variables and reads the last one.
fn last(declared: &[(String, String)]) -> String {
    let mut env = Env::kubernetes().composed();
    let mut variables = Variables::default();
    for (name, text) in declared {
        variables.compile(name, text, &mut env).unwrap_or_else(|issues| panic!("{text}: {issues}"));
    }
    let values = Bindings::new();
    let composition = Composition::new(&variables, &values, 1_000_000, 10_000_000);
    let name = declared.last().map_or("none", |(name, _)| name);
    let text = format!("variables.{name} == 1 ? 'one' : 'other'");
    let program = Program::compile(&text, &env).unwrap_or_else(|issues| panic!("{text}: {issues}"));
    match program.evaluate_composed(&values, &composition, &mut Budget::new(1_000_000)) {
        Ok(value) => value.as_text().unwrap_or("?").to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn deep_chains_of_variables_are_rejected() {
    let chain = |count: usize, around: usize| -> Vec<(String, String)> {
        let nested = |read: String| "[".repeat(around) + &read + &"][0]".repeat(around);
        let first = ("v0".to_owned(), "1".to_owned());
        let rest = (1..count).map(|i| (format!("v{i}"), nested(format!("variables.v{}", i - 1))));
        std::iter::once(first).chain(rest).collect()
    };
    assert_eq!(last(&chain(100, 0)), "one");
    assert_eq!(last(&chain(5, 50)), "one");
    for (count, around) in [(100, 50), (10_000, 0), (10_000, 1)] {
        let why = last(&chain(count, around));
        assert!(why.ends_with("is nested too deep"), "{why}");
    }
}

#[test]
fn the_types_of_variables_are_bounded() {
    for next in ["[variables.v]", "{variables.v: variables.v}"] {
        let mut variables = Variables::default();
        let mut env = Env::kubernetes().composed();
        variables.compile("v0", "1", &mut env).unwrap();
        for number in 0..2_000 {
            let text = next.replace("variables.v", &format!("variables.v{number}"));
            variables.compile(&format!("v{}", number + 1), &text, &mut env).unwrap();
        }
    }
}

#[test]
fn a_variable_with_the_name_of_another_has_no_value() {
    let declared = [("a", "1"), ("b", "variables.a"), ("a", "variables.b")];
    let declared = declared.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(last(&declared), "composited variable \"a\" is declared twice");
}

/// Variables that each contain the previous one twice: cheap to create, and too large to traverse.
fn doubled(count: usize) -> (Variables, Env) {
    let mut env = Env::kubernetes().with_patch_types().composed();
    let mut variables = Variables::default();
    for i in 0..count {
        let text =
            if i == 0 { "[1, 1]".to_owned() } else { format!("[variables.v{0}, variables.v{0}]", i - 1) };
        assert!(variables.compile(&format!("v{i}"), &text, &mut env).is_ok(), "{text}");
    }
    (variables, env)
}

#[test]
fn a_value_with_many_repeated_parts_is_too_expensive_to_traverse() {
    let (variables, env) = doubled(60);
    let values = Bindings::new();
    for text in [
        "variables.v59 == variables.v59",
        "variables.v59 in [variables.v59]",
        "variables.v59.flatten(50).size() == 0",
        "'%s'.format([variables.v59]) == ''",
        "dyn({1: 2})[dyn(variables.v59)] == 2",
        "variables.v59.distinct().size() == 1",
    ] {
        let composition = Composition::new(&variables, &values, 1_000_000, 10_000_000);
        let program = Program::compile(text, &env).unwrap_or_else(|issues| panic!("{text}: {issues}"));
        let answer = program.evaluate_composed(&values, &composition, &mut Budget::new(1_000_000));
        assert!(answer.is_err(), "{text}: {answer:?}");
    }
    let composition = Composition::new(&variables, &values, 1_000_000, 10_000_000);
    let text = "Object{spec: Object.spec{all: variables.v59}}";
    let program = Program::compile(text, &env).unwrap_or_else(|issues| panic!("{text}: {issues}"));
    let value = program.evaluate_composed(&values, &composition, &mut Budget::new(1_000_000));
    let value = value.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(value.to_json().map_err(|error| error.to_string()), Err("the value is too large".to_owned()));
    assert_eq!(value.misnamed(), ["the value is too large"]);
}

#[test]
fn the_cost_of_all_variables_together_is_limited() {
    let mut env = Env::kubernetes().composed();
    let mut variables = Variables::default();
    let long = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(x, x > 0)";
    for i in 0..100 {
        assert!(variables.compile(&format!("v{i}"), long, &mut env).is_ok());
    }
    let all: Vec<String> = (0..100).map(|i| format!("variables.v{i}")).collect();
    let values = Bindings::new();
    let composition = Composition::new(&variables, &values, 1_000, 300);
    let text = all.join(" && ");
    let program = Program::compile(&text, &env).unwrap_or_else(|issues| panic!("{issues}"));
    let answer = program.evaluate_composed(&values, &composition, &mut Budget::new(1_000_000));
    let why = answer.map_err(|error| error.to_string());
    assert_eq!(why, Err("operation cancelled: actual cost limit exceeded".to_owned()));
    assert!(composition.take_spent() <= 400);
}

#[test]
fn a_variable_can_be_read_as_an_optional() {
    let declared = [("a", "1"), ("b", "variables.?a.orValue(2)")];
    let declared = declared.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(last(&declared), "one");
    let mut chain = vec![("v0".to_owned(), "1".to_owned())];
    chain.extend((1..10_000).map(|i| (format!("v{i}"), format!("variables.?v{}.orValue(0)", i - 1))));
    assert!(last(&chain).ends_with("is nested too deep"));
}

#[test]
fn a_variable_has_the_type_of_its_expression() {
    let mut env = Env::kubernetes().composed();
    let mut variables = Variables::default();
    variables.compile("n", "1", &mut env).unwrap();
    let issues = Program::compile("variables.n == 'a'", &env).unwrap_err().to_string();
    assert!(issues.contains("found no matching overload for '_==_' applied to '(int, string)'"), "{issues}");
    let issues = Program::compile("variables.m", &env).unwrap_err().to_string();
    assert!(issues.contains("undefined field 'm'"), "{issues}");
}

#[test]
fn patches_and_objects_can_be_created_where_they_are_declared() {
    let env = Env::kubernetes().with_patch_types();
    let made = |text: &str| {
        let program = Program::compile(text, &env).unwrap_or_else(|issues| panic!("{text}: {issues}"));
        let values = Bindings::new();
        program.evaluate(&values, &mut Budget::new(10_000)).unwrap().to_json().unwrap()
    };
    assert_eq!(
        made("Object{spec: Object.spec{replicas: 3, items: [Object.spec.items{name: 'a'}]}}"),
        json!({ "spec": { "replicas": 3, "items": [{ "name": "a" }] } })
    );
    assert_eq!(
        made(
            "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: {'x': 1}}]"
        ),
        json!([{ "op": "add", "path": "/metadata/labels/a~1b~0c", "value": { "x": 1 } }])
    );
    assert_eq!(made("Object{?a: optional.none(), ?b: optional.of(1)}"), json!({ "b": 1 }));
    for text in ["Other{a: 1}", "JSONPatch{nope: 1}", "JSONPatch{op: 1}"] {
        assert!(Program::compile(text, &env).is_err(), "{text}");
    }
    assert!(Program::compile("Object{a: 1}", &Env::kubernetes()).is_err());
    let program = Program::compile("Object{spec: Object.status{}}", &env).unwrap();
    let values = Bindings::new();
    let value = program.evaluate(&values, &mut Budget::new(100)).unwrap();
    assert_eq!(
        value.misnamed(),
        [
            "unexpected type name \"Object.status\", expected \"Object.spec\", which matches field name path from root Object type"
        ]
    );
}
