//! A cache of responses of other servers, which are valid until their TTLs expire.
//!
//! The cache stores messages unchanged and adapts their bytes for each client, since decoding and encoding them again would cost
//! more. A full cache removes the oldest response; names that are in use return with the next query.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::message::{CLASS_IN, Malformed, Query, Section, flag, number16, number32, records};
use crate::zone::RecordType;

/// The maximum number of responses. CoreDNS has about as many, for positive and negative responses each.
const MAX_ENTRIES: usize = 10_000;
/// The maximum number of bytes of all responses.
const MAX_BYTES: usize = 4 << 20;
/// The maximum lifetimes of positive and negative responses, as in CoreDNS.
const MAX_POSITIVE: Duration = Duration::from_hours(1);
const MAX_NEGATIVE: Duration = Duration::from_mins(30);
/// The approximate cost of an entry in addition to its message and its key.
const OVERHEAD: usize = 200;

/// The key of a response: the name in lower case, the type and class, whether the client wants DNSSEC records, and whether it
/// disables checking.
pub(crate) type Question = Arc<[u8]>;

/// The key of a query.
pub(crate) fn question(query: &Query) -> Question {
    let checking = query.flags & flag::CHECKING_DISABLED != 0;
    let options = [u8::from(query.wants_dnssec()), u8::from(checking)];
    let record_type = query.record_type.0.to_be_bytes();
    [query.name.wire(), &record_type, &query.class.to_be_bytes(), &options].concat().into()
}

/// A response of another server, without its OPT record.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) message: Vec<u8>,
    pub(crate) received: Instant,
}

impl Reply {
    /// The code of the response.
    pub(crate) fn code(&self) -> u16 {
        number16(&self.message, 2).map_or(flag::CODE, |flags| flags & flag::CODE)
    }

    /// The number of seconds since the response was received.
    pub(crate) fn age(&self, now: Instant) -> u32 {
        u32::try_from(now.saturating_duration_since(self.received).as_secs()).unwrap_or(u32::MAX)
    }

    /// The time for which the response may be cached; `None` if it must not be cached (RFC 2308).
    pub(crate) fn lifetime(&self) -> Result<Option<Duration>, Malformed> {
        let flags = number16(&self.message, 2)?;
        let code = flags & flag::CODE;
        if flags & flag::TRUNCATED != 0 || !(code == 0 || code == 3) {
            return Ok(None);
        }
        let mut shortest = None;
        let mut is_positive = false;
        for record in records(&self.message)? {
            let record = record?;
            let ttl = match (record.section, record.kind) {
                (Section::Answer, _) => {
                    is_positive = code == 0;
                    record.ttl
                }
                (Section::Authority, RecordType::SOA) if record.class == CLASS_IN => {
                    let minimum = record.data.end.checked_sub(4).ok_or(Malformed)?;
                    record.ttl.min(number32(&self.message, minimum)?)
                }
                _ => continue,
            };
            // A TTL with the highest bit set counts as 0 (RFC 2181, section 8).
            let ttl = if ttl > i32::MAX.unsigned_abs() { 0 } else { ttl };
            shortest = Some(shortest.map_or(ttl, |known: u32| known.min(ttl)));
        }
        let most = if is_positive { MAX_POSITIVE } else { MAX_NEGATIVE };
        let lifetime = shortest.map(|seconds| Duration::from_secs(seconds.into()).min(most));
        Ok(lifetime.filter(|lifetime| !lifetime.is_zero()))
    }
}

struct Entry {
    reply: Arc<Reply>,
    until: Instant,
    /// The number of the insertion.
    number: u64,
}

/// Responses by their questions.
#[derive(Default)]
pub(crate) struct Cache {
    entries: HashMap<Question, Entry>,
    /// The questions in the order of insertion. Those of replaced entries remain until they are the oldest.
    order: VecDeque<(u64, Question)>,
    bytes: usize,
    insertions: u64,
}

impl Cache {
    /// The response to a question that is still valid.
    pub(crate) fn get(&self, question: &Question, now: Instant) -> Option<Arc<Reply>> {
        let entry = self.entries.get(question).filter(|entry| now < entry.until)?;
        Some(entry.reply.clone())
    }

    /// Caches a response, if it may be cached.
    pub(crate) fn insert(&mut self, question: Question, reply: Arc<Reply>) {
        let Ok(Some(lifetime)) = reply.lifetime() else { return };
        self.insertions += 1;
        let entry = Entry { until: reply.received + lifetime, number: self.insertions, reply };
        self.bytes += size(&question, &entry);
        self.order.push_back((self.insertions, question.clone()));
        if let Some(replaced) = self.entries.insert(question.clone(), entry) {
            self.bytes -= size(&question, &replaced);
        }
        while self.bytes > MAX_BYTES || self.order.len() > MAX_ENTRIES {
            let Some((number, question)) = self.order.pop_front() else { return };
            if self.entries.get(&question).is_some_and(|entry| entry.number == number)
                && let Some(removed) = self.entries.remove(&question)
            {
                self.bytes -= size(&question, &removed);
            }
        }
    }

    /// Removes all responses, since other servers may respond differently.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The number of responses.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

fn size(question: &Question, entry: &Entry) -> usize {
    OVERHEAD + question.len() + entry.reply.message.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Owner, Response};
    use crate::name::LookupName;

    fn reply(name: &str, ttl: u32, length: usize, now: Instant) -> (Question, Arc<Reply>) {
        let name = LookupName::from_text(name).unwrap();
        let question_bytes = [name.wire(), &[0, 16, 0, 1]].concat();
        let message = [&[0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &question_bytes].concat();
        let query = Query::read(&message).unwrap();
        let mut response = Response::new(&query, 65_535);
        response.record(Section::Answer, Owner::QUESTION, RecordType::TXT, ttl, |data| {
            data.resize(data.len() + length, 0);
        });
        (question(&query), Arc::new(Reply { message: response.finish(), received: now }))
    }

    #[test]
    fn a_response_is_kept_as_long_as_its_ttl_says_and_no_longer() {
        let now = Instant::now();
        let mut cache = Cache::default();
        let (question, kept) = reply("a.example", 10, 1, now);
        cache.insert(question.clone(), kept);
        assert!(cache.get(&question, now + Duration::from_secs(9)).is_some());
        assert!(cache.get(&question, now + Duration::from_secs(10)).is_none());
        let (question, not_kept) = reply("b.example", 0, 1, now);
        cache.insert(question.clone(), not_kept);
        assert!(cache.get(&question, now).is_none());
        let (question, long) = reply("c.example", u32::MAX >> 1, 1, now);
        cache.insert(question.clone(), long);
        assert!(cache.get(&question, now + MAX_POSITIVE).is_none());
    }

    #[test]
    fn the_cache_has_a_ceiling_of_entries_and_of_bytes() {
        let now = Instant::now();
        let mut cache = Cache::default();
        for number in 0..MAX_ENTRIES + 10 {
            let (question, kept) = reply(&format!("{number}.example"), 60, 1, now);
            cache.insert(question, kept);
        }
        assert_eq!(cache.len(), MAX_ENTRIES);
        for number in 0..300 {
            let (question, kept) = reply(&format!("{number}.large.example"), 60, 60_000, now);
            cache.insert(question.clone(), kept);
            assert!(cache.get(&question, now).is_some());
            assert!(cache.bytes <= MAX_BYTES);
        }
        // The same question again and again is one entry.
        let (question, kept) = reply("same.example", 60, 1, now);
        for _ in 0..2 * MAX_ENTRIES {
            cache.insert(question.clone(), kept.clone());
        }
        assert!(cache.order.len() <= MAX_ENTRIES);
        assert!(cache.get(&question, now).is_some());
        let sum: usize = cache.entries.iter().map(|(question, entry)| size(question, entry)).sum();
        assert_eq!(cache.bytes, sum);
    }
}
