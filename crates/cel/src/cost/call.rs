//! What calls cost at worst.

use super::range::Range;
use super::{CALL, Entries, Estimator, LIST, ONE, PATTERN, TRAVERSAL, below};
use crate::ast::{Expr, Kind, Literal};
use crate::types::{CIDR, FORMAT, IP, QUANTITY, SEMVER, Type, URL};

/// How long the name of a form can be.
const MAX_FORMAT: u64 = 64;

/// What one way to call a function costs, and how large its answer is.
struct Call {
    cost: Range,
    size: Option<Range>,
}

impl Call {
    fn of(cost: Range) -> Self {
        Self { cost, size: None }
    }

    fn sized(cost: Range, size: Range) -> Self {
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
            let call = self.one(expr, function, id, target, args, &costs);
            worst = Some(worst.map_or(call.cost, |worst| worst.union(call.cost)));
            if let Some(own) = call.size {
                size = Some(size.map_or(own, |size| size.union(own)));
            }
            if let (Some(of), true) = (args.first(), matches!(*id, "index_list" | "index_map")) {
                size = self.entries_of(of).map(|entries| entries.value);
                let step = if *id == "index_list" { "@items" } else { "@values" };
                let path = below(self.path(of), step);
                self.set_path(expr, Some(path));
            }
            size = size.or_else(|| self.size(expr));
        }
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
        before.add(worst.unwrap_or(Range::exactly(0)))
    }

    fn one(
        &mut self,
        expr: &Expr,
        function: &str,
        id: &str,
        target: Option<&Expr>,
        args: &[Expr],
        costs: &[Range],
    ) -> Call {
        let given = costs.iter().fold(Range::exactly(0), |sum, cost| sum.add(*cost));
        let library = self.lists(id, target, args).or_else(|| self.library(function, id, target, args));
        if let Some(call) = library {
            return Call { cost: call.cost.add(given), size: call.size };
        }
        let size = |place: usize| args.get(place).map_or(Range::UNKNOWN, |arg| self.size_or_unknown(arg));
        let own = target.map_or(Range::UNKNOWN, |target| self.size_or_unknown(target));
        match id {
            "string_format" => Call::of(own.times(TRAVERSAL).add(given)),
            "string_to_bytes" => {
                let of = size(0);
                let size = Range { min: of.min, max: of.max.wrapping_mul(4) };
                Call::sized(of.times(TRAVERSAL).add(given), size)
            }
            "bytes_to_string" => {
                let of = size(0);
                let size = Range { min: of.min / 4, max: of.max };
                Call::sized(of.times(TRAVERSAL).add(given), size)
            }
            // Upstream does not expect a size without a bound, and has 0 for it.
            "strings_quote" => {
                let of = size(0);
                let size = Range { min: of.min.wrapping_add(2), max: of.max.wrapping_mul(2).wrapping_add(2) };
                Call::sized(of.times(TRAVERSAL).add(given), size)
            }
            "starts_with_string" | "ends_with_string" => Call::of(size(0).times(TRAVERSAL).add(given)),
            "in_list" => Call::of(size(1).times(1.0).add(given)),
            "matches_string" => Call::of(pattern(own, size(0)).add(given)),
            "contains_string" => Call::of(own.times(TRAVERSAL).multiply(size(0).times(TRAVERSAL)).add(given)),
            "logical_or" | "logical_and" => {
                let [left, right] = costs else { return Call::of(given) };
                Call::of(Range { min: left.min, max: left.add(*right).max })
            }
            "conditional" => {
                let ([condition, yes, no], [_, then, otherwise]) = (costs, args) else {
                    return Call::of(given);
                };
                let sizes = size(1).union(size(2));
                let entries = Entries::union(self.entries_of(then), self.entries_of(otherwise));
                if let Some(entries) = entries {
                    self.entries.insert(expr.id, entries);
                }
                Call::sized(condition.add(yes.union(*no)), sizes)
            }
            "add_string" | "add_bytes" | "add_list" => {
                let all = size(0).add(size(1));
                if let [left, right] = args
                    && let Some(entries) = Entries::union(self.entries_of(left), self.entries_of(right))
                {
                    self.entries.insert(expr.id, entries);
                }
                let cost = if id == "add_list" { ONE } else { all.times(TRAVERSAL) };
                Call::sized(cost.add(given), all)
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
                Call::of(compared.times(TRAVERSAL).add(given))
            }
            _ => Call::of(ONE.add(given)),
        }
    }

    /// The prices of the libraries of lists and sets.
    fn lists(&self, id: &str, target: Option<&Expr>, args: &[Expr]) -> Option<Call> {
        let size = |place: usize| args.get(place).map_or(Range::UNKNOWN, |arg| self.size_or_unknown(arg));
        let own = target.map_or(Range::UNKNOWN, |target| self.size_or_unknown(target));
        let made =
            |factor: f64, size: Range| Call::sized(size.times(factor).add(Range::exactly(CALL + LIST)), size);
        let compared = |factor: f64| Call::of(size(0).multiply(size(1)).times(factor).add(ONE));
        Some(match id {
            "list_slice" => {
                let (from, to) = (whole(args.first()?, 0), whole(args.get(1)?, own.max));
                made(1.0, Range::exactly(to.wrapping_sub(from)))
            }
            "list_flatten" | "list_reverse" => made(1.0, own),
            "list_flatten_int" => made(factor(whole(args.first()?, u64::MAX)), own),
            "lists_range" => made(1.0, Range::exactly(whole(args.first()?, u64::MAX))),
            "list_distinct" | "list_sort" => made(2.0, own.multiply(own)),
            "list_sort_text" => made(2.0 + TRAVERSAL, own.multiply(own)),
            "list_sort_by" => made(2.0, size(0).multiply(size(0))),
            "list_sort_by_text" => made(2.0 + TRAVERSAL, size(0).multiply(size(0))),
            "list_sets_contains_list" | "list_sets_intersects_list" => compared(1.0),
            "list_sets_equivalent_list" => compared(2.0),
            _ => return None,
        })
    }

    /// The prices of the Kubernetes libraries.
    fn library(&self, function: &str, id: &str, target: Option<&Expr>, args: &[Expr]) -> Option<Call> {
        let size = |place: usize| args.get(place).map_or(Range::UNKNOWN, |arg| self.size_or_unknown(arg));
        let own = || target.map(|target| self.size_or_unknown(target));
        let addresses = Range { min: 4, max: 16 };
        Some(match function {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let own = own()?;
                match self.element_size(target?) {
                    Some((text, size)) => {
                        let each = if text { ONE.add(size.times(TRAVERSAL)) } else { ONE };
                        Call::of(own.multiply(each))
                    }
                    None => Call::of(own.times(TRAVERSAL)),
                }
            }
            "check" => Call::of(Range::exactly(super::AUTHORIZATION)),
            "url" if args.len() == 1 => Call::sized(size(0).times(TRAVERSAL), size(0)),
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let own = own()?;
                Call::sized(own.times(TRAVERSAL), own)
            }
            "replace" if args.len() >= 2 => {
                let own = own()?;
                Call::sized(own.times(2.0 * TRAVERSAL), replaced(own, size(0), size(1)))
            }
            "split" => {
                let own = own()?;
                let most = match args.get(1).map(|arg| &arg.kind) {
                    Some(Kind::Literal(Literal::Int(limit))) => u64::try_from(*limit).unwrap_or(u64::MAX),
                    _ => own.max,
                };
                Call::sized(own.times(2.0 * TRAVERSAL), Range { min: 0, max: most })
            }
            "join" => {
                let list = own()?;
                let elements = self.element_size(target?).map_or(Range::exactly(0), |(_, size)| size);
                let mut all = list.multiply(elements);
                if !args.is_empty() {
                    let gaps = Range { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
                    all = all.add(size(0).multiply(gaps));
                }
                Call::sized(all.times(TRAVERSAL), all)
            }
            "find" | "findAll" => {
                let own = own()?;
                Call::sized(pattern(own, size(0)), Range { min: 0, max: own.max })
            }
            "ip" if id == "cidr_ip" => Call::of(ONE),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                Call::of(size(0).times(TRAVERSAL))
            }
            "ip.isCanonical" => Call::of(size(0).times(2.0 * TRAVERSAL)),
            "containsIP" | "containsCIDR" => {
                let mut cost = addresses.add(addresses).times(TRAVERSAL);
                if function == "containsCIDR" {
                    cost = cost.add(addresses.times(TRAVERSAL)).add(ONE);
                }
                if matches!(id, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
                    cost = cost.add(size(0).times(TRAVERSAL));
                }
                Call::of(cost)
            }
            "validate" => Call::of(size(0).times(TRAVERSAL).times(128.0 * PATTERN)),
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
            | "getQuery" => Call::of(ONE),
            "_==_" => match args.iter().map(|arg| self.ty(arg)).collect::<Vec<_>>().as_slice() {
                [Type::Opaque(a), Type::Opaque(b)] if a == b && [IP, CIDR, QUANTITY, SEMVER].contains(a) => {
                    Call::of(ONE)
                }
                [Type::Opaque(FORMAT), Type::Opaque(FORMAT)] => {
                    Call::of(Range { min: 1, max: MAX_FORMAT }.times(TRAVERSAL))
                }
                [Type::Opaque(URL), Type::Opaque(URL)] => {
                    let most = args.get(1).and_then(|arg| self.size(arg)).map_or(1, |size| size.max);
                    Call::of(Range { min: 1, max: most }.times(TRAVERSAL))
                }
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Whether the elements of a list are texts, and how large they are; nothing if it is no list.
    fn element_size(&self, list: &Expr) -> Option<(bool, Range)> {
        let Type::List(of) = self.ty(list) else { return None };
        let text = matches!(**of, Type::Text | Type::Bytes);
        let path = self.path(list).map(|path| below(Some(path), "@items"));
        Some((text, path.and_then(|path| self.size_at(&path)).unwrap_or(Range::UNKNOWN)))
    }
}

/// The number that stands in the text of an expression, or another one if none does.
fn whole(expr: &Expr, otherwise: u64) -> u64 {
    match &expr.kind {
        Kind::Literal(Literal::Int(number)) => u64::try_from(*number).unwrap_or(0),
        _ => otherwise,
    }
}

#[expect(clippy::cast_precision_loss, reason = "as upstream reckons")]
fn factor(number: u64) -> f64 {
    number as f64
}

fn pattern(text: Range, pattern: Range) -> Range {
    text.add(ONE).times(TRAVERSAL).multiply(pattern.times(PATTERN))
}

/// How long a text is once parts of it have been replaced.
fn replaced(own: Range, old: Range, new: Range) -> Range {
    let (mut count, mut kept) = (Range::exactly(0), Range::exactly(0));
    if old.min == 0 {
        count.max = own.max.saturating_add(1);
        kept.max = own.max;
    } else if new.max <= old.min {
        kept.max = own.max;
    } else {
        count.max = own.max.div_ceil(old.min);
    }
    if old.max == 0 {
        count.min = own.min.saturating_add(1);
        kept.min = own.min;
    } else if old.max <= new.min {
        kept.min = own.min;
    } else {
        count.min = own.min.div_ceil(old.max);
    }
    count.multiply(new).add(kept)
}
