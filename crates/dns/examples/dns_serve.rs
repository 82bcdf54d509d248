//! The DNS server alone, on an address of the loopback interface: for measurements beside other servers.
//!
//! ```console
//! $ cargo run --release -p plumb-dns --example dns_serve -- 127.0.0.1:1053 10000
//! ```
//!
//! It has as many Services as the second argument says, `s0.default` and so on, each with a cluster IP.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_dns::{Config, ForwardConfig, Name, Server};

#[tokio::main]
async fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address: Option<SocketAddr> = arguments.next().and_then(|text| text.parse().ok());
    let count: Option<u32> = arguments.next().and_then(|text| text.parse().ok());
    let domain = Name::from_text("cluster.local");
    let (Some(address), Some(count), Some(domain)) = (address, count, domain) else {
        return Err(io::Error::other("usage: dns_serve ADDRESS:PORT SERVICES"));
    };
    let forward = ForwardConfig { resolv_conf: None, read: |_| Ok(Vec::new()), port: 53, own: Vec::new() };
    let mut server = Server::new(Config { domain, address: Ipv4Addr::LOCALHOST, forward });
    server.listen(None, address)?;
    let services: Vec<Service> = (0..count).map(service).collect();
    {
        let mut zone = server.zone().write();
        zone.replace_services(&services);
        zone.replace_slices(&[]);
    }
    println!("{count} services at {address}");
    Arc::new(server).run().await;
    Ok(())
}

fn service(number: u32) -> Service {
    let address = Ipv4Addr::from(0x0a61_0000 + number);
    let port = ServicePort { port: 80, ..ServicePort::default() };
    let spec = ServiceSpec {
        cluster_ip: Some(address.to_string()),
        ports: Some(vec![port]),
        ..ServiceSpec::default()
    };
    let metadata = ObjectMeta {
        name: Some(format!("s{number}")),
        namespace: Some("default".to_owned()),
        ..ObjectMeta::default()
    };
    Service { metadata, spec: Some(spec), status: None }
}
