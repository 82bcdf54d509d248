//! Who gets which credentials.

use bytes::Bytes;
use http::StatusCode;
use plumb_oci::{Credentials, PullError, Reference, Registry, RegistryConfig, no_progress};

use crate::fake::{FakeRegistry, challenge, redirect, with_status};

fn reference(name: &str) -> Reference {
    name.parse().unwrap()
}

/// A client that sends credentials to these hosts over plain HTTP.
fn trusting(hosts: &[&FakeRegistry]) -> Registry {
    let insecure = hosts.iter().map(|fake| fake.address.to_string()).collect();
    Registry::new(RegistryConfig { insecure, ..RegistryConfig::default() })
}

/// `user:password` in base64.
const BASIC: &str = "Basic dXNlcjpwYXNzd29yZA==";

#[tokio::test]
async fn a_token_server_gets_the_credentials_and_the_registry_its_token() {
    let (fake, tokens) = (FakeRegistry::start().await, FakeRegistry::start().await);
    fake.put_image("a/b", "1", &[Bytes::from_static(b"layer")]);
    let realm = format!(
        r#"Bearer realm="http://{}/token?x=1",service="the service",scope="repository:a/b:pull""#,
        tokens.address
    );
    fake.intercept(move |asked| {
        (asked.header("authorization") != Some("Bearer t0k3n")).then(|| challenge(&realm))
    });
    tokens.intercept(|asked| {
        let allowed = asked.header("authorization") == Some(BASIC);
        Some(if allowed {
            with_status(StatusCode::OK, r#"{"token": "t0k3n"}"#)
        } else {
            with_status(
                StatusCode::UNAUTHORIZED,
                r#"{"errors": [{"code": "NO", "message": "wrong password"}]}"#,
            )
        })
    });
    let registry = trusting(&[&fake, &tokens]);
    let image = reference(&fake.image("a/b:1"));
    let credentials = Credentials::basic("user", "password");
    let resolved = registry.resolve(&image, Some(&credentials)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    resolved.layer(&resolved.layers()[0], folder.path(), &no_progress()).await.unwrap();
    let asked = tokens.asked();
    assert_eq!(asked.len(), 1, "one token is for the whole pull");
    assert_eq!(asked[0].query, "x=1&scope=repository:a/b:pull&service=the%20service");
    assert!(fake.asked().iter().all(|asked| asked.header("authorization") != Some(BASIC)));

    let wrong = Credentials::basic("user", "wrong");
    let error = registry.resolve(&image, Some(&wrong)).await.unwrap_err();
    assert!(matches!(error, PullError::Denied { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("pull access denied") && text.contains("wrong password"), "{text}");
    assert!(!text.contains("password:") && !text.contains("dXNlcj"), "{text}");
}

#[tokio::test]
async fn an_identity_token_is_exchanged_and_a_registry_token_is_sent() {
    let (fake, tokens) = (FakeRegistry::start().await, FakeRegistry::start().await);
    fake.put_image("a", "1", &[]);
    let realm = format!(r#"Bearer realm="http://{}/token""#, tokens.address);
    fake.intercept(move |asked| {
        (asked.header("authorization") != Some("Bearer t")).then(|| challenge(&realm))
    });
    tokens.intercept(|asked| {
        let form = asked.header("content-type") == Some("application/x-www-form-urlencoded");
        Some(with_status(
            if form { StatusCode::OK } else { StatusCode::FORBIDDEN },
            r#"{"access_token": "t"}"#,
        ))
    });
    let registry = trusting(&[&fake, &tokens]);
    let image = reference(&fake.image("a:1"));
    let identity = Credentials { identity_token: "refresh".to_owned(), ..Credentials::default() };
    registry.resolve(&image, Some(&identity)).await.unwrap();
    assert_eq!(tokens.asked().len(), 1);
    let token = Credentials { registry_token: "t".to_owned(), ..Credentials::default() };
    registry.resolve(&image, Some(&token)).await.unwrap();
    assert_eq!(tokens.asked().len(), 1, "such a token is used as it is");
}

#[tokio::test]
async fn user_and_password_are_sent_once_the_registry_asks_for_them() {
    let fake = FakeRegistry::start().await;
    fake.put_image("a", "1", &[]);
    fake.intercept(|asked| {
        (asked.header("authorization") != Some(BASIC)).then(|| challenge(r#"Basic realm="r""#))
    });
    let registry = trusting(&[&fake]);
    let image = reference(&fake.image("a:1"));
    registry.resolve(&image, Some(&Credentials::basic("user", "password"))).await.unwrap();
    for refused in [None, Some(Credentials::basic("user", "other"))] {
        let error = registry.resolve(&image, refused.as_ref()).await.unwrap_err();
        assert!(matches!(error, PullError::Denied { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_host() {
    let (fake, elsewhere) = (FakeRegistry::start().await, FakeRegistry::start().await);
    let layer = Bytes::from_static(b"layer");
    fake.put_image("a", "1", std::slice::from_ref(&layer));
    let digest = elsewhere.put_blob("a", layer);
    let to = format!("http://{}/v2/a/blobs/{digest}?signature=1", elsewhere.address);
    let path = format!("/v2/a/blobs/{digest}");
    fake.intercept(move |asked| {
        if asked.header("authorization") != Some(BASIC) {
            return Some(challenge("Basic"));
        }
        match &*asked.path {
            // To itself, by a path, first: there they do follow.
            asked if asked == path => Some(redirect("/v2/moved")),
            "/v2/moved" => Some(redirect(&to)),
            _ => None,
        }
    });
    let registry = trusting(&[&fake]);
    let credentials = Credentials::basic("user", "password");
    let resolved = registry.resolve(&reference(&fake.image("a:1")), Some(&credentials)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    resolved.layer(&resolved.layers()[0], folder.path(), &no_progress()).await.unwrap();
    assert_eq!(fake.asked_for("/v2/moved").len(), 1);
    assert_eq!(elsewhere.asked().len(), 1);
    assert!(elsewhere.asked()[0].header("authorization").is_none());

    // Nor does the other host get them by asking.
    elsewhere.intercept(|_| Some(challenge("Basic")));
    let folder = tempfile::tempdir().unwrap();
    let error = resolved.layer(&resolved.layers()[0], folder.path(), &no_progress()).await.unwrap_err();
    assert!(matches!(error, PullError::Denied { .. }), "{error:?}");
    assert!(elsewhere.asked().iter().all(|asked| asked.header("authorization").is_none()));
}

#[tokio::test]
async fn redirects_lead_neither_to_plain_http_of_other_machines_nor_in_circles() {
    let fake = FakeRegistry::start().await;
    fake.put_image("a", "1", &[]);
    let registry = Registry::new(RegistryConfig::default());
    let image = reference(&fake.image("a:1"));
    for (to, expected) in [
        ("http://192.0.2.1/x", "plain HTTP"),
        ("ftp://127.0.0.1/x", "neither HTTP nor HTTPS"),
        ("elsewhere", "not understood"),
        ("/v2/a/manifests/1", "too many redirects"),
    ] {
        fake.intercept(move |_| Some(redirect(to)));
        let error = registry.resolve(&image, None).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
    // Nor are credentials sent to a token server there.
    fake.intercept(|_| Some(challenge(r#"Bearer realm="http://192.0.2.1/token""#)));
    let error = registry.resolve(&image, Some(&Credentials::basic("u", "p"))).await.unwrap_err().to_string();
    assert!(error.contains("plain HTTP"), "{error}");
}

#[tokio::test]
async fn plain_http_is_spoken_with_this_machine_alone_unless_a_registry_is_named_as_insecure() {
    // A name that no resolver knows: the error says which scheme was tried last.
    let image = reference("registry.invalid:5000/a:1");
    let tried = |insecure: &[&str]| {
        let insecure = insecure.iter().map(|&host| host.to_owned()).collect();
        let registry = Registry::new(RegistryConfig { insecure, ..RegistryConfig::default() });
        let image = image.clone();
        async move { registry.resolve(&image, None).await.unwrap_err().to_string() }
    };
    let error = tried(&[]).await;
    assert!(error.contains("https://registry.invalid:5000/"), "{error}");
    let error = tried(&["registry.invalid:5000"]).await;
    assert!(error.contains("http://registry.invalid:5000/"), "{error}");
}

#[tokio::test]
async fn a_server_on_this_machine_gets_no_credentials_over_plain_http_unless_it_is_named() {
    // A pod with a host port may listen there, as the registry or as the token server that a registry names.
    let (fake, tokens) = (FakeRegistry::start().await, FakeRegistry::start().await);
    fake.put_image("a", "1", &[]);
    let image = reference(&fake.image("a:1"));
    let credentials = [
        Credentials::basic("user", "password"),
        Credentials { identity_token: "refresh".to_owned(), ..Credentials::default() },
        Credentials { registry_token: "t".to_owned(), ..Credentials::default() },
    ];
    let realm = format!(r#"Bearer realm="http://{}/token""#, tokens.address);
    for given in &credentials {
        for (challenged, client) in [
            ("Basic", Registry::new(RegistryConfig::default())),
            (realm.as_str(), Registry::new(RegistryConfig::default())),
            (realm.as_str(), trusting(&[&fake])),
        ] {
            let challenged = challenged.to_owned();
            fake.intercept(move |asked| {
                asked.header("authorization").is_none().then(|| challenge(&challenged))
            });
            // A registry token is for the registry, which the last client trusts.
            let _ = client.resolve(&image, Some(given)).await;
        }
    }
    assert!(tokens.asked().is_empty(), "{:?}", tokens.asked().len());
    let with_credentials: Vec<String> =
        fake.asked().iter().filter_map(|asked| asked.header("authorization").map(str::to_owned)).collect();
    assert_eq!(with_credentials, ["Bearer t"], "by the client that trusts it");
    // Images are pulled without credentials as ever.
    fake.intercept(|_| None);
    Registry::new(RegistryConfig::default()).resolve(&image, Some(&credentials[0])).await.unwrap();
}
