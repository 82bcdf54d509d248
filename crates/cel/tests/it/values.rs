//! The values of expressions.

use std::collections::BTreeMap;

use plumb_cel::{Bindings, Budget, Decl, DeclKind, Env, Field, Program, Value};
use serde_json::json;

/// Evaluates a boolean expression about `self`.
pub(crate) fn evaluate(text: &str) -> Result<bool, String> {
    let env = Env::kubernetes().with("self", Decl::dynamic());
    let program = Program::compile(text, &env).map_err(|issues| issues.to_string())?;
    let data = json!({
        "name": "web", "n": 3, "f": 1.5, "list": [1, 2, 3], "words": ["b", "a"], "map": {"x": 1, "y": 2},
        "nested": {"deep": {"er": true}}, "nothing": null, "items": [{"k": "a", "v": 1}, {"k": "b", "v": 2}],
    });
    let decl = Decl::dynamic();
    let mut values = Bindings::new();
    values.json("self", &data, &decl);
    match program.evaluate(&values, &mut Budget::new(1_000_000)) {
        Ok(Value::Bool(truth)) => Ok(truth),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn expressions_have_the_values_of_cel_go() {
    let table = [
        "1 + 2 * 3 == 7 && -5 < 0 && 7 % 4 == 3 && 7 / 2 == 3",
        "dyn(1) == 1.0 && dyn(1u) == 1 && 2.5 > 2 && dyn(1) < dyn(1.5)",
        "'a' + 'b' == 'ab' && b'a' + b'b' == b'ab' && [1] + [2] == [1, 2]",
        "self.n == 3 && self['n'] == 3 && self.list[2] == 3 && self.f == 1.5",
        "has(self.name) && !has(self.nope) && has(self.nested.deep.er)",
        "self.list.all(x, x > 0) && self.list.exists(x, x == 2) && self.list.exists_one(x, x == 3)",
        "self.list.map(x, x * 2) == [2, 4, 6] && self.list.filter(x, x > 1) == [2, 3]",
        "self.list.map(x, x > 1, x * 10) == [20, 30]",
        "self.map.all(k, self.map[k] > 0) && 'x' in self.map && !('z' in self.map) && 2 in self.list",
        "self.items.all(i, has(i.k) && i.v > 0)",
        "self.list.all(i, v, v == i + 1) && self.map.exists(k, v, k == 'y' && v == 2)",
        "self.list.transformList(i, v, i * v) == [0, 2, 6]",
        "self.map.transformMap(k, v, v + 1) == {'x': 2, 'y': 3}",
        "self.map.transformMap(k, v, k == 'x', v) == {'x': 1}",
        "self.map.transformMapEntry(k, v, {string(v): k}) == {'1': 'x', '2': 'y'}",
        "true || 1 / 0 == 1",
        "1 / 0 == 1 || true",
        "!(1 / 0 == 1 && false)",
        "self.list.exists(x, 1 / (x - 1) == 1 || x == 3)",
        "size('äöü') == 3 && 'äöü'.size() == 3 && size([1, 2]) == 2 && {'a': 1}.size() == 1",
        "type(1) == int && type('a') == string && type(1.0) == double && type(null) == null_type",
        "int('42') == 42 && string(1.5) == '1.5' && double('2') == 2.0 && uint(3) == 3u && bool('true')",
        "'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo')",
        "'abc123'.matches('^[a-z]+[0-9]+$') && matches('x', 'x')",
        "'tacocat'.charAt(3) == 'o' && 'hello'.indexOf('l') == 2 && 'hello'.lastIndexOf('l') == 3",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
        "['a', 'b'].join('-') == 'a-b' && 'hello'.substring(1, 3) == 'el' && ' x '.trim() == 'x'",
        "'aa'.replace('a', 'b') == 'bb' && 'aa'.replace('a', 'b', 1) == 'ba' && 'aB'.lowerAscii() == 'ab'",
        "'%s is %d, %.2f, %x, %b'.format([dyn('x'), 7, 1.239, 255, 5]) == 'x is 7, 1.24, ff, 101'",
        "'abc 123 456'.find('[0-9]+') == '123' && 'a1b2'.findAll('[0-9]') == ['1', '2']",
        "[1, 2, 3].isSorted() && [1, 2].sum() == 3 && [3, 1].min() == 1 && ['a', 'b'].max() == 'b'",
        "[3, 1, 2].sort() == [1, 2, 3] && [1, 1, 2].distinct() == [1, 2] && [1, 2].reverse() == [2, 1]",
        "[1, 2, 3].slice(1, 2) == [2] && [[1], [2]].flatten() == [1, 2] && lists.range(3) == [0, 1, 2]",
        "sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1]) && sets.intersects([1], [1, 2])",
        "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('2').asInteger() == 2",
        "quantity('500m').add(quantity('1')).compareTo(quantity('1500m')) == 0 && !isQuantity('1x')",
        "ip('10.0.0.1').family() == 4 && isIP('::1') && ip('::1').isLoopback() && !isIP('300.0.0.1')",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.0.0.0/8').prefixLength() == 8",
        "url('https://a.b:8443/c/d?e=f').getHost() == 'a.b:8443' && url('https://a.b/c').getScheme() == 'https'",
        "url('https://a:1/?x=1&x=2').getQuery()['x'] == ['1', '2'] && !isURL('nonsense')",
        "format.dns1123Label().validate('a-b') == optional.none()",
        "format.named('dns1123Label').value().validate('A_B').hasValue()",
        "format.dns1123Label().validate('a.b').value() == ['must not contain dots']",
        "format.dns1123LabelPrefix().validate('web-') == optional.none()",
        "format.qualifiedName().validate('a/b/c').value()[0].startsWith('a valid label key must consist of')",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
        "semver('v1.2', true).minor() == 2 && !isSemver('v1.2')",
        "duration('1h30m').getMinutes() == 90 && duration('90s') < duration('2m')",
        "timestamp('2024-02-29T12:00:00Z').getMonth() == 1 && timestamp('2024-02-29T12:00:00Z').getDate() == 29",
        "timestamp('2024-01-01T00:00:00Z') + duration('1h') == timestamp('2024-01-01T01:00:00Z')",
        "timestamp('2024-01-01T23:00:00Z').getHours('+02:00') == 1",
        "duration('1m2s345ms').getMilliseconds() == 62345",
        "timestamp('2024-01-01T23:00:01.5Z').getMilliseconds() == 500",
        r"!'\u0663'.matches('\\d') && '{1}'.matches('^{\\d}$') && 'a&b'.matches('^[a&&b]+$')",
        "self.?nope.orValue('x') == 'x' && self.?name.orValue('x') == 'web' && !self.?a.b.c.hasValue()",
        "self[?'name'].hasValue() && optional.of(1).optMap(x, x + 1).value() == 2",
        "optional.none().or(optional.of(3)).value() == 3 && [?self.?nope, dyn(1)] == [1]",
        "{?'a': self.?nope, 'b': dyn(1)} == {'b': 1}",
        "!(self.nope in []) && self.nothing == null && true ? true : false",
        "string(timestamp('2024-01-01T02:00:00.5+02:00')) == '2024-01-01T02:00:00.5+02:00'",
        "timestamp('2024-01-01T02:00:00+02:00') == timestamp('2024-01-01T00:00:00Z')",
        "string(timestamp('2024-01-01T02:00:00+02:00') + duration('1h')) == '2024-01-01T03:00:00+02:00'",
        "timestamp('2024-01-01T9:00:00Z').getHours() == 9 && timestamp('2024-01-01T00:30:00Z').getMinutes('-00:45') == 45",
        "int(timestamp(self.n - 3) - duration('1.5s')) == -2 && int(timestamp('1969-12-31T23:59:58Z')) == -2",
        "string(duration('1h15m30.5s')) == '4530.5s' && string(duration('-1ms')) == '-0.001s'",
        "'%.2f %f'.format([1234567.891, -1000.0]) == '1,234,567.89 -1,000.000000'",
        "'%e'.format([1234.5]) == '1.234500×10⁰³' && '%f'.format([1.0 / 0.0]) == '∞'",
        "[3, 1, 2].sortBy(v, -v) == [3, 2, 1] && self.items.sortBy(i, -i.v).map(i, i.k) == ['b', 'a']",
        "optional.unwrap([optional.of(1), optional.none()]) == [1] && [self.?n, self.?nope].unwrapOpt() == [3]",
        "{'a': 1, 'a': 2} == {'a': 2} && self.words.exists_one(i, w, i == 1 && w == 'a')",
        "'abc'.indexOf('c', 7) == -1 && 'abc'.lastIndexOf('a', 7) == -1 && 'abc'.indexOf('', 7) == 7",
        "self.n != ip('10.0.0.1') && quantity('1') != quantity('0').add(1) && quantity('0').add(1) == quantity('1')",
        "!quantity('1.5Gi').isInteger() && !quantity('1000m').isInteger() && quantity('2k').asInteger() == 2000",
        "quantity('0.3').asApproximateFloat() == 0.30000000000000004 && quantity('1.5Gi').asApproximateFloat() == 1610612736.0",
        "url('mailto:a').getScheme() == 'mailto' && 'ä€'.findAll('', 7) == ['', '', '']",
        "url('https://a.b/c#d').getEscapedPath() == '/c' && format.uri().validate('/c') == optional.none()",
        "format.uri().validate('c').value() == ['parse \"c\": invalid URI for request']",
        "'\\u00e4\\x41\\n' == \"ä\\u0041\\n\" && r'\\d' == '\\\\d' && '''a'b''' == \"a'b\"",
        "0x1F == 31 && 1e3 == 1000.0 && -9223372036854775808 < 0",
    ];
    for text in table {
        assert_eq!(evaluate(text), Ok(true), "{text}");
    }
}

#[test]
fn an_invalid_pattern_fails_the_instantiation_of_the_program() {
    let program = Program::compile("'a'.findAll('a(').size() == 1", &Env::kubernetes()).unwrap();
    assert_eq!(program.broken(), Some("error parsing regexp: missing closing ): `a(`"));
}

const INVALID_DURATION: &str = "type conversion error from 'string' to 'google.protobuf.Duration'";

#[test]
fn invalid_operations_are_errors() {
    let table = [
        ("self.nope == 1", "no such key: nope"),
        ("self.list[7] == 1", "index out of bounds: 7"),
        ("1 / (self.n - 3) == 1", "division by zero"),
        ("9223372036854775807 + self.n == 0", "integer overflow"),
        ("self.name < self.n", "no such overload"),
        ("int(self.name) == 1", "type conversion error from 'string' to 'int'"),
        ("self.list.all(x, 1 / (x - 2) >= -1)", "division by zero"),
        (
            "ip('x') == ip('y')",
            "IP Address \"x\" parse error during conversion from string: ParseAddr(\"x\"): unable to parse IP",
        ),
        (
            "ip('10.0.0') == ip('y')",
            "IP Address \"10.0.0\" parse error during conversion from string: ParseAddr(\"10.0.0\"): IPv4 address too short",
        ),
        (
            "cidr('10.0.0.0/33') == cidr('y')",
            "network address parse error during conversion from string: network address parse error during conversion \
             from string: netip.ParsePrefix(\"10.0.0.0/33\"): prefix length out of range",
        ),
        ("quantity('1') == quantity('0').add(1)", "no such overload"),
        ("dyn(ip('::1')) == self.n", "no such overload"),
        ("quantity('1ke') == quantity('1')", "unable to parse quantity's suffix"),
        ("quantity('1.5Gi').asInteger() == 1", "cannot convert value to integer"),
        ("semver('a', true).major() == 1", "Invalid character(s) found in major number \"a\""),
        ("semver('1.2-rc', true).major() == 1", "short version cannot contain PreRelease/Build meta data"),
        ("'abc'.substring(7) == ''", "index out of range: 7"),
        ("uint(-0.5) == 0u", "unsigned integer overflow"),
        ("double('1e999') == 1.0", "type conversion error from 'string' to 'double'"),
        ("timestamp(self.n - 62135596804) == timestamp(0)", "timestamp overflow"),
        (
            "timestamp('2024-01-01T00:00:00Z').getHours('1:x') == 1",
            "strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        ("dyn(1).all(x, true)", "got 'types.Int', expected iterable type"),
        (
            "'%d'.format(self.list.map(x, dyn('a'))) == ''",
            "error during formatting: decimal clause can only be used on integers, was given string",
        ),
        ("optional.none().value() == 1", "optional.none() dereference"),
        // The OpenAPI format supports days, the function does not.
        ("duration('1' + 'd') == duration('24h')", INVALID_DURATION),
        ("duration('1' + '') == duration('1s')", INVALID_DURATION),
        ("duration('2562048h' + '') == duration('1s')", INVALID_DURATION),
    ];
    for (text, why) in table {
        assert_eq!(evaluate(text), Err(why.to_owned()), "{text}");
    }
}

#[test]
fn json_is_converted_to_its_declared_types() {
    let text = |max| Decl::simple(DeclKind::Text, max, 2);
    let mut fields = BTreeMap::new();
    let mut add = |name: &str, decl| {
        let escaped = plumb_cel::escape(name).unwrap();
        fields.insert(escaped, Field { json: name.to_owned(), decl });
    };
    add("since", Decl::simple(DeclKind::Timestamp, 32, 21));
    add("every", Decl::simple(DeclKind::Duration, 32, 3));
    add("keep", Decl::simple(DeclKind::Duration, 32, 3));
    add("share", Decl::simple(DeclKind::Double, 0, 1));
    add("key", Decl::simple(DeclKind::Bytes, 8, 2));
    add("my-name", text(8));
    let object = DeclKind::Object { name: "it".to_owned(), fields };
    let env = Env::kubernetes().with("self", Decl::simple(object, 0, 2));
    let data = json!({
        "since": "2024-01-01T00:00:00Z", "every": "1m", "keep": "2 weeks 1d", "share": 2, "key": "aGk=", "my-name": "x",
        "unknown": 1,
    });
    let rule = "self.since < timestamp('2025-01-01T00:00:00Z') && self.every == duration('60s') && self.keep == duration('360h')
        && self.share == 2.0 && type(self.share) == double && self.key == b'hi' && self.my__dash__name == 'x'";
    let program = Program::compile(rule, &env).unwrap();
    let mut values = Bindings::new();
    values.json("self", &data, env.decl("self").unwrap());
    assert_eq!(program.evaluate(&values, &mut Budget::new(1_000)), Ok(Value::Bool(true)));
    let issues = Program::compile("self.unknown == 1", &env).unwrap_err().to_string();
    assert_eq!(issues, "ERROR: <input>:1:5: undefined field 'unknown'\n | self.unknown == 1\n | ....^");
}
