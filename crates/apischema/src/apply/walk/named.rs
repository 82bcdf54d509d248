//! Field sets that include the declared fields on the path to each member.

use crate::apply::element::Element;
use crate::apply::set::{FieldSet, Node};
use crate::apply::types::Type;

/// Adds all declared fields on the path to a member (`EnsureNamedFieldsAreMembers` upstream).
pub(in crate::apply) fn with_named_fields<'a>(ty: Option<Type<'_>>, set: &FieldSet<'a>) -> FieldSet<'a> {
    let node = ty.map(Type::node);
    let object = node.and_then(|node| node.object.as_ref());
    let list = node.and_then(|node| node.list.as_ref());
    let nodes = set.nodes.iter().map(|node| {
        let (declared, inner) = match (&node.element, object, list, ty) {
            (Element::Field(name), Some(object), _, Some(ty)) => {
                (object.field(name).is_some(), ty.field_type(object, name))
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
