//! A user, as authorization and admission see one.

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
        Self { name: name.into(), uid: uid.into(), groups }
    }

    /// The user who is nobody.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), uid: String::new(), groups: vec![ALL_UNAUTHENTICATED.to_owned()] }
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

    /// Whether the user belongs to `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Whether the user is nobody.
    pub fn is_anonymous(&self) -> bool {
        self.is_in(ALL_UNAUTHENTICATED)
    }
}
