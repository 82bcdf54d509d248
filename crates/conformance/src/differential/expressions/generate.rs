//! Expressions made up by chance: most make sense by their types, and some on purpose do not.

use super::super::random::Random;

/// The types that expressions are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ty {
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Time,
    Ints,
    Texts,
    Map,
    Object,
    Objects,
    Maybe,
    Quantity,
    Ip,
    Cidr,
    Url,
    Semver,
    Any,
}

const ALL: [Ty; 20] = [
    Ty::Bool,
    Ty::Int,
    Ty::Uint,
    Ty::Double,
    Ty::Text,
    Ty::Bytes,
    Ty::Duration,
    Ty::Time,
    Ty::Ints,
    Ty::Texts,
    Ty::Map,
    Ty::Object,
    Ty::Objects,
    Ty::Maybe,
    Ty::Quantity,
    Ty::Ip,
    Ty::Cidr,
    Ty::Url,
    Ty::Semver,
    Ty::Any,
];

/// The types whose values a message can show, which most expressions are therefore of.
const SHOWN: [Ty; 12] = [
    Ty::Bool,
    Ty::Int,
    Ty::Uint,
    Ty::Double,
    Ty::Text,
    Ty::Bytes,
    Ty::Duration,
    Ty::Time,
    Ty::Ints,
    Ty::Texts,
    Ty::Map,
    Ty::Any,
];

/// The leaves of each type: literals, and fields of the object of [`schema`](super::schema).
fn leaves(ty: Ty) -> &'static [&'static str] {
    match ty {
        Ty::Bool => &["true", "false", "self.b", "has(self.i)", "has(self.missing)", "has(self.o.a)"],
        Ty::Int => &[
            "0",
            "1",
            "-3",
            "7",
            "9223372036854775807",
            "-9223372036854775808",
            "0x1F",
            "self.i",
            "self.o.a",
        ],
        Ty::Uint => &["0u", "1u", "42u", "18446744073709551615u"],
        Ty::Double => &["0.0", "1.5", "-2.25", "1e10", "1e-7", "3.0", "self.n"],
        Ty::Text => &[
            "''",
            "'a'",
            "'Abc'",
            "'ä€😀'",
            "\"it's\"",
            "'1'",
            "'true'",
            "'1.5'",
            "'a,b,c'",
            "'  x '",
            "'a\\nb'",
            "r'\\d+'",
            "self.s",
            "self.o.b",
            "self.missing",
            "self.long",
            "self.my__dash__name",
            "self.e",
            "'10.1.2.3'",
            "'10.0.0.0/8'",
            "'fe80::1'",
            "'1.5Gi'",
            "'https://example.com/a?b=c'",
            "'2020-01-02T03:04:05Z'",
            "'1h30m'",
        ],
        Ty::Bytes => &["b''", "b'abc'", "b'\\xff'", "self.y"],
        Ty::Duration => &["duration('0s')", "duration('1h30m')", "duration('-1.5s')", "self.d"],
        Ty::Time => &[
            "timestamp('2020-01-02T03:04:05Z')",
            "timestamp('1999-12-31T23:59:59.5+02:00')",
            "timestamp(0)",
            "self.t",
            "self.day",
        ],
        Ty::Ints => &["[]", "[1]", "[1, 2, 3]", "[3, 1, 2, 1]", "self.l", "self.ll[0]"],
        Ty::Texts => &["[]", "['a']", "['b', 'a']", "['x', 'x', 'y']", "self.ls", "self.set", "self.all"],
        Ty::Map => &["{}", "{'a': 1}", "{'x': 1, 'y': 2}", "self.m"],
        Ty::Object => &["self.o", "self.lo[0]"],
        Ty::Objects => &["self.lo"],
        Ty::Maybe => {
            &["optional.none()", "optional.of(1)", "self.?i", "self.?missing2", "self.m[?'a']", "self.l[?5]"]
        }
        Ty::Quantity => &["quantity('1')", "quantity('1.5Gi')", "quantity('-200m')", "quantity('100k')"],
        Ty::Ip => &["ip('10.0.0.1')", "ip('::1')", "ip('192.168.1.255')"],
        Ty::Cidr => &["cidr('10.0.0.0/8')", "cidr('10.0.0.1/24')", "cidr('::/0')"],
        Ty::Url => &["url('https://example.com:8080/a/b?x=1&y=2')", "url('/p')"],
        Ty::Semver => &["semver('1.2.3')", "semver('1.0.0-alpha.1')", "semver('0.0.1+b')"],
        // No types: kube-apiserver names the type of one in its messages (`type(int)`), ours does not.
        Ty::Any => &["null", "dyn(1)", "dyn('a')", "dyn([1, 'a'])", "self.x", "dyn(self)"],
    }
}

/// What can be made of other expressions: `B` stands for one of type bool, `I` int, `U` uint, `D` double, `T` text,
/// `Y` bytes, `E` duration, `Z` time, `N` ints, `S` texts, `M` map, `O` object, `L` objects, `P` optional, `Q` quantity, `A`
/// address, `C` range of addresses, `R` URL, `V` version, `X` anything.
fn forms(ty: Ty) -> &'static [&'static str] {
    match ty {
        Ty::Bool => &[
            "!B",
            "B && B",
            "B || B",
            "B ? B : B",
            "I == I",
            "I != I",
            "I < I",
            "I <= I",
            "I > D",
            "U >= U",
            "D < D",
            "T == T",
            "T < T",
            "T >= T",
            "Y == Y",
            "E < E",
            "Z <= Z",
            "N == N",
            "S != S",
            "M == M",
            "O == O",
            "X == X",
            "T.contains(T)",
            "T.startsWith(T)",
            "T.endsWith(T)",
            "T.matches('^[a-z]+$')",
            "T.matches(T)",
            "I in N",
            "T in S",
            "T in M",
            "N.all(v, v > I)",
            "N.exists(v, v == I)",
            "N.exists_one(v, v < I)",
            "S.all(v, v.size() < I)",
            "M.all(k, M[k] > I)",
            "M.exists(k, k == T)",
            "L.all(e, e.k != T)",
            "L.exists(e, e.v > I)",
            "N.isSorted()",
            "S.isSorted()",
            "P.hasValue()",
            "T == 'a' && I / I > I",
            "isQuantity(T)",
            "Q.isGreaterThan(Q)",
            "Q.isLessThan(Q)",
            "Q == Q",
            "Q.isInteger()",
            "isIP(T)",
            "isCIDR(T)",
            "A.isLoopback()",
            "A.isGlobalUnicast()",
            "A == A",
            "C.containsIP(A)",
            "C.containsIP(T)",
            "C.containsCIDR(C)",
            "ip.isCanonical(T)",
            "isURL(T)",
            "R == R",
            "V.isLessThan(V)",
            "isSemver(T)",
            "V == V",
            "sets.contains(N, N)",
            "sets.equivalent(S, S)",
            "sets.intersects(N, N)",
            "has(O.b)",
            "has(O.zz)",
            "bool(T)",
            "type(X) == type(X)",
            "N.all(i, v, i < v)",
            "self.ll.exists(v, I in v)",
            "self.ml.all(k, v, v.all(e, e > I))",
            "N.existsOne(v, v == I)",
            "S.exists_one(i, v, v == T)",
            "has(self.lo) && self.lo.exists_one(e, e.k == T)",
            "has(self.d) ? E < self.d : B",
            "!has(self.missing) || self.missing == T",
            "self.lo.all(e, self.lo.filter(x, x.k == e.k).size() == 1)",
            "S.all(v, isIP(v) || isCIDR(v))",
            "self.e in ['one', 'two']",
            "Q.isInteger() && Q.asInteger() > I",
            "A.isUnspecified()",
            "A.isLinkLocalUnicast()",
            "C == C",
            "B == B",
            "U == U",
            "D == D",
            "E == E",
            "Z == Z",
            "L == L",
            "P == P",
            "D != D",
            "Q != Q",
            "Z > Z",
            "B < B",
            "Y < Y",
            "duration(T) > E",
            "timestamp(T) > Z",
            "format.dns1123Subdomain().validate(T) == optional.none()",
            "format.uri().validate(T).hasValue()",
            "format.date().validate(T).hasValue()",
            "format.datetime().validate(T).hasValue()",
            "format.byte().validate(T).hasValue()",
            "format.uuid().validate(T).hasValue()",
            "format.qualifiedName().validate(T).hasValue()",
            "format.labelValue().validate(T).hasValue()",
            "M.exists(k, v, v > I)",
            "format.dns1123Label().validate(T).hasValue()",
            "format.named('uuid').hasValue()",
            "size(T) > I",
            "!format.named(T).hasValue()",
            "X == null",
            "O == null",
            "T != T ? B : N == N",
        ],
        Ty::Int => &[
            "I + I",
            "I - I",
            "I * I",
            "I / I",
            "I % I",
            "-I",
            "size(T)",
            "T.size()",
            "size(N)",
            "M.size()",
            "size(Y)",
            "int(T)",
            "int(D)",
            "int(U)",
            "int(Z)",
            "int(E)",
            "B ? I : I",
            "N[I]",
            "N[0]",
            "M['a']",
            "M[T]",
            "N.sum()",
            "N.min()",
            "N.max()",
            "T.indexOf(T)",
            "T.lastIndexOf(T)",
            "N.indexOf(I)",
            "N.lastIndexOf(I)",
            "Z.getFullYear()",
            "Z.getMonth()",
            "Z.getDayOfWeek('UTC')",
            "Z.getHours('+05:30')",
            "Z.getMilliseconds()",
            "Z.getDayOfYear()",
            "Z.getDayOfMonth()",
            "Z.getSeconds()",
            "Z.getMinutes('-02:15')",
            "Z.getHours()",
            "Z.getHours(T)",
            "self.lo.size()",
            "self.ll.size()",
            "self.ml.size()",
            "self.?i.orValue(I)",
            "self.?o.a.orValue(I)",
            "self.lo.filter(e, e.v > I).size()",
            "V.minor()",
            "V.patch()",
            "T.lastIndexOf(T, I)",
            "size(S)",
            "size(L)",
            "Z.getDate()",
            "E.getHours()",
            "E.getMinutes()",
            "E.getSeconds()",
            "E.getMilliseconds()",
            "P.orValue(I)",
            "Q.asInteger()",
            "sign(Q)",
            "Q.compareTo(Q)",
            "A.family()",
            "C.prefixLength()",
            "V.major()",
            "V.compareTo(V)",
            "O.v",
            "cel.bind(q, I, q + q)",
            "N.map(v, v * I).sum()",
            "N.filter(v, v > I).size()",
            "L.map(e, e.v).sum()",
            "T.indexOf(T, I)",
            "P.or(optional.of(I)).value()",
            "int(I)",
            "N.transformList(i, v, i + v).sum()",
            "T.find(T).size()",
            "lists.range(I % 7).size()",
        ],
        Ty::Uint => {
            &["U + U", "U - U", "U * U", "U / U", "U % U", "uint(I)", "uint(T)", "uint(D)", "B ? U : U"]
        }
        Ty::Double => &[
            "D + D",
            "D - D",
            "D * D",
            "D / D",
            "-D",
            "double(I)",
            "double(T)",
            "double(U)",
            "B ? D : D",
            "Q.asApproximateFloat()",
            "[D, D].sum()",
            "[D, D].max()",
        ],
        Ty::Text => &[
            "T + T",
            "string(I)",
            "string(D)",
            "string(B)",
            "string(U)",
            "string(Z)",
            "string(E)",
            "string(Y)",
            "T.lowerAscii()",
            "T.upperAscii()",
            "T.trim()",
            "T.charAt(I)",
            "T.substring(I)",
            "T.substring(I, I)",
            "T.replace(T, T)",
            "T.replace(T, T, I)",
            "S.join(T)",
            "S.join()",
            "S[I]",
            "B ? T : T",
            "O.b",
            "'%s'.format([X])",
            "'%d %s'.format([I, T])",
            "'%.2f'.format([D])",
            "'%x'.format([I])",
            "'%b'.format([I])",
            "'%o'.format([I])",
            "'%X'.format([T])",
            "'%e'.format([D])",
            "'%s'.format([N])",
            "'%s'.format([M])",
            "'%s %s'.format([T])",
            "strings.quote(T)",
            "T.find('[a-z]+')",
            "T.find(T)",
            "string(A)",
            "string(C)",
            "R.getHost()",
            "R.getScheme()",
            "R.getPort()",
            "R.getHostname()",
            "R.getEscapedPath()",
            "S.min()",
            "S.max()",
            "cel.bind(q, T, q + q)",
            "L[I].k",
            "string(T)",
            "M.map(k, k).join()",
            "format.dns1123Label().validate(T).orValue(['fine']).join()",
            "format.named('uri').value().validate(T).orValue([]).join(',')",
            "'%s'.format([Z])",
            "'%s'.format([E])",
            "'%s'.format([[Z]])",
            "'%f'.format([D])",
            "'%.10e'.format([D])",
            "'%s and %s'.format([D, B])",
            "'%d%%'.format([U])",
            "T.format([X])",
            "string(Z - E)",
            "string(Q.asApproximateFloat())",
            "T.substring(0, 1)",
            "T.charAt(0)",
            "T.split(T)[0]",
            "P.hasValue() ? 'some' : T",
            "self.?missing.orValue(T)",
            "self.?o.?b.orValue(T)",
            "self.lo[?I].?k.orValue(T)",
            "S.map(v, v + T).join('-')",
        ],
        Ty::Bytes => &["bytes(T)", "Y + Y", "B ? Y : Y"],
        Ty::Duration => &["E + E", "E - E", "Z - Z", "duration(T)", "B ? E : E", "duration(I)"],
        Ty::Time => &["Z + E", "Z - E", "E + Z", "timestamp(T)", "timestamp(I)", "B ? Z : Z"],
        Ty::Ints => &[
            "N + N",
            "N.map(v, v + I)",
            "N.filter(v, v > I)",
            "N.map(v, v > I, v * 2)",
            "[I, I]",
            "B ? N : N",
            "N.slice(I, I)",
            "N.distinct()",
            "N.reverse()",
            "N.sort()",
            "[N, N].flatten()",
            "M.map(k, M[k])",
            "lists.range(I % 5)",
            "L.map(e, e.v)",
            "[?P, ?P]",
            "[I, ?optional.of(I)]",
            "N.transformList(i, v, i * v)",
            "N.transformList(i, v, i > 0, v)",
            "N.sortBy(v, -v)",
            "[P, P].unwrapOpt()",
            "optional.unwrap([P, optional.of(I)])",
            "self.ll.flatten()",
            "self.ml[T]",
            "self.ll.map(v, v.size())",
            "self.ll[I]",
            "M.transformList(k, v, v)",
            "[N, self.l].flatten(1)",
            "self.ml.map(k, self.ml[k]).flatten()",
        ],
        Ty::Texts => &[
            "S + S",
            "S.map(v, v + T)",
            "S.filter(v, v.startsWith(T))",
            "[T, T]",
            "T.split(T)",
            "T.split(T, I)",
            "T.findAll('[a-z]')",
            "T.findAll(T, I)",
            "B ? S : S",
            "S.sort()",
            "S.distinct()",
            "L.map(e, e.k)",
            "M.map(k, k)",
            "L.sortBy(e, e.k).map(e, e.k)",
            "S.sortBy(v, v.size())",
            "S.reverse()",
        ],
        Ty::Map => &[
            "{T: I}",
            "{T: I, T: I}",
            "B ? M : M",
            "M.transformMap(k, v, v + I)",
            "M.transformMap(k, v, v > I, v)",
            "M.transformMapEntry(k, v, {k + T: v})",
            "{'a': I, ?'b': P}",
            "N.transformMap(i, v, v)",
        ],
        Ty::Object => &["L[I]", "B ? O : O"],
        Ty::Objects => &["L.filter(e, e.v > I)", "L + L"],
        Ty::Maybe => &[
            "optional.of(I)",
            "optional.ofNonZeroValue(I)",
            "P.or(P)",
            "P.optMap(v, v + I)",
            "P.optFlatMap(v, optional.of(v))",
            "N[?I]",
            "M[?T]",
            "O.?a",
            "N.first()",
            "N.last()",
            "B ? P : P",
        ],
        Ty::Quantity => &["quantity(T)", "Q.add(Q)", "Q.sub(Q)", "Q.add(I)", "Q.sub(I)"],
        Ty::Ip => &["ip(T)", "C.ip()"],
        Ty::Cidr => &["cidr(T)", "C.masked()"],
        Ty::Url => &["url(T)"],
        Ty::Semver => &["semver(T)", "semver(T, true)"],
        Ty::Any => &[
            "dyn(I)",
            "dyn(T)",
            "dyn(N)",
            "dyn(B) ? dyn(I) : dyn(T)",
            "[dyn(I), dyn(T)]",
            "self.x",
            "R.getQuery()",
        ],
    }
}

fn named(letter: char) -> Option<Ty> {
    Some(match letter {
        'B' => Ty::Bool,
        'I' => Ty::Int,
        'U' => Ty::Uint,
        'D' => Ty::Double,
        'T' => Ty::Text,
        'Y' => Ty::Bytes,
        'E' => Ty::Duration,
        'Z' => Ty::Time,
        'N' => Ty::Ints,
        'S' => Ty::Texts,
        'M' => Ty::Map,
        'O' => Ty::Object,
        'L' => Ty::Objects,
        'P' => Ty::Maybe,
        'Q' => Ty::Quantity,
        'A' => Ty::Ip,
        'C' => Ty::Cidr,
        'R' => Ty::Url,
        'V' => Ty::Semver,
        'X' => Ty::Any,
        _ => return None,
    })
}

/// An expression.
pub(super) fn expression(random: &mut Random) -> String {
    let types: &[Ty] = if random.percent(95) { &SHOWN } else { &ALL };
    let ty = *random.pick(types).unwrap_or(&Ty::Int);
    let depth = random.below(3) + 1;
    let mut text = String::new();
    make(random, ty, depth, &mut text);
    if random.percent(3) {
        damage(random, &mut text);
    }
    text
}

fn make(random: &mut Random, ty: Ty, depth: usize, out: &mut String) {
    // Now and then another type than the one that belongs there.
    let ty = if random.percent(1) { *random.pick(&ALL).unwrap_or(&ty) } else { ty };
    if depth == 0 {
        out.push_str(random.pick(leaves(ty)).copied().unwrap_or("1"));
        return;
    }
    let form = random.pick(forms(ty)).copied().unwrap_or("1");
    let letters: Vec<char> = form.chars().collect();
    let is_word = |place: Option<usize>| {
        place
            .and_then(|place| letters.get(place))
            .is_some_and(|own| own.is_ascii_alphanumeric() || *own == '_')
    };
    let mut quoted = false;
    for (place, letter) in letters.iter().enumerate() {
        quoted ^= *letter == '\'';
        let alone = !is_word(place.checked_sub(1)) && !is_word(Some(place + 1));
        match named(*letter).filter(|_| alone && !quoted) {
            None => out.push(*letter),
            Some(inner) => {
                let mut text = String::new();
                let depth = random.below(depth);
                make(random, inner, depth, &mut text);
                if text.contains([' ', '-']) && !text.starts_with(['[', '{']) {
                    out.extend(["(", &text, ")"]);
                } else {
                    out.push_str(&text);
                }
            }
        }
    }
}

/// Makes a mistake in the text.
fn damage(random: &mut Random, text: &mut String) {
    let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
    let Some(place) = random.pick(&places).copied() else { return };
    match random.below(4) {
        0 => {
            text.remove(place);
        }
        1 => {
            text.insert_str(place, random.pick(&["(", ")", "]", "'", ".", ",", " in ", "?"]).unwrap_or(&"("));
        }
        2 => text.insert(place, ' '),
        _ => text.insert_str(place, random.pick(&["x", "0", "self.", "nope("]).unwrap_or(&"x")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_expressions_and_they_differ() {
        let all = |seed: u64| -> Vec<String> {
            (0..200).map(|case| expression(&mut Random::of(seed, case))).collect()
        };
        assert_eq!(all(1), all(1));
        let mut different = all(1);
        different.sort();
        different.dedup();
        assert!(different.len() > 190, "{}", different.len());
    }
}
