//! The parser, which also expands macros.

use crate::ast::{Entry, Expr, Kind, Literal, MessageField};
use crate::error::Issue;
use crate::lex::{Token, tokens};
use crate::macros;

/// The maximum nesting of expressions, as in cel-go.
const MAX_NESTING: usize = 250;
/// The maximum depth of the tree, which chains such as `a.b.c` increase; it bounds the recursion of later passes.
const MAX_DEPTH: usize = 256;
/// The maximum length of an expression in characters.
const MAX_LENGTH: usize = 100_000;

/// The reserved identifiers.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const OPERANDS: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// Parses an expression. Returns its tree and the number of node ids.
pub(crate) fn parse(text: &str) -> Result<(Expr, usize), Issue> {
    let length = text.chars().count();
    if length > MAX_LENGTH {
        let message = format!("expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}");
        return Err(Issue { at: 0, message });
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0, nodes: Nodes::default(), nesting: 0 };
    let expr = parser.expression()?;
    if *parser.peek() != Token::End {
        let token = parser.peek().display();
        return Err(parser.issue(format!("Syntax error: extraneous input '{token}' expecting <EOF>")));
    }
    Ok((expr, parser.nodes.count))
}

fn too_deep(at: usize) -> Issue {
    Issue { at, message: format!("expression recursion limit exceeded: {MAX_NESTING}") }
}

/// Creates nodes with unique ids.
#[derive(Default)]
pub(crate) struct Nodes {
    count: usize,
}

impl Nodes {
    pub(crate) fn make(&mut self, at: usize, kind: Kind) -> Expr {
        self.count += 1;
        let mut expr = Expr { id: self.count - 1, at, depth: 1, kind };
        let mut child_depth = 0;
        expr.children(|child| child_depth = child_depth.max(child.depth));
        expr.depth = child_depth + 1;
        expr
    }

    pub(crate) fn call(&mut self, at: usize, function: &str, args: Vec<Expr>) -> Expr {
        self.make(at, Kind::Call { function: function.to_owned(), target: None, args })
    }
}

/// A binary operator.
#[derive(Clone, Copy)]
struct Operator {
    at: usize,
    function: &'static str,
    /// The precedence.
    level: u8,
}

/// Terms and the positions of the operators between them.
#[derive(Default)]
struct Joined {
    terms: Vec<Expr>,
    positions: Vec<usize>,
}

impl Joined {
    fn add(&mut self, term: Expr, at: usize) {
        self.terms.push(term);
        self.positions.push(at);
    }

    fn end(&mut self, term: Expr) {
        self.terms.push(term);
    }

    fn take(&mut self) -> (Vec<Expr>, Vec<usize>) {
        (std::mem::take(&mut self.terms), std::mem::take(&mut self.positions))
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    nodes: Nodes,
    nesting: usize,
}

type Parsed = Result<Expr, Issue>;

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |(_, token)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |(at, _)| *at)
    }

    fn issue(&self, message: impl Into<String>) -> Issue {
        Issue { at: self.at(), message: message.into() }
    }

    /// Takes a sign if it comes next, and returns its position.
    fn take(&mut self, sign: &str) -> Option<usize> {
        let at = self.at();
        (matches!(self.peek(), Token::Sign(next) if *next == sign)).then(|| {
            self.next += 1;
            at
        })
    }

    /// Takes a sign, or returns a syntax error.
    fn expect(&mut self, sign: &'static str) -> Result<usize, Issue> {
        let found = self.peek().display();
        let message = match found.as_str() {
            "<EOF>" => format!("Syntax error: missing '{sign}' at '<EOF>'"),
            _ => format!("Syntax error: mismatched input '{found}' expecting '{sign}'"),
        };
        let issue = self.issue(message);
        self.take(sign).ok_or(issue)
    }

    fn identifier(&mut self) -> Result<(usize, String), Issue> {
        let at = self.at();
        match self.peek().clone() {
            Token::Ident(name) if !matches!(name.as_str(), "in" | "true" | "false" | "null") => {
                self.next += 1;
                Ok((at, name))
            }
            other => {
                let token = other.display();
                Err(self.issue(format!("Syntax error: mismatched input '{token}' expecting IDENTIFIER")))
            }
        }
    }

    fn expression(&mut self) -> Parsed {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(too_deep(self.at()));
        }
        let condition = self.operation()?;
        let expr = match self.take("?") {
            None => condition,
            Some(at) => {
                let yes = self.operation()?;
                self.expect(":")?;
                let no = self.expression()?;
                let expr = self.nodes.call(at, "_?_:_", vec![condition, yes, no]);
                self.bounded(expr)?
            }
        };
        self.nesting -= 1;
        Ok(expr)
    }

    /// Rejects a tree that is too deep. Trees grow by one level at a time, so none is ever much deeper.
    fn bounded(&self, expr: Expr) -> Parsed {
        if expr.depth > MAX_DEPTH { Err(too_deep(self.at())) } else { Ok(expr) }
    }

    /// Parses operands and binary operators. Operands are combined in the order of precedence.
    fn operation(&mut self) -> Parsed {
        let mut either = Joined::default();
        let mut both = Joined::default();
        let mut pending: Vec<(Expr, Operator)> = Vec::new();
        loop {
            let mut operand = self.unary()?;
            let next = self.operator();
            let level = next.map_or(0, |operator| operator.level);
            // Operators with at least the precedence of the next one are applied.
            while pending.last().is_some_and(|(_, operator)| operator.level >= level.max(3)) {
                let Some((left, operator)) = pending.pop() else { break };
                operand = self.nodes.call(operator.at, operator.function, vec![left, operand]);
                operand = self.bounded(operand)?;
            }
            match next {
                Some(operator) if operator.level >= 3 => pending.push((operand, operator)),
                Some(operator) if operator.level == 2 => both.add(operand, operator.at),
                last => {
                    both.end(operand);
                    let term = self.balanced("_&&_", both.take());
                    let Some(operator) = last else {
                        either.end(term);
                        let expr = self.balanced("_||_", either.take());
                        return self.bounded(expr);
                    };
                    either.add(term, operator.at);
                }
            }
        }
    }

    /// Takes the next token if it is a binary operator.
    fn operator(&mut self) -> Option<Operator> {
        let at = self.at();
        let (function, level) = match self.peek() {
            Token::Sign("||") => ("_||_", 1),
            Token::Sign("&&") => ("_&&_", 2),
            Token::Sign("==") => ("_==_", 3),
            Token::Sign("!=") => ("_!=_", 3),
            Token::Sign("<") => ("_<_", 3),
            Token::Sign("<=") => ("_<=_", 3),
            Token::Sign(">") => ("_>_", 3),
            Token::Sign(">=") => ("_>=_", 3),
            Token::Ident(word) if word == "in" => ("@in", 3),
            Token::Sign("+") => ("_+_", 4),
            Token::Sign("-") => ("_-_", 4),
            Token::Sign("*") => ("_*_", 5),
            Token::Sign("/") => ("_/_", 5),
            Token::Sign("%") => ("_%_", 5),
            _ => return None,
        };
        self.next += 1;
        Some(Operator { at, function, level })
    }

    /// Joins terms by a logical operator as a balanced tree, so that long conditions stay shallow.
    fn balanced(&mut self, function: &str, (mut terms, positions): (Vec<Expr>, Vec<usize>)) -> Expr {
        if terms.len() == 1
            && let Some(only) = terms.pop()
        {
            return only;
        }
        // The operator in the middle is the root.
        let middle = positions.len().saturating_sub(1) / 2;
        let right = terms.split_off(middle + 1);
        let at = positions.get(middle).copied().unwrap_or_default();
        let left = self.balanced(function, (terms, positions.get(..middle).unwrap_or_default().to_vec()));
        let after = positions.get(middle + 1..).unwrap_or_default().to_vec();
        let right = self.balanced(function, (right, after));
        self.nodes.call(at, function, vec![left, right])
    }

    fn unary(&mut self) -> Parsed {
        let at = self.at();
        for (sign, function) in [("!", "!_"), ("-", "-_")] {
            let mut count = 0_usize;
            while matches!(self.peek(), Token::Sign(next) if *next == sign) {
                let number = self.tokens.get(self.next + 1).map(|(_, token)| token);
                let negative = sign == "-" && matches!(number, Some(Token::Int(_) | Token::Double(_)));
                if negative && count == 0 {
                    break;
                }
                self.next += 1;
                count += 1;
            }
            if count > 0 {
                let operand = self.member()?;
                return Ok(if count.is_multiple_of(2) {
                    operand
                } else {
                    self.nodes.call(at, function, vec![operand])
                });
            }
        }
        self.member()
    }

    fn member(&mut self) -> Parsed {
        let mut expr = self.primary()?;
        loop {
            if let Some(at) = self.take(".") {
                let optional = self.take("?").is_some();
                let (name_at, name) = self.identifier()?;
                if optional {
                    let field = self.nodes.make(name_at, Kind::Literal(Literal::Text(name)));
                    expr = self.nodes.call(at, "_?._", vec![expr, field]);
                } else if let Some(open) = self.take("(") {
                    let args = self.arguments()?;
                    expr = self.method(open, expr, name, args)?;
                } else {
                    let operand = Box::new(expr);
                    expr = self.nodes.make(at, Kind::Select { operand, field: name, test: false });
                }
            } else if let Some(at) = self.take("[") {
                let function = if self.take("?").is_some() { "_[?_]" } else { "_[_]" };
                let index = self.expression()?;
                self.expect("]")?;
                expr = self.nodes.call(at, function, vec![expr, index]);
            } else if let (Some(name), Token::Sign("{")) = (expr.qualified_name(), self.peek()) {
                expr = self.message(name)?;
            } else {
                return Ok(expr);
            }
            expr = self.bounded(expr)?;
        }
    }

    fn method(&mut self, at: usize, target: Expr, name: String, args: Vec<Expr>) -> Parsed {
        match macros::method(&mut self.nodes, at, target, &name, args)? {
            macros::Method::Expanded(expr) => Ok(expr),
            macros::Method::Plain(target, args) => {
                let target = Some(Box::new(target));
                Ok(self.nodes.make(at, Kind::Call { function: name, target, args }))
            }
        }
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, Issue> {
        let mut args = Vec::new();
        if self.take(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expression()?);
            if self.take(",").is_none() {
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let at = self.at();
        let token = self.peek().clone();
        if !matches!(token, Token::End) {
            self.next += 1;
        }
        let literal = match token {
            Token::Sign("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Token::Sign("[") => return self.list(at),
            Token::Sign("{") => return self.map(at),
            Token::Sign(".") => {
                let (at, name) = self.identifier()?;
                return self.named(at, name);
            }
            Token::Sign("-") => return self.negative(at),
            Token::Ident(name) => match name.as_str() {
                "true" => Literal::Bool(true),
                "false" => Literal::Bool(false),
                "null" => Literal::Null,
                "in" => return Err(self.unexpected(at, "in")),
                _ => return self.named(at, name),
            },
            Token::Int(text) => integer(&text, false).ok_or(invalid(at, "int"))?,
            Token::Uint(text) => unsigned(&text).ok_or(invalid(at, "uint"))?,
            Token::Double(text) => double(&text).ok_or(invalid(at, "double"))?,
            Token::Text(text) => Literal::Text(text),
            Token::Bytes(bytes) => Literal::Bytes(bytes),
            other @ (Token::Sign(_) | Token::End) => return Err(self.unexpected(at, &other.display())),
        };
        Ok(self.nodes.make(at, Kind::Literal(literal)))
    }

    fn unexpected(&self, at: usize, token: &str) -> Issue {
        let message = format!("Syntax error: mismatched input '{token}' expecting {OPERANDS}");
        Issue { at: at.min(self.at().max(at)), message }
    }

    fn negative(&mut self, at: usize) -> Parsed {
        let literal = match self.peek().clone() {
            Token::Int(text) => integer(&text, true).ok_or(invalid(at, "int"))?,
            Token::Double(text) => double(&format!("-{text}")).ok_or(invalid(at, "double"))?,
            other => return Err(self.unexpected(at, &other.display())),
        };
        self.next += 1;
        Ok(self.nodes.make(at, Kind::Literal(literal)))
    }

    /// Parses a variable or a function call that begins with a name.
    fn named(&mut self, at: usize, name: String) -> Parsed {
        if RESERVED.contains(&name.as_str()) {
            return Err(Issue { at, message: format!("reserved identifier: {name}") });
        }
        let Some(open) = self.take("(") else { return Ok(self.nodes.make(at, Kind::Ident(name))) };
        let args = self.arguments()?;
        if name == "has" {
            return macros::has(&mut self.nodes, open, args);
        }
        Ok(self.nodes.make(open, Kind::Call { function: name, target: None, args }))
    }

    fn list(&mut self, at: usize) -> Parsed {
        let mut elements = Vec::new();
        let mut optional = Vec::new();
        while self.take("]").is_none() {
            if self.take("?").is_some() {
                optional.push(elements.len());
            }
            elements.push(self.expression()?);
            if self.take(",").is_none() {
                self.expect("]")?;
                break;
            }
        }
        Ok(self.nodes.make(at, Kind::List { elements, optional }))
    }

    fn message(&mut self, name: String) -> Parsed {
        let at = self.expect("{")?;
        let mut fields = Vec::new();
        while self.take("}").is_none() {
            let optional = self.take("?").is_some();
            let (_, name) = self.identifier()?;
            let at = self.expect(":")?;
            let value = self.expression()?;
            fields.push(MessageField { at, name, value, optional });
            if self.take(",").is_none() {
                self.expect("}")?;
                break;
            }
        }
        Ok(self.nodes.make(at, Kind::Message { name, fields }))
    }

    fn map(&mut self, at: usize) -> Parsed {
        let mut entries = Vec::new();
        while self.take("}").is_none() {
            let optional = self.take("?").is_some();
            let key = self.expression()?;
            self.expect(":")?;
            let value = self.expression()?;
            entries.push(Entry { key, value, optional });
            if self.take(",").is_none() {
                self.expect("}")?;
                break;
            }
        }
        Ok(self.nodes.make(at, Kind::Map(entries)))
    }
}

fn invalid(at: usize, what: &str) -> Issue {
    Issue { at, message: format!("invalid {what} literal") }
}

fn integer(text: &str, negative: bool) -> Option<Literal> {
    let sign = if negative { "-" } else { "" };
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16),
        None => format!("{sign}{text}").parse(),
    };
    number.ok().map(Literal::Int)
}

fn unsigned(text: &str) -> Option<Literal> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.ok().map(Literal::Uint)
}

fn double(text: &str) -> Option<Literal> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).map(Literal::Double)
}
