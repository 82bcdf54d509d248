//! Reconciliation of field sets with types that became atomic.

use super::Form;
use crate::apply::element::{Element, Path};
use crate::apply::set::FieldSet;
use crate::apply::types::{Identity, Type};

/// Reconciles a set with the current types: members inside a value that is now atomic are replaced by the value itself
/// (`ReconcileFieldSetWithSchema`). `None` if nothing changes.
pub(in crate::apply) fn reconcile<'a>(ty: Type<'_>, set: &FieldSet<'a>) -> Option<FieldSet<'a>> {
    let mut walk = Walk { path: Vec::new(), whole: FieldSet::default() };
    walk.set(ty, set, false);
    if walk.whole.is_empty() {
        return None;
    }
    let mut out = set.clone();
    out.subtract_recursively(&walk.whole);
    out.add(&walk.whole);
    Some(out)
}

struct Walk<'a> {
    path: Path<'a>,
    whole: FieldSet<'a>,
}

impl<'a> Walk<'a> {
    fn set(&mut self, ty: Type<'_>, set: &FieldSet<'a>, atomic: bool) {
        match Form::for_value(ty.node(), None) {
            Some(Form::Object(object)) if object.is_deduced() => {}
            Some(Form::Object(object)) if object.atomic => {
                if !atomic && !set.nodes.is_empty() {
                    self.whole.insert(&self.path);
                }
            }
            Some(Form::List(list)) if list.identity == Identity::Atomic => {
                if !atomic {
                    self.whole.insert(&self.path);
                }
            }
            Some(Form::Object(object)) => {
                for node in &set.nodes {
                    let inner = match &node.element {
                        Element::Field(name) => ty.field_type(object, name),
                        _ => object.others.map(|others| ty.at(others)),
                    };
                    if let Some(inner) = inner {
                        self.descend(inner, node);
                    }
                }
            }
            Some(Form::List(list)) => {
                for node in &set.nodes {
                    self.descend(ty.at(list.element), node);
                }
            }
            Some(Form::Scalar(_)) | None => {}
        }
    }

    fn descend(&mut self, ty: Type<'_>, node: &crate::apply::set::Node<'a>) {
        // Most members are scalars, which have no fields.
        if node.inner.nodes.is_empty() && node.member {
            return;
        }
        self.path.push(node.element.clone());
        self.set(ty, &node.inner, node.member && node.inner.nodes.is_empty());
        self.path.pop();
    }
}
