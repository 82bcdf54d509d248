//! The highest memory usage of containers, for the memory decrease guard: from the checkpoints of the recommender, and for
//! the windows that are not over from an annotation that Plumb's recommender gives them.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use jiff::Timestamp;
use kube::Client;
use plumb_client::Api;
use plumb_controller_runtime::ObjectRef;
use plumb_recommender::{AggregationConfig, AggregationSettings, Time, WINDOW_PEAK_ANNOTATION, WindowPeak};
use plumb_vpa_api::{BucketWeights, VerticalPodAutoscalerCheckpoint};

/// The highest memory usage of containers that the checkpoints of a VPA hold, in bytes: the end of the highest bucket that has
/// weight, so that it is never too low. A container without a checkpoint is missing, and so is one that has not run for a
/// whole window yet.
pub(super) async fn peaks(
    client: &Client,
    vpa: &ObjectRef,
    containers: impl IntoIterator<Item = &str>,
    now: Timestamp,
) -> BTreeMap<String, i64> {
    let checkpoints: Api<VerticalPodAutoscalerCheckpoint> = Api::namespaced(client.clone(), &vpa.namespace);
    let read = containers.into_iter().map(|container| {
        let (checkpoints, name) = (&checkpoints, format!("{}-{container}", vpa.name));
        async move {
            let checkpoint = checkpoints.get_opt(&name).await;
            if let Err(error) = &checkpoint {
                tracing::debug!(%name, %error, "cannot read a checkpoint");
            }
            let checkpoint = checkpoint.ok().flatten().filter(|found| found.spec.vpa_object_name == vpa.name);
            Some((container.to_owned(), peak(&checkpoint?, now)?))
        }
    });
    join_all(read).await.into_iter().flatten().collect()
}

/// The end of the highest bucket with weight of a checkpoint's memory histogram, or the peak of a window that is not over.
fn peak(checkpoint: &VerticalPodAutoscalerCheckpoint, now: Timestamp) -> Option<i64> {
    let BucketWeights::Weights(weights) = &checkpoint.status.as_ref()?.memory_histogram.bucket_weights else {
        return None;
    };
    let highest = weights.iter().filter(|(_, weight)| *weight > 0).map(|(bucket, _)| *bucket).max()?;
    let config = AggregationConfig::new(AggregationSettings::default()).ok()?;
    let end = config.memory.buckets.end(u16::try_from(highest).ok()?);
    #[expect(clippy::cast_possible_truncation, reason = "at most a terabyte")]
    let closed = end.ceil() as i64;
    let annotation = checkpoint.metadata.annotations.as_ref().and_then(|all| all.get(WINDOW_PEAK_ANNOTATION));
    let open = annotation.and_then(|text| WindowPeak::from_annotation(text));
    let open = open.filter(|peak| Time::try_from(now).is_ok_and(|now| peak.counts_at(now)));
    Some(open.map_or(closed, |open| closed.max(open.bytes)))
}
