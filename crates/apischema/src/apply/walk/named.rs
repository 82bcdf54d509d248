//! Sets in which a declared field is a member if a field below it is.

use crate::apply::element::Element;
use crate::apply::set::{FieldSet, Node};
use crate::apply::types::Type;

/// The set, plus all declared fields on the path to a member.
pub(in crate::apply) fn with_named_fields<'a>(ty: Option<Type<'_>>, set: &FieldSet<'a>) -> FieldSet<'a> {
    let node = ty.map(Type::node);
    let object = node.and_then(|node| node.object.as_ref());
    let list = node.and_then(|node| node.list.as_ref());
    let nodes = set.nodes.iter().map(|node| {
        let (declared, inner) = match (&node.element, object, list, ty) {
            (Element::Field(name), Some(object), _, Some(ty)) => {
                (object.field(name).is_some(), ty.inside(object, name))
            }
            (Element::Key(_), _, Some(list), Some(ty)) => (false, Some(ty.at(list.element))),
            _ => (false, None),
        };
        Node {
            element: node.element.clone(),
            member: node.member || (declared && !node.inner.nodes.is_empty()),
            inner: with_named_fields(inner, &node.inner),
        }
    });
    FieldSet { nodes: nodes.collect() }
}
