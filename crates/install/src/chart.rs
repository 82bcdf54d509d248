//! The Helm chart: the manifests with placeholders for what users choose, so that chart and `plumb install` cannot differ.
//!
//! ```text
//!   manifests of options whose values are placeholders ──▶ YAML ──▶ placeholders become {{ .Values… }} ──▶ templates
//! ```

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use serde_saphyr::SerializeError;

use crate::component::Component;
use crate::document;
use crate::manifests::{Objects, Options, common, crds, of_component};

/// The namespace, until Helm knows it.
const NAMESPACE: &str = "chart-release-namespace";
/// The image, until Helm knows it.
const IMAGE: &str = "chart-image";
/// Stands for the number of replicas until it is replaced by a value of the chart: no installation has as many.
const REPLICAS: i32 = 918_273_645;
/// The placeholder of the arguments that users add.
const EXTRA_ARG: &str = "chart-extra-args";
/// Feature gates, until Helm knows them.
const FEATURE_GATES: &str = "chart-feature-gates";

/// The files of the chart, by path.
///
/// # Errors
/// If an object has a value that YAML lacks; none of the manifests has.
pub fn chart() -> Result<BTreeMap<String, String>, SerializeError> {
    let mut files = BTreeMap::new();
    let mut add = |path: String, text: String| files.insert(path, text);
    add("Chart.yaml".to_owned(), metadata());
    add("values.yaml".to_owned(), values());
    add("templates/NOTES.txt".to_owned(), NOTES.to_owned());
    for crd in crds(&Component::ALL) {
        add(format!("crds/{}.yaml", crd.name_any()), document(&serde_json_value(&crd))?);
    }
    for component in Component::ALL {
        let mut objects = Objects::default();
        of_component(component, &options(component), &mut objects);
        let text = templated(&objects, component.name())?;
        let condition = condition(component);
        add(format!("templates/{component}.yaml"), format!("{{{{- {condition} }}}}\n{text}{{{{- end }}}}\n"));
    }
    let mut always = Objects::default();
    let mut monitored = Objects::default();
    let placeholders = options(Component::Recommender);
    common(&placeholders, &mut always);
    common(&Options { service_monitor: true, ..placeholders }, &mut monitored);
    monitored.0.drain(..always.0.len());
    add("templates/networkpolicy.yaml".to_owned(), templated(&always, "")?);
    let text = templated(&monitored, "")?;
    add(
        "templates/servicemonitor.yaml".to_owned(),
        format!("{{{{- if .Values.serviceMonitor }}}}\n{text}{{{{- end }}}}\n"),
    );
    Ok(files)
}

/// When the objects of a component are installed: not if another that is installed has it in its process.
fn condition(component: Component) -> String {
    let whole =
        Component::ALL.into_iter().find(|whole| *whole != component && whole.parts().contains(&component));
    match whole {
        None => format!("if .Values.components.{component}"),
        Some(whole) => format!("if and .Values.components.{component} (not .Values.components.{whole})"),
    }
}

/// Options whose values are placeholders.
fn options(component: Component) -> Options {
    Options {
        namespace: NAMESPACE.to_owned(),
        image: IMAGE.to_owned(),
        components: Component::ALL.to_vec(),
        replicas: REPLICAS,
        crds: false,
        service_monitor: false,
        feature_gates: FEATURE_GATES.to_owned(),
        extra_args: BTreeMap::from([(component, vec![EXTRA_ARG.to_owned()])]),
    }
}

fn serde_json_value(object: &impl serde::Serialize) -> serde_json::Value {
    // The objects are built by this crate, and serialize without errors.
    serde_json::to_value(object).unwrap_or_default()
}

/// Objects as templates.
fn templated(objects: &Objects, component: &str) -> Result<String, SerializeError> {
    let mut text = String::new();
    for object in &objects.0 {
        text.push_str("---\n");
        for line in document(object)?.lines() {
            text.push_str(&template_line(line, component));
            text.push('\n');
        }
    }
    Ok(text)
}

/// One line with its placeholders replaced.
fn template_line(line: &str, component: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    if line.contains(EXTRA_ARG) {
        return format!(
            "{{{{- with index .Values.extraArgs \"{component}\" }}}}\n{{{{ toYaml . | indent {indent} }}}}\n{{{{- end }}}}"
        );
    }
    if line.contains(FEATURE_GATES) {
        let line = line.replace(FEATURE_GATES, "{{ .Values.featureGates }}");
        return format!("{{{{- if .Values.featureGates }}}}\n{line}\n{{{{- end }}}}");
    }
    line.replace(NAMESPACE, "{{ .Release.Namespace }}")
        .replace(IMAGE, "{{ .Values.image }}")
        .replace(&REPLICAS.to_string(), "{{ .Values.replicas }}")
}

fn metadata() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "apiVersion: v2\nname: plumb\ndescription: In-place vertical scaling for Kubernetes, the Vertical Pod Autoscaler's API included\n\
         type: application\nversion: {version}\nappVersion: \"{version}\"\nkubeVersion: \">=1.33.0-0\"\n"
    )
}

fn values() -> String {
    let Options { image, replicas, .. } = Options::default();
    let mut text = format!(
        "# `plumb install` has the same options, as flags. Generated: cargo xtask regenerate chart.\n\n\
         # The image of plumb; see docs/kubernetes.md for how to build it.\nimage: {image}\n\n\
         # Pods of each component; of `autoscaler` there is one.\nreplicas: {replicas}\n\n\
         # Feature gates of all components, such as InPlace=true,CPUStartupBoost=true.\nfeatureGates: \"\"\n\n\
         # Whether a Prometheus operator is to scrape the components.\nserviceMonitor: false\n\n\
         # Which components run. `autoscaler` is recommender, updater and admission in one process, in place of these three.\ncomponents:\n"
    );
    let lines = |value: &dyn Fn(Component) -> String| {
        Component::ALL.map(|component| format!("  {component}: {}\n", value(component))).concat()
    };
    text.push_str(&lines(&|component| Component::DEFAULT.contains(&component).to_string()));
    text.push_str("\n# More flags of a component, such as --recommender-interval=30s.\nextraArgs:\n");
    text.push_str(&lines(&|_| "[]".to_owned()));
    text
}

/// What Helm prints after an installation.
const NOTES: &str = "Plumb's controllers run in namespace {{ .Release.Namespace }}:

  kubectl -n {{ .Release.Namespace }} get pods

Helm does not take over from a running Vertical Pod Autoscaler: uninstall it first, or use `plumb install --apply --replace-vpa`.
";
