//! Expressions as trees.

/// A node. Its number leads to what the checker found out about it.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) id: usize,
    /// Where it stands in the text, in characters.
    pub(crate) at: usize,
    /// How deep its branches reach.
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
        /// Whether it only asks if the field is there.
        test: bool,
    },
    Call {
        function: String,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    List {
        elements: Vec<Expr>,
        /// The places of elements that may be absent.
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

/// A field of an object that an expression makes.
#[derive(Clone, Debug)]
pub(crate) struct MessageField {
    pub(crate) at: usize,
    pub(crate) name: String,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A loop over a list or a map, which macros are made of.
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

/// The name that loops gather their result under; no text can name it.
pub(crate) const RESULT: &str = "@result";

impl Fold {
    /// Whether it only gives a value a name.
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
    /// The dotted name that an expression spells, if it does nothing else.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select { operand, field, test: false } => {
                Some(format!("{}.{field}", operand.qualified_name()?))
            }
            _ => None,
        }
    }

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

    /// Whether it speaks of a variable.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.all().any(|expr| matches!(&expr.kind, Kind::Ident(own) if own == name))
    }

    /// The fields of a variable that it reads.
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

    /// Whether it is the name of a variable and nothing else.
    fn is_ident(&self, name: &str) -> bool {
        matches!(&self.kind, Kind::Ident(own) if own == name)
    }

    /// It and everything below it.
    fn all(&self) -> impl Iterator<Item = &Self> {
        let mut waiting = vec![self];
        std::iter::from_fn(move || {
            let expr = waiting.pop()?;
            expr.children(|child| waiting.push(child));
            Some(expr)
        })
    }
}
