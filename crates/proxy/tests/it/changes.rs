//! The table of the kernel over time.

use std::process::Command;
use std::time::Duration;

use plumb_nftables::{Batch, has_table};
use serde_json::json;

use crate::cluster::{TABLE, apply, endpoints, programmer, ready, service, vip};
use crate::machine::{Host, TIMEOUT, connect, on_own_machine};

#[test]
fn a_kernel_that_takes_the_rules_lacks_nothing() {
    on_own_machine(|| {
        if programmer().is_some() {
            assert_eq!(plumb_proxy::services::missing(TABLE), Vec::<&str>::new());
        }
    });
}

/// Removes the table, as `nft flush ruleset` does.
fn flush() {
    let mut batch = Batch::new(TABLE);
    batch.remove_table();
    batch.commit().unwrap();
}

#[test]
fn rules_that_another_program_removes_are_made_anew() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let web = Host::pod(2);
        web.serve_tcp(8080);
        apply(&mut proxy, [service(1, json!({})), endpoints(1, "TCP", 8080, &[ready(web.address)])]);
        connect(vip(1, 80)).unwrap();
        // The next change notices.
        flush();
        apply(&mut proxy, [service(2, json!({}))]);
        connect(vip(1, 80)).unwrap();
        // And a proxy that runs does by itself.
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(async {
            let watching = tokio::spawn(proxy.watch());
            tokio::task::yield_now().await;
            flush();
            let made = async {
                while !has_table(TABLE).unwrap() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(TIMEOUT, made).await.unwrap();
            watching.abort();
        });
        connect(vip(1, 80)).unwrap();
    });
}

#[test]
fn the_rules_of_a_former_agent_stay_until_everything_is_listed() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let web = Host::pod(2);
        web.serve_tcp(8080);
        apply(&mut proxy, [service(1, json!({})), endpoints(1, "TCP", 8080, &[ready(web.address)])]);
        drop(proxy);
        let mut next = plumb_proxy::services::Programmer::new(&crate::cluster::config());
        next.observe(service(2, json!({})));
        next.apply().unwrap();
        connect(vip(1, 80)).unwrap();
    });
}

#[test]
fn a_change_is_small_however_many_services_there_are() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let webs = [2, 3].map(Host::pod);
        for web in &webs {
            web.serve_tcp(8080);
        }
        let endpoints_of_all: Vec<_> = webs.iter().map(|web| ready(web.address)).collect();
        // Those with session affinity have other rules, which nft must be able to read, too.
        let spec =
            |number| if number % 2 == 0 { json!({ "sessionAffinity": "ClientIP" }) } else { json!({}) };
        let all = (1..=250).flat_map(|number| {
            [service(number, spec(number)), endpoints(number, "TCP", 8080, &endpoints_of_all)]
        });
        apply(&mut proxy, all);
        for number in [1, 250] {
            connect(vip(number, 80)).unwrap();
        }
        apply(&mut proxy, (1..=249).map(crate::cluster::deleted));
        connect(vip(250, 80)).unwrap();
        // What is listed is what is left.
        let Ok(listed) = Command::new("nft").args(["list", "table", "ip", TABLE]).output() else {
            plumb_testkit::skip(plumb_testkit::MACHINE, "there is no nft to list the rules with");
            return;
        };
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.contains("default/s250/tcp/"), "{listed}");
        assert!(!listed.contains("default/s249/tcp/"), "{listed}");
    });
}
