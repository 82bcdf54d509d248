//! `plumb rollout status` of a CloneSet, which has the state of its rollout in its own status.

use std::process::ExitCode;

use anyhow::bail;
use futures_util::StreamExt as _;
use kube::Client;
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent};
use plumb_rollout::api::cloneset::{CloneSet, CloneSetCondition, CloneSetStatus};
use plumb_rollout::cloneset::status::{FAILED_UPDATE, rollout};
use plumb_rollout::commands::{NoRollout, Progress};
use plumb_rollout::engine::Heading;
use serde_json::json;

use super::{Workload, exit_code, format_value};
use crate::client::{Output, refusal_in, write_out};

/// Prints where the rollout of a CloneSet stands; with `watch` every change, until it ends.
pub(super) async fn show(
    client: Client,
    namespace: &str,
    workload: &Workload,
    watch: bool,
    output: Option<Output>,
) -> anyhow::Result<ExitCode> {
    let api: Api<CloneSet> = Api::namespaced(client.clone(), namespace);
    let read = match api.get(&workload.name).await {
        Ok(read) => read,
        Err(error) => return Err(refusal_in(&client, namespace, error).await),
    };
    let state = State::read(&read);
    if !watch || state.has_ended() {
        write_out(&state.text(workload, output)?)?;
        return Ok(state.exit_code());
    }
    let config = WatchConfig::default().fields(format!("metadata.name={}", workload.name));
    let mut events = std::pin::pin!(Reflector::new(api, config).into_stream());
    let is_for_people = !matches!(output, Some(Output::Json | Output::Yaml));
    let mut printed = String::new();
    while let Some(event) = events.next().await {
        let observed = match event {
            WatchEvent::Restarted(listed) => listed.into_iter().next(),
            WatchEvent::Applied(observed) => Some(*observed),
            WatchEvent::Deleted(_) => None,
        };
        let Some(observed) = observed else { bail!("{workload} was deleted") };
        let state = State::read(&observed);
        let text = state.text(workload, output)?;
        if text != printed && (is_for_people || state.has_ended()) {
            write_out(&text)?;
            printed = text;
        }
        if state.has_ended() {
            return Ok(state.exit_code());
        }
    }
    Ok(ExitCode::FAILURE)
}

/// How far the rollout of a set is.
pub(super) enum State {
    /// It is reported.
    Rollout(Progress),
    /// The controller refuses the template.
    Refused(CloneSetCondition),
    /// The controller tries to find out whether pods of the template can be created, and has no answer so far.
    Unchecked(CloneSetCondition),
    /// No resources are rolled out, and pods are updated for another reason.
    Updating,
}

impl State {
    pub(super) fn read(set: &CloneSet) -> Self {
        let status: CloneSetStatus = set.status.clone().unwrap_or_default();
        if status.observed_generation != set.metadata.generation {
            return Self::Rollout(Progress::Held);
        }
        if let Some(failed) = status.condition(FAILED_UPDATE) {
            match failed.reason.as_deref() {
                Some("InvalidTemplate" | "InvalidSpec" | "QuotaExceeded") => {
                    return Self::Refused(failed.clone());
                }
                Some("DryRunFailed") => return Self::Unchecked(failed.clone()),
                _ => {}
            }
        }
        match rollout(&status) {
            Some(rollout) => {
                let failed = rollout.heading == Heading::Back;
                Self::Rollout(Progress::Reported { status: Box::new(rollout), failed })
            }
            None if status.current_revision == status.update_revision => Self::Rollout(Progress::None),
            None => Self::Updating,
        }
    }

    /// The progress, or a word for what there is instead of a rollout.
    pub(super) fn into_progress(self) -> Result<Progress, &'static str> {
        match self {
            Self::Rollout(progress) => Ok(progress),
            Self::Refused(_) => Err("Failed"),
            Self::Unchecked(_) => Err("Waiting"),
            Self::Updating => Err("Replacing"),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::Rollout(progress) => progress.has_ended(),
            Self::Refused(_) | Self::Updating => true,
            // The controller asks again after a backoff.
            Self::Unchecked(_) => false,
        }
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Rollout(progress) => exit_code(progress),
            Self::Refused(_) => ExitCode::FAILURE,
            // The update goes on without an in-place rollout, as that of a Deployment does.
            Self::Unchecked(_) | Self::Updating => ExitCode::SUCCESS,
        }
    }

    pub(super) fn text(&self, workload: &Workload, output: Option<Output>) -> anyhow::Result<String> {
        let for_programs = output.filter(|output| *output != Output::Wide);
        Ok(match (self, for_programs) {
            (Self::Rollout(Progress::None), None) => {
                format!("{workload}: no in-place rollout: {}\n", NoRollout::NoChange)
            }
            (Self::Rollout(Progress::Held), None) => {
                format!("{workload}: waiting for the CloneSet controller\n")
            }
            (Self::Rollout(progress), _) => workload.text(progress, output)?,
            (Self::Refused(failed), None) => format!("{workload}: {}\n", message(failed)),
            (Self::Unchecked(failed), None) => {
                format!("{workload}: waiting, no pod is updated: {}\n", message(failed))
            }
            (Self::Refused(failed) | Self::Unchecked(failed), Some(output)) => {
                let mut value = workload.value(&Progress::None);
                value["reason"] = json!(failed.reason);
                value["message"] = json!(message(failed));
                format_value(workload, &value, output)?
            }
            (Self::Updating, None) => {
                format!(
                    "{workload}: no in-place rollout: the template change is not limited to cpu and memory\n"
                )
            }
            (Self::Updating, Some(_)) => workload.text(&Progress::None, output)?,
        })
    }
}

fn message(condition: &CloneSetCondition) -> &str {
    condition.message.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn state(reason: &str) -> State {
        let condition =
            json!({ "type": "FailedUpdate", "status": "True", "reason": reason, "message": "why" });
        let set = json!({
            "metadata": { "name": "web", "generation": 2 },
            "spec": { "selector": {}, "template": {} },
            "status": {
                "observedGeneration": 2, "currentRevision": "web-1", "updateRevision": "web-2",
                "conditions": [condition],
            },
        });
        State::read(&serde_json::from_value(set).unwrap())
    }

    #[test]
    fn an_update_that_was_not_checked_yet_goes_on_and_one_that_is_refused_has_ended() {
        let workload: Workload = "cloneset/web".parse().unwrap();
        let unchecked = state("DryRunFailed");
        assert!(!unchecked.has_ended());
        let text = unchecked.text(&workload, None).unwrap();
        assert_eq!(text, "cloneset.apps.kruise.io/web: waiting, no pod is updated: why\n");
        for reason in ["InvalidTemplate", "InvalidSpec", "QuotaExceeded"] {
            let refused = state(reason);
            assert!(refused.has_ended(), "{reason}");
            assert_eq!(refused.text(&workload, None).unwrap(), "cloneset.apps.kruise.io/web: why\n");
            let text = refused.text(&workload, Some(Output::Json)).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap();
            let expected = json!({
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web",
                "phase": null, "reason": reason, "message": "why",
            });
            assert_eq!(value, expected);
        }
        assert!(state("PodsStuck").has_ended(), "an update of another kind");
    }
}
