//! What the policy decides by: upstream's attributes of a request, for any path and method.

use std::borrow::Cow;

use http::Method;
use http::request::Parts;
use plumb_audit::{Attributes, ObjectReference, Resource, Subject};

use crate::authz::{About, Selectors};
use crate::url::{Address, Query, Target, percent_decode};
use crate::user::User;

/// The verb and the objects or the path of a request.
pub(super) struct RequestAttributes {
    pub(super) verb: Cow<'static, str>,
    pub(super) subject: RequestSubject,
    /// Whether the request lasts as long as its client: watches and connections.
    pub(super) is_long_running: bool,
}

pub(super) enum RequestSubject {
    Path(String),
    Object(ObjectReference),
}

impl RequestAttributes {
    /// Those of a request. A path that no handler has is a non-resource path.
    pub(super) fn of(head: &Parts) -> Self {
        match Address::parse(head.uri.path()) {
            Ok(Address::Objects(target)) => Self::of_objects(head, target),
            _ => Self::of_path(head),
        }
    }

    fn of_path(head: &Parts) -> Self {
        let path = head.uri.path();
        Self {
            verb: Cow::Owned(head.method.as_str().to_ascii_lowercase()),
            subject: RequestSubject::Path(percent_decode(path).unwrap_or_else(|| path.to_owned())),
            is_long_running: false,
        }
    }

    fn of_objects(head: &Parts, target: Target) -> Self {
        let query = Query::parse(&head.uri).unwrap_or_default();
        let is_watch = query.is_on("watch");
        let is_connect = target.is_connect();
        let mut selected = String::new();
        let verb = match target.verb(&head.method, is_watch) {
            Ok(verb) => {
                let selectors = Selectors::of(&query, verb);
                if let About::Objects(objects) = selectors.about(verb, &target) {
                    // A list or watch of one name is about that object.
                    objects.name.clone_into(&mut selected);
                }
                Cow::Borrowed(verb.name())
            }
            Err(_) => usual_verb(&head.method),
        };
        let Target { group, version, resource, namespace, name, subresource } = target;
        let object = ObjectReference {
            resource,
            namespace: namespace.unwrap_or_default(),
            name: name.unwrap_or(selected),
            api_group: group,
            api_version: version,
            subresource: subresource.unwrap_or_default(),
            ..ObjectReference::default()
        };
        let is_long_running = is_connect || verb == "watch";
        Self { verb, subject: RequestSubject::Object(object), is_long_running }
    }

    /// The attributes with the user; none if authentication failed.
    pub(super) fn of_user<'a>(&'a self, user: Option<&'a User>) -> Attributes<'a> {
        let subject = match &self.subject {
            RequestSubject::Path(path) => Subject::Path(path),
            RequestSubject::Object(object) => Subject::Resource(Resource {
                group: &object.api_group,
                resource: &object.resource,
                subresource: &object.subresource,
                namespace: &object.namespace,
                name: &object.name,
            }),
        };
        let groups = user.map(User::groups).unwrap_or_default();
        Attributes { user: user.map(User::name), groups, verb: &self.verb, subject }
    }
}

/// The verb of a method that is not allowed on its path, such as a POST to an object.
fn usual_verb(method: &Method) -> Cow<'static, str> {
    match *method {
        Method::POST => Cow::Borrowed("create"),
        Method::PUT => Cow::Borrowed("update"),
        Method::GET | Method::HEAD => Cow::Borrowed("get"),
        _ => Cow::Owned(method.as_str().to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn attributes(method: Method, uri: &str) -> RequestAttributes {
        RequestAttributes::of(&Request::builder().method(method).uri(uri).body(()).unwrap().into_parts().0)
    }

    #[test]
    fn objects_have_the_attributes_that_authorization_sees() {
        let table = [
            (Method::GET, "/api/v1/pods", "list", "", "", false),
            (Method::GET, "/api/v1/pods?watch=true", "watch", "", "", true),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db",
                "list",
                "a",
                "b",
                false,
            ),
            (Method::GET, "/api/v1/namespaces/a/pods/b", "get", "a", "b", false),
            (Method::HEAD, "/api/v1/namespaces/a/pods/b", "get", "a", "b", false),
            (Method::POST, "/api/v1/namespaces/a/pods", "create", "a", "", false),
            (Method::POST, "/api/v1/namespaces/a/pods/b", "create", "a", "b", false),
            (Method::GET, "/api/v1/namespaces/a/pods/b/log", "get", "a", "b", true),
            (Method::POST, "/api/v1/namespaces/a/pods/b/exec?command=ls", "create", "a", "b", true),
            (Method::DELETE, "/api/v1/namespaces/a/pods", "deletecollection", "a", "", false),
            (Method::PUT, "/api/v1/namespaces/a", "update", "a", "a", false),
            (Method::GET, "/api/v1/pods?watch=0", "list", "", "", false),
        ];
        for (method, uri, verb, namespace, name, is_long_running) in table {
            let found = attributes(method, uri);
            assert_eq!((&*found.verb, found.is_long_running), (verb, is_long_running), "{uri}");
            let RequestSubject::Object(object) = found.subject else { panic!("{uri}") };
            assert_eq!((&*object.namespace, &*object.name), (namespace, name), "{uri}");
        }
    }

    #[test]
    fn any_other_request_has_its_path_and_method() {
        for (uri, path) in
            [("/healthz?verbose", "/healthz"), ("/a%2Fb", "/a/b"), ("/api/v1/a/b/c/d", "/api/v1/a/b/c/d")]
        {
            let found = attributes(Method::PATCH, uri);
            assert_eq!((&*found.verb, found.is_long_running), ("patch", false), "{uri}");
            assert!(matches!(&found.subject, RequestSubject::Path(own) if own == path), "{uri}");
        }
    }
}
