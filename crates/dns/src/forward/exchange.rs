//! One query to one server.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::cache::Reply;
use crate::message::{HEADER, Malformed, Query, Section, flag, number16, records, write_opt};
use crate::name::LookupName;
use crate::zone::RecordType;

/// The timeout of a query to one server.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// The maximum size of a response over UDP. The OPT record of queries announces less.
const MAX_DATAGRAM: usize = 4096;

/// Why a query to a server failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("no response within {TIMEOUT:?}")]
    Timeout,
    #[error("sending a question")]
    Io(#[from] io::Error),
    #[error("the response is malformed")]
    Malformed(#[from] Malformed),
    #[error("no random number")]
    Random,
}

/// Queries a server over UDP, and over TCP if the response is truncated.
pub(crate) async fn ask(query: &Query, server: SocketAddr) -> Result<Reply, ExchangeError> {
    let mut id = [0; 2];
    SystemRandom::new().fill(&mut id).map_err(|_| ExchangeError::Random)?;
    let id = u16::from_be_bytes(id);
    let asked = write(query, id);
    let reply =
        timeout(TIMEOUT, over_udp(&asked, query, server)).await.map_err(|_| ExchangeError::Timeout)??;
    let is_truncated = number16(&reply, 2)? & flag::TRUNCATED != 0;
    let reply = if is_truncated {
        timeout(TIMEOUT, over_tcp(&asked, query, server)).await.map_err(|_| ExchangeError::Timeout)??
    } else {
        reply
    };
    Ok(Reply { message: without_opt(reply)?, received: Instant::now() })
}

/// Encodes the query: the question in the original case of the client, and its DNSSEC flags.
fn write(query: &Query, id: u16) -> Vec<u8> {
    let flags = flag::RECURSION_DESIRED | query.flags & flag::CHECKING_DISABLED;
    let mut bytes = [id.to_be_bytes(), flags.to_be_bytes()].concat();
    bytes.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, 1]);
    bytes.extend_from_slice(&query.question);
    write_opt(&mut bytes, 0, query.wants_dnssec());
    bytes
}

/// Queries a server over UDP. Each query has its own socket with a random port, which makes responses hard to forge. The socket
/// is connected, so that the kernel drops datagrams of other senders, and reports when no server is listening.
async fn over_udp(asked: &[u8], query: &Query, server: SocketAddr) -> Result<Vec<u8>, ExchangeError> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(asked).await?;
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // A response to another question may be forged; the right one may still arrive.
        if is_reply(&buffer[..length], asked, query) {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

async fn over_tcp(asked: &[u8], query: &Query, server: SocketAddr) -> Result<Vec<u8>, ExchangeError> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(asked.len()).map_err(|_| Malformed)?;
    stream.write_all(&[&length.to_be_bytes(), asked].concat()).await?;
    let length = stream.read_u16().await?;
    let mut reply = vec![0; usize::from(length)];
    stream.read_exact(&mut reply).await?;
    if is_reply(&reply, asked, query) { Ok(reply) } else { Err(Malformed.into()) }
}

/// Whether a message is the response to a query: it has the same id and the same question.
fn is_reply(message: &[u8], asked: &[u8], query: &Query) -> bool {
    let is_response =
        number16(message, 2).is_ok_and(|flags| flags & (flag::RESPONSE | flag::OPCODE) == flag::RESPONSE);
    let has_question = number16(message, 4) == Ok(1)
        && message.get(HEADER..).is_some_and(|rest| {
            let end = query.name.wire().len();
            LookupName::read(rest).is_ok_and(|name| name.wire() == query.name.wire())
                && rest.get(end..end + 4) == query.question.get(end..)
        });
    is_response && has_question && message.get(..2) == asked.get(..2)
}

/// Truncates a message before its OPT record, which is meant for this server only. Records after it, such as a signature of the
/// whole message, would not be valid without it.
fn without_opt(mut message: Vec<u8>) -> Result<Vec<u8>, Malformed> {
    let mut additional = 0_u16;
    let mut end = HEADER;
    for record in records(&message)? {
        let record = record?;
        if record.section == Section::Additional {
            if record.kind == RecordType::OPT {
                message.truncate(record.start);
                message[10..12].copy_from_slice(&additional.to_be_bytes());
                return Ok(message);
            }
            additional += 1;
        }
        end = record.data.end;
    }
    // A message without records ends after the question.
    if end > HEADER {
        message.truncate(end);
    }
    Ok(message)
}
