//! Sets of field paths.

use std::cmp::Ordering;

use super::element::{Element, Path};

/// A set of field paths, as a trie of path elements.
///
/// A field and its children are separate members: `.spec.replicas` may be in the set while `.spec` is not. Sets borrow names
/// from the objects that they were collected from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet<'a> {
    /// The nodes in the order of their path elements. Each is a member or has descendants that are members.
    pub(super) nodes: Vec<Node<'a>>,
}

/// A path element, whether it is a member, and its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node<'a> {
    pub(super) element: Element<'a>,
    pub(super) member: bool,
    pub(super) inner: FieldSet<'a>,
}

impl Node<'_> {
    fn is_empty(&self) -> bool {
        !self.member && self.inner.is_empty()
    }
}

impl<'a> FieldSet<'a> {
    /// Creates a set from paths of field names.
    pub fn from_names(paths: &[&[&'a str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Path<'a> = path.iter().map(|name| Element::Field((*name).into())).collect();
            set.insert(&path);
        }
        set
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.nodes.iter().all(Node::is_empty)
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.inner.len()).sum()
    }

    /// Whether a path is a member.
    pub fn has(&self, path: &[Element<'_>]) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let mut set = self;
        for element in parents {
            let Some(children) = set.children(element) else { return false };
            set = children;
        }
        set.contains(last)
    }

    /// Whether a path element is a member.
    pub(super) fn contains(&self, element: &Element<'_>) -> bool {
        self.find(element).is_ok_and(|index| self.nodes[index].member)
    }

    /// The children of a path element, if it has any.
    pub(super) fn children(&self, element: &Element<'_>) -> Option<&Self> {
        let index = self.find(element).ok()?;
        Some(&self.nodes[index].inner).filter(|inner| !inner.nodes.is_empty())
    }

    fn find(&self, element: &Element<'_>) -> Result<usize, usize> {
        // Most sets are built in order, so the end is tried before the binary search.
        match self.nodes.last().map(|last| last.element.cmp(element)) {
            None => Err(0),
            Some(Ordering::Less) => Err(self.nodes.len()),
            Some(Ordering::Equal) => Ok(self.nodes.len() - 1),
            Some(Ordering::Greater) => self.nodes.binary_search_by(|node| node.element.cmp(element)),
        }
    }

    pub(super) fn node(&mut self, element: &Element<'a>) -> &mut Node<'a> {
        let index = match self.find(element) {
            Ok(index) => index,
            Err(index) => {
                let node = Node { element: element.clone(), member: false, inner: Self::default() };
                self.nodes.insert(index, node);
                index
            }
        };
        &mut self.nodes[index]
    }

    /// Adds a path.
    pub fn insert(&mut self, path: &[Element<'a>]) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut set = self;
        for element in parents {
            set = &mut set.node(element).inner;
        }
        set.node(last).member = true;
    }

    /// Adds all members of another set.
    pub fn add(&mut self, other: &FieldSet<'a>) {
        if self.nodes.is_empty() {
            self.nodes.clone_from(&other.nodes);
            return;
        }
        for node in &other.nodes {
            let own = self.node(&node.element);
            own.member |= node.member;
            own.inner.add(&node.inner);
        }
    }

    /// Removes the members of another set.
    pub fn subtract(&mut self, other: &FieldSet<'_>) {
        if other.nodes.is_empty() {
            return;
        }
        self.nodes.retain_mut(|node| {
            if let Ok(index) = other.find(&node.element) {
                let other = &other.nodes[index];
                node.member &= !other.member;
                node.inner.subtract(&other.inner);
            }
            !node.is_empty()
        });
    }

    /// Removes the members of another set with all their descendants.
    pub fn subtract_recursively(&mut self, other: &FieldSet<'_>) {
        self.nodes.retain_mut(|node| {
            if let Ok(index) = other.find(&node.element) {
                let other = &other.nodes[index];
                if other.member {
                    return false;
                }
                node.inner.subtract_recursively(&other.inner);
            }
            !node.is_empty()
        });
    }

    /// The paths that are members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet<'_>) -> Self {
        let mut nodes = Vec::new();
        let mut others = other.nodes.iter().peekable();
        for node in &self.nodes {
            while others.next_if(|other| other.element < node.element).is_some() {}
            let Some(other) = others.next_if(|other| other.element == node.element) else { continue };
            let found = Node {
                element: node.element.clone(),
                member: node.member && other.member,
                inner: node.inner.intersection(&other.inner),
            };
            if !found.is_empty() {
                nodes.push(found);
            }
        }
        Self { nodes }
    }

    /// The members that match a pattern of path elements, with all descendants; `None` matches any element.
    #[must_use]
    pub fn matching(&self, patterns: &[&[Option<&str>]]) -> Self {
        if patterns.iter().any(|pattern| pattern.is_empty()) {
            return self.clone();
        }
        let mut nodes = Vec::new();
        for node in &self.nodes {
            // All patterns with this prefix apply.
            let rest: Vec<&[Option<&str>]> = (patterns.iter())
                .filter_map(|pattern| match (pattern.split_first(), &node.element) {
                    (Some((None, rest)), _) => Some(rest),
                    (Some((Some(wanted), rest)), Element::Field(name)) if wanted == name => Some(rest),
                    _ => None,
                })
                .collect();
            if rest.is_empty() {
                continue;
            }
            let found = Node {
                element: node.element.clone(),
                member: node.member,
                inner: node.inner.matching(&rest),
            };
            if !found.is_empty() {
                nodes.push(found);
            }
        }
        Self { nodes }
    }

    /// The paths of all members: at each level first the members, then the descendants of each.
    pub fn paths(&self) -> Vec<Vec<Element<'a>>> {
        let mut all = Vec::new();
        self.collect(&mut Vec::new(), &mut all);
        all
    }

    fn collect(&self, prefix: &mut Path<'a>, all: &mut Vec<Path<'a>>) {
        for node in self.nodes.iter().filter(|node| node.member) {
            let mut path = prefix.clone();
            path.push(node.element.clone());
            all.push(path);
        }
        for node in &self.nodes {
            prefix.push(node.element.clone());
            node.inner.collect(prefix, all);
            prefix.pop();
        }
    }

    /// Converts the set to one that owns its data.
    pub fn into_owned(self) -> FieldSet<'static> {
        let nodes = self.nodes.into_iter().map(|node| Node {
            element: node.element.into_owned(),
            member: node.member,
            inner: node.inner.into_owned(),
        });
        FieldSet { nodes: nodes.collect() }
    }
}
