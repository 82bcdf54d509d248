//! Print columns of role bindings.

use serde_json::{Value, json};

use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;

const BINDING: &[Column] = &[
    NAME,
    Column::text("Role", "the role that is given"),
    AGE,
    Column::text("Users", "the users that it is given to").wide(),
    Column::text("Groups", "the groups that it is given to").wide(),
    Column::text("ServiceAccounts", "the service accounts that it is given to").wide(),
];

/// The print columns of `RoleBindings` and `ClusterRoleBindings`.
pub(super) static ROLE_BINDING: PrintColumns = PrintColumns::new(BINDING, binding);

fn binding(binding: View<'_>) -> Value {
    let subjects = |kind: &str, named: fn(View<'_>) -> String| {
        let subjects = binding.items("/subjects").filter(|subject| subject.text("/kind") == kind);
        subjects.map(named).collect::<Vec<_>>().join(", ")
    };
    let name = |subject: View<'_>| subject.text("/name").to_owned();
    json!([
        binding.name(),
        format!("{}/{}", binding.text("/roleRef/kind"), binding.text("/roleRef/name")),
        binding.age(),
        subjects("User", name),
        subjects("Group", name),
        subjects("ServiceAccount", |subject| {
            format!("{}/{}", subject.text("/namespace"), subject.text("/name"))
        }),
    ])
}
