//! How the containers of a pod add up: one rule, used for requests and for limits, for the two resizable
//! resources and for whole resource lists.

use crate::list::ResourceList;
use crate::resource::{Declared, PerResource};

/// The role of a container in the lifecycle of its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Runs to completion before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: starts in its turn and then continues to run.
    Sidecar,
    /// Runs for as long as the pod does.
    Main,
}

/// Something that containers have and pods add up.
pub(crate) trait Aggregate: Default + Clone {
    /// Adds what `other` has.
    fn add(&mut self, other: &Self);
    /// Takes the larger of what both have.
    fn raise_to(&mut self, other: &Self);
}

impl Aggregate for Declared {
    fn add(&mut self, other: &Self) {
        *self = PerResource::of(|r| match (self[r], other[r]) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        });
    }

    fn raise_to(&mut self, other: &Self) {
        *self = PerResource::of(|r| self[r].max(other[r]));
    }
}

impl Aggregate for ResourceList {
    fn add(&mut self, other: &Self) {
        ResourceList::add(self, other);
    }

    fn raise_to(&mut self, other: &Self) {
        ResourceList::raise_to(self, other);
    }
}

/// Adds up the containers of a pod, given in the order of the spec with init containers first.
///
/// Main containers and sidecars run together, so they are summed. While a plain init container runs, only
/// the sidecars before it run beside it; the pod needs the largest of all those moments (KEP-753).
pub(crate) fn aggregate<T: Aggregate>(containers: impl IntoIterator<Item = (Role, T)>) -> T {
    let mut together = T::default();
    let mut sidecars = T::default();
    let mut starting = T::default();
    for (role, needs) in containers {
        match role {
            Role::Main => together.add(&needs),
            Role::Sidecar => {
                together.add(&needs);
                sidecars.add(&needs);
                starting.raise_to(&sidecars);
            }
            Role::Init => {
                let mut moment = needs;
                moment.add(&sidecars);
                starting.raise_to(&moment);
            }
        }
    }
    together.raise_to(&starting);
    together
}

#[cfg(test)]
mod tests {
    use super::Role::{Init, Main, Sidecar};
    use super::*;

    fn cpu(milli: i64) -> Declared {
        Declared::new(Some(milli), None)
    }

    #[test]
    fn the_rule_of_sidecars_and_init_containers() {
        type Case = (&'static str, &'static [(Role, i64)], Option<i64>);
        let table: &[Case] = &[
            ("no containers", &[], None),
            ("containers add up", &[(Main, 100), (Main, 200)], Some(300)),
            ("a large init container sets the floor", &[(Init, 900), (Main, 100), (Main, 200)], Some(900)),
            ("init containers run one after the other", &[(Init, 300), (Init, 400), (Main, 100)], Some(400)),
            ("sidecars count with the main ones", &[(Sidecar, 50), (Main, 100)], Some(150)),
            (
                "a sidecar before an init container runs beside it",
                &[(Sidecar, 50), (Init, 300), (Main, 100)],
                Some(350),
            ),
            ("a sidecar after it does not", &[(Init, 300), (Sidecar, 50), (Main, 100)], Some(300)),
        ];
        for (name, containers, expected) in table {
            let total = aggregate(containers.iter().map(|(role, milli)| (*role, cpu(*milli))));
            assert_eq!(total.cpu, *expected, "{name}");
            assert_eq!(total.memory, None, "{name}");
        }
    }
}
