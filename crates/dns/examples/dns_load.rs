//! Asks a DNS server as fast as it answers, and prints how many answers it gave per second.
//!
//! ```console
//! $ cargo run --release -p plumb-dns --example dns_load -- 10.96.0.10:53 10 kubernetes.default.svc.cluster.local
//! ```
//!
//! Each of two sockets has 64 questions under way: the next one is sent when an answer arrives. A lost one is made up for after
//! 100 ms. Answers without records are counted apart: a server that fails is fast.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Sockets, each with a thread.
const SOCKETS: usize = 2;
/// Questions under way of a socket.
const WINDOW: u16 = 64;
/// When a question counts as lost.
const LOST: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Default)]
struct Answers {
    with_records: u64,
    others: u64,
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let server: Option<SocketAddr> = arguments.next().and_then(|text| text.parse().ok());
    let seconds: Option<u64> = arguments.next().and_then(|text| text.parse().ok());
    let questions: Option<Vec<Vec<u8>>> = arguments.map(|name| question(&name)).collect();
    let (Some(server), Some(seconds), Some(questions)) = (server, seconds, questions) else {
        return Err(io::Error::other("usage: dns_load ADDRESS:PORT SECONDS NAME..."));
    };
    if questions.is_empty() {
        return Err(io::Error::other("no names to ask for"));
    }
    let time = Duration::from_secs(seconds);
    let all: io::Result<Vec<Answers>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..SOCKETS).map(|_| scope.spawn(|| ask(server, time, &questions))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| io::Error::other("a panic")));
        joined.map(|answers| answers.and_then(|answers| answers)).collect()
    });
    let all = all?;
    let sum = |of: fn(&Answers) -> u64| all.iter().map(of).sum::<u64>();
    let answers = sum(|answers| answers.with_records);
    println!(
        "{} answers per second, {} without records",
        answers / seconds.max(1),
        sum(|answers| answers.others)
    );
    Ok(())
}

/// A message that asks for the A records of a name, with the id 0.
fn question(name: &str) -> Option<Vec<u8>> {
    let mut message = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.trim_end_matches('.').split('.') {
        message.push(u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length))?);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    Some(message)
}

fn ask(server: SocketAddr, time: Duration, questions: &[Vec<u8>]) -> io::Result<Answers> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(LOST))?;
    let mut sent = questions.iter().cycle();
    let mut send = |id: u16| {
        let mut message = sent.next().cloned().unwrap_or_default();
        message[..2].copy_from_slice(&id.to_be_bytes());
        socket.send(&message)
    };
    let mut answers = Answers::default();
    let mut buffer = [0; 4096];
    let end = Instant::now() + time;
    for id in 0..WINDOW {
        send(id)?;
    }
    while Instant::now() < end {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let has_records = buffer[..length].get(6..8).is_some_and(|count| count != [0, 0]);
                if has_records {
                    answers.with_records += 1;
                } else {
                    answers.others += 1;
                }
                send(u16::from_be_bytes([buffer[0], buffer[1]]))?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                for id in 0..WINDOW {
                    send(id)?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(answers)
}
