//! Priority levels, and their limits of seats.

use k8s_openapi::api::flowcontrol::v1::{
    LimitedPriorityLevelConfiguration, PriorityLevelConfiguration, PriorityLevelConfigurationSpec,
    QueuingConfiguration,
};

use crate::EXEMPT;
use crate::borrowing::{SeatLimits, rounded};
use crate::queue_set::Queuing;
use crate::shuffle::{MAX_HASH_BITS, required_entropy_bits};

/// The part of a level's nominal seats that one request may occupy, in percent.
const MAX_SEATS_PERCENT: u32 = 15;

/// What a `PriorityLevelConfiguration` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The name.
    pub name: String,
    /// The UID of the object; empty for a mandatory level without an object.
    pub uid: String,
    /// What becomes of requests beyond the limit.
    pub queuing: Queuing,
    /// Its shares of the seats.
    pub shares: u32,
    /// Which part of its seats it lends, in percent.
    pub lendable_percent: u32,
    /// How many seats it borrows at most, in percent of its own; `None` is any number.
    pub borrowing_limit_percent: Option<u32>,
}

impl Level {
    /// The level of an object; `None` if its parts contradict each other, which validation prevents.
    pub fn new(object: &PriorityLevelConfiguration) -> Option<Self> {
        let name = object.metadata.name.clone()?;
        let PriorityLevelConfigurationSpec { type_, exempt, limited } = object.spec.as_ref()?;
        let (queuing, shares, lendable, borrowing) = match (type_.as_str(), exempt, limited) {
            ("Exempt", exempt, None) if name == EXEMPT => {
                let exempt = exempt.clone().unwrap_or_default();
                let shares = exempt.nominal_concurrency_shares.unwrap_or(0);
                (Queuing::Exempt, shares, exempt.lendable_percent.unwrap_or(0), None)
            }
            ("Limited", None, Some(limited)) if name != EXEMPT => {
                let shares = limited.nominal_concurrency_shares.unwrap_or(30);
                let lendable = limited.lendable_percent.unwrap_or(0);
                (queuing(limited)?, shares, lendable, limited.borrowing_limit_percent)
            }
            _ => return None,
        };
        let number = |number: i32| u32::try_from(number).ok();
        Some(Self {
            name,
            uid: object.metadata.uid.clone().unwrap_or_default(),
            queuing,
            shares: number(shares)?,
            lendable_percent: number(lendable).filter(|percent| *percent <= 100)?,
            borrowing_limit_percent: borrowing.map(|percent| number(percent).ok_or(())).transpose().ok()?,
        })
    }

    /// The limits of the level, if the levels of a server with so many seats have so many shares together. They are rounded up, so
    /// that their sum may be a little larger than the server's.
    pub fn limits(&self, server_seats: u32, all_shares: u64) -> SeatLimits {
        let percent = |of: u32, percent: u32| rounded(f64::from(of) * f64::from(percent) / 100.0);
        let nominal = u64::from(server_seats) * u64::from(self.shares);
        // A part of the server's seats.
        let nominal = u32::try_from(nominal.div_ceil(all_shares.max(1))).unwrap_or(server_seats);
        let borrowed = self.borrowing_limit_percent.map_or(server_seats, |limit| percent(nominal, limit));
        SeatLimits {
            nominal,
            lower: nominal.saturating_sub(percent(nominal, self.lendable_percent)),
            upper: nominal.saturating_add(borrowed),
        }
    }

    /// The most seats of one request of the level, if it has queues.
    pub fn max_seats(&self, limits: SeatLimits) -> Option<u32> {
        let Queuing::Queue { hand_size, .. } = self.queuing else { return None };
        let part = rounded((f64::from(limits.nominal) * f64::from(MAX_SEATS_PERCENT) / 100.0).ceil());
        Some(part.min(limits.nominal / hand_size.max(1)).max(1))
    }
}

fn queuing(limited: &LimitedPriorityLevelConfiguration) -> Option<Queuing> {
    let response = limited.limit_response.as_ref()?;
    match (response.type_.as_str(), &response.queuing) {
        ("Reject", None) => Some(Queuing::Reject),
        ("Queue", Some(QueuingConfiguration { hand_size, queue_length_limit, queues })) => {
            let positive = |number: Option<i32>, default: u32| match number {
                None => Some(default),
                Some(number) => u32::try_from(number).ok().filter(|number| *number > 0),
            };
            let (queues, hand_size) = (positive(*queues, 64)?, positive(*hand_size, 8)?);
            let is_valid = hand_size <= queues && required_entropy_bits(queues, hand_size) <= MAX_HASH_BITS;
            let queue_length_limit = positive(*queue_length_limit, 50)?;
            is_valid.then_some(Queuing::Queue { queues, hand_size, queue_length_limit })
        }
        _ => None,
    }
}
