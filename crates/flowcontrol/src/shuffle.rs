//! Shuffle sharding: each flow may use a few of the queues of its level, its hand. A flow that fills all queues of its hand leaves to
//! almost every other flow a queue that it does not use.

/// The bits of a hash that a hand may use. With all 64 the last card would be dealt noticeably unevenly.
pub const MAX_HASH_BITS: u32 = 60;

/// The largest hand: a deck of 16 cards needs 4 bits per card, and no larger hand of any deck fits into [`MAX_HASH_BITS`].
pub const MAX_HAND: usize = 15;

/// The bits of a hash that a hand uses, rounded up.
pub fn required_entropy_bits(deck: u32, hand: u32) -> u32 {
    let bits = (f64::from(deck).log2() * f64::from(hand)).ceil();
    // Validation has checked that both are positive, so this is at most 32 * 2^32; the comparison saturates.
    if bits.is_finite() && bits >= 0.0 && bits < f64::from(u32::MAX) { truncated(bits) } else { u32::MAX }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the caller has checked the range"
)]
fn truncated(number: f64) -> u32 {
    number as u32
}

/// The hand of a flow: distinct queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hand {
    cards: [u32; MAX_HAND],
    size: usize,
}

impl Hand {
    /// Deals a hand by a hash. Every hand is about as probable as any other. A hand is never larger than the deck.
    pub fn deal(deck: u32, size: u32, hash: u64) -> Self {
        let size = usize::try_from(size.min(deck)).unwrap_or(MAX_HAND).min(MAX_HAND);
        // Each remainder is the index of a card among those that are left in the deck.
        let mut remainders = [0; MAX_HAND];
        let (mut hash, mut left) = (hash, u64::from(deck));
        for remainder in &mut remainders[..size] {
            // Less than `deck`, which has 32 bits.
            *remainder = u32::try_from(hash % left).unwrap_or(0);
            hash /= left;
            left -= 1;
        }
        // Putting back the cards that were dealt before, the last one first, makes it the index in the whole deck.
        let mut cards = remainders;
        for i in 1..size {
            for dealt in remainders[..i].iter().rev() {
                cards[i] += u32::from(cards[i] >= *dealt);
            }
        }
        Self { cards, size }
    }

    /// The queues of the hand.
    pub fn queues(&self) -> &[u32] {
        &self.cards[..self.size]
    }
}
