//! Impersonation: `kubectl --as`.
//!
//! There are several modes, each with a verb of its own; the first mode that the authorizer allows applies. The
//! *constrained* modes (`impersonate:<mode>`) also need the verb `impersonate-on:<mode>:<verb>` for the request itself; the
//! legacy mode (`impersonate`) grants all rights of the impersonated user.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use super::{About, Ask, Authorizer, Objects};
use crate::error::ApiError;
use crate::user::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS, User};

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// The extra field of a service account's user that names the node of its pod.
const NODE_OF_POD: &str = "authentication.kubernetes.io/node-name";

/// The user of a request: the authenticated one, or the one that the headers name, if the authenticated one may
/// impersonate it. The headers are removed.
pub(crate) fn impersonate(
    user: Arc<User>,
    headers: &mut HeaderMap,
    authorizer: &Authorizer,
    verb: &str,
    about: &About<'_>,
) -> Result<Arc<User>, ApiError> {
    // Hardly any request has these headers.
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(user);
    }
    let Some(impersonated) = ImpersonatedUser::take(headers)? else { return Ok(user) };
    let mut refusal = None;
    for mode in MODES.iter().filter(|mode| (mode.applies)(&impersonated, &user)) {
        match mode.check(&impersonated, &user, authorizer, verb, about) {
            Ok(()) => return Ok(Arc::new(impersonated.into_user(mode))),
            Err(error) => drop(refusal.get_or_insert(error)),
        }
    }
    // The legacy mode applies to every user, so there is a refusal here.
    Err(refusal.unwrap_or_else(ApiError::unauthorized))
}

/// A mode of impersonation.
struct Mode {
    /// Its name; empty for the legacy mode.
    name: &'static str,
    /// Whether it applies to a user who impersonates this one.
    applies: fn(&ImpersonatedUser, &User) -> bool,
}

const MODES: [Mode; 5] = [
    Mode {
        name: "associated-node",
        applies: |impersonated, user| {
            let own = user.extra().get(NODE_OF_POD).map(Vec::as_slice);
            impersonated.is_only_a_name()
                && account(user.name()).is_some()
                && impersonated.node().is_some_and(|node| own == Some(&[node.to_owned()]))
        },
    },
    Mode {
        name: "arbitrary-node",
        applies: |impersonated, _| impersonated.is_only_a_name() && impersonated.node().is_some(),
    },
    Mode {
        name: "serviceaccount",
        applies: |impersonated, _| impersonated.is_only_a_name() && account(&impersonated.name).is_some(),
    },
    Mode {
        name: "user-info",
        applies: |impersonated, _| impersonated.node().is_none() && account(&impersonated.name).is_none(),
    },
    Mode { name: "", applies: |_, _| true },
];

impl Mode {
    fn is_constrained(&self) -> bool {
        !self.name.is_empty()
    }

    fn check(
        &self,
        impersonated: &ImpersonatedUser,
        user: &User,
        authorizer: &Authorizer,
        verb: &str,
        about: &About<'_>,
    ) -> Result<(), ApiError> {
        let (mut own_verb, mut group) = ("impersonate".to_owned(), "");
        if self.is_constrained() {
            let on = format!("impersonate-on:{}:{verb}", self.name);
            authorizer.authorize(&Ask { user, verb: &on, about: about.clone() })?;
            (own_verb, group) = (format!("impersonate:{}", self.name), AUTHENTICATION);
        }
        let may = |objects: Objects<'_>| authorizer.authorize(&Ask::about_objects(user, &own_verb, objects));
        match (account(&impersonated.name), impersonated.node().filter(|_| self.is_constrained())) {
            (Some((namespace, name)), _) => {
                may(Objects { group, resource: "serviceaccounts", namespace, name, ..Objects::default() })?;
            }
            (None, Some(node)) => {
                // A user who may impersonate any node may impersonate its own.
                let name = if self.name == "associated-node" { "*" } else { node };
                may(Objects { group, resource: "nodes", name, ..Objects::default() })?;
            }
            (None, None) => {
                may(Objects { group, resource: "users", name: &impersonated.name, ..Objects::default() })?;
            }
        }
        if !impersonated.uid.is_empty() {
            may(Objects {
                group: AUTHENTICATION,
                resource: "uids",
                name: &impersonated.uid,
                ..Objects::default()
            })?;
        }
        for name in &impersonated.groups {
            may(Objects { group, resource: "groups", name, ..Objects::default() })?;
        }
        for (key, values) in &impersonated.extra {
            for name in values {
                may(Objects {
                    group: AUTHENTICATION,
                    resource: "userextras",
                    subresource: key,
                    name,
                    ..Objects::default()
                })?;
            }
        }
        Ok(())
    }
}

/// The user that the headers of a request name.
#[derive(Default)]
struct ImpersonatedUser {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl ImpersonatedUser {
    fn take(headers: &mut HeaderMap) -> Result<Option<Self>, ApiError> {
        let names: Vec<HeaderName> =
            headers.keys().filter(|name| name.as_str().starts_with(PREFIX)).cloned().collect();
        let mut impersonated = Self::default();
        for header in names {
            let values: Vec<String> = headers
                .get_all(&header)
                .iter()
                .map(|value| value.to_str().map(str::to_owned))
                .collect::<Result<_, _>>()
                .map_err(|_| ApiError::bad_request(format!("the header {header} is not plain text")))?;
            headers.remove(&header);
            let first = || values.first().cloned().unwrap_or_default();
            match header.as_str() {
                USER => impersonated.name = first(),
                UID => impersonated.uid = first(),
                GROUP => impersonated.groups = values,
                other => {
                    let Some(key) = other.strip_prefix(EXTRA) else { continue };
                    let key = crate::url::percent_decode(key).unwrap_or_else(|| key.to_owned());
                    impersonated.extra.insert(key, values);
                }
            }
        }
        if !impersonated.name.is_empty() {
            return Ok(Some(impersonated));
        }
        if impersonated.is_only_a_name() {
            return Ok(None);
        }
        let why = format!("requested {} without impersonating a user name", impersonated.in_go());
        Err(ApiError::bad_request(why))
    }

    fn is_only_a_name(&self) -> bool {
        self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
    }

    /// The name of the node, if the user is a node.
    fn node(&self) -> Option<&str> {
        self.name.strip_prefix("system:node:").filter(|node| !node.is_empty())
    }

    /// As upstream prints it.
    fn in_go(&self) -> String {
        let list = |texts: &[String]| {
            let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
            if texts.is_empty() {
                "[]string(nil)".to_owned()
            } else {
                format!("[]string{{{}}}", texts.join(", "))
            }
        };
        let extra: Vec<String> =
            self.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
        let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", extra.join(", ")) };
        format!(
            "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{}, Extra:map[string][]string{extra}}}",
            self.name,
            self.uid,
            list(&self.groups)
        )
    }

    fn into_user(self, mode: &Mode) -> User {
        let is_node = mode.is_constrained() && self.node().is_some();
        let mut groups = self.groups;
        if is_node {
            groups = vec!["system:nodes".to_owned()];
        } else if groups.is_empty()
            && let Some((namespace, _)) = account(&self.name)
        {
            groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        let has = |group: &str| groups.iter().any(|own| own == group);
        if self.name == ANONYMOUS {
            if !has(ALL_UNAUTHENTICATED) {
                groups.push(ALL_UNAUTHENTICATED.to_owned());
            }
        } else if !has(ALL_AUTHENTICATED) && !has(ALL_UNAUTHENTICATED) {
            groups.push(ALL_AUTHENTICATED.to_owned());
        }
        User::exactly(self.name, self.uid, groups).with_extra(self.extra)
    }
}

/// The namespace and the name of the service account with a user name.
fn account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}
