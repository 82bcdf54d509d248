//! Authentication.

use std::{os::unix::fs::PermissionsExt as _, sync::Arc};

use http::request::Parts;
use plumb_apiserver::{
    authn::{Authenticator, CertificateIdentity, InProcess, Peer, Tokens, Unauthorized, User},
    pki::{ADMIN_USER, Pki},
};

use super::pki::{Place, TestClock};

struct World {
    place: Place,
    pki: Pki,
    authenticator: Authenticator,
    admin_token: String,
}

impl World {
    fn new() -> Self {
        let place = Place::new();
        let pki = place.open().unwrap();
        let (tokens, admin_token) = place.admin_token();
        let authenticator = Authenticator::new(tokens, Arc::<TestClock>::clone(&place.clock));
        Self { place, pki, authenticator, admin_token }
    }

    fn peer(&self, user: &str, groups: &[&str]) -> Peer {
        let issued = self.pki.issue_client(user, groups).unwrap();
        Peer::new(remote(), CertificateIdentity::read(issued.certificate()))
    }
}

fn remote() -> std::net::SocketAddr {
    "192.0.2.1:4711".parse().unwrap()
}

fn request(path: &str, authorization: Option<&str>) -> Parts {
    let mut request = http::Request::get(path);
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    let mut parts = request.body(()).unwrap().into_parts().0;
    parts.extensions.insert(Peer::new(remote(), None));
    parts
}

#[test]
fn certificates_tokens_and_the_process_itself_authenticate() {
    let world = World::new();
    let token = format!("Bearer {}", world.admin_token);
    let node = world.peer("system:node:a", &["system:nodes"]);
    let scheduler = Arc::new(User::new("system:kube-scheduler", "", ["inner"]));
    let (admin, node_user, inner) = ("kubernetes-admin", "system:node:a", "system:kube-scheduler");
    let cases = [
        ("token", Some(token.as_str()), None, None, admin, "system:masters"),
        ("certificate", None, Some(&node), None, node_user, "system:nodes"),
        (
            "a certificate counts before a token",
            Some("Bearer wrong"),
            Some(&node),
            None,
            node_user,
            "system:nodes",
        ),
        ("process", None, None, Some(&scheduler), inner, "inner"),
        ("the process counts before all", Some(&token), Some(&node), Some(&scheduler), inner, "inner"),
    ];
    for (case, authorization, peer, process, name, group) in cases {
        let mut parts = request("/api/v1/pods", authorization);
        if let Some(peer) = peer {
            parts.extensions.insert(peer.clone());
        }
        if let Some(process) = process {
            parts.extensions.insert(InProcess(Arc::clone(process)));
        }
        let user = world.authenticator.authenticate(&mut parts).unwrap();
        assert_eq!(user.name(), name, "{case}");
        assert_eq!(user.groups(), [group, "system:authenticated"], "{case}");
        assert!(!user.is_anonymous(), "{case}");
        assert!(!parts.headers.contains_key("authorization"), "{case}: the token goes no further");
    }
}

#[test]
fn an_anonymous_user_can_read_health_and_a_wrong_token_is_rejected() {
    let world = World::new();
    for path in ["/livez", "/readyz?verbose", "/healthz", "/version"] {
        for authorization in [None, Some("Basic eDp5"), Some("Bearer ")] {
            let user = world.authenticator.authenticate(&mut request(path, authorization)).unwrap();
            assert_eq!(*user, User::anonymous());
            assert_eq!(
                (user.name(), user.groups()),
                ("system:anonymous", &["system:unauthenticated".to_owned()][..])
            );
        }
    }
    let almost = format!("Bearer {}x", world.admin_token);
    let shorter = format!("Bearer {}", &world.admin_token[1..]);
    for path in ["/livez", "/api"] {
        for authorization in ["Bearer nonsense", &almost, &shorter] {
            let refused = world.authenticator.authenticate(&mut request(path, Some(authorization)));
            assert_eq!(refused, Err(Unauthorized::UnknownToken));
        }
    }
    for path in ["/api", "/apis/apps/v1", "/livez/ping", "/metrics", "/"] {
        let refused = world.authenticator.authenticate(&mut request(path, None));
        assert_eq!(refused, Err(Unauthorized::Anonymous), "{path}");
    }
}

#[test]
fn a_certificate_that_expires_ends_the_identity_of_an_open_connection() {
    let world = World::new();
    let mut parts = request("/api", None);
    parts.extensions.insert(world.peer("someone", &[]));
    assert!(world.authenticator.authenticate(&mut parts).is_ok());
    world.place.clock.forward_days(366);
    assert_eq!(world.authenticator.authenticate(&mut parts), Err(Unauthorized::Expired));

    let token = format!("Bearer {}", world.admin_token);
    parts.headers.insert("authorization", token.parse().unwrap());
    assert_eq!(world.authenticator.authenticate(&mut parts).unwrap().name(), "kubernetes-admin");
}

#[test]
fn a_token_does_not_appear_in_debug_output() {
    let world = World::new();
    let tokens = Tokens::open(&world.place.path("tokens.csv")).unwrap();
    let shown = format!("{:?} {tokens:?} {:?}", world.authenticator, tokens.of(ADMIN_USER));
    assert!(shown.contains("[token]"), "{shown}");
    assert!(!shown.contains(&world.admin_token), "{shown}");
}

#[test]
fn a_token_file_is_read_and_never_created() {
    let world = World::new();
    let path = world.place.path("tokens.csv");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let missing = world.place.path("no-such-file.csv");
    let error = Tokens::open(&missing).map(drop).unwrap_err().to_string();
    assert!(error.contains(&missing.display().to_string()), "{error}");
    assert!(!missing.exists());

    let more = "\nabc,\"odd, user\",u-1,\"a, b,,c\"\ndef,plain,\n";
    world.place.write("tokens.csv", &(world.place.read("tokens.csv") + more));
    let tokens = Tokens::open(&path).unwrap();
    let authenticator = Authenticator::new(tokens, Arc::<TestClock>::clone(&world.place.clock));
    let cases: [(&str, &str, &str, &[&str]); 3] = [
        (&world.admin_token, "kubernetes-admin", "", &["system:masters", "system:authenticated"]),
        ("abc", "odd, user", "u-1", &["a", "b", "c", "system:authenticated"]),
        ("def", "plain", "", &["system:authenticated"]),
    ];
    for (token, name, uid, groups) in cases {
        let user =
            authenticator.authenticate(&mut request("/api", Some(&format!("Bearer {token}")))).unwrap();
        assert_eq!((user.name(), user.uid()), (name, uid));
        assert_eq!(user.groups(), groups);
    }
}

#[test]
fn a_damaged_token_file_is_reported_by_line_without_its_tokens() {
    let world = World::new();
    for bad in [
        "s3cret,user",
        "s3cret",
        ",user,uid",
        "s3cret,,uid",
        "s3 cret,user,uid",
        "s3cret,\"user,uid",
        "abc,x,\nabc,y,",
    ] {
        let text = format!("ok,user,uid\n{bad}\n");
        world.place.write("tokens.csv", &text);
        let error = Tokens::open(&world.place.path("tokens.csv")).map(drop).unwrap_err().to_string();
        assert!(error.contains(&world.place.path("tokens.csv").display().to_string()), "{error}");
        assert!(error.contains("line 2") || error.contains("line 3"), "{error}");
        assert!(!error.contains("s3"), "{error}");
        assert_eq!(world.place.read("tokens.csv"), text);
    }
}
