//! `status.resize`: one word per pod that says where the latest desired state stands.
//!
//! Allocation is all or nothing, so cpu and memory never need two words. The word speaks of the *latest*
//! desired state: while an accepted resize is still being carried out and a newer one has been refused, the
//! refusal is what it says. An error while carrying out does not change it: it stays `InProgress`, and the
//! condition says what went wrong. There is no word only while desired, allocated and actual are the same.

use std::fmt;

/// A value of `status.resize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResizeWord {
    /// Asked for; the node has not answered yet.
    Proposed,
    /// The node has promised it and is carrying it out.
    InProgress,
    /// The node could hold it, but not now.
    Deferred,
    /// The node can never hold it.
    Infeasible,
}

impl ResizeWord {
    /// The word itself.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proposed => "Proposed",
            Self::InProgress => "InProgress",
            Self::Deferred => "Deferred",
            Self::Infeasible => "Infeasible",
        }
    }

    /// Reads a word. One that is not known means `Deferred`, so that a newer server can say more.
    ///
    /// ```
    /// use plumb_resize::status::ResizeWord;
    ///
    /// assert_eq!(ResizeWord::read("InProgress"), ResizeWord::InProgress);
    /// assert_eq!(ResizeWord::read("WaitingForTheMoon"), ResizeWord::Deferred);
    /// ```
    pub fn read(text: &str) -> Self {
        [Self::Proposed, Self::InProgress, Self::Infeasible]
            .into_iter()
            .find(|word| word.name() == text)
            .unwrap_or(Self::Deferred)
    }
}

impl fmt::Display for ResizeWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What makes the word change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A user changed what is desired. The API server writes the word.
    Asked,
    /// The node promised what is desired.
    Accepted,
    /// The node put it off.
    PutOff,
    /// The node refused it.
    Refused,
    /// What is desired is in force.
    InForce,
}

/// Every way in which the word may change: from, why, to. Causes are listed where they can happen; whoever
/// writes the word keeps to the table, and the model checks that nobody leaves it.
pub const TRANSITIONS: &[(Option<ResizeWord>, Cause, Option<ResizeWord>)] = {
    use Cause::{Accepted, Asked, InForce, PutOff, Refused};
    use ResizeWord::{Deferred, InProgress, Infeasible, Proposed};
    &[
        // A user may ask at any time, and asking again starts over. So does going back to what is in force: the
        // node may be about to take what was asked for before, and only the node can say that it is not.
        (None, Asked, Some(Proposed)),
        (Some(Proposed), Asked, Some(Proposed)),
        (Some(InProgress), Asked, Some(Proposed)),
        (Some(Deferred), Asked, Some(Proposed)),
        (Some(Infeasible), Asked, Some(Proposed)),
        // The node answers what was proposed; also what it answered before, when room was found or it restarted.
        (Some(Proposed), Accepted, Some(InProgress)),
        (Some(Proposed), PutOff, Some(Deferred)),
        (Some(Proposed), Refused, Some(Infeasible)),
        (Some(Deferred), Accepted, Some(InProgress)),
        (Some(Deferred), Refused, Some(Infeasible)),
        (Some(Infeasible), Accepted, Some(InProgress)),
        (Some(Infeasible), PutOff, Some(Deferred)),
        // Two steps of the node may reach the API as one.
        (Some(Proposed), InForce, None),
        (Some(Deferred), InForce, None),
        (Some(Infeasible), InForce, None),
        (Some(InProgress), InForce, None),
        // Something other than the node changed what is in force; it is put right.
        (None, Accepted, Some(InProgress)),
        // What is desired is what is allocated, but what came before it is still on its way.
        (Some(InProgress), Accepted, Some(InProgress)),
    ]
};

/// Whether the word may change from one to the other, for any cause. Staying is always legal.
pub fn transition_is_legal(from: Option<ResizeWord>, to: Option<ResizeWord>) -> bool {
    from == to || TRANSITIONS.iter().any(|(a, _, b)| (*a, *b) == (from, to))
}
