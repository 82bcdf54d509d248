//! Whether a path has the scope of the kind that it names.
//!
//! A `RoleBinding` grants what its role allows within one namespace, and authorization reads that namespace in the
//! path. So a path that puts a cluster-scoped kind into a namespace must never be authorized, nor served.

use http::Method;

use crate::error::ApiError;
use crate::kinds::Row;
use crate::url::Target;

/// Answers 404 to a path that has no such resource in its scope. It has to come before authorization.
///
/// - A cluster-scoped kind is never below `/namespaces/{namespace}/`. A Namespace itself has its own name there.
/// - A namespaced kind is always below it, except to list or watch the objects of all namespaces.
pub(crate) fn check(row: &Row, target: &Target, method: &Method) -> Result<(), ApiError> {
    let exists = match (row.is_namespaced(), &target.namespace) {
        (true, Some(_)) | (false, None) => true,
        (true, None) => {
            let is_collection = target.name.is_none() && target.subresource.is_none();
            is_collection && matches!(*method, Method::GET | Method::HEAD) && row.resource.allows("list")
        }
        // A custom kind may be called `namespaces`, too: to take its names for namespaces would let a RoleBinding
        // in the namespace of that name grant it.
        (false, Some(_)) => row.is_namespace() && target.name == target.namespace,
    };
    if exists { Ok(()) } else { Err(ApiError::no_such_path()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{Kinds, Storage, Strategy};
    use crate::url::Address;

    #[derive(Debug)]
    struct Namespaces;

    impl Strategy for Namespaces {
        fn is_namespace(&self) -> bool {
            true
        }
    }

    #[derive(Debug)]
    struct Reviews;

    impl Strategy for Reviews {
        fn storage(&self) -> Storage {
            Storage::Review(|_, object| Ok(object))
        }
    }

    #[derive(Debug)]
    struct Others;

    impl Strategy for Others {}

    fn strategy(group: &str, kind: &str) -> &'static dyn Strategy {
        match (group, kind) {
            ("", "Namespace") => &Namespaces,
            ("authorization.k8s.io", _) => &Reviews,
            _ => &Others,
        }
    }

    /// The code of the answer; 200 where authorization would come next.
    fn code(method: &Method, path: &str) -> u16 {
        let kinds = Kinds::builtin(strategy, |_, _, _, _, _| {});
        let checked = Address::parse(path).and_then(|address| match address {
            Address::Objects(target) => {
                check(kinds.row(&target).expect("the kind is served"), &target, method)
            }
            other => panic!("{path}: {other:?}"),
        });
        checked.map_or_else(|error| error.code.as_u16(), |()| 200)
    }

    #[test]
    fn a_path_exists_only_in_the_scope_of_its_kind() {
        let table = [
            (Method::GET, "/api/v1/nodes", 200),
            (Method::GET, "/api/v1/namespaces/a/nodes", 404),
            (Method::GET, "/api/v1/namespaces/a/nodes/n/proxy/metrics", 404),
            (Method::POST, "/apis/rbac.authorization.k8s.io/v1/namespaces/a/clusterrolebindings", 404),
            (Method::POST, "/apis/authorization.k8s.io/v1/namespaces/a/subjectaccessreviews", 404),
            (Method::POST, "/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews", 200),
            (Method::POST, "/apis/authorization.k8s.io/v1/localsubjectaccessreviews", 404),
            // It cannot be listed, so it has no path outside of a namespace.
            (Method::GET, "/apis/authorization.k8s.io/v1/localsubjectaccessreviews", 404),
            (Method::GET, "/api/v1/pods", 200),
            (Method::HEAD, "/api/v1/pods", 200),
            (Method::POST, "/api/v1/pods", 404),
            (Method::DELETE, "/api/v1/pods", 404),
            (Method::GET, "/api/v1/pods/p", 404),
            (Method::GET, "/api/v1/pods/p/log", 404),
            (Method::PATCH, "/api/v1/pods/p/resize", 404),
            (Method::GET, "/api/v1/namespaces", 200),
            (Method::GET, "/api/v1/namespaces/a", 200),
            (Method::PUT, "/api/v1/namespaces/a/finalize", 200),
            (Method::GET, "/api/v1/namespaces/a/namespaces", 404),
            (Method::GET, "/api/v1/namespaces/a/namespaces/a", 404),
            (Method::GET, "/api/v1/namespaces/a/namespaces/a/status", 404),
            (Method::GET, "/api/v1/namespaces/a/namespaces/b", 404),
        ];
        for (method, path, expected) in table {
            assert_eq!(code(&method, path), expected, "{method} {path}");
        }
    }
}
