//! A client and a server of other programs: messages are read and written by simple-dns, which shares nothing with ours.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plumb_dns::{Config, ForwardConfig, Server};
use simple_dns::rdata::{OPT, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinHandle;

use crate::fixture::{SERVER, domain, services, slices};

/// How long a test waits for what is sure to come.
const DEADLINE: Duration = Duration::from_secs(30);

/// A server that runs, and where.
pub(crate) struct Running {
    pub(crate) server: Arc<Server>,
    pub(crate) udp: SocketAddr,
    pub(crate) tcp: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn read(file: &Path) -> std::io::Result<Vec<IpAddr>> {
    Ok(std::fs::read_to_string(file)?.lines().filter_map(|line| line.parse().ok()).collect())
}

/// A server of the fixture's cluster that forwards to the servers of a file, which all have one port.
pub(crate) fn start(resolv_conf: Option<&Path>, port: u16) -> Running {
    let forward =
        ForwardConfig { resolv_conf: resolv_conf.map(Path::to_owned), read, port, own: vec![SERVER.into()] };
    let mut server = Server::new(Config { domain: domain(), address: SERVER, forward });
    server.listen(None, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    server.zone().write().replace_services(&services());
    server.zone().write().replace_slices(&slices());
    let (udp, tcp) = server.addresses().unwrap();
    let server = Arc::new(server);
    Running { udp: udp[0], tcp: tcp[0], task: tokio::spawn(server.clone().run()), server }
}

/// A query.
pub(crate) fn query(name: &str, record_type: TYPE) -> Packet<'static> {
    let mut packet = Packet::new_query(0x1234);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new_unchecked(name).into_owned();
    packet.questions.push(Question::new(name, QTYPE::TYPE(record_type), QCLASS::CLASS(CLASS::IN), false));
    packet
}

/// A query of a client that takes responses of a certain length.
pub(crate) fn query_with_edns(name: &str, record_type: TYPE, payload: u16) -> Packet<'static> {
    let mut packet = query(name, record_type);
    *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: payload, version: 0 });
    packet
}

/// Sends a message over UDP, and returns the response.
pub(crate) async fn send(server: SocketAddr, message: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    socket.connect(server).await.unwrap();
    socket.send(message).await.unwrap();
    let mut buffer = vec![0; 65_535];
    let length = tokio::time::timeout(DEADLINE, socket.recv(&mut buffer)).await.unwrap().unwrap();
    buffer.truncate(length);
    buffer
}

/// Sends messages over one connection, and returns the responses.
pub(crate) async fn send_over_tcp(server: SocketAddr, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let mut responses = Vec::new();
    for message in messages {
        stream.write_u16(message.len().try_into().unwrap()).await.unwrap();
        stream.write_all(message).await.unwrap();
    }
    for _ in messages {
        let length = tokio::time::timeout(DEADLINE, stream.read_u16()).await.unwrap().unwrap();
        let mut response = vec![0; length.into()];
        stream.read_exact(&mut response).await.unwrap();
        responses.push(response);
    }
    responses
}

/// The bytes of a packet.
pub(crate) fn bytes(packet: &Packet<'_>) -> Vec<u8> {
    packet.build_bytes_vec().unwrap()
}

/// Asks over UDP.
pub(crate) async fn ask(server: SocketAddr, name: &str, record_type: TYPE) -> Response {
    Response::read(&send(server, &bytes(&query(name, record_type))).await)
}

/// A response, its records as text.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) code: RCODE,
    pub(crate) truncated: bool,
    pub(crate) authoritative: bool,
    pub(crate) question: String,
    pub(crate) answers: Vec<String>,
    pub(crate) authority: Vec<String>,
    pub(crate) additional: Vec<String>,
    /// The length that the server takes, if the response has an OPT record.
    pub(crate) payload: Option<u16>,
}

impl Response {
    pub(crate) fn read(message: &[u8]) -> Self {
        let packet = Packet::parse(message).unwrap();
        assert_eq!(packet.id(), 0x1234);
        assert!(packet.has_flags(PacketFlag::RESPONSE));
        let texts = |records: &[ResourceRecord<'_>]| records.iter().map(text).collect();
        Self {
            code: packet.rcode(),
            truncated: packet.has_flags(PacketFlag::TRUNCATION),
            authoritative: packet.has_flags(PacketFlag::AUTHORITATIVE_ANSWER),
            question: packet.questions.first().map(|question| question.qname.to_string()).unwrap_or_default(),
            answers: texts(&packet.answers),
            authority: texts(&packet.name_servers),
            additional: texts(&packet.additional_records),
            payload: packet.opt().map(|opt| opt.udp_packet_size),
        }
    }

    pub(crate) fn sorted(mut self) -> Self {
        for records in [&mut self.answers, &mut self.additional] {
            records.sort();
        }
        self
    }
}

/// A record as in a zone file.
fn text(record: &ResourceRecord<'_>) -> String {
    let data = match &record.rdata {
        RData::A(a) => format!("A {}", Ipv4Addr::from(a.address)),
        RData::CNAME(name) => format!("CNAME {}", name.0),
        RData::NS(name) => format!("NS {}", name.0),
        RData::PTR(name) => format!("PTR {}", name.0),
        RData::SRV(srv) => format!("SRV {} {} {} {}", srv.priority, srv.weight, srv.port, srv.target),
        RData::TXT(txt) => format!("TXT {}", String::try_from(txt.clone()).unwrap()),
        RData::SOA(soa) => format!("SOA {} {} {} {}", soa.mname, soa.rname, soa.serial, soa.minimum),
        other => format!("{other:?}"),
    };
    format!("{} {} {data}", record.name, record.ttl)
}
