//! Service account tokens.

use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::Method;
use plumb_apiserver::pki::SigningKey;
use serde_json::{Value, json};

use super::{As, Cluster, admin, pod_on};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

async fn cluster() -> Cluster {
    let cluster = Cluster::start();
    cluster.make(ACCOUNTS, &json!({ "metadata": { "name": "app" } })).await;
    cluster
}

async fn token(cluster: &Cluster, spec: Value) -> String {
    let answer = cluster.make(&format!("{ACCOUNTS}/app/token"), &json!({ "spec": spec })).await;
    answer["status"]["token"].as_str().unwrap().to_owned()
}

fn part(token: &str, number: usize) -> Value {
    let part = token.split('.').nth(number).unwrap();
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

async fn code(cluster: &Cluster, token: &str) -> u16 {
    cluster.post(&As::Token(token.to_owned()), WHOAMI, &json!({})).await.code
}

async fn error(cluster: &Cluster, token: &str) -> String {
    let review = cluster.make(REVIEWS, &json!({ "spec": { "token": token } })).await;
    assert_eq!(review["status"]["authenticated"], Value::Null, "{review}");
    review["status"]["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_token_authenticates_its_service_account() {
    let cluster = cluster().await;
    let answer = cluster.make(&format!("{ACCOUNTS}/app/token"), &json!({})).await;
    assert_eq!(answer["kind"], "TokenRequest");
    assert_eq!(
        answer["spec"],
        json!({ "audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null })
    );
    assert_eq!(answer["status"]["expirationTimestamp"], "2026-03-01T13:00:00Z");
    let token = answer["status"]["token"].as_str().unwrap();
    let claims = part(token, 1);
    let uid = &answer["metadata"]["uid"];
    assert_eq!(claims["sub"], "system:serviceaccount:default:app");
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
    assert_eq!(
        claims["kubernetes.io"],
        json!({ "namespace": "default", "serviceaccount": { "name": "app", "uid": uid } })
    );
    let who = cluster.post(&As::Token(token.to_owned()), WHOAMI, &json!({})).await.ok();
    let credential = format!("JTI={}", claims["jti"].as_str().unwrap());
    assert_eq!(
        who["status"]["userInfo"],
        json!({
            "username": "system:serviceaccount:default:app", "uid": uid,
            "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
            "extra": { "authentication.kubernetes.io/credential-id": [credential] },
        })
    );
    // Others verify it by the published key.
    let keys = cluster.get(&admin(), "/openid/v1/jwks").await.ok();
    assert_eq!(keys["keys"][0]["kid"], part(token, 0)["kid"]);
    let coordinate =
        |name: &str| BASE64_URL_SAFE_NO_PAD.decode(keys["keys"][0][name].as_str().unwrap()).unwrap();
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, point);
    let (signed, signature) = token.rsplit_once('.').unwrap();
    key.verify(signed.as_bytes(), &BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    let configuration = cluster.get(&admin(), "/.well-known/openid-configuration").await.ok();
    assert_eq!(configuration["issuer"], ISSUER);
    // The server listens on the loopback interface, where no pod reaches it.
    assert_eq!(configuration["jwks_uri"], format!("{ISSUER}/openid/v1/jwks"));
    assert_eq!(cluster.get(&As::Token(token.to_owned()), "/openid/v1/jwks").await.code, 200);
    assert_eq!(cluster.get(&super::user("jane", &[]), "/openid/v1/jwks").await.code, 403);
}

#[tokio::test]
async fn a_token_is_rejected_outside_its_validity_and_for_other_audiences() {
    let cluster = cluster().await;
    let good = token(&cluster, json!({ "expirationSeconds": 86_400 })).await;
    let vault = token(&cluster, json!({ "audiences": ["vault"] })).await;
    assert_eq!(code(&cluster, &good).await, 201);
    assert_eq!(code(&cluster, &vault).await, 401);
    let text = format!(
        "[invalid bearer token, token audiences [\"vault\"] is invalid for the target audiences [\"{ISSUER}\"]]"
    );
    assert_eq!(error(&cluster, &vault).await, text);
    let review =
        cluster.make(REVIEWS, &json!({ "spec": { "token": vault, "audiences": ["vault", "x"] } })).await;
    assert_eq!(review["status"]["authenticated"], true);
    assert_eq!(review["status"]["audiences"], json!(["vault"]));

    cluster.place.clock.forward_days(-1);
    assert_eq!(
        error(&cluster, &good).await,
        "[invalid bearer token, service account token is not valid yet]"
    );
    cluster.place.clock.forward_days(3);
    assert_eq!(code(&cluster, &good).await, 401);
    assert_eq!(error(&cluster, &good).await, "[invalid bearer token, service account token has expired]");
}

#[tokio::test]
async fn a_modified_or_foreign_token_is_rejected() {
    let cluster = cluster().await;
    let elsewhere = self::cluster().await;
    let good = token(&cluster, json!({})).await;
    let parts: Vec<&str> = good.split('.').collect();
    let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let mut claims = part(&good, 1);
    claims["sub"] = json!("system:serviceaccount:kube-system:admin");
    let header = |alg: &str| encode(&json!({ "alg": alg }));
    let bad = [
        format!("{}.{}.{}", parts[0], encode(&claims), parts[2]),
        format!("{}.{}.", header("none"), parts[1]),
        format!("{}.{}.{}", header("HS256"), parts[1], parts[2]),
        format!("{}.{}", parts[0], parts[1]),
        format!("{good}x"),
        token(&elsewhere, json!({})).await,
        "a.b.c".to_owned(),
        "..".to_owned(),
    ];
    for token in bad {
        assert_eq!(code(&cluster, &token).await, 401, "{token}");
    }
    assert_eq!(error(&cluster, "abc").await, "invalid bearer token");
    assert_eq!(code(&cluster, &good).await, 201);
}

#[tokio::test]
async fn a_token_is_invalid_once_its_bound_object_is_deleted() {
    let cluster = cluster().await;
    let pods = "/api/v1/namespaces/default/pods";
    let mut pod = pod_on("n1", "web");
    pod["spec"]["serviceAccountName"] = json!("app");
    let made = cluster.make(pods, &pod).await;
    let secret = json!({ "metadata": { "name": "s" } });
    cluster.make("/api/v1/namespaces/default/secrets", &secret).await;
    cluster.make("/api/v1/nodes", &json!({ "metadata": { "name": "n1" } })).await;
    let bound = |kind: &str, name: &str| json!({ "boundObjectRef": { "kind": kind, "apiVersion": "v1", "name": name } });
    let to_pod = token(&cluster, bound("Pod", "web")).await;
    let to_secret = token(&cluster, bound("Secret", "s")).await;
    let to_node = token(&cluster, bound("Node", "n1")).await;
    let to_nothing = token(&cluster, json!({})).await;

    let who = cluster.post(&As::Token(to_pod.clone()), WHOAMI, &json!({})).await.ok();
    let extra = &who["status"]["userInfo"]["extra"];
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["web"]));
    assert_eq!(extra["authentication.kubernetes.io/pod-uid"], json!([made["metadata"]["uid"]]));
    assert_eq!(extra["authentication.kubernetes.io/node-name"], json!(["n1"]));
    let invalidated = "[invalid bearer token, service account token has been invalidated]";
    let gone = json!({ "gracePeriodSeconds": 0 });
    for (token, path) in [
        (&to_pod, format!("{pods}/web")),
        (&to_secret, "/api/v1/namespaces/default/secrets/s".to_owned()),
        (&to_node, "/api/v1/nodes/n1".to_owned()),
    ] {
        assert_eq!(code(&cluster, token).await, 201, "{path}");
        cluster.request(&admin(), Method::DELETE, &path, &gone).await.ok();
        assert_eq!(code(&cluster, token).await, 401, "{path}");
        assert_eq!(error(&cluster, token).await, invalidated, "{path}");
    }
    // Another pod of that name is another pod.
    cluster.make(pods, &pod).await;
    assert!(error(&cluster, &to_pod).await.contains("does not match service account pod ref claim"));
    cluster.delete(&admin(), &format!("{ACCOUNTS}/app")).await.ok();
    assert_eq!(code(&cluster, &to_nothing).await, 401);
    assert_eq!(
        error(&cluster, &to_nothing).await,
        "[invalid bearer token, serviceaccounts \"app\" not found]"
    );
    cluster.make(ACCOUNTS, &json!({ "metadata": { "name": "app" } })).await;
    assert_eq!(code(&cluster, &to_nothing).await, 401);
}

#[tokio::test]
async fn a_token_request_is_validated_as_upstream_does() {
    let cluster = cluster().await;
    cluster.make("/api/v1/namespaces/default/pods", &pod_on("", "other")).await;
    let table = [
        (
            "app",
            json!({ "spec": { "expirationSeconds": 60 } }),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes",
        ),
        (
            "app",
            json!({ "spec": { "expirationSeconds": 4_294_967_297_i64 } }),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
        ("none", json!({}), 404, "serviceaccounts \"none\" not found"),
        (
            "app",
            json!({ "metadata": { "name": "x" } }),
            422,
            "TokenRequest.authentication.k8s.io \"app\" is invalid: metadata.name: Invalid value: \"x\": must match the service account name if specified",
        ),
        (
            "app",
            json!({ "spec": { "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "none" } } }),
            404,
            "pods \"none\" not found",
        ),
        (
            "app",
            json!({ "spec": { "boundObjectRef": { "kind": "Foo", "apiVersion": "v1", "name": "x" } } }),
            400,
            "cannot bind token to object of type /v1, Kind=Foo",
        ),
        (
            "app",
            json!({ "spec": { "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "other" } } }),
            400,
            "cannot bind token for serviceaccount \"app\" to pod running with different serviceaccount name.",
        ),
    ];
    for (name, body, code, text) in table {
        let refused = cluster.post(&admin(), &format!("{ACCOUNTS}/{name}/token"), &body).await.rejected();
        assert_eq!(refused, (code, text.to_owned()), "{body}");
    }
    let (code, message) = cluster
        .post(&admin(), &format!("{ACCOUNTS}/app/token"), &json!({ "metadata": { "uid": "x" } }))
        .await
        .rejected();
    assert_eq!(code, 409);
    assert!(message.starts_with("Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"app\": the UID in the token request (x)"), "{message}");
    // The default token of a pod is valid for a year, and has a warn-after time.
    let mut pod = pod_on("", "web");
    pod["spec"]["serviceAccountName"] = json!("app");
    cluster.make("/api/v1/namespaces/default/pods", &pod).await;
    let spec = json!({ "expirationSeconds": 3607, "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "web" } });
    let claims = part(&token(&cluster, spec).await, 1);
    let at = |value: &Value| value.as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    assert_eq!((at(&claims["exp"]), at(&claims["kubernetes.io"]["warnafter"])), (31_536_000, 3607));
    // The administrator's token is a bearer token, too, for whomever it is shown to.
    let review = cluster.make(REVIEWS, &json!({ "spec": { "token": cluster.admin_token } })).await;
    assert_eq!(review["status"]["user"]["username"], "kubernetes-admin");
}

#[tokio::test]
async fn a_token_lifetime_above_the_maximum_is_shortened_with_a_warning() {
    let settings = super::Settings {
        longest: Some(jiff::SignedDuration::from_hours(2)),
        ..super::Settings::at("https://127.0.0.1:6443")
    };
    let cluster = Cluster::with(settings);
    cluster.make(ACCOUNTS, &json!({ "metadata": { "name": "app" } })).await;
    let path = format!("{ACCOUNTS}/app/token");
    let answer = cluster.post(&admin(), &path, &json!({ "spec": { "expirationSeconds": 86_400 } })).await;
    assert_eq!(
        answer.warnings,
        ["299 - \"requested expiration of 86400 seconds shortened to 7200 seconds\""]
    );
    assert_eq!(answer.ok()["spec"]["expirationSeconds"], 7200);
}

#[tokio::test]
async fn tokens_of_a_rotated_key_are_valid_until_it_is_forgotten() {
    let cluster = cluster().await;
    let keys = async || -> Vec<Value> {
        let keys = cluster.get(&admin(), "/openid/v1/jwks").await.ok()["keys"].clone();
        keys.as_array().unwrap().iter().map(|key| key["kid"].clone()).collect()
    };
    let mut tokens = vec![token(&cluster, json!({})).await];
    for _ in 0..2 {
        assert!(cluster.keys.replace(&SigningKey::rotate(cluster.pki.directory()).unwrap()));
        tokens.push(token(&cluster, json!({})).await);
    }
    // The newest key signs, and is the first one that others read.
    let mut signers: Vec<Value> = tokens.iter().map(|token| part(token, 0)["kid"].clone()).collect();
    signers.reverse();
    assert_eq!(keys().await, signers);
    for token in &tokens {
        assert_eq!(code(&cluster, token).await, 201);
    }
    // So it is after a restart, too.
    assert!(cluster.keys.replace(&SigningKey::open(cluster.pki.directory()).unwrap()));
    assert_eq!(keys().await, signers);

    assert_eq!(SigningKey::forget_previous(cluster.pki.directory()).unwrap(), 2);
    assert!(cluster.keys.replace(&SigningKey::open(cluster.pki.directory()).unwrap()));
    assert_eq!(keys().await, signers[..1]);
    // Though they were verified before.
    for old in &tokens[..2] {
        assert_eq!(error(&cluster, old).await, "[invalid bearer token, invalid signature]");
        assert_eq!(code(&cluster, old).await, 401);
    }
    assert_eq!(code(&cluster, &tokens[2]).await, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_refused_while_keys_are_rotated() {
    let cluster = cluster().await;
    let first = token(&cluster, json!({})).await;
    let done = AtomicBool::new(false);
    let rotations = async {
        for _ in 0..20 {
            let directory = cluster.pki.directory().to_owned();
            let key = tokio::task::spawn_blocking(move || SigningKey::rotate(&directory)).await.unwrap();
            assert!(cluster.keys.replace(&key.unwrap()));
            tokio::task::yield_now().await;
        }
        done.store(true, Ordering::Relaxed);
    };
    let requests = async {
        while !done.load(Ordering::Relaxed) {
            let new = token(&cluster, json!({})).await;
            for token in [&first, &new] {
                assert_eq!(code(&cluster, token).await, 201);
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(rotations, requests);
    assert_eq!(code(&cluster, &first).await, 201);
}
