//! Authentication by client certificate and token, through real sockets.

use std::{net::SocketAddr, sync::Arc};

use http::Request;
use http_body_util::Empty;
use plumb_apiserver::serve::{BindError, Listener};
use rustls::{
    SupportedProtocolVersion,
    version::{TLS12, TLS13},
};

use super::server::{Client, Server, rest};
use crate::it::pki::Place;

const VERSIONS: [&[&SupportedProtocolVersion]; 2] = [&[&TLS12], &[&TLS13]];

#[tokio::test]
async fn a_client_certificate_authenticates_over_both_protocols_and_both_versions_of_tls() {
    let server = Server::start();
    let admin = server.client().who_is(server.pki.admin());
    for versions in VERSIONS {
        let admin = Client { versions, ..admin.clone() };
        let mut one = admin.http1().await.unwrap();
        let mut two = admin.http2().await.unwrap();
        for _ in 0..2 {
            assert_eq!(one.get("/who").await.unwrap(), "kubernetes-admin HTTP/1.1");
            assert_eq!(two.get("/who").await.unwrap(), "kubernetes-admin HTTP/2.0");
        }
        let without_alpn = Client { alpn: "", ..admin };
        assert_eq!(
            without_alpn.http1().await.unwrap().get("/who").await.unwrap(),
            "kubernetes-admin HTTP/1.1"
        );
    }
    let node = server.pki.issue_client("system:node:a", &["system:nodes"]).unwrap();
    let mut node = server.client().who_is(node).http2().await.unwrap();
    assert_eq!(node.get("/who").await.unwrap(), "system:node:a HTTP/2.0");
}

#[tokio::test]
async fn a_client_without_a_certificate_has_no_identity() {
    let server = Server::start();
    assert_eq!(server.client().http1().await.unwrap().get("/who").await.unwrap(), "anonymous HTTP/1.1");
    assert_eq!(server.client().http2().await.unwrap().get("/who").await.unwrap(), "anonymous HTTP/2.0");
}

#[tokio::test]
async fn the_user_of_a_request_follows_from_its_credentials() {
    let server = Server::start();
    let right = format!("Bearer {}", server.admin_token.reveal());
    let cases = [
        ("/api", Some(right.as_str()), 200, "kubernetes-admin of system:masters, system:authenticated"),
        ("/livez", None, 200, "system:anonymous of system:unauthenticated"),
        ("/api", None, 401, "no credentials"),
        ("/api", Some("Bearer wrong"), 401, "unknown bearer token"),
        ("/livez", Some("Bearer wrong"), 401, "unknown bearer token"),
    ];
    for mut connection in [server.client().http1().await.unwrap(), server.client().http2().await.unwrap()] {
        for (path, authorization, status, answer) in cases {
            let request = Request::get(path).header("host", "localhost");
            let request = authorization
                .into_iter()
                .fold(request, |request, value| request.header("authorization", value));
            let response = connection.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
            assert_eq!(response.status(), status, "{path}");
            assert_eq!(rest(response).await.unwrap(), answer, "{path}");
        }
    }
}

/// The handshake fails, or, where the client is done before the server has judged it, the first request does.
async fn is_refused(client: &Client) -> bool {
    match client.http1().await {
        Ok(mut connection) => connection.get("/who").await.is_err(),
        Err(_) => true,
    }
}

#[tokio::test]
async fn a_foreign_expired_or_serving_certificate_does_not_authenticate() {
    let server = Server::start();
    let foreign = Place::new().open().unwrap();
    let expired = server.pki.admin();
    for versions in VERSIONS {
        let client = Client { versions, ..server.client() };
        assert!(is_refused(&client.clone().who_is(foreign.admin())).await);
        let as_server = Client { identity: Some(server.place.read("serving.pem")), ..client.clone() };
        assert!(is_refused(&as_server).await);
        assert!(!is_refused(&client.clone().who_is(server.pki.admin())).await);
    }

    server.place.clock.forward_days(366);
    server.pki.renew().unwrap();
    for versions in VERSIONS {
        let client = Client { versions, ..server.client() };
        assert!(is_refused(&client.clone().who_is(expired.clone())).await);
        assert!(!is_refused(&client.clone().who_is(server.pki.admin())).await);
    }

    // Not yet valid, as far as this server's clock goes.
    let ahead = server.pki.admin();
    server.place.clock.forward_days(-366);
    server.pki.renew().unwrap();
    assert!(is_refused(&server.client().who_is(ahead)).await);
    server.assert_responds().await;
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_server_disconnects() {
    let server = Server::start();
    let stranger = Client { trust: Arc::new(Place::new().open().unwrap()), ..server.client() };
    let error = stranger.connect().await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    server.assert_responds().await;
}

#[tokio::test]
async fn a_renewed_certificate_is_presented_to_new_connections() {
    let server = Server::start();
    let client = server.client();
    let shown = async || client.connect().await.unwrap().get_ref().1.peer_certificates().unwrap()[0].clone();
    let mut connected = client.http2().await.unwrap();
    connected.get("/who").await.unwrap();
    let first = shown().await;
    assert_eq!(shown().await, first);

    server.place.clock.forward_days(300);
    assert!(server.pki.renew().unwrap().serving);
    assert_ne!(shown().await, first);
    assert_eq!(connected.get("/who").await.unwrap(), "anonymous HTTP/2.0");

    // The authority stays: clients that trust the old certificate still trust the server, and theirs are accepted.
    let old_trust = client.trust.authority_der();
    let admin = server.client().who_is(server.pki.admin());
    server.place.clock.forward_days(2_200);
    let renewed = server.pki.renew().unwrap();
    assert!(renewed.authority && renewed.serving);
    assert_ne!(server.pki.authority_der(), old_trust);
    assert!(is_refused(&admin).await, "its certificate has expired meanwhile");
    assert!(!is_refused(&server.client().who_is(server.pki.admin())).await);
}

#[tokio::test]
async fn a_port_in_use_is_reported_with_a_hint() {
    let server = Server::start();
    let error = Listener::bind(server.address).unwrap_err();
    assert!(matches!(error, BindError::InUse { address } if address == server.address));
    let text = error.to_string();
    assert!(text.contains(&server.address.to_string()) && text.contains("--listen"), "{text}");

    let elsewhere: SocketAddr = "192.0.2.1:6443".parse().unwrap();
    let text = Listener::bind(elsewhere).unwrap_err().to_string();
    assert!(text.contains("192.0.2.1:6443") && text.contains("--listen"), "{text}");
}

#[tokio::test]
async fn the_url_of_a_listener_is_local() {
    for (address, begins) in [("127.0.0.1:0", "https://127.0.0.1:"), ("0.0.0.0:0", "https://127.0.0.1:")] {
        let listener = Listener::bind(address.parse().unwrap()).unwrap();
        assert_eq!(listener.url(), format!("{begins}{}", listener.address().port()));
    }
}
