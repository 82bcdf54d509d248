//! Macros: calls that expand to comprehensions, presence tests and bindings.

use crate::ast::{Expr, Fold, Kind, Literal, RESULT};
use crate::error::Issue;
use crate::parse::Nodes;

/// The name of the list that `sortBy` sorts.
const SORTED: &str = "@__sortBy_input__";
/// The internal function that sorts a list by associated keys.
pub(crate) const SORT_BY: &str = "@sortByAssociatedKeys";

/// The result of the expansion of a method call.
pub(crate) enum Method {
    /// A macro, expanded.
    Expanded(Expr),
    /// A call, with its target and its arguments.
    Plain(Expr, Vec<Expr>),
}

/// Expands `has(a.b)`, which tests whether a field is set.
pub(crate) fn has(nodes: &mut Nodes, at: usize, mut args: Vec<Expr>) -> Result<Expr, Issue> {
    if args.len() != 1 {
        // Not the macro; the checker reports that no function has this name.
        return Ok(nodes.call(at, "has", args));
    }
    match args.pop() {
        Some(Expr { kind: Kind::Select { operand, field, test: false }, .. }) => {
            Ok(nodes.make(at, Kind::Select { operand, field, test: true }))
        }
        other => {
            let at = other.map_or(at, |expr| expr.at);
            Err(Issue { at, message: "invalid argument to has() macro".to_owned() })
        }
    }
}

/// Expands a method call if the method is a macro.
pub(crate) fn method(
    nodes: &mut Nodes,
    at: usize,
    target: Expr,
    name: &str,
    args: Vec<Expr>,
) -> Result<Method, Issue> {
    let mut expander = Expander { nodes, at };
    let expanded = match (name, args.len()) {
        ("all" | "exists" | "exists_one" | "filter" | "map", 2) | ("map", 3) => {
            expander.one_variable(target, name, args)?
        }
        ("all" | "exists" | "exists_one" | "existsOne", 3) => expander.two_variables(target, name, args)?,
        ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => {
            expander.transform(target, name, args)?
        }
        ("sortBy", 2) => expander.sort_by(target, args)?,
        ("optMap" | "optFlatMap", 2) => expander.optional(target, name, args)?,
        _ => return Ok(Method::Plain(target, args)),
    };
    Ok(Method::Expanded(expanded))
}

struct Expander<'n> {
    nodes: &'n mut Nodes,
    at: usize,
}

/// The names of the accumulator, in current and older versions of cel-go.
const ACCUMULATORS: [&str; 2] = [RESULT, "__result__"];

/// The name of an iteration variable, or an issue if the argument is not an identifier.
fn name_of(expr: &Expr, otherwise: &str) -> Result<String, Issue> {
    let message = match &expr.kind {
        Kind::Ident(name) if !ACCUMULATORS.contains(&name.as_str()) => return Ok(name.clone()),
        Kind::Ident(_) => "iteration variable overwrites accumulator variable",
        _ => otherwise,
    };
    Err(Issue { at: expr.at, message: message.to_owned() })
}

const NOT_A_NAME: &str = "argument must be a simple name";

fn two_names(first: &Expr, second: &Expr) -> Result<(String, String), Issue> {
    if let (Kind::Ident(one), Kind::Ident(other)) = (&first.kind, &second.kind)
        && one == other
    {
        return Err(Issue { at: second.at, message: format!("duplicate variable name: {one}") });
    }
    Ok((name_of(first, NOT_A_NAME)?, name_of(second, NOT_A_NAME)?))
}

fn wrong_arguments(at: usize) -> Issue {
    Issue { at, message: "unexpected number of arguments".to_owned() }
}

impl Expander<'_> {
    fn literal(&mut self, literal: Literal) -> Expr {
        self.nodes.make(self.at, Kind::Literal(literal))
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.nodes.make(self.at, Kind::Ident(name.to_owned()))
    }

    fn result(&mut self) -> Expr {
        self.ident(RESULT)
    }

    fn call<const N: usize>(&mut self, function: &str, args: [Expr; N]) -> Expr {
        self.nodes.call(self.at, function, args.into())
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        self.nodes.make(self.at, Kind::List { elements, optional: Vec::new() })
    }

    fn fold(
        &mut self,
        range: Expr,
        variable: String,
        second: Option<String>,
        (init, condition, step, result): (Expr, Expr, Expr, Expr),
    ) -> Expr {
        let result_name = RESULT.to_owned();
        let fold = Fold { range, variable, second, result_name, init, condition, step, result };
        self.nodes.make(self.at, Kind::Fold(Box::new(fold)))
    }

    /// The initial value, condition, step and result of `all`, `exists` and `exists_one`.
    fn quantifier(&mut self, name: &str, predicate: Expr) -> (Expr, Expr, Expr, Expr) {
        match name {
            "all" => {
                let init = self.literal(Literal::Bool(true));
                let so_far = self.result();
                let condition = self.call("@not_strictly_false", [so_far]);
                let so_far = self.result();
                (init, condition, self.call("_&&_", [so_far, predicate]), self.result())
            }
            "exists" => {
                let init = self.literal(Literal::Bool(false));
                let so_far = self.result();
                let not = self.call("!_", [so_far]);
                let condition = self.call("@not_strictly_false", [not]);
                let so_far = self.result();
                (init, condition, self.call("_||_", [so_far, predicate]), self.result())
            }
            _ => {
                let init = self.literal(Literal::Int(0));
                let condition = self.literal(Literal::Bool(true));
                let so_far = self.result();
                let one = self.literal(Literal::Int(1));
                let more = self.call("_+_", [so_far, one]);
                let same = self.result();
                let step = self.call("_?_:_", [predicate, more, same]);
                let all = self.result();
                let one = self.literal(Literal::Int(1));
                (init, condition, step, self.call("_==_", [all, one]))
            }
        }
    }

    /// The initial value, condition, step and result of a loop that builds a list.
    fn build_list(&mut self, element: Expr, filter: Option<Expr>) -> (Expr, Expr, Expr, Expr) {
        let init = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(true));
        let so_far = self.result();
        let added = self.list(vec![element]);
        let step = self.call("_+_", [so_far, added]);
        (init, condition, self.filtered(step, filter), self.result())
    }

    fn filtered(&mut self, step: Expr, filter: Option<Expr>) -> Expr {
        match filter {
            None => step,
            Some(filter) => {
                let same = self.result();
                self.call("_?_:_", [filter, step, same])
            }
        }
    }

    fn one_variable(&mut self, target: Expr, name: &str, args: Vec<Expr>) -> Result<Expr, Issue> {
        let at = self.at;
        let mut args = args.into_iter();
        let mut next = || args.next().ok_or_else(|| wrong_arguments(at));
        let variable = next()?;
        let otherwise =
            if matches!(name, "map" | "filter") { "argument is not an identifier" } else { NOT_A_NAME };
        let name_of_variable = name_of(&variable, otherwise)?;
        let first = next()?;
        let last = next().ok();
        let parts = match (name, last) {
            ("filter", None) => self.build_list(variable, Some(first)),
            ("map", None) => self.build_list(first, None),
            ("map", Some(element)) => self.build_list(element, Some(first)),
            _ => self.quantifier(name, first),
        };
        Ok(self.fold(target, name_of_variable, None, parts))
    }

    fn two_variables(&mut self, target: Expr, name: &str, args: Vec<Expr>) -> Result<Expr, Issue> {
        let [first, second, predicate] = <[Expr; 3]>::try_from(args).map_err(|_| wrong_arguments(self.at))?;
        let names = two_names(&first, &second)?;
        let parts = self.quantifier(name, predicate);
        Ok(self.fold(target, names.0, Some(names.1), parts))
    }

    fn transform(&mut self, target: Expr, name: &str, args: Vec<Expr>) -> Result<Expr, Issue> {
        let at = self.at;
        let mut args = args.into_iter();
        let mut next = || args.next().ok_or_else(|| wrong_arguments(at));
        let first = next()?;
        let second = next()?;
        let names = two_names(&first, &second)?;
        let third = next()?;
        let fourth = next().ok();
        let (filter, element) = match fourth {
            Some(element) => (Some(third), element),
            None => (None, third),
        };
        let parts = if name == "transformList" {
            self.build_list(element, filter)
        } else {
            let init = self.nodes.make(at, Kind::Map(Vec::new()));
            let condition = self.literal(Literal::Bool(true));
            let so_far = self.result();
            let step = if name == "transformMap" {
                let key = self.ident(&names.0);
                self.call("cel.@mapInsert", [so_far, key, element])
            } else {
                self.call("cel.@mapInsert", [so_far, element])
            };
            (init, condition, self.filtered(step, filter), self.result())
        };
        Ok(self.fold(target, names.0, Some(names.1), parts))
    }

    /// Binds a value to a name in an expression.
    fn bind(&mut self, name: String, value: Expr, body: Expr) -> Expr {
        let bind = Fold {
            range: self.list(Vec::new()),
            variable: "#unused".to_owned(),
            second: None,
            init: value,
            condition: self.literal(Literal::Bool(false)),
            step: self.ident(&name),
            result_name: name,
            result: body,
        };
        self.nodes.make(self.at, Kind::Fold(Box::new(bind)))
    }

    /// Expands `sortBy`: sorts a list by keys that an expression computes from its elements.
    fn sort_by(&mut self, target: Expr, args: Vec<Expr>) -> Result<Expr, Issue> {
        if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Message { .. }) {
            let message =
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err(Issue { at: target.at, message: message.to_owned() });
        }
        let list = self.ident(SORTED);
        let keys = self.one_variable(list, "map", args)?;
        let list = Some(Box::new(self.ident(SORTED)));
        let function = SORT_BY.to_owned();
        let sorted = self.nodes.make(self.at, Kind::Call { function, target: list, args: vec![keys] });
        Ok(self.bind(SORTED.to_owned(), target, sorted))
    }

    fn optional(&mut self, target: Expr, name: &str, args: Vec<Expr>) -> Result<Expr, Issue> {
        let [variable, body] = <[Expr; 2]>::try_from(args).map_err(|_| wrong_arguments(self.at))?;
        let variable = name_of(&variable, &format!("{name}() variable name must be a simple identifier"))?;
        let method = |expander: &mut Self, target: Expr, function: &str| {
            let target = Some(Box::new(target));
            expander
                .nodes
                .make(expander.at, Kind::Call { function: function.to_owned(), target, args: Vec::new() })
        };
        let given = method(self, target.clone(), "hasValue");
        let value = method(self, target, "value");
        let bound = self.bind(variable, value, body);
        let some = if name == "optMap" { self.call("optional.of", [bound]) } else { bound };
        let none = self.call("optional.none", []);
        Ok(self.call("_?_:_", [given, some, none]))
    }
}
