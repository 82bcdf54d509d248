//! The engine of rollouts for all kinds of workloads: template changes, the state of each pod, the pace of resizes,
//! and the response to failures.
//!
//! ```text
//!   templates of two revisions ──▶ can_update: is it a resize, and if not, why not
//!   template + pod ──▶ compare ──▶ Change {None, Vertical, Other}
//!   pod + its record ──▶ evaluate ──▶ PodState, and the next write
//!                                         ▼
//!   Pods (index) + Settings + RolloutRecord ──▶ decide ──▶ actions, at the pace of the policy
//!                                                            ▼
//!                                  plan ──▶ update: intent ▸ /resize ▸ confirm
//! ```
//!
//! A resize is a special update of a pod, not an action of its own. All decisions are pure; [`update`](update()) is the
//! only function here that writes. It patches, and never replaces a pod.
//!
//! | OpenKruise's proposal | here |
//! |---|---|
//! | `verticalupdate.Interface` | this module |
//! | `CanVerticalUpdate` | [`can_update`], [`TemplateChange::is_vertical`] |
//! | `Update` | [`plan`], [`update`](update()) |
//! | `Refresh` of the in-place module | [`evaluate`] |
//! | `UpdateOptions` | [`Hooks`]: `CalculateSpec` is [`Hooks::change`], `PatchSpecToPod` and `AdditionalFuncs` [`Hooks::on_begin`], `CheckPodUpdateCompleted` [`Hooks::pod_done`], `CheckContainersUpdateCompleted` [`Hooks::containers_done`], `GetRevision` [`Hooks::revision`] |
//! | `UpdateSpec` | [`Desired`], [`Vertical`] |
//! | `UpdateResult` | [`UpdateResult`]: `vertical`, `error`, `delay`, `resource_version()` |
//! | `VerticalUpdateState` | [`PodRecord`], in the annotation [`RECORD_ANNOTATION`] |

mod change;
mod decide;
mod defaults;
mod desired;
mod failure;
mod hooks;
mod pod_state;
mod pods;
mod reason;
mod record;
mod rollout;
mod selection;
mod settings;
mod template;
mod update;

pub use change::{Change, ContainerChange, ResourceChange, Vertical, compare, compare_desired};
pub use decide::{Action, Decision, State, decide};
pub use desired::{Desired, Field};
pub use failure::{Failure, Refusal, StuckReason};
pub use hooks::{Hooks, NotDone, REVISION_LABEL, ResizeOnly, change_back};
pub use pod_state::{Evaluation, NextWrite, PodPolicy, PodState, evaluate, is_ready};
pub use pods::{Counts, PodView, Pods};
pub(crate) use pods::{is_unschedulable, readiness_changed_at};
pub use reason::Reason;
pub use record::{Direction, PodRecord, RECORD_ANNOTATION};
pub(crate) use rollout::PODS_NAMED;
pub use rollout::{
    CONDITION, Canaries, Heading, Phase, PodFailure, RolloutOutcome, RolloutRecord, RolloutStatus,
};
pub use selection::{Selected, Selection, select, selects};
pub use settings::{Settings, Step};
pub use template::{TemplateChange, can_update, restarted, with_resources_of};
pub(crate) use update::patch_params;
pub use update::{FIELD_MANAGER, Plan, PodWrite, UpdateResult, merged, plan, plan_back, plan_next, update};
