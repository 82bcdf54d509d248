//! Responses over UDP and TCP.

use simple_dns::{RCODE, TYPE};

use crate::client::{Response, ask, bytes, query, query_with_edns, send, send_over_tcp, start};
use crate::fixture::slice;
use serde_json::{Value, json};

#[tokio::test]
async fn names_of_services_are_answered_as_coredns_does() {
    let running = start(None, 53);
    let web = ask(running.udp, "web.shop.svc.cluster.local", TYPE::A).await;
    assert_eq!((web.code, web.authoritative, web.truncated), (RCODE::NoError, true, false));
    assert_eq!(web.answers, ["web.shop.svc.cluster.local 5 A 10.96.1.1"]);
    assert_eq!(web.payload, None);

    let port = ask(running.udp, "_http._tcp.web.shop.svc.cluster.local", TYPE::SRV).await;
    assert_eq!(
        port.answers,
        ["_http._tcp.web.shop.svc.cluster.local 5 SRV 0 100 80 web.shop.svc.cluster.local"]
    );
    assert_eq!(port.additional, ["web.shop.svc.cluster.local 5 A 10.96.1.1"]);

    let endpoints = ask(running.udp, "_http._tcp.db.shop.svc.cluster.local", TYPE::SRV).await.sorted();
    assert_eq!(
        endpoints.answers,
        [
            "_http._tcp.db.shop.svc.cluster.local 5 SRV 0 50 8080 10-64-0-12.db.shop.svc.cluster.local",
            "_http._tcp.db.shop.svc.cluster.local 5 SRV 0 50 8080 db-0.db.shop.svc.cluster.local",
        ]
    );
    assert_eq!(
        endpoints.additional,
        [
            "10-64-0-12.db.shop.svc.cluster.local 5 A 10.64.0.12",
            "db-0.db.shop.svc.cluster.local 5 A 10.64.0.10"
        ]
    );

    let pointer = ask(running.udp, "1.1.96.10.in-addr.arpa", TYPE::PTR).await;
    assert_eq!(pointer.answers, ["1.1.96.10.in-addr.arpa 5 PTR web.shop.svc.cluster.local"]);
    let version = ask(running.udp, "dns-version.cluster.local", TYPE::TXT).await;
    assert_eq!(version.answers, ["dns-version.cluster.local 28800 TXT 1.1.0"]);
    let apex = ask(running.udp, "cluster.local", TYPE::SOA).await;
    assert_eq!(apex.answers, ["cluster.local 5 SOA ns.dns.cluster.local hostmaster.cluster.local 1 5"]);
    let servers = ask(running.udp, "cluster.local", TYPE::NS).await;
    assert_eq!(servers.answers, ["cluster.local 5 NS ns.dns.cluster.local"]);
    assert_eq!(servers.additional, ["ns.dns.cluster.local 5 A 10.96.0.10"]);
}

#[tokio::test]
async fn negative_responses_have_the_soa_record_of_their_zone() {
    let running = start(None, 53);
    let authority = "cluster.local 5 SOA ns.dns.cluster.local hostmaster.cluster.local 1 5";
    for (name, record_type, code) in [
        ("unknown.shop.svc.cluster.local", TYPE::A, RCODE::NameError),
        ("web.shop.svc.cluster.local", TYPE::AAAA, RCODE::NoError),
        ("shop.svc.cluster.local", TYPE::A, RCODE::NoError),
        ("cluster.local", TYPE::A, RCODE::NoError),
    ] {
        let response = ask(running.udp, name, record_type).await;
        assert_eq!((response.code, response.authoritative), (code, true), "{name}");
        assert_eq!((response.answers.len(), response.authority), (0, vec![authority.to_owned()]), "{name}");
    }
    let reverse = ask(running.udp, "1.1.96.10.in-addr.arpa", TYPE::A).await;
    assert_eq!(reverse.authority, ["in-addr.arpa 5 SOA ns.dns.in-addr.arpa hostmaster.in-addr.arpa 1 5"]);
}

#[tokio::test]
async fn an_alias_within_the_cluster_is_followed() {
    let running = start(None, 53);
    let inside = ask(running.udp, "inside.shop.svc.cluster.local", TYPE::A).await;
    assert_eq!(
        inside.answers,
        [
            "inside.shop.svc.cluster.local 5 CNAME web.shop.svc.cluster.local",
            "web.shop.svc.cluster.local 5 A 10.96.1.1",
        ]
    );
    let ring = ask(running.udp, "ring.shop.svc.cluster.local", TYPE::A).await;
    assert_eq!(ring.code, RCODE::ServerFailure);
    let alone = ask(running.udp, "inside.shop.svc.cluster.local", TYPE::CNAME).await;
    assert_eq!(alone.answers.len(), 1);
}

#[tokio::test]
async fn the_case_of_the_question_is_preserved() {
    let running = start(None, 53);
    let response = ask(running.udp, "WeB.sHoP.svc.CLUSTER.local", TYPE::A).await;
    assert_eq!(response.question, "WeB.sHoP.svc.CLUSTER.local");
    assert_eq!(response.answers, ["WeB.sHoP.svc.CLUSTER.local 5 A 10.96.1.1"]);
}

#[tokio::test]
async fn a_response_that_does_not_fit_is_truncated_and_complete_over_tcp() {
    let running = start(None, 53);
    let endpoints: Vec<Value> =
        (0..200).map(|number| json!({ "addresses": [format!("10.64.1.{number}")] })).collect();
    running.server.zone().write().apply_slice(&slice("shop", "empty", "a", json!([]), endpoints.into()));
    let name = "empty.shop.svc.cluster.local";
    let classic = Response::read(&send(running.udp, &bytes(&query(name, TYPE::A))).await);
    assert!(classic.truncated);
    // A header of 12 bytes, a question of 34, and records of 16 each.
    assert_eq!(classic.answers.len(), (512 - 12 - 34) / 16);
    for (payload, expected) in [(100, 512), (512, 512), (900, 900), (65_535, 1232)] {
        let message = send(running.udp, &bytes(&query_with_edns(name, TYPE::A, payload))).await;
        assert!(message.len() <= expected && message.len() > expected - 16, "{payload}: {}", message.len());
        let response = Response::read(&message);
        assert_eq!((response.truncated, response.payload), (true, Some(1232)));
    }
    let both = [bytes(&query(name, TYPE::A)), bytes(&query(name, TYPE::SRV))];
    let responses = send_over_tcp(running.tcp, &both).await;
    let whole = Response::read(&responses[0]).sorted();
    assert_eq!((whole.truncated, whole.answers.len()), (false, 200));
    // The order is another one with each answer.
    let orders: std::collections::HashSet<String> = {
        let mut orders = std::collections::HashSet::new();
        for response in send_over_tcp(running.tcp, &vec![both[0].clone(); 4]).await {
            orders.insert(Response::read(&response).answers.join(" "));
        }
        orders
    };
    assert!(orders.len() > 1);
}

#[tokio::test]
async fn many_ports_of_many_endpoints_are_complete_over_tcp() {
    let running = start(None, 53);
    let endpoints: Vec<Value> = (0..100)
        .map(|number| json!({ "addresses": [format!("10.64.1.{number}")], "hostname": format!("h{number}") }))
        .collect();
    let ports =
        json!([{ "name": "a", "protocol": "TCP", "port": 1 }, { "name": "b", "protocol": "TCP", "port": 2 }]);
    running.server.zone().write().apply_slice(&slice("shop", "empty", "a", ports, endpoints.into()));
    let queries = [bytes(&query("empty.shop.svc.cluster.local", TYPE::SRV))];
    let response = Response::read(&send_over_tcp(running.tcp, &queries).await[0]).sorted();
    assert_eq!((response.answers.len(), response.additional.len()), (200, 100));
    assert!(response.answers[0].contains(" SRV 0 1 "), "{}", response.answers[0]);
    assert!(response.additional.contains(&"h99.empty.shop.svc.cluster.local 5 A 10.64.1.99".to_owned()));
}

#[tokio::test]
async fn names_of_the_cluster_fail_until_the_zone_has_synced() {
    let running = start(None, 53);
    *running.server.zone().write() = plumb_dns::Zone::new(crate::fixture::domain(), crate::fixture::SERVER);
    let response = ask(running.udp, "web.shop.svc.cluster.local", TYPE::A).await;
    assert_eq!(response.code, RCODE::ServerFailure);
}

#[tokio::test]
async fn without_resolvers_other_names_fail() {
    let running = start(None, 53);
    let response = ask(running.udp, "example.com", TYPE::A).await;
    assert_eq!(response.code, RCODE::ServerFailure);
}

#[tokio::test]
async fn metrics_have_the_names_of_coredns() {
    let running = start(None, 53);
    ask(running.udp, "web.shop.svc.cluster.local", TYPE::A).await;
    ask(running.udp, "unknown.shop.svc.cluster.local", TYPE::SRV).await;
    let mut text = plumb_metrics::Text::default();
    running.server.render(&mut text);
    let text = text.finish();
    for line in [
        r#"coredns_dns_requests_total{server="dns://:53",zone="cluster.local.",view="",proto="udp",family="1",type="A"} 1"#,
        r#"coredns_dns_responses_total{server="dns://:53",zone="cluster.local.",view="",rcode="NXDOMAIN",plugin="kubernetes"} 1"#,
        r#"coredns_dns_request_duration_seconds_count{server="dns://:53",zone="cluster.local.",view=""} 2"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
