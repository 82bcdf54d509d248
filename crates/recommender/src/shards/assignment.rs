//! Which replica each shard belongs to. Pure: every replica that observes the same replicas and holders comes to the same
//! result.

use super::fnv;

/// Assigns shards to replicas, evenly: the numbers of two replicas differ by one at most. `holders` is who holds the lease of
/// each shard at present, and as many shards as possible stay with their holders. Without replicas no shard is assigned.
pub fn assign<'a>(replicas: &[&'a str], holders: &[Option<&str>]) -> Vec<Option<&'a str>> {
    let mut replicas = replicas.to_vec();
    replicas.sort_unstable();
    replicas.dedup();
    let mut quota = Quota::new(replicas.len(), holders.len());
    let mut assigned = vec![None; holders.len()];
    for (shard, holder) in assigned.iter_mut().zip(holders) {
        let at = holder.and_then(|holder| replicas.binary_search(&holder).ok());
        *shard = at.filter(|&at| quota.take(at)).map(|at| replicas[at]);
    }
    for (number, shard) in assigned.iter_mut().enumerate().filter(|(_, shard)| shard.is_none()) {
        // By a hash, so that replicas that start together do not all begin with the first.
        let rank = |at: usize| (fnv(&[replicas[at].as_bytes(), &number.to_le_bytes()]), at);
        let mut free: Vec<usize> = (0..replicas.len()).filter(|&at| quota.is_free(at)).collect();
        free.sort_unstable_by_key(|&at| rank(at));
        *shard = free.first().filter(|&&at| quota.take(at)).map(|&at| replicas[at]);
    }
    assigned
}

/// How many shards each replica may get.
struct Quota {
    taken: Vec<usize>,
    /// How many each gets.
    each: usize,
    /// How many replicas get one more.
    more: usize,
}

impl Quota {
    fn new(replicas: usize, shards: usize) -> Self {
        let each = shards.checked_div(replicas).unwrap_or_default();
        Self { taken: vec![0; replicas], each, more: shards - each * replicas }
    }

    fn is_free(&self, replica: usize) -> bool {
        let taken = self.taken[replica];
        taken < self.each || (taken == self.each && self.more > 0)
    }

    fn take(&mut self, replica: usize) -> bool {
        if !self.is_free(replica) {
            return false;
        }
        if self.taken[replica] == self.each {
            self.more -= 1;
        }
        self.taken[replica] += 1;
        true
    }
}
