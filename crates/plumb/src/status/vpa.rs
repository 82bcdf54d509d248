//! `plumb status vpa`: what VPAs recommend for all of their containers, and why; and how their pods stand.

pub(crate) mod pods;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use kube::api::ListParams;
use kube::{Client, ResourceExt as _};
use plumb_client::Api;
use plumb_cluster::say;
use plumb_recommender::display::short_quantity;
use plumb_recommender::{
    AggregationConfig, AggregationSettings, ContainerRecommendation, EstimationSettings, Resources,
};
use plumb_resize::resource::Resource;
use plumb_vpa_api::{ConditionStatus, VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint};
use plumb_vpa_explain::{VpaExplanation, printable};
use serde_json::{Value, json};

use super::listing::Form;
use super::{Object, Status};
use crate::client::{self, Output, write_out};

/// The message for a cluster without VPAs.
pub(crate) const NOT_INSTALLED: &str = "the cluster does not have VerticalPodAutoscaler objects: their CustomResourceDefinition is not installed";

/// VPAs and their pods, in the order of the VPAs.
#[derive(Default)]
pub(crate) struct Observed {
    pub(super) vpas: Vec<VerticalPodAutoscaler>,
    pods: Vec<pods::Pods>,
}

impl Observed {
    /// Reads them; without the pods if only names are printed.
    pub(super) async fn read(args: &Status, client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let vpas = vpas(args, client, namespace).await?;
        let observed = match args.output {
            Some(Output::Name) => Self { vpas, pods: Vec::new() },
            _ => Self::of(client, vpas).await,
        };
        if observed.vpas.is_empty() && !args.all_namespaces {
            client::check_namespace(client, namespace).await?;
        }
        Ok(observed)
    }

    /// VPAs with their pods, which are read.
    pub(crate) async fn of(client: &Client, vpas: Vec<VerticalPodAutoscaler>) -> Self {
        let pods = pods::read(client, &vpas).await;
        Self { vpas, pods }
    }

    /// Each VPA with its pods.
    pub(super) fn into_each(self) -> impl Iterator<Item = Self> {
        let each = self.vpas.into_iter().zip(self.pods);
        each.map(|(vpa, pods)| Self { vpas: vec![vpa], pods: vec![pods] })
    }

    /// VPAs for programs.
    pub(super) fn values(&self) -> Vec<Value> {
        let mut values: Vec<Value> = self.vpas.iter().map(value).collect();
        for (value, pods) in values.iter_mut().zip(&self.pods) {
            value["pods"] = pods::json(pods);
        }
        values
    }
}

pub(super) async fn status(args: &Status, client: Client, namespace: &str) -> anyhow::Result<ExitCode> {
    let observed = Observed::read(args, &client, namespace).await?;
    let vpas = &observed.vpas;
    let explained = if args.explain { explain(args, &client, namespace, vpas).await? } else { Vec::new() };
    if vpas.is_empty() && args.output.is_none() {
        say!("no VPAs in {}", args.place(namespace));
        return Ok(ExitCode::SUCCESS);
    }
    match args.output {
        Some(Output::Name) => {
            for vpa in vpas {
                let name =
                    format!("verticalpodautoscaler.autoscaling.k8s.io/{}\n", printable(&vpa.name_any()));
                write_out(&name)?;
            }
        }
        Some(output @ (Output::Json | Output::Yaml)) => {
            let mut values = observed.values();
            for (value, explained) in values.iter_mut().zip(&explained) {
                value["explanation"] = explained.json();
            }
            match (&args.object, values.pop()) {
                (Some(Object::Vpa(_)), Some(one)) => client::print(&one, output)?,
                (_, last) => {
                    values.extend(last);
                    client::print(&Value::Array(values), output)?;
                }
            }
        }
        Some(Output::Wide) | None => {
            write_out(&text(&observed, args.form(), args.is_of_one_vpa(), &explained))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn vpas(args: &Status, client: &Client, namespace: &str) -> anyhow::Result<Vec<VerticalPodAutoscaler>> {
    let api: Api<VerticalPodAutoscaler> = args.api(client, namespace);
    let read = if let Some(Object::Vpa(name)) = &args.object {
        api.get(name).await.map(|vpa| vec![vpa])
    } else {
        let wanted = ListParams { label_selector: args.selector.clone(), ..ListParams::default() };
        api.list(&wanted).await.map(|list| list.items)
    };
    match read {
        // Without the definition the path is not found; with it, a name in a group is.
        Err(kube::Error::Api(status))
            if status.is_not_found()
                && !status.message.contains("verticalpodautoscalers.autoscaling.k8s.io") =>
        {
            anyhow::bail!(NOT_INSTALLED)
        }
        Err(error) => Err(client::refusal_in(client, namespace, error).await),
        Ok(vpas) => Ok(vpas),
    }
}

/// Explains each VPA from its checkpoints.
async fn explain(
    args: &Status,
    client: &Client,
    namespace: &str,
    vpas: &[VerticalPodAutoscaler],
) -> anyhow::Result<Vec<VpaExplanation>> {
    let api: Api<VerticalPodAutoscalerCheckpoint> = args.api(client, namespace);
    let (checkpoints, unread) = match api.list(&ListParams::default()).await {
        Ok(list) => (list.items, None),
        Err(error) => (Vec::new(), Some(client::refusal(error))),
    };
    let (aggregation, estimation) = args.recommender_flags.as_ref().map_or_else(
        || (AggregationSettings::default(), EstimationSettings::default()),
        |flags| (flags.aggregation(), flags.estimation()),
    );
    let config = AggregationConfig::new(aggregation).context("making histograms")?;
    let explained = vpas.iter().map(|vpa| {
        let mut explained = VpaExplanation::from_checkpoints(&config, &estimation, vpa, &checkpoints);
        if let Some(error) = &unread {
            explained.notes = vec![format!("checkpoints cannot be read: {error:#}")];
        }
        explained
    });
    Ok(explained.collect())
}

/// VPAs as a table, a line for each container, below it their conditions, the state of their pods (of several VPAs
/// how many), and the origin of the numbers.
pub(crate) fn text(observed: &Observed, form: Form, is_one: bool, explained: &[VpaExplanation]) -> String {
    let Observed { vpas, pods } = observed;
    let mut table = vec![head(form)];
    table.extend(vpas.iter().flat_map(|vpa| rows(vpa, form)));
    let why = vpas.iter().flat_map(|vpa| {
        let namespace = vpa.namespace().filter(|_| form.with_namespace).map(|namespace| namespace + "/");
        let name = namespace.unwrap_or_default() + &vpa.name_any();
        why(vpa).into_iter().map(move |why| format!("{name}: {why}"))
    });
    let mut below = String::new();
    for why in why {
        // Writing to a string does not fail.
        let _ = writeln!(below, "{}", printable(&why));
    }
    let mut text = client::table(&table);
    if !below.is_empty() {
        text.push('\n');
        text.push_str(&below);
    }
    text.push_str(&if is_one {
        pods::text(vpas, pods, form.with_namespace, form.wide)
    } else {
        pods::counts(vpas, pods, form.with_namespace)
    });
    for explained in explained {
        text.push('\n');
        text.push_str(&explained.text());
    }
    text
}

/// The names of the columns.
pub(crate) fn head(form: Form) -> Vec<String> {
    let mut head = vec!["VPA", "MODE", "CONTAINER"];
    for resource in ["CPU", "MEMORY"] {
        head.extend([resource, "LOWER", "UPPER", "UNCAPPED"]);
    }
    head.push("CONDITIONS");
    if form.wide {
        head.push("TARGET");
    }
    if form.with_namespace {
        head.insert(0, "NAMESPACE");
    }
    head.into_iter().map(str::to_owned).collect()
}

/// The messages of the conditions that hold, and of those that are to hold and do not.
pub(crate) fn why(vpa: &VerticalPodAutoscaler) -> Vec<String> {
    let conditions = vpa.status.iter().flat_map(|status| &status.conditions);
    let messages = conditions.filter_map(|condition| {
        let message = condition.message.as_deref().filter(|message| !message.is_empty())?;
        let type_ = condition.type_.to_string();
        (condition.status == ConditionStatus::True || is_expected(&type_))
            .then(|| format!("{type_}: {message}"))
    });
    messages.collect()
}

/// The rows of a VPA: one for each container that it has a recommendation for, or one without numbers.
pub(crate) fn rows(vpa: &VerticalPodAutoscaler, form: Form) -> Vec<Vec<String>> {
    let none = || "-".to_owned();
    let recommended = recommended(vpa);
    let containers: Vec<Option<&ContainerRecommendation>> =
        if recommended.is_empty() { vec![None] } else { recommended.iter().map(Some).collect() };
    let row = |container: Option<&ContainerRecommendation>| {
        let namespace = form.with_namespace.then(|| vpa.namespace().unwrap_or_default());
        let mut row: Vec<String> = namespace.into_iter().collect();
        row.extend([
            vpa.name_any(),
            mode(vpa),
            container.map_or_else(none, |container| container.container.clone()),
        ]);
        for resource in Resource::ALL {
            let cell = |of: fn(&ContainerRecommendation) -> &Resources| {
                let quantity = container.and_then(|container| of(container)[resource]);
                quantity.map_or_else(none, |quantity| {
                    if form.wide { quantity.to_string() } else { short_quantity(resource, quantity) }
                })
            };
            row.extend([
                cell(|of| &of.target),
                cell(|of| &of.lower_bound),
                cell(|of| &of.upper_bound),
                cell(|of| &of.uncapped_target),
            ]);
        }
        row.push(conditions(vpa));
        if form.wide {
            row.push(format!("{}/{}", vpa.spec.target_ref.kind, vpa.spec.target_ref.name));
        }
        row
    };
    containers.into_iter().map(row).collect()
}

/// What a VPA recommends for containers.
pub(crate) fn recommended(vpa: &VerticalPodAutoscaler) -> Vec<ContainerRecommendation> {
    let recommendation = vpa.status.iter().flat_map(|status| &status.recommendation);
    let containers = recommendation.flat_map(|recommendation| &recommendation.container_recommendations);
    containers.map(ContainerRecommendation::from_api).collect()
}

/// The update mode that holds.
fn mode(vpa: &VerticalPodAutoscaler) -> String {
    let given = vpa.spec.update_policy.as_ref().and_then(|policy| policy.update_mode.as_ref());
    given.map_or_else(|| "Recreate".to_owned(), |mode| mode.as_str().to_owned())
}

/// Whether a condition is one that is to hold: that a VPA has a recommendation, and that its pods have it.
fn is_expected(condition: &str) -> bool {
    ["RecommendationProvided", "PodsUpdated"].contains(&condition)
}

/// The conditions that hold, and those that are to hold and do not.
fn conditions(vpa: &VerticalPodAutoscaler) -> String {
    let conditions = vpa.status.iter().flat_map(|status| &status.conditions);
    let shown = conditions.filter_map(|condition| {
        if condition.status == ConditionStatus::True {
            Some(condition.type_.to_string())
        } else if is_expected(&condition.type_.to_string()) {
            Some(format!("{}={}", condition.type_, condition.status))
        } else {
            None
        }
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "-".to_owned() } else { shown.join(",") }
}

/// A VPA for programs.
fn value(vpa: &VerticalPodAutoscaler) -> Value {
    let status = vpa.status.clone().unwrap_or_default();
    let containers = status.recommendation.map(|recommended| recommended.container_recommendations);
    json!({
        "namespace": vpa.namespace(),
        "name": vpa.name_any(),
        "mode": mode(vpa),
        "target": vpa.spec.target_ref,
        "conditions": status.conditions,
        "containers": containers.unwrap_or_default(),
    })
}
