//! Which requests are refused, and the headers of all responses.

use plumb_dashboard::{Config, Dashboard, StartError};
use plumb_testkit::TestCluster;

use crate::fixture::Running;

#[tokio::test]
async fn every_response_has_a_strict_content_security_policy() {
    let cluster = TestCluster::start();
    let running = Running::start(cluster.admin(), None).await;
    let page = running.get("/").await;
    let asset = |prefix: &str| {
        let start = page.body.find(prefix).unwrap() + prefix.len();
        page.body[start..].split('"').next().unwrap().to_owned()
    };
    let script = asset("script src=\"");
    let style = asset("stylesheet\" href=\"");
    for path in ["/", "/pods?format=json", "/other", &script, &style] {
        for head in [running.own(), vec![format!("Host: {}", running.address)]] {
            let response = running.send("GET", path, &head).await;
            let policy = response.header("content-security-policy").unwrap();
            for part in
                ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]
            {
                assert!(policy.split("; ").any(|one| one == part), "{path}: {policy}");
            }
            assert!(!policy.contains("unsafe"), "{policy}");
            assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
            assert_eq!(response.header("referrer-policy"), Some("same-origin"), "{path}");
            let cache = response.header("cache-control").unwrap();
            let is_asset = path.starts_with("/assets/");
            assert_eq!(cache.contains("immutable"), is_asset, "{path}: {cache}");
            assert_eq!(cache.contains("no-store"), !is_asset, "{path}: {cache}");
        }
    }
}

#[tokio::test]
async fn the_first_visit_exchanges_the_token_for_a_cookie() {
    let cluster = TestCluster::start();
    let running = Running::start(cluster.admin(), None).await;
    let host = format!("Host: {}", running.address);
    let first =
        running.send("GET", &format!("/pods?token={}&q=a", running.token), std::slice::from_ref(&host)).await;
    assert_eq!(first.status, 200);
    let cookie = first.header("set-cookie").unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.split("; ").any(|one| one == attribute), "{cookie}");
    }
    assert!(first.body.contains("url=/pods?q=a\""), "{}", first.body);
    assert!(!first.body.contains(&running.token) && !cookie.contains(&running.token));
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    let page = running.send("GET", "/pods?q=a", &[host.clone(), cookie]).await;
    assert_eq!(page.status, 200);
    assert!(page.body.contains("<h1>Pods</h1>"), "{}", page.body);
    // The link of a refusal leads to a page of the dashboard.
    let refused = running.send("GET", "/pods?q=a", std::slice::from_ref(&host)).await;
    assert!(refused.body.contains("href=\"/pods?q=a\""), "{}", refused.body);
    let refused = running.send("GET", "//attacker.example/", std::slice::from_ref(&host)).await;
    assert!(refused.status == 401 && !refused.body.contains("attacker"), "{}", refused.body);
    for (what, head) in [
        ("nothing", vec![host.clone()]),
        (
            "a wrong cookie",
            vec![host.clone(), format!("Cookie: plumb-dashboard-{}=x", running.address.port())],
        ),
        ("a wrong token", vec![host.clone(), "Authorization: Bearer x".to_owned()]),
    ] {
        for path in ["/", "/pods?format=json", "/?format=live", "/?token=x"] {
            let refused = running.send("GET", path, &head).await;
            assert_eq!(refused.status, 401, "{path} with {what}");
            assert!(!refused.body.contains("<table"), "{path} with {what}");
        }
    }
}

#[tokio::test]
async fn requests_for_other_hosts_and_from_other_sites_are_refused() {
    let cluster = TestCluster::start();
    let running = Running::start(cluster.admin(), None).await;
    let bearer = format!("Authorization: Bearer {}", running.token);
    let port = running.address.port();
    for host in [format!("attacker.example:{port}"), format!("192.0.2.1:{port}"), "0.0.0.0".to_owned()] {
        let refused = running.send("GET", "/", &[format!("Host: {host}"), bearer.clone()]).await;
        assert_eq!(refused.status, 403, "{host}");
        let refused =
            running.send("GET", &format!("/?token={}", running.token), &[format!("Host: {host}")]).await;
        assert_eq!((refused.status, refused.header("set-cookie")), (403, None), "{host}");
    }
    for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}"), "[::1]:9999".to_owned()] {
        let allowed = running.send("GET", "/", &[format!("Host: {host}"), bearer.clone()]).await;
        assert_eq!(allowed.status, 200, "{host}");
    }
    let post = async |origin: Option<String>| {
        let origin = origin.map(|origin| format!("Origin: {origin}"));
        let head: Vec<String> = running.own().into_iter().chain(origin).collect();
        running.send("POST", "/", &head).await.status
    };
    assert_eq!(post(None).await, 403);
    assert_eq!(post(Some("http://attacker.example".to_owned())).await, 403);
    // No page takes a POST.
    assert_eq!(post(Some(format!("http://{}", running.address))).await, 405);
}

#[tokio::test]
async fn an_address_that_others_reach_is_refused() {
    let cluster = TestCluster::start();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:6480"] {
        let config = Config::new(cluster.admin(), None, "test".to_owned());
        let refused = Dashboard::bind(address.parse().unwrap(), config).await.err().unwrap();
        assert!(matches!(refused, StartError::NotLoopback(_)), "{address}: {refused}");
        assert!(refused.to_string().contains("listen on 127.0.0.1"), "{refused}");
    }
}
