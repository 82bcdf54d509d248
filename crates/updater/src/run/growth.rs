//! How far a node may raise limits, kept as the VPA says: pods that run already get its new bounds.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use plumb_controller_runtime::Write;
use plumb_vpa::growth::annotation_changes;

use super::Inner;
use crate::index::Gathered;
use crate::state::PodState;

impl Inner {
    /// Writes the bounds of growth of a VPA to its running pods whose bounds are other ones. Pods that are created get them from
    /// the admission webhook.
    pub(super) async fn carry_growth_bounds(&self, gathered: &Gathered) {
        let concurrent = self.config.options.concurrent_updates.max(1);
        let pods = gathered.subjects.iter().zip(&gathered.pods).filter(|(subject, _)| subject.pod.is_live());
        let changed = pods.filter_map(|(subject, object)| {
            let changes = annotation_changes(object, &gathered.vpa);
            (!changes.is_empty())
                .then(|| Box::pin(self.annotate_bounds(&subject.pod, changes)) as BoxFuture<'_, ()>)
        });
        let changed: Vec<BoxFuture<'_, ()>> = changed.collect();
        stream::iter(changed).buffer_unordered(concurrent).collect::<()>().await;
    }

    async fn annotate_bounds(&self, pod: &PodState, changes: BTreeMap<&'static str, Option<String>>) {
        match self.in_place.resizer.annotate(pod, &changes).await {
            Ok(annotated) => self.observed(&Write::updated(&annotated.metadata)).await,
            // The next pass finds it unchanged.
            Err(refusal) => tracing::debug!(pod = %pod.object, %refusal, "cannot write the bounds of growth"),
        }
    }
}
