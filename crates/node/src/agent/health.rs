//! The health of a node: whether it can run pods, and its pressures.

use tokio::sync::watch;

use super::Agent;
use crate::eviction::EvictionManager;
use crate::register::NodeHealth;

impl Agent {
    /// The health of the node, with its pressures.
    pub(super) fn current_health(&self) -> NodeHealth {
        let health = self.health.borrow().clone();
        match &self.node.eviction {
            Some(eviction) => health.with_pressures(&eviction.pressures().borrow()),
            None => health,
        }
    }

    /// Follows the health of the node and its pressures, and returns what both of them are together.
    pub(super) fn follow_health(&self) -> (watch::Receiver<NodeHealth>, impl Future<Output = ()> + use<>) {
        let (sender, merged) = watch::channel(self.current_health());
        let pressures = self.node.eviction.as_ref().map(EvictionManager::pressures);
        let mut health = self.health.clone();
        let receiver = if pressures.is_some() { merged } else { health.clone() };
        let following = async move {
            let Some(mut pressures) = pressures else { return };
            loop {
                let now = health.borrow_and_update().clone().with_pressures(&pressures.borrow_and_update());
                sender.send_if_modified(|merged| {
                    let is_changed = *merged != now;
                    *merged = now;
                    is_changed
                });
                let changed = async {
                    if health.changed().await.is_err() {
                        // The last health stays.
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    () = changed => {}
                    changed = pressures.changed() => if changed.is_err() {
                        return;
                    },
                }
            }
        };
        (receiver, following)
    }
}
