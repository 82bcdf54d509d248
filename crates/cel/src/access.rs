//! The authorizer library: checks that an expression builds step by step, and the decisions about them.
//!
//! ```text
//!   authorizer ──path(p)──────────────────────────────────▶ PathCheck ─────check(verb)──▶ Decision
//!       │ serviceAccount(ns, name)                                                            ▲
//!       └──────group(g)──▶ GroupCheck ──resource(r)──▶ ResourceCheck ─────check(verb)─────────┘
//! ```

use std::fmt;

/// Authorizes requests. The caller implements it, since this crate knows no users.
pub trait Authorizer: Sync {
    /// The decision for the user of the request, or for a service account (namespace and name).
    fn decide(&self, account: Option<(&str, &str)>, request: &AccessRequest<'_>) -> Decision;
}

/// The request that a check authorizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRequest<'a> {
    /// A request for a non-resource path.
    Path {
        /// The path.
        path: &'a str,
        /// The HTTP method, in lower case.
        verb: &'a str,
    },
    /// A request for a resource.
    Resource {
        /// The resource.
        check: &'a ResourceCheck,
        /// The API verb.
        verb: &'a str,
    },
}

/// The resource of a check. Empty fields are not specified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceCheck {
    /// The API group.
    pub group: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The field selector of a list.
    pub field_selector: String,
    /// The label selector of a list.
    pub label_selector: String,
}

/// The decision of the authorizer about a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the authorizer allows the request.
    pub allowed: bool,
    /// The reason that the authorizer gives.
    pub reason: String,
    /// The error if the authorizer could not decide.
    pub error: Option<String>,
}

/// An authorizer, or a check that an expression is building.
#[derive(Clone)]
pub struct Access<'a> {
    pub(crate) authorizer: &'a dyn Authorizer,
    pub(crate) account: Option<(String, String)>,
    pub(crate) stage: Stage,
}

/// How much of a check has been built.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    Authorizer,
    Path(String),
    Group(String),
    Resource(ResourceCheck),
}

impl<'a> Access<'a> {
    /// The value of the variable `authorizer`.
    pub fn authorizer(authorizer: &'a dyn Authorizer) -> Self {
        Self { authorizer, account: None, stage: Stage::Authorizer }
    }

    /// The value of the variable `authorizer.requestResource`.
    pub fn request_resource(authorizer: &'a dyn Authorizer, check: ResourceCheck) -> Self {
        Self { authorizer, account: None, stage: Stage::Resource(check) }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer => crate::types::AUTHORIZER,
            Stage::Path(_) => crate::types::PATH_CHECK,
            Stage::Group(_) => crate::types::GROUP_CHECK,
            Stage::Resource(_) => crate::types::RESOURCE_CHECK,
        }
    }

    pub(crate) fn check(&self, verb: &str) -> Option<Decision> {
        let account = self.account.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let request = match &self.stage {
            Stage::Path(path) => AccessRequest::Path { path, verb },
            Stage::Resource(check) => AccessRequest::Resource { check, verb },
            Stage::Authorizer | Stage::Group(_) => return None,
        };
        Some(self.authorizer.decide(account, &request))
    }
}

impl fmt::Debug for Access<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("account", &self.account).field("stage", &self.stage).finish()
    }
}
