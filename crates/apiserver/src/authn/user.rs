//! A user, as authorization and admission see one.

use std::collections::BTreeMap;

/// The user who is nobody.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of everybody who proved who they are.
pub const ALL_AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody who did not.
pub const ALL_UNAUTHENTICATED: &str = "system:unauthenticated";

/// A user, as authorization and admission see one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct User {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user who proved to be `name` of `groups`, and so is one of [`ALL_AUTHENTICATED`].
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

    /// The user who is nobody.
    pub fn anonymous() -> Self {
        Self::exactly(ANONYMOUS, "", [ALL_UNAUTHENTICATED])
    }

    /// A user of just these groups: somebody else said so, in a review or in an impersonation.
    pub fn exactly(
        name: impl Into<String>,
        uid: impl Into<String>,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let groups = groups.into_iter().map(Into::into).collect();
        Self { name: name.into(), uid: uid.into(), groups, extra: BTreeMap::new() }
    }

    /// The same user, of whom more is known.
    #[must_use]
    pub fn with_extra(mut self, extra: BTreeMap<String, Vec<String>>) -> Self {
        self.extra = extra;
        self
    }

    /// What others know the user by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells users of the same name apart over time; empty if nothing does.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The groups that the user belongs to.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// What else is known of the user: whoever proved the identity says what it means.
    pub fn extra(&self) -> &BTreeMap<String, Vec<String>> {
        &self.extra
    }

    /// Whether the user belongs to `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Whether the user is nobody.
    pub fn is_anonymous(&self) -> bool {
        self.is_in(ALL_UNAUTHENTICATED)
    }
}
