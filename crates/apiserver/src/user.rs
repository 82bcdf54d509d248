//! Users.

use std::collections::BTreeMap;

/// The name of the anonymous user.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of all authenticated users.
pub const ALL_AUTHENTICATED: &str = "system:authenticated";
/// The group of the anonymous user.
pub const ALL_UNAUTHENTICATED: &str = "system:unauthenticated";

/// A user, for authorization and admission.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct User {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// An authenticated user with a name and groups, to which [`ALL_AUTHENTICATED`] is added.
    pub fn new(
        name: impl Into<String>,
        uid: impl Into<String>,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|group| group == ALL_AUTHENTICATED) {
            groups.push(ALL_AUTHENTICATED.to_owned());
        }
        Self { name: name.into(), uid: uid.into(), groups, extra: BTreeMap::new() }
    }

    /// The anonymous user.
    pub fn anonymous() -> Self {
        Self::exactly(ANONYMOUS, "", [ALL_UNAUTHENTICATED])
    }

    /// A user with just these groups, as a review or an impersonation names it.
    pub fn exactly(
        name: impl Into<String>,
        uid: impl Into<String>,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let groups = groups.into_iter().map(Into::into).collect();
        Self { name: name.into(), uid: uid.into(), groups, extra: BTreeMap::new() }
    }

    /// The same user, with a uid and extra fields.
    #[must_use]
    pub fn with_extra(mut self, extra: BTreeMap<String, Vec<String>>) -> Self {
        self.extra = extra;
        self
    }

    /// The user name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The uid, which differs between users who had the same name one after the other; may be empty.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The groups of the user.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Extra fields, which the authenticator defines.
    pub fn extra(&self) -> &BTreeMap<String, Vec<String>> {
        &self.extra
    }

    /// Whether the user is in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Whether this is the anonymous user.
    pub fn is_anonymous(&self) -> bool {
        self.is_in(ALL_UNAUTHENTICATED)
    }
}
