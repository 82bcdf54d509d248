//! Names outside of the cluster.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use simple_dns::rdata::{A, CNAME, RData, SOA};
use simple_dns::{CLASS, Name, Packet, PacketFlag, RCODE, ResourceRecord, TYPE};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

use crate::client::{Response, Running, ask, bytes, query, query_with_edns, send, send_over_tcp, start};

/// A server of another program, which counts its queries.
struct Upstream {
    address: SocketAddr,
    queries: Arc<AtomicUsize>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Upstream {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Binds one port for UDP and TCP. A port that is free for one may be taken for the other: then the kernel chooses another.
async fn bind_both(address: IpAddr, port: u16) -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let udp = UdpSocket::bind((address, port)).await.unwrap();
        match TcpListener::bind(udp.local_addr().unwrap()).await {
            Ok(tcp) => return (udp, tcp),
            Err(error) => assert_eq!((error.kind(), port), (ErrorKind::AddrInUse, 0), "{error}"),
        }
    }
    panic!("no port is free for UDP and TCP");
}

impl Upstream {
    /// One that answers as a function says; nothing is no answer.
    async fn start(
        address: IpAddr,
        port: u16,
        reply: impl Fn(&Packet<'_>, bool) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let (udp, tcp) = bind_both(address, port).await;
        let address = udp.local_addr().unwrap();
        let reply = Arc::new(reply);
        let queries = Arc::new(AtomicUsize::new(0));
        let counted = queries.clone();
        let replied = reply.clone();
        let datagrams = tokio::spawn(async move {
            let mut buffer = [0; 4096];
            loop {
                let (length, client) = udp.recv_from(&mut buffer).await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                let message = replied(&Packet::parse(&buffer[..length]).unwrap(), false);
                if !message.is_empty() {
                    udp.send_to(&message, client).await.unwrap();
                }
            }
        });
        let connections = tokio::spawn(async move {
            loop {
                let (mut stream, _) = tcp.accept().await.unwrap();
                let length = stream.read_u16().await.unwrap();
                let mut message = vec![0; length.into()];
                stream.read_exact(&mut message).await.unwrap();
                let message = reply(&Packet::parse(&message).unwrap(), true);
                if !message.is_empty() {
                    stream.write_u16(message.len().try_into().unwrap()).await.unwrap();
                    stream.write_all(&message).await.unwrap();
                }
            }
        });
        Self { address, queries, tasks: [datagrams, connections] }
    }

    fn queries(&self) -> usize {
        self.queries.load(Ordering::Relaxed)
    }
}

fn record(name: &str, ttl: u32, data: RData<'static>) -> ResourceRecord<'static> {
    ResourceRecord::new(Name::new_unchecked(name).into_owned(), CLASS::IN, ttl, data)
}

fn a(name: &str, address: [u8; 4]) -> ResourceRecord<'static> {
    record(name, 60, RData::A(A { address: u32::from(Ipv4Addr::from(address)) }))
}

/// The reply to a query, with records.
fn reply(query: &Packet<'_>, answers: Vec<ResourceRecord<'static>>, code: RCODE) -> Packet<'static> {
    let mut packet = Packet::new_reply(query.id());
    packet.set_flags(PacketFlag::RECURSION_AVAILABLE);
    packet.questions = query.questions.iter().map(|question| question.clone().into_owned()).collect();
    packet.answers = answers;
    *packet.rcode_mut() = code;
    packet
}

/// A reply as servers send it, with compressed names.
fn compressed(packet: &Packet<'_>) -> Vec<u8> {
    packet.build_bytes_vec_compressed().unwrap()
}

/// A server that forwards to these addresses.
fn forwarding(to: &[IpAddr], port: u16) -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resolv.conf");
    let lines: Vec<String> = to.iter().map(IpAddr::to_string).collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    (start(Some(&file), port), folder)
}

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[tokio::test]
async fn other_names_are_forwarded_and_cached() {
    let upstream = Upstream::start(LOCAL, 0, |query, _| {
        assert!(query.opt().is_some());
        compressed(&reply(query, vec![a("www.example.com", [192, 0, 2, 1])], RCODE::NoError))
    })
    .await;
    let (running, _folder) = forwarding(&[LOCAL], upstream.address.port());
    let first = ask(running.udp, "www.example.com", TYPE::A).await;
    assert_eq!(first.answers, ["www.example.com 60 A 192.0.2.1"]);
    assert_eq!((first.code, first.authoritative, first.payload), (RCODE::NoError, false, None));
    // In other letters, with EDNS and over TCP it is the same name.
    let message = bytes(&query_with_edns("WWW.example.COM", TYPE::A, 1232));
    let again = Response::read(&send(running.udp, &message).await);
    assert_eq!((again.question.as_str(), again.payload), ("WWW.example.COM", Some(1232)));
    assert_eq!(again.answers.len(), 1);
    assert_eq!(Response::read(&send_over_tcp(running.tcp, &[message]).await[0]).answers.len(), 1);
    assert_eq!(upstream.queries(), 1);
}

#[tokio::test]
async fn negative_responses_are_cached_as_long_as_their_soa_record_allows() {
    let upstream = Upstream::start(LOCAL, 0, |query, _| {
        let name = query.questions[0].qname.to_string();
        let mut packet = reply(query, Vec::new(), RCODE::NameError);
        let minimum = if name.starts_with("kept") { 30 } else { 0 };
        let name = || Name::new_unchecked("example").into_owned();
        let soa = SOA { mname: name(), rname: name(), serial: 1, refresh: 1, retry: 1, expire: 1, minimum };
        packet.name_servers = vec![record("example", 300, RData::SOA(soa))];
        compressed(&packet)
    })
    .await;
    let (running, _folder) = forwarding(&[LOCAL], upstream.address.port());
    for (name, queries) in [("kept.example", 1), ("kept.example", 1), ("not.example", 2), ("not.example", 3)]
    {
        let response = ask(running.udp, name, TYPE::A).await;
        assert_eq!((response.code, response.authority.len()), (RCODE::NameError, 1));
        assert_eq!(upstream.queries(), queries, "{name}");
    }
}

#[tokio::test]
async fn an_external_name_is_followed_to_other_servers() {
    let upstream = Upstream::start(LOCAL, 0, |query, _| {
        let target = Name::new_unchecked("edge.example.com").into_owned();
        let answers = vec![
            record("www.example.com", 60, RData::CNAME(CNAME(target))),
            a("edge.example.com", [192, 0, 2, 7]),
        ];
        compressed(&reply(query, answers, RCODE::NoError))
    })
    .await;
    let (running, _folder) = forwarding(&[LOCAL], upstream.address.port());
    for _ in 0..2 {
        let response = ask(running.udp, "outside.shop.svc.cluster.local", TYPE::A).await;
        assert_eq!(
            response.answers,
            [
                "outside.shop.svc.cluster.local 5 CNAME www.example.com",
                "www.example.com 60 CNAME edge.example.com",
                "edge.example.com 60 A 192.0.2.7",
            ]
        );
    }
    assert_eq!(upstream.queries(), 1);
}

#[tokio::test]
async fn the_next_server_is_queried_if_one_fails() {
    let second = IpAddr::from([127, 0, 0, 2]);
    let upstream = Upstream::start(second, 0, |query, _| {
        compressed(&reply(query, vec![a("www.example.com", [192, 0, 2, 2])], RCODE::NoError))
    })
    .await;
    let port = upstream.address.port();
    // Nothing listens at the first, and the second one cannot say.
    let failing = Upstream::start([127, 0, 0, 3].into(), port, |query, _| {
        compressed(&reply(query, Vec::new(), RCODE::ServerFailure))
    })
    .await;
    let (running, _folder) = forwarding(&[[127, 0, 0, 4].into(), failing.address.ip(), second], port);
    let response = ask(running.udp, "www.example.com", TYPE::A).await;
    assert_eq!(response.answers, ["www.example.com 60 A 192.0.2.2"]);
    assert_eq!((failing.queries(), upstream.queries()), (1, 1));
}

#[tokio::test]
async fn a_truncated_response_is_retried_over_tcp() {
    let upstream = Upstream::start(LOCAL, 0, |query, tcp| {
        let answers = (0..100).map(|number| a("many.example", [192, 0, 2, number])).collect();
        let mut packet = reply(query, if tcp { answers } else { Vec::new() }, RCODE::NoError);
        if !tcp {
            packet.set_flags(PacketFlag::TRUNCATION);
        }
        compressed(&packet)
    })
    .await;
    let (running, _folder) = forwarding(&[LOCAL], upstream.address.port());
    let cut = ask(running.udp, "many.example", TYPE::A).await;
    assert!(cut.truncated && !cut.answers.is_empty() && cut.answers.len() < 100);
    let whole = send_over_tcp(running.tcp, &[bytes(&query("many.example", TYPE::A))]).await;
    assert_eq!(Response::read(&whole[0]).answers.len(), 100);
    assert_eq!(upstream.queries(), 1);
}

#[tokio::test]
async fn responses_to_other_questions_are_ignored() {
    let upstream = Upstream::start(LOCAL, 0, |_, _| Vec::new()).await;
    // A server that sends what forgers would, and then the response.
    let forging = UdpSocket::bind(("127.0.0.5", upstream.address.port())).await.unwrap();
    let task = tokio::spawn(async move {
        let mut buffer = [0; 4096];
        let (length, client) = forging.recv_from(&mut buffer).await.unwrap();
        let asked = Packet::parse(&buffer[..length]).unwrap();
        let right = reply(&asked, vec![a("www.example.com", [192, 0, 2, 1])], RCODE::NoError);
        let mut other_id = right.clone();
        other_id.set_id(asked.id().wrapping_add(1));
        other_id.answers = vec![a("www.example.com", [203, 0, 113, 1])];
        let mut other_name = reply(&query("evil.example.com", TYPE::A), Vec::new(), RCODE::NoError);
        other_name.set_id(asked.id());
        let mut other_type = reply(&query("www.example.com", TYPE::TXT), Vec::new(), RCODE::NoError);
        other_type.set_id(asked.id());
        for packet in [&asked, &other_id, &other_name, &other_type, &right] {
            forging.send_to(&bytes(packet), client).await.unwrap();
        }
    });
    let (running, _folder) = forwarding(&[[127, 0, 0, 5].into()], upstream.address.port());
    let response = ask(running.udp, "www.example.com", TYPE::A).await;
    assert_eq!(response.answers, ["www.example.com 60 A 192.0.2.1"]);
    task.await.unwrap();
}

#[tokio::test]
async fn a_question_in_flight_is_not_sent_twice() {
    let upstream = UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
    let (running, _folder) = forwarding(&[LOCAL], upstream.local_addr().unwrap().port());
    let client = UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
    let asked = bytes(&query("www.example.com", TYPE::A));
    for _ in 0..20 {
        client.send_to(&asked, running.udp).await.unwrap();
    }
    // The server takes them in order: once this is answered it has all of them.
    client.send_to(&bytes(&query("web.shop.svc.cluster.local", TYPE::A)), running.udp).await.unwrap();
    let mut buffer = [0; 4096];
    let (length, _) = client.recv_from(&mut buffer).await.unwrap();
    assert_eq!(Response::read(&buffer[..length]).question, "web.shop.svc.cluster.local");
    let (length, server) = upstream.recv_from(&mut buffer).await.unwrap();
    let question = Packet::parse(&buffer[..length]).unwrap();
    let answer = reply(&question, vec![a("www.example.com", [192, 0, 2, 1])], RCODE::NoError);
    upstream.send_to(&bytes(&answer), server).await.unwrap();
    for _ in 0..20 {
        let (length, _) = client.recv_from(&mut buffer).await.unwrap();
        assert_eq!(Response::read(&buffer[..length]).answers.len(), 1);
    }
    assert!(upstream.try_recv_from(&mut buffer).is_err(), "it was asked again");
}

#[tokio::test]
async fn a_forwarding_loop_ends_in_an_error() {
    // The resolver of the machine is a program that forwards to this server: a loop.
    let back = Arc::new(std::sync::OnceLock::<SocketAddr>::new());
    let target = back.clone();
    let relay = UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
    let port = relay.local_addr().unwrap().port();
    let relayed = Arc::new(AtomicUsize::new(0));
    let count = relayed.clone();
    let task = tokio::spawn(async move {
        let mut buffer = [0; 4096];
        loop {
            let (length, _) = relay.recv_from(&mut buffer).await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            relay.send_to(&buffer[..length], target.get().unwrap()).await.unwrap();
        }
    });
    let (running, _folder) = forwarding(&[LOCAL], port);
    back.set(running.udp).unwrap();
    let response = ask(running.udp, "www.example.com", TYPE::A).await;
    assert_eq!(response.code, RCODE::ServerFailure);
    // One for each attempt, and what this server answers at last.
    assert!(relayed.load(Ordering::Relaxed) <= 8, "{relayed:?}");
    task.abort();
}
