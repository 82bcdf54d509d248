//! The syntax tree of an expression.

/// A node. The results of the type checker are indexed by its id.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) id: usize,
    /// The position in the text, in characters.
    pub(crate) at: usize,
    /// The depth of the subtree.
    pub(crate) depth: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        /// Whether this is the test of `has()`, which does not read the field.
        test: bool,
    },
    Call {
        function: String,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    List {
        elements: Vec<Expr>,
        /// The indexes of optional elements (`[?a]`).
        optional: Vec<usize>,
    },
    Map(Vec<Entry>),
    /// An object of a named type.
    Message {
        name: String,
        fields: Vec<MessageField>,
    },
    Fold(Box<Fold>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A field of a message literal.
#[derive(Clone, Debug)]
pub(crate) struct MessageField {
    pub(crate) at: usize,
    pub(crate) name: String,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A comprehension: a loop over a list or a map, to which macros expand.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) range: Expr,
    pub(crate) variable: String,
    pub(crate) second: Option<String>,
    pub(crate) result_name: String,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

/// The name of the accumulator of a comprehension; no identifier can be equal to it.
pub(crate) const RESULT: &str = "@result";

impl Fold {
    /// Whether the comprehension only binds a value to a name.
    pub(crate) fn is_bind(&self) -> bool {
        matches!(&self.range.kind, Kind::List { elements, .. } if elements.is_empty())
            && matches!(self.condition.kind, Kind::Literal(Literal::Bool(false)))
            && self.result_name != RESULT
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Expr {
    /// The dotted name, such as `a.b`, if the expression is nothing else.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select { operand, field, test: false } => {
                Some(format!("{}.{field}", operand.qualified_name()?))
            }
            _ => None,
        }
    }

    /// Visits the direct children.
    pub(crate) fn children<'a>(&'a self, mut visit: impl FnMut(&'a Self)) {
        match &self.kind {
            Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select { operand, .. } => visit(operand),
            Kind::Call { target, args, .. } => {
                if let Some(target) = target {
                    visit(target);
                }
                args.iter().for_each(visit);
            }
            Kind::List { elements, .. } => elements.iter().for_each(visit),
            Kind::Map(entries) => {
                for entry in entries {
                    visit(&entry.key);
                    visit(&entry.value);
                }
            }
            Kind::Message { fields, .. } => fields.iter().for_each(|field| visit(&field.value)),
            Kind::Fold(fold) => {
                [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
                    .into_iter()
                    .for_each(visit);
            }
        }
    }

    /// Whether the expression uses a variable.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.all().any(|expr| matches!(&expr.kind, Kind::Ident(ident) if ident == name))
    }

    /// The fields of a variable that the expression reads.
    pub(crate) fn fields_of<'a>(&'a self, variable: &str) -> impl Iterator<Item = &'a str> {
        self.all().filter_map(move |expr| match &expr.kind {
            Kind::Select { operand, field, .. } => operand.is_ident(variable).then_some(field.as_str()),
            Kind::Call { function, args, .. } if function == "_?._" => match args.as_slice() {
                [operand, Self { kind: Kind::Literal(Literal::Text(field)), .. }] => {
                    operand.is_ident(variable).then_some(field.as_str())
                }
                _ => None,
            },
            _ => None,
        })
    }

    /// Whether the expression is only the name of a variable.
    fn is_ident(&self, name: &str) -> bool {
        matches!(&self.kind, Kind::Ident(ident) if ident == name)
    }

    /// The expression and all its descendants.
    fn all(&self) -> impl Iterator<Item = &Self> {
        let mut pending = vec![self];
        std::iter::from_fn(move || {
            let expr = pending.pop()?;
            expr.children(|child| pending.push(child));
            Some(expr)
        })
    }
}
