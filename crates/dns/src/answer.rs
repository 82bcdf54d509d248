//! Writing of responses from the zone.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use crate::message::{Code, HEADER, Owner, Query, Response, Section, write_pointer};
use crate::name::{LookupName, Name};
use crate::zone::{Answer, RecordType, ServiceRecord};

/// The TTL of records of the cluster and of negative responses, in seconds: CoreDNS's default.
pub(crate) const TTL: u32 = 5;
/// The TTL of the record with the version, as in CoreDNS.
const VERSION_TTL: u32 = 28_800;
/// The version of the specification.
const VERSION: &[u8] = b"1.1.0";
/// The numbers of the SOA record after its names, as in CoreDNS: serial, refresh, retry, expire, minimum.
const AUTHORITY: [u32; 5] = [1, 7200, 1800, 86_400, TTL];
/// The sum of the weights of SRV records, as in CoreDNS.
const WEIGHTS: usize = 100;

/// Writes the records of a name, or the reason why it has none. `random` decides their order.
pub(crate) fn write(response: &mut Response, query: &Query, answer: Answer, random: u64) {
    response.set_authoritative();
    let written = match answer {
        Answer::NameError(zone) => {
            response.set_code(Code::NameError);
            write_authority(response, &query.name, zone, Section::Authority)
        }
        Answer::NoData(zone) => write_authority(response, &query.name, zone, Section::Authority),
        Answer::Authority => write_authority(response, &query.name, 0, Section::Answer),
        Answer::Addresses(mut addresses) => {
            shuffle(&mut addresses, random);
            write_all(addresses, |address| write_address(response, Owner::QUESTION, address))
        }
        Answer::Services { service, mut records } => {
            shuffle(&mut records, random);
            write_services(response, query, service, &records)
        }
        Answer::Pointers(names) => write_all(names, |name| {
            response.record(Section::Answer, Owner::QUESTION, RecordType::PTR, TTL, |data| {
                data.extend_from_slice(name.wire());
            })
        }),
        Answer::Version => {
            response.record(Section::Answer, Owner::QUESTION, RecordType::TXT, VERSION_TTL, |data| {
                data.extend(u8::try_from(VERSION.len()));
                data.extend_from_slice(VERSION);
            })
        }
        Answer::NameServer(address) => {
            let mut target = 0;
            let start = response.position();
            let written = response.record(Section::Answer, Owner::QUESTION, RecordType::NS, TTL, |data| {
                target = data.len();
                data.extend_from_slice(b"\x02ns\x03dns");
                write_pointer(data, HEADER);
            });
            debug_assert!(target > start, "the data follows the owner");
            written
                && response.record(Section::Additional, Owner::At(target), RecordType::A, TTL, |data| {
                    data.extend_from_slice(&address.octets());
                })
        }
        // The caller handles these answers, so this is never reached.
        Answer::Elsewhere | Answer::NotReady | Answer::Alias(_) => {
            response.set_code(Code::ServerFailure);
            true
        }
    };
    if !written {
        response.set_truncated();
    }
}

/// Writes a CNAME record. Returns the position of its target, or `None` if it does not fit.
pub(crate) fn write_alias(response: &mut Response, owner: Owner<'_>, target: &Name) -> Option<usize> {
    let mut position = 0;
    let fits = response.record(Section::Answer, owner, RecordType::CNAME, TTL, |data| {
        position = data.len();
        data.extend_from_slice(target.wire());
    });
    fits.then_some(position)
}

/// Writes an A record to the answer section.
pub(crate) fn write_address(response: &mut Response, owner: Owner<'_>, address: Ipv4Addr) -> bool {
    response.record(Section::Answer, owner, RecordType::A, TTL, |data| {
        data.extend_from_slice(&address.octets());
    })
}

/// Writes the SOA record of a zone, which is the name of the question from the label `zone` on.
fn write_authority(response: &mut Response, name: &LookupName, zone: usize, section: Section) -> bool {
    let zone = HEADER + name.start(zone);
    response.record(section, Owner::At(zone), RecordType::SOA, TTL, |data| {
        data.extend_from_slice(b"\x02ns\x03dns");
        write_pointer(data, zone);
        data.extend_from_slice(b"\x0ahostmaster");
        write_pointer(data, zone);
        for number in AUTHORITY {
            data.extend_from_slice(&number.to_be_bytes());
        }
    })
}

fn write_services(response: &mut Response, query: &Query, service: usize, records: &[ServiceRecord]) -> bool {
    let weight = u16::try_from(WEIGHTS / records.len().max(1)).unwrap_or_default().max(1);
    let service = query.name.rest(service);
    // A target may have several ports, but its addresses are written once.
    let mut targets = HashMap::new();
    for record in records {
        let mut target = 0;
        let fits = response.record(Section::Answer, Owner::QUESTION, RecordType::SRV, TTL, |data| {
            for number in [0, weight, record.port] {
                data.extend_from_slice(&number.to_be_bytes());
            }
            target = data.len();
            // The target is not compressed (RFC 2782).
            if let Some(host) = &record.host {
                data.extend(u8::try_from(host.len()));
                data.extend_from_slice(host);
            }
            data.extend_from_slice(service);
        });
        if !fits {
            return false;
        }
        targets.entry(record.host.as_ref()).or_insert((target, &record.addresses));
    }
    for (target, addresses) in targets.into_values() {
        for address in addresses {
            let owner = Owner::At(target);
            let fits = response.record(Section::Additional, owner, RecordType::A, TTL, |data| {
                data.extend_from_slice(&address.octets());
            });
            // A response without additional records is still complete.
            if !fits {
                return true;
            }
        }
    }
    true
}

/// Writes items until one does not fit.
fn write_all<T>(items: Vec<T>, mut write: impl FnMut(T) -> bool) -> bool {
    items.into_iter().all(&mut write)
}

/// Shuffles items to spread load. The order need not be unpredictable.
fn shuffle<T>(items: &mut [T], mut random: u64) {
    for last in (1..items.len()).rev() {
        random = mix(random);
        let bound = u64::try_from(last + 1).unwrap_or(u64::MAX);
        items.swap(last, usize::try_from(random % bound).unwrap_or_default());
    }
}

/// The next number of a pseudo-random sequence (splitmix64).
pub(crate) fn mix(state: u64) -> u64 {
    let mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
