//! The variables that expressions can read, with their types.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use plumb_cel::{AUTHORIZER, Decl, DeclKind, Env, Field, RESOURCE_CHECK, Type};

/// The variables that not every expression can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// `params`: the policy has a `paramKind`.
    pub params: bool,
    /// `authorizer` and `authorizer.requestResource`.
    pub authorizer: bool,
}

/// The environment of an expression.
pub fn environment(reads: Reads) -> Env {
    static BASE: LazyLock<Env> = LazyLock::new(|| {
        let dynamic = Decl::dynamic();
        Env::kubernetes()
            .with("object", dynamic.clone())
            .with("oldObject", dynamic)
            .with("request", request_type())
            .with("namespaceObject", namespace_type())
    });
    let mut env = BASE.clone();
    if reads.params {
        env = env.with("params", Decl::dynamic());
    }
    if reads.authorizer {
        env = env
            .with_type("authorizer", Type::Opaque(AUTHORIZER))
            .with_type("authorizer.requestResource", Type::Opaque(RESOURCE_CHECK));
    }
    env
}

fn object(name: &str, fields: &[(&str, &Arc<Decl>)]) -> Arc<Decl> {
    // Upstream declares these names as they are, even those that are words of the language.
    let field = |(name, decl): &(&str, &Arc<Decl>)| {
        ((*name).to_owned(), Field { json: (*name).to_owned(), decl: (*decl).clone() })
    };
    let fields: BTreeMap<String, Field> = fields.iter().map(field).collect();
    Decl::simple(DeclKind::Object { name: name.to_owned(), fields }, u64::MAX, 1)
}

/// A declaration without bounds.
pub fn simple(kind: DeclKind) -> Arc<Decl> {
    Decl::simple(kind, u64::MAX, 1)
}

fn request_type() -> Arc<Decl> {
    let text = simple(DeclKind::Text);
    let texts = simple(DeclKind::List(text.clone()));
    let kind =
        object("kubernetes.GroupVersionKind", &[("group", &text), ("version", &text), ("kind", &text)]);
    let resource = object(
        "kubernetes.GroupVersionResource",
        &[("group", &text), ("version", &text), ("resource", &text)],
    );
    let extra = simple(DeclKind::Map(texts.clone()));
    let user = object(
        "kubernetes.UserInfo",
        &[("username", &text), ("uid", &text), ("groups", &texts), ("extra", &extra)],
    );
    object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", &kind),
            ("resource", &resource),
            ("subResource", &text),
            ("requestKind", &kind),
            ("requestResource", &resource),
            ("requestSubResource", &text),
            ("name", &text),
            ("namespace", &text),
            ("operation", &text),
            ("userInfo", &user),
            ("dryRun", &simple(DeclKind::Bool)),
            ("options", &Decl::dynamic()),
        ],
    )
}

fn namespace_type() -> Arc<Decl> {
    let (text, time, number) = (simple(DeclKind::Text), simple(DeclKind::Timestamp), simple(DeclKind::Int));
    let texts = simple(DeclKind::List(text.clone()));
    let labels = simple(DeclKind::Map(text.clone()));
    let condition = object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", &text),
            ("type", &text),
            ("lastTransitionTime", &time),
            ("message", &text),
            ("reason", &text),
        ],
    );
    let status = object(
        "kubernetes.NamespaceStatus",
        &[("conditions", &simple(DeclKind::List(condition))), ("phase", &text)],
    );
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", &text),
            ("generateName", &text),
            ("namespace", &text),
            ("labels", &labels),
            ("annotations", &labels),
            ("UID", &text),
            ("creationTimestamp", &time),
            ("deletionGracePeriodSeconds", &number),
            ("deletionTimestamp", &time),
            ("generation", &number),
            ("resourceVersion", &text),
            ("finalizers", &texts),
        ],
    );
    let spec = object("kubernetes.NamespaceSpec", &[("finalizers", &texts)]);
    object("kubernetes.Namespace", &[("metadata", &metadata), ("spec", &spec), ("status", &status)])
}

/// The environment of the match conditions of a webhook.
pub fn webhook_environment() -> Env {
    environment(Reads { params: false, authorizer: true })
}
