//! The server: its sockets, and the response to a message.
//!
//! ```text
//!   datagram, or a message on a connection ──▶ handle ──┬──▶ nothing: the message is not a query
//!                                                       ├──▶ a response: from the zone, from the cache, or an error
//!                                                       └──▶ pending: a task queries other servers
//! ```

mod limits;
mod tcp;
mod udp;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::RwLock;
use plumb_metrics::Text;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};

use crate::answer;
use crate::cache::{self, Question, Reply};
use crate::forward::{ForwardConfig, Forwarder};
use crate::message::{CLASS_IN, Code, Owner, Query, Rejected, Response, Section, adapt, records};
use crate::metrics::{Metrics, Origin, Transport};
use crate::name::{LookupName, Name};
use crate::zone::{Answer, RecordType, Zone};
use limits::Slots;

/// The maximum length of a chain of ExternalName Services, as in CoreDNS.
const MAX_ALIASES: usize = 10;
/// The size of the receive buffer of a UDP socket in the kernel.
const RECEIVE_BUFFER: usize = 1 << 20;
/// The number of connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 128;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The domain of the cluster.
    pub domain: Name,
    /// The address at which pods reach the server.
    pub address: Ipv4Addr,
    /// The servers for names outside of the cluster.
    pub forward: ForwardConfig,
}

/// A DNS server.
pub struct Server {
    zone: Arc<RwLock<Zone>>,
    forwarder: Arc<Forwarder>,
    metrics: Arc<Metrics>,
    udp: Vec<Arc<UdpSocket>>,
    tcp: Vec<TcpListener>,
    connections: Arc<Slots>,
    pending: Arc<Slots>,
    random: AtomicU64,
}

/// The outcome of a message.
enum Handled {
    /// No response.
    Nothing,
    /// A response.
    Response(Vec<u8>),
    /// A response once other servers have responded.
    Pending(Box<Pending>),
}

/// Aliases that end at a name outside of the cluster.
struct Elsewhere {
    aliases: Response,
    asked: Query,
}

/// A query that waits for other servers.
struct Pending {
    query: Query,
    /// The CNAME records that lead from its name to the one that is asked for, if it is another.
    aliases: Option<Response>,
    /// The key of the question to other servers.
    asked: Query,
    question: Question,
    transport: Transport,
    limit: usize,
    started: Instant,
}

impl Server {
    /// Creates a server without sockets.
    pub fn new(config: Config) -> Self {
        let metrics = Arc::<Metrics>::default();
        Self {
            zone: Arc::new(RwLock::new(Zone::new(config.domain, config.address))),
            forwarder: Forwarder::new(config.forward, metrics.clone()),
            metrics,
            udp: Vec::new(),
            tcp: Vec::new(),
            connections: Arc::new(limits::CONNECTIONS.into()),
            pending: Arc::new(limits::PENDING.into()),
            random: AtomicU64::default(),
        }
    }

    /// Listens on an address over UDP and TCP. With an interface, only queries that arrive on it are answered, so that servers of
    /// several clusters can have the same address on different interfaces.
    pub fn listen(&mut self, interface: Option<&str>, address: SocketAddr) -> io::Result<()> {
        let bound = |kind: Type, protocol: Protocol| {
            let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
            socket.set_nonblocking(true)?;
            if let Some(interface) = interface {
                socket.bind_device(Some(interface.as_bytes()))?;
            }
            if kind == Type::STREAM {
                socket.set_reuse_address(true)?;
            } else {
                socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
            }
            socket.bind(&address.into())?;
            Ok::<_, io::Error>(socket)
        };
        let udp = UdpSocket::from_std(bound(Type::DGRAM, Protocol::UDP)?.into())?;
        let tcp = bound(Type::STREAM, Protocol::TCP)?;
        tcp.listen(BACKLOG)?;
        self.tcp.push(TcpListener::from_std(tcp.into())?);
        self.udp.push(Arc::new(udp));
        Ok(())
    }

    /// The addresses of the sockets for UDP and for TCP.
    pub fn addresses(&self) -> io::Result<(Vec<SocketAddr>, Vec<SocketAddr>)> {
        let udp = self.udp.iter().map(|socket| socket.local_addr()).collect::<io::Result<_>>()?;
        let tcp = self.tcp.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        Ok((udp, tcp))
    }

    /// The records of the cluster.
    pub fn zone(&self) -> &Arc<RwLock<Zone>> {
        &self.zone
    }

    /// Serves until the future is dropped. It can be run again, since the sockets stay open.
    pub async fn run(self: Arc<Self>) {
        let datagrams = self.udp.iter().map(|socket| udp::serve(&self, socket));
        let connections = self.tcp.iter().map(|listener| tcp::serve(&self, listener));
        let datagrams = futures_util::future::join_all(datagrams);
        tokio::join!(datagrams, futures_util::future::join_all(connections));
    }

    /// Writes the metrics.
    pub fn render(&self, text: &mut Text) {
        let domain = self.zone.read().domain().to_string();
        self.metrics.render(text, &domain, self.forwarder.cached_len());
    }

    /// Handles a message.
    fn handle(&self, message: &[u8], transport: Transport) -> Handled {
        let started = Instant::now();
        let query = match Query::read(message) {
            Ok(query) => query,
            Err(Rejected::Silently) => return Handled::Nothing,
            Err(Rejected::With { id, flags, code }) => {
                return Handled::Response(Response::rejection(id, flags, code));
            }
        };
        let limit = match transport {
            Transport::Udp => query.udp_limit(),
            Transport::Tcp => usize::from(u16::MAX),
        };
        let is_transfer = matches!(query.record_type, RecordType::AXFR | RecordType::IXFR);
        if query.class != CLASS_IN || is_transfer {
            return Handled::Response(failure(&query, limit, Code::Refused));
        }
        let answer = self.zone.read().lookup(&query.name, query.record_type);
        let response = match answer {
            Answer::Elsewhere => {
                return self.forward(query.clone(), query, None, transport, limit, started);
            }
            Answer::NotReady => {
                self.count(Origin::Cluster, transport, &query, Code::ServerFailure.number(), started);
                return Handled::Response(failure(&query, limit, Code::ServerFailure));
            }
            Answer::Alias(target) => match self.follow(&query, target, limit) {
                Ok(response) => response,
                Err(elsewhere) => {
                    let Elsewhere { aliases, asked } = *elsewhere;
                    return self.forward(query, asked, Some(aliases), transport, limit, started);
                }
            },
            answer => {
                let mut response = Response::new(&query, limit);
                answer::write(&mut response, &query, answer, self.random());
                response
            }
        };
        self.count(Origin::Cluster, transport, &query, response.code().number(), started);
        Handled::Response(response.finish())
    }

    /// Follows the aliases of a name, to a response or to a name outside of the cluster.
    fn follow(&self, query: &Query, target: Name, limit: usize) -> Result<Response, Box<Elsewhere>> {
        let mut response = Response::new(query, limit);
        response.set_authoritative();
        let mut owner = Owner::QUESTION;
        let mut target = target;
        for _ in 0..MAX_ALIASES {
            let Some(position) = answer::write_alias(&mut response, owner, &target) else {
                response.set_truncated();
                return Ok(response);
            };
            if query.record_type == RecordType::CNAME {
                return Ok(response);
            }
            owner = Owner::At(position);
            let name = LookupName::from(&target);
            let answer = self.zone.read().lookup(&name, query.record_type);
            match answer {
                Answer::Elsewhere => {
                    return Err(Box::new(Elsewhere { aliases: response, asked: query.following(name) }));
                }
                Answer::Alias(next) => target = next,
                Answer::Addresses(addresses) => {
                    if !addresses
                        .into_iter()
                        .all(|address| answer::write_address(&mut response, owner, address))
                    {
                        response.set_truncated();
                    }
                    return Ok(response);
                }
                Answer::NameError(_) => {
                    response.set_code(Code::NameError);
                    return Ok(response);
                }
                _ => return Ok(response),
            }
        }
        // The Services are aliases of each other.
        response.set_code(Code::ServerFailure);
        Ok(response)
    }

    /// Responds from the cache, or returns a pending query to other servers.
    fn forward(
        &self,
        query: Query,
        asked: Query,
        aliases: Option<Response>,
        transport: Transport,
        limit: usize,
        started: Instant,
    ) -> Handled {
        let question = cache::question(&asked);
        let cached = self.forwarder.cached(&question);
        let pending = Pending { query, aliases, asked, question, transport, limit, started };
        match cached {
            Some(reply) => Handled::Response(self.complete(pending, Some(&reply))),
            None => Handled::Pending(Box::new(pending)),
        }
    }

    /// The response to a query that waited for other servers.
    fn complete(&self, pending: Pending, reply: Option<&Reply>) -> Vec<u8> {
        let Pending { query, aliases, transport, limit, started, .. } = pending;
        let code = reply.map_or(Code::ServerFailure.number(), Reply::code);
        self.count(Origin::Forward, transport, &query, code, started);
        let Some(reply) = reply else { return failure(&query, limit, Code::ServerFailure) };
        let age = reply.age(Instant::now());
        let response = match aliases {
            None => adapt(&reply.message, &query, age, limit),
            Some(aliases) => append(aliases, reply, age),
        };
        response.unwrap_or_else(|error| {
            tracing::debug!(%error, name = ?query.name, "cannot decode a response of a resolver of the machine");
            failure(&query, limit, Code::ServerFailure)
        })
    }

    /// Resolves a pending query by other servers.
    async fn resolve(&self, pending: Pending) -> Vec<u8> {
        let reply = self.forwarder.resolve(&pending.asked, pending.question.clone()).await;
        self.complete(pending, reply.as_deref())
    }

    /// The response to a query for which there is no free slot, as in CoreDNS with `max_concurrent`.
    fn refuse(&self, pending: &Pending) -> Vec<u8> {
        self.metrics.refused();
        failure(&pending.query, pending.limit, Code::Refused)
    }

    fn count(&self, origin: Origin, transport: Transport, query: &Query, code: u16, started: Instant) {
        self.metrics.answered(origin, transport, query.record_type, code, started.elapsed());
    }

    fn random(&self) -> u64 {
        answer::mix(self.random.fetch_add(1, Ordering::Relaxed))
    }
}

/// A response without records.
fn failure(query: &Query, limit: usize, code: Code) -> Vec<u8> {
    let mut response = Response::new(query, limit);
    response.set_code(code);
    response.finish()
}

/// Appends the answers of another server to the aliases.
fn append(mut response: Response, reply: &Reply, age: u32) -> Result<Vec<u8>, crate::message::Malformed> {
    match reply.code() {
        0 => {}
        3 => response.set_code(Code::NameError),
        _ => response.set_code(Code::ServerFailure),
    }
    for record in records(&reply.message)? {
        let record = record?;
        if record.section != Section::Answer {
            break;
        }
        if !response.copy(&reply.message, &record, record.ttl.saturating_sub(age))? {
            response.set_truncated();
            break;
        }
    }
    Ok(response.finish())
}
