//! The requests of one candidate, given the responses to them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use plumb_controller_runtime::leader::{Durations, Election, Request, Response};
use tokio::time::Instant;

fn wall(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A candidate called `me`, with a monotonic clock that begins at 0 and a wall clock that begins at 1000.
struct Candidate {
    election: Election,
    start: Instant,
}

impl Candidate {
    fn new() -> Self {
        Self { election: Election::new("me", Durations::default()), start: Instant::now() }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn begin(&self, seconds: u64) -> Request {
        self.election.begin(self.at(seconds), wall(1000 + i64::try_from(seconds).unwrap()))
    }

    /// The answer comes at once.
    fn answer(&mut self, seconds: u64, request: &Request, response: Response) -> Option<Request> {
        self.answer_late(seconds, seconds, request, response)
    }

    fn answer_late(&mut self, sent: u64, now: u64, request: &Request, response: Response) -> Option<Request> {
        let clock = wall(1000 + i64::try_from(now).unwrap());
        self.election.answer(request, self.at(sent), response, self.at(now), clock)
    }

    /// Reads a lease.
    fn read(&mut self, seconds: u64, lease: &Lease) -> Option<Request> {
        self.answer(seconds, &Request::Get, Response::Lease(Box::new(lease.clone())))
    }

    /// Performs the write of a request, which succeeds.
    fn written(&mut self, seconds: u64, request: &Request) -> Lease {
        let lease = written(request);
        assert_eq!(self.answer(seconds, request, Response::Lease(Box::new(lease.clone()))), None);
        lease
    }

    fn leads_until(&self) -> Option<u64> {
        self.election.leads_until().map(|until| until.duration_since(self.start).as_secs())
    }
}

fn written(request: &Request) -> Lease {
    match request {
        Request::Create(lease) | Request::Replace(lease) | Request::Renew(lease) => (**lease).clone(),
        Request::Get => panic!("nothing is written"),
    }
}

fn held_by(holder: Option<&str>, renewed: i64, transitions: i32) -> Lease {
    let spec = LeaseSpec {
        holder_identity: holder.map(str::to_owned),
        lease_duration_seconds: Some(15),
        acquire_time: Some(MicroTime(wall(1))),
        renew_time: Some(MicroTime(wall(renewed))),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    };
    Lease { spec: Some(spec), ..Lease::default() }
}

/// Holder, seconds, acquired, renewed, transitions.
fn shown(lease: &Lease) -> (Option<&str>, Option<i32>, i64, i64, Option<i32>) {
    let spec = lease.spec.as_ref().unwrap();
    let second = |time: &Option<MicroTime>| time.as_ref().unwrap().0.as_second();
    let (acquired, renewed) = (second(&spec.acquire_time), second(&spec.renew_time));
    (spec.holder_identity.as_deref(), spec.lease_duration_seconds, acquired, renewed, spec.lease_transitions)
}

#[test]
fn a_lease_that_does_not_exist_is_created_and_renewed() {
    let mut me = Candidate::new();
    assert_eq!(me.begin(0), Request::Get);
    let create = me.answer(0, &Request::Get, Response::NotFound).unwrap();
    assert!(matches!(create, Request::Create(_)), "{create:?}");
    let lease = me.written(0, &create);
    assert_eq!(shown(&lease), (Some("me"), Some(15), 1000, 1000, Some(0)));
    assert_eq!((me.leads_until(), me.election.holder()), (Some(10), Some("me")));
    let renew = me.begin(2);
    assert!(matches!(renew, Request::Renew(_)), "a leader does not look first: {renew:?}");
    let lease = me.written(2, &renew);
    assert_eq!(shown(&lease), (Some("me"), Some(15), 1000, 1002, Some(0)));
    assert_eq!(me.leads_until(), Some(12));
}

#[test]
fn a_lease_is_taken_over_when_it_was_not_renewed_for_its_duration_by_the_local_clock() {
    let mut me = Candidate::new();
    // The clock of the holder is an hour ahead, or behind: it does not matter.
    for renewed in [4600, -2600] {
        let lease = held_by(Some("other"), renewed, 4);
        me.election = Election::new("me", Durations::default());
        assert_eq!(me.read(100, &lease), None);
        assert_eq!(me.read(114, &lease), None);
        let taken = me.read(115, &lease).unwrap();
        assert_eq!(shown(&written(&taken)), (Some("me"), Some(15), 1115, 1115, Some(5)));
    }
}

#[test]
fn a_renewal_is_seen_by_any_change_of_the_spec_and_by_nothing_else() {
    let mut me = Candidate::new();
    let lease = held_by(Some("other"), 1, 4);
    assert_eq!(me.read(0, &lease), None);
    // The clock of the holder is set back.
    assert_eq!(me.read(10, &held_by(Some("other"), 0, 4)), None);
    assert_eq!(me.read(24, &held_by(Some("other"), 0, 4)), None);
    let mut labelled = held_by(Some("other"), 0, 4);
    labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    labelled.metadata.resource_version = Some("9".to_owned());
    let taken = me.read(25, &labelled).unwrap();
    assert_eq!(written(&taken).metadata, labelled.metadata, "what others wrote on it stays");
}

#[test]
fn a_lease_without_a_holder_is_taken_at_once() {
    for holder in [None, Some("")] {
        let mut me = Candidate::new();
        let taken = me.read(0, &held_by(holder, 999, 4)).unwrap();
        assert_eq!(shown(&written(&taken)), (Some("me"), Some(15), 1000, 1000, Some(5)));
    }
    let mut me = Candidate::new();
    let taken = me.read(0, &Lease::default()).unwrap();
    assert_eq!(shown(&written(&taken)), (Some("me"), Some(15), 1000, 1000, Some(0)));
}

#[test]
fn a_candidate_that_finds_its_own_lease_renews_it() {
    let mut me = Candidate::new();
    let taken = me.read(0, &held_by(Some("me"), 999, 4)).unwrap();
    assert_eq!(me.leads_until(), None, "not before it has renewed");
    assert_eq!(shown(&me.written(0, &taken)), (Some("me"), Some(15), 1, 1000, Some(4)));
}

#[test]
fn a_leader_leads_from_the_time_of_its_request_and_not_of_the_response() {
    let mut me = Candidate::new();
    let taken = me.read(0, &held_by(None, 0, 0)).unwrap();
    let answer = Response::Lease(Box::new(written(&taken)));
    me.answer_late(0, 4, &taken, answer.clone());
    assert_eq!(me.leads_until(), Some(10));
    let renew = me.begin(6);
    me.answer_late(6, 17, &renew, answer);
    assert_eq!((me.leads_until(), me.election.is_leader(me.at(17))), (Some(16), false), "that was too late");
    assert_eq!(me.begin(17), Request::Get);
}

#[test]
fn a_renewal_that_fails_is_tried_again_with_a_look_and_a_leader_leads_until_the_deadline() {
    let mut me = Candidate::new();
    let taken = me.read(0, &held_by(None, 0, 0)).unwrap();
    let lease = me.written(0, &taken);
    let renew = me.begin(2);
    assert_eq!(me.answer(2, &renew, Response::Failed), Some(Request::Get));
    assert_eq!(me.answer(2, &Request::Get, Response::Failed), None);
    assert!(me.election.is_leader(me.at(9)) && !me.election.is_leader(me.at(10)));
    // Something else has written it, and it is still ours.
    let renew = me.begin(4);
    assert_eq!(me.answer(4, &renew, Response::Failed), Some(Request::Get));
    let again = me.read(4, &lease).unwrap();
    assert_eq!(me.answer(4, &again, Response::Failed), None, "there is no third time in one attempt");
    let again = me.read(6, &lease).unwrap();
    me.written(6, &again);
    assert_eq!(me.leads_until(), Some(16));
}

#[test]
fn a_leader_that_finds_another_one_stops_at_once() {
    let mut me = Candidate::new();
    let taken = me.read(0, &held_by(None, 0, 0)).unwrap();
    me.written(0, &taken);
    assert_eq!(me.read(2, &held_by(Some("other"), 0, 2)), None);
    assert_eq!((me.leads_until(), me.election.holder(), me.election.transitions()), (None, Some("other"), 2));
}

#[test]
fn a_lease_that_was_deleted_is_created_anew_only_once_its_holder_must_have_noticed() {
    let mut me = Candidate::new();
    assert_eq!(me.read(0, &held_by(Some("other"), 0, 2)), None);
    assert_eq!(me.answer(14, &Request::Get, Response::NotFound), None);
    let create = me.answer(15, &Request::Get, Response::NotFound).unwrap();
    assert_eq!(shown(&written(&create)), (Some("me"), Some(15), 1015, 1015, Some(0)));
}

#[test]
fn a_lease_is_released_only_by_its_holder() {
    let mut me = Candidate::new();
    let taken = me.read(0, &held_by(None, 0, 6)).unwrap();
    let lease = me.written(0, &taken);
    let released = me.election.release(lease, wall(1005)).unwrap();
    assert_eq!(shown(&written(&released)), (None, Some(1), 1005, 1005, Some(7)));
    assert_eq!(me.leads_until(), None);
    assert_eq!(me.election.release(held_by(Some("other"), 0, 0), wall(1005)), None);
    assert_eq!(me.election.release(Lease::default(), wall(1005)), None);
}
