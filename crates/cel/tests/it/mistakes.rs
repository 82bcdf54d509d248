//! Compilation errors.

use plumb_cel::{Decl, DeclKind, Env, Program};

#[test]
fn errors_have_the_position_and_message_of_cel_go() {
    let env = Env::kubernetes()
        .with("self", Decl::simple(DeclKind::Int, 0, 1))
        .with("text", Decl::simple(DeclKind::Text, 8, 2));
    let table = [
        (
            "nope == 1",
            "ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope == 1\n | ^",
        ),
        (
            "self + text == 1",
            "ERROR: <input>:1:6: found no matching overload for '_+_' applied to '(int, string)'\n | self + text == 1\n | .....^",
        ),
        (
            "text.startsWith(1)",
            "ERROR: <input>:1:16: found no matching overload for 'startsWith' applied to 'string.(int)'\n | text.startsWith(1)\n | ...............^",
        ),
        (
            "self.foo",
            "ERROR: <input>:1:5: type 'int' does not support field selection\n | self.foo\n | ....^",
        ),
        (
            "nope(1)",
            "ERROR: <input>:1:5: undeclared reference to 'nope' (in container '')\n | nope(1)\n | ....^",
        ),
        (
            "has(text.foo)",
            "ERROR: <input>:1:4: type 'string' does not support field selection\n | has(text.foo)\n | ...^",
        ),
        (
            "[1].all(x, x, true)",
            "ERROR: <input>:1:12: duplicate variable name: x\n | [1].all(x, x, true)\n | ...........^",
        ),
        (
            "[1].map(1, true)",
            "ERROR: <input>:1:9: argument is not an identifier\n | [1].map(1, true)\n | ........^",
        ),
        ("self && true", "ERROR: <input>:1:1: expected type 'bool' but found 'int'\n | self && true\n | ^"),
        (
            "self.all(x, x)",
            "ERROR: <input>:1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)\n | self.all(x, x)\n | ^",
        ),
        (
            "[1, 'a'] == []",
            "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a'] == []\n | ....^",
        ),
        (
            "self ==",
            "ERROR: <input>:1:8: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | self ==\n | .......^",
        ),
        ("package == 1", "ERROR: <input>:1:1: reserved identifier: package\n | package == 1\n | ^"),
        (
            "self == 1 &&\n  nope",
            "ERROR: <input>:2:3: undeclared reference to 'nope' (in container '')\n |   nope\n | ..^",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(Program::compile(text, &env).unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn invalid_literals_are_compilation_errors() {
    let env = Env::kubernetes();
    let table = [
        ("'a'.matches('[')", "invalid matches argument"),
        ("duration('x') == duration('1s')", "invalid duration argument"),
        ("duration('1d') == duration('24h')", "invalid duration argument"),
        ("timestamp('x') == timestamp('y')", "invalid timestamp argument"),
    ];
    for (text, part) in table {
        let issues = Program::compile(text, &env).unwrap_err().to_string();
        assert!(issues.contains(part), "{text}: {issues}");
    }
}
