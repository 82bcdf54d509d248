//! The cost of authorization: the same request by a user who skips authorization, by a user with
//! a role among many, and by a node among many pods.

#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up has failed")]

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use divan::Bencher;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use plumb_apiserver::authn::{Authenticator, InProcess, Tokens, User};
use plumb_apiserver::pki::SystemClock;
use plumb_apiserver::{ApiServer, Config, Limits};
use plumb_kinds::{admission_plugins, api_server};
use plumb_resize::rules::Rules;
use plumb_store::{Options, Store};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const OTHERS: usize = 5_000;
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

struct World {
    runtime: Runtime,
    server: ApiServer,
    _folder: tempfile::TempDir,
}

/// A cluster with many users who have roles, and many pods that need secrets.
static WORLD: LazyLock<World> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let tokens = Tokens::default();
    let server = api_server(Config {
        store: Store::open(folder.path().join("objects"), Options::default()).unwrap(),
        rules: Rules::kep(),
        clock: Arc::new(jiff::Timestamp::now),
        limits: Limits::default(),
        authenticator: Authenticator::new(tokens, Arc::new(SystemClock)),
        nodes: None,
        // No controller creates the service accounts of the pods.
        plugins: admission_plugins("", "ServiceAccount").unwrap(),
        usage: None,
        audit: None,
    })
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = World { runtime, server, _folder: folder };
    let rules = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }]);
    world.make(&format!("{RBAC}/clusterroles"), &json!({ "metadata": { "name": "reader" }, "rules": rules }));
    world.make("/api/v1/namespaces/default/secrets", &json!({ "metadata": { "name": "s" } }));
    for i in 0..OTHERS {
        let subject =
            json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": format!("u{i}") });
        let role =
            json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader" });
        let binding =
            json!({ "metadata": { "name": format!("b{i}") }, "roleRef": role, "subjects": [subject] });
        world.make(&format!("{RBAC}/namespaces/default/rolebindings"), &binding);
        let pod = json!({ "metadata": { "name": format!("p{i}") }, "spec": {
            "nodeName": format!("n{}", i % 50),
            "containers": [{ "name": "c", "image": "plumb/load" }],
            "volumes": [{ "name": "v", "secret": { "secretName": "s" } }] } });
        world.make("/api/v1/namespaces/default/pods", &pod);
    }
    world
});

impl World {
    fn ask(&self, user: &Arc<User>, method: &str, path: &str, body: String) -> u16 {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .extension(InProcess(Arc::clone(user)))
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        self.runtime.block_on(async {
            let response = self.server.handle(request).await;
            let code = response.status().as_u16();
            response.into_body().collect().await.unwrap();
            code
        })
    }

    fn make(&self, path: &str, body: &Value) {
        let admin = Arc::new(User::new("admin", "", ["system:masters"]));
        assert_eq!(self.ask(&admin, "POST", path, body.to_string()), 201);
    }
}

fn get(bencher: Bencher<'_, '_>, user: User, expected: u16) {
    let user = Arc::new(user);
    let path = "/api/v1/namespaces/default/secrets/s";
    assert_eq!(WORLD.ask(&user, "GET", path, String::new()), expected);
    bencher.bench(|| WORLD.ask(&user, "GET", path, String::new()));
}

#[divan::bench]
fn get_as_administrator(bencher: Bencher<'_, '_>) {
    get(bencher, User::new("admin", "", ["system:masters"]), 200);
}

#[divan::bench]
fn get_with_a_role_among_many(bencher: Bencher<'_, '_>) {
    get(bencher, User::new("u7", "", ["a", "b", "c"]), 200);
}

#[divan::bench]
fn get_as_a_node_among_many_pods(bencher: Bencher<'_, '_>) {
    get(bencher, User::new("system:node:n7", "", ["system:nodes"]), 200);
}

#[divan::bench]
fn get_refused(bencher: Bencher<'_, '_>) {
    get(bencher, User::new("unbound", "", ["a", "b", "c"]), 403);
}

fn main() {
    divan::main();
}
