//! VPA objects and their recommendations.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use plumb_metrics::Text;
use plumb_resize::resource::Resource;
use plumb_vpa_api::UpdateMode;

use crate::model::amount;
use crate::model::cluster::VpaKey;
use crate::model::estimate::ContainerRecommendation;
use crate::model::quality::truth;

/// Of how many containers recommendations have series. Each container has up to eight.
pub const MAX_CONTAINERS: usize = 50_000;

/// The update modes that VPAs are counted by. One that is not known counts as the default.
const MODES: [&str; 6] = ["Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace", "Auto"];
const DEFAULT_MODE: usize = 2;

/// What metrics say of a VPA.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VpaObservation {
    /// Its update mode; none if its spec has none.
    pub update_mode: Option<UpdateMode>,
    /// Whether a pod matches.
    pub matches_pods: bool,
    /// Whether it has the condition `ConfigUnsupported`.
    pub unsupported_config: bool,
    /// What is recommended.
    pub recommendation: Vec<ContainerRecommendation>,
}

#[derive(Debug, Default)]
pub(super) struct VpaMetrics(Mutex<BTreeMap<Arc<VpaKey>, VpaObservation>>);

impl VpaMetrics {
    pub(super) fn set(&self, key: &Arc<VpaKey>, observation: VpaObservation) {
        self.0.lock().insert(key.clone(), observation);
    }

    pub(super) fn remove(&self, key: &VpaKey) {
        self.0.lock().remove(key);
    }

    pub(super) fn render(&self, text: &mut Text) {
        let vpas = self.0.lock();
        objects(&vpas, text);
        recommendations(&vpas, text);
    }
}

fn objects(vpas: &BTreeMap<Arc<VpaKey>, VpaObservation>, text: &mut Text) {
    // By mode, then whether there is a recommendation, whether pods match, whether the config is unsupported.
    let mut counts = [[[[0_usize; 2]; 2]; 2]; MODES.len()];
    for vpa in vpas.values() {
        let mode = vpa.update_mode.as_ref().map_or("", UpdateMode::as_str);
        let mode = MODES.iter().position(|known| *known == mode).unwrap_or(DEFAULT_MODE);
        let has = usize::from(!vpa.recommendation.is_empty());
        counts[mode][has][usize::from(vpa.matches_pods)][usize::from(vpa.unsupported_config)] += 1;
    }
    let name = "vpa_recommender_vpa_objects_count";
    text.gauge(name, "VPA objects of this recommender");
    for (mode, counts) in MODES.iter().zip(counts) {
        for (has, counts) in [false, true].into_iter().zip(counts) {
            for (matches, counts) in [false, true].into_iter().zip(counts) {
                for (unsupported, count) in [false, true].into_iter().zip(counts) {
                    let labels = [
                        ("update_mode", *mode),
                        ("has_recommendation", truth(has)),
                        ("api", "v1"),
                        ("matches_pods", truth(matches)),
                        ("unsupported_config", truth(unsupported)),
                    ];
                    text.sample(name, &labels, count);
                }
            }
        }
    }
}

fn recommendations(vpas: &BTreeMap<Arc<VpaKey>, VpaObservation>, text: &mut Text) {
    let containers = || {
        vpas.iter().flat_map(|(key, vpa)| vpa.recommendation.iter().map(move |container| (key, container)))
    };
    let name = "vpa_recommender_recommendation";
    text.gauge(name, "the recommendation for a container, in cores or bytes");
    for (key, container) in containers().take(MAX_CONTAINERS) {
        let bounds = [
            ("target", &container.target),
            ("lower_bound", &container.lower_bound),
            ("upper_bound", &container.upper_bound),
            ("uncapped_target", &container.uncapped_target),
        ];
        for resource in Resource::ALL {
            for (bound, resources) in bounds {
                let Some(quantity) = resources[resource] else { continue };
                let labels = [
                    ("vpa_namespace", key.namespace.as_str()),
                    ("vpa_name", key.name.as_str()),
                    ("container", container.container.as_str()),
                    ("resource", resource.name()),
                    ("bound", bound),
                ];
                text.sample(name, &labels, amount::quantity_in_base_units(resource, quantity));
            }
        }
    }
    let name = "vpa_recommender_recommendation_omitted_containers";
    text.gauge(name, "containers whose recommendations have no series because there are too many");
    text.sample(name, &[], containers().count().saturating_sub(MAX_CONTAINERS));
}
