//! What pods can send, and what other servers can.

use proptest::prelude::*;
use simple_dns::{RCODE, TYPE};

use crate::client::{Response, ask, bytes, query, query_with_edns, send, start};

#[tokio::test]
async fn a_message_that_is_not_a_query_gets_an_error_or_no_response() {
    let running = start(None, 53);
    let good = bytes(&query("web.shop.svc.cluster.local", TYPE::A));
    let changed = |at: usize, byte: u8| {
        let mut message = good.clone();
        message[at] = byte;
        message
    };
    let mut extended = bytes(&query_with_edns("web.shop.svc.cluster.local", TYPE::A, 1232));
    let version = extended.len() - 5;
    extended[version] = 1;
    let table = [
        ("another operation", changed(2, 0x28), RCODE::NotImplemented),
        ("two questions", changed(5, 2), RCODE::FormatError),
        ("no question", changed(5, 0), RCODE::FormatError),
        ("an answer that is missing", changed(7, 1), RCODE::FormatError),
        ("a pointer in the question", changed(12, 0xc0), RCODE::FormatError),
        ("the class CH", changed(good.len() - 1, 3), RCODE::Refused),
        ("a zone transfer", changed(good.len() - 3, 252), RCODE::Refused),
        ("cut", good[..good.len() - 1].to_vec(), RCODE::FormatError),
    ];
    for (what, message, code) in table {
        assert_eq!(Response::read(&send(running.udp, &message).await).code, code, "{what}");
    }
    // Of BADVERS the upper bits are in the OPT record, where simple-dns does not look for them.
    let response = send(running.udp, &extended).await;
    let code = u16::from(response[3] & 0xf) | u16::from(response[response.len() - 6]) << 4;
    assert_eq!(code, 16, "another version of EDNS");
    // A response, and a header that is cut, get nothing: the next query is the first that is answered.
    let socket = tokio::net::UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
    for message in [changed(2, 0x81), good[..11].to_vec(), Vec::new(), changed(0, 0x12)] {
        socket.send_to(&message, running.udp).await.unwrap();
    }
    let mut buffer = [0; 512];
    let (length, _) = socket.recv_from(&mut buffer).await.unwrap();
    assert_eq!(Response::read(&buffer[..length]).answers.len(), 1);
    assert_eq!(ask(running.udp, "web.shop.svc.cluster.local", TYPE::A).await.answers.len(), 1);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_decoded_or_rejected(message in proptest::collection::vec(any::<u8>(), 0..600)) {
        plumb_dns::fuzz::decode(&message);
    }

    /// A valid message with some bytes changed comes further into the decoder than arbitrary ones.
    #[test]
    fn a_damaged_message_is_decoded_or_rejected(
        changes in proptest::collection::vec((0_usize..70, any::<u8>()), 0..6),
        length in 0_usize..80,
    ) {
        let mut message = bytes(&query_with_edns("a.web.shop.svc.cluster.local", TYPE::SRV, 1232));
        for (at, byte) in changes {
            if let Some(place) = message.get_mut(at) {
                *place = byte;
            }
        }
        message.truncate(length);
        plumb_dns::fuzz::decode(&message);
    }
}
