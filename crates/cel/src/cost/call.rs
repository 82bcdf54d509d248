//! The estimated worst-case cost of calls.

use super::range::Range;
use super::{CALL, Entries, Estimator, LIST, ONE, PATTERN, TRAVERSAL, append_step};
use crate::ast::{Expr, Kind, Literal};
use crate::types::{CIDR, FORMAT, IP, QUANTITY, SEMVER, Type, URL};

/// The maximum length of the name of a format.
const MAX_FORMAT: u64 = 64;

/// The cost of an overload of a function, and the size of its result.
struct Call {
    cost: Range,
    size: Option<Range>,
}

impl Call {
    fn new(cost: Range) -> Self {
        Self { cost, size: None }
    }

    fn with_size(cost: Range, size: Range) -> Self {
        Self { cost, size: Some(size) }
    }
}

impl<'e> Estimator<'e> {
    pub(super) fn call(
        &mut self,
        expr: &'e Expr,
        function: &str,
        target: Option<&'e Expr>,
        args: &'e [Expr],
    ) -> Range {
        if let ("dyn", [only]) = (function, args) {
            let cost = self.cost(only);
            self.copy_sizes(expr, only);
            return cost.add(ONE);
        }
        let costs: Vec<Range> = args.iter().map(|arg| self.cost(arg)).collect();
        let before = target.map_or(Range::exactly(0), |target| self.cost(target));
        let mut worst: Option<Range> = None;
        let mut size: Option<Range> = None;
        for id in self.checked.calls.get(expr.id).map_or(&[][..], Vec::as_slice) {
            let call = self.overload(expr, function, id, target, args, &costs);
            worst = Some(worst.map_or(call.cost, |worst| worst.union(call.cost)));
            if let Some(result) = call.size {
                size = Some(size.map_or(result, |size| size.union(result)));
            }
            if let Some(of) = args.first()
                && matches!(*id, "index_list" | "index_map")
            {
                size = self.entries_of(of).map(|entries| entries.value);
                let step = if *id == "index_list" { "@items" } else { "@values" };
                let path = append_step(self.path(of), step);
                self.set_path(expr, Some(path));
            }
            size = size.or_else(|| self.size(expr));
        }
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
        before.add(worst.unwrap_or(Range::exactly(0)))
    }

    /// The cost of one overload, with that of its arguments.
    fn overload(
        &mut self,
        expr: &Expr,
        function: &str,
        id: &str,
        target: Option<&Expr>,
        args: &[Expr],
        costs: &[Range],
    ) -> Call {
        let given = costs.iter().fold(Range::exactly(0), |sum, cost| sum.add(*cost));
        let library =
            self.list_call(id, target, args).or_else(|| self.library_call(function, id, target, args));
        if let Some(call) = library {
            return Call { cost: call.cost.add(given), size: call.size };
        }
        let size = |index: usize| args.get(index).map_or(Range::UNKNOWN, |arg| self.size_or_unknown(arg));
        let target_size = target.map_or(Range::UNKNOWN, |target| self.size_or_unknown(target));
        match id {
            "string_format" => Call::new(target_size.times(TRAVERSAL).add(given)),
            "string_to_bytes" => {
                let of = size(0);
                let size = Range { min: of.min, max: of.max.wrapping_mul(4) };
                Call::with_size(of.times(TRAVERSAL).add(given), size)
            }
            "bytes_to_string" => {
                let of = size(0);
                let size = Range { min: of.min / 4, max: of.max };
                Call::with_size(of.times(TRAVERSAL).add(given), size)
            }
            // Upstream does not expect an unbounded size, and takes 0 for it.
            "strings_quote" => {
                let of = size(0);
                let size = Range { min: of.min.wrapping_add(2), max: of.max.wrapping_mul(2).wrapping_add(2) };
                Call::with_size(of.times(TRAVERSAL).add(given), size)
            }
            "starts_with_string" | "ends_with_string" => Call::new(size(0).times(TRAVERSAL).add(given)),
            "in_list" => Call::new(size(1).times(1.0).add(given)),
            "matches_string" => Call::new(pattern(target_size, size(0)).add(given)),
            "contains_string" => {
                Call::new(target_size.times(TRAVERSAL).multiply(size(0).times(TRAVERSAL)).add(given))
            }
            "logical_or" | "logical_and" => {
                let [left, right] = costs else { return Call::new(given) };
                Call::new(Range { min: left.min, max: left.add(*right).max })
            }
            "conditional" => {
                let ([condition, yes, no], [_, then, otherwise]) = (costs, args) else {
                    return Call::new(given);
                };
                let sizes = size(1).union(size(2));
                let entries = Entries::union(self.entries_of(then), self.entries_of(otherwise));
                if let Some(entries) = entries {
                    self.entries.insert(expr.id, entries);
                }
                Call::with_size(condition.add(yes.union(*no)), sizes)
            }
            "add_string" | "add_bytes" | "add_list" => {
                let all = size(0).add(size(1));
                if let [left, right] = args
                    && let Some(entries) = Entries::union(self.entries_of(left), self.entries_of(right))
                {
                    self.entries.insert(expr.id, entries);
                }
                let cost = if id == "add_list" { ONE } else { all.times(TRAVERSAL) };
                Call::with_size(cost.add(given), all)
            }
            "less_string"
            | "less_bytes"
            | "less_equals_string"
            | "less_equals_bytes"
            | "greater_string"
            | "greater_bytes"
            | "greater_equals_string"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals" => {
                let most = size(0).max.min(size(1).max);
                let compared = Range { min: most.min(1), max: most };
                Call::new(compared.times(TRAVERSAL).add(given))
            }
            _ => Call::new(ONE.add(given)),
        }
    }

    /// The costs of the list and set libraries.
    fn list_call(&self, id: &str, target: Option<&Expr>, args: &[Expr]) -> Option<Call> {
        let size = |index: usize| args.get(index).map_or(Range::UNKNOWN, |arg| self.size_or_unknown(arg));
        let target_size = target.map_or(Range::UNKNOWN, |target| self.size_or_unknown(target));
        let new_list = |factor: f64, size: Range| {
            Call::with_size(size.times(factor).add(Range::exactly(CALL + LIST)), size)
        };
        let compared = |factor: f64| Call::new(size(0).multiply(size(1)).times(factor).add(ONE));
        Some(match id {
            "list_slice" => {
                let from = int_literal_or(args.first()?, 0);
                let to = int_literal_or(args.get(1)?, target_size.max);
                new_list(1.0, Range::exactly(to.wrapping_sub(from)))
            }
            "list_flatten" | "list_reverse" => new_list(1.0, target_size),
            "list_flatten_int" => new_list(factor(int_literal_or(args.first()?, u64::MAX)), target_size),
            "lists_range" => new_list(1.0, Range::exactly(int_literal_or(args.first()?, u64::MAX))),
            "list_distinct" | "list_sort" => new_list(2.0, target_size.multiply(target_size)),
            "list_sort_text" => new_list(2.0 + TRAVERSAL, target_size.multiply(target_size)),
            "list_sort_by" => new_list(2.0, size(0).multiply(size(0))),
            "list_sort_by_text" => new_list(2.0 + TRAVERSAL, size(0).multiply(size(0))),
            "list_sets_contains_list" | "list_sets_intersects_list" => compared(1.0),
            "list_sets_equivalent_list" => compared(2.0),
            _ => return None,
        })
    }

    /// The costs of the Kubernetes libraries.
    fn library_call(&self, function: &str, id: &str, target: Option<&Expr>, args: &[Expr]) -> Option<Call> {
        let size = |index: usize| args.get(index).map_or(Range::UNKNOWN, |arg| self.size_or_unknown(arg));
        let target_size = || target.map(|target| self.size_or_unknown(target));
        let addresses = Range { min: 4, max: 16 };
        Some(match function {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let target_size = target_size()?;
                match self.element_size(target?) {
                    Some((text, size)) => {
                        let each = if text { ONE.add(size.times(TRAVERSAL)) } else { ONE };
                        Call::new(target_size.multiply(each))
                    }
                    None => Call::new(target_size.times(TRAVERSAL)),
                }
            }
            "check" => Call::new(Range::exactly(super::AUTHORIZATION)),
            "url" if args.len() == 1 => Call::with_size(size(0).times(TRAVERSAL), size(0)),
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let target_size = target_size()?;
                Call::with_size(target_size.times(TRAVERSAL), target_size)
            }
            "replace" if args.len() >= 2 => {
                let target_size = target_size()?;
                Call::with_size(target_size.times(2.0 * TRAVERSAL), replaced(target_size, size(0), size(1)))
            }
            "split" => {
                let target_size = target_size()?;
                let most = match args.get(1).map(|arg| &arg.kind) {
                    Some(Kind::Literal(Literal::Int(limit))) => u64::try_from(*limit).unwrap_or(u64::MAX),
                    _ => target_size.max,
                };
                Call::with_size(target_size.times(2.0 * TRAVERSAL), Range { min: 0, max: most })
            }
            "join" => {
                let list = target_size()?;
                let elements = self.element_size(target?).map_or(Range::exactly(0), |(_, size)| size);
                let mut all = list.multiply(elements);
                if !args.is_empty() {
                    let gaps = Range { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
                    all = all.add(size(0).multiply(gaps));
                }
                Call::with_size(all.times(TRAVERSAL), all)
            }
            "find" | "findAll" => {
                let target_size = target_size()?;
                Call::with_size(pattern(target_size, size(0)), Range { min: 0, max: target_size.max })
            }
            "ip" if id == "cidr_ip" => Call::new(ONE),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                Call::new(size(0).times(TRAVERSAL))
            }
            "ip.isCanonical" => Call::new(size(0).times(2.0 * TRAVERSAL)),
            "containsIP" | "containsCIDR" => {
                let mut cost = addresses.add(addresses).times(TRAVERSAL);
                if function == "containsCIDR" {
                    cost = cost.add(addresses.times(TRAVERSAL)).add(ONE);
                }
                if matches!(id, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
                    cost = cost.add(size(0).times(TRAVERSAL));
                }
                Call::new(cost)
            }
            "validate" => Call::new(size(0).times(TRAVERSAL).times(128.0 * PATTERN)),
            "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery" => Call::new(ONE),
            "_==_" => match args.iter().map(|arg| self.ty(arg)).collect::<Vec<_>>().as_slice() {
                [Type::Opaque(a), Type::Opaque(b)] if a == b && [IP, CIDR, QUANTITY, SEMVER].contains(a) => {
                    Call::new(ONE)
                }
                [Type::Opaque(FORMAT), Type::Opaque(FORMAT)] => {
                    Call::new(Range { min: 1, max: MAX_FORMAT }.times(TRAVERSAL))
                }
                [Type::Opaque(URL), Type::Opaque(URL)] => {
                    let most = args.get(1).and_then(|arg| self.size(arg)).map_or(1, |size| size.max);
                    Call::new(Range { min: 1, max: most }.times(TRAVERSAL))
                }
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Whether the elements of a list are strings or bytes, and their size; `None` if the expression is not a list.
    fn element_size(&self, list: &Expr) -> Option<(bool, Range)> {
        let Type::List(of) = self.ty(list) else { return None };
        let text = matches!(**of, Type::Text | Type::Bytes);
        let path = self.path(list).map(|path| append_step(Some(path), "@items"));
        Some((text, path.and_then(|path| self.size_at(&path)).unwrap_or(Range::UNKNOWN)))
    }
}

/// The value of an integer literal; `otherwise` for other expressions.
fn int_literal_or(expr: &Expr, otherwise: u64) -> u64 {
    match &expr.kind {
        Kind::Literal(Literal::Int(number)) => u64::try_from(*number).unwrap_or(0),
        _ => otherwise,
    }
}

#[expect(clippy::cast_precision_loss, reason = "upstream computes with doubles")]
fn factor(number: u64) -> f64 {
    number as f64
}

fn pattern(text: Range, pattern: Range) -> Range {
    text.add(ONE).times(TRAVERSAL).multiply(pattern.times(PATTERN))
}

/// The length of a string after `replace`.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let mut count = Range::exactly(0);
    let mut kept = Range::exactly(0);
    if old.min == 0 {
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        count.max = text.max.div_ceil(old.min);
    }
    if old.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        count.min = text.min.div_ceil(old.max);
    }
    count.multiply(new).add(kept)
}
