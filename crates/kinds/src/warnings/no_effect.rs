//! Fields and kinds that the API server accepts, as kube-apiserver does, and that no component of Plumb acts on.
//!
//! kube-apiserver has no such warnings: a kubelet, a network plugin or an admission plugin acts on these. Where a user
//! could believe that one of them protects a workload, the response warns that it does not. Fields that the node agent
//! rejects need no warning. `tests/it/fields` sorts every field of a pod, and `docs/fields.md` lists the result.

use serde_json::Value;

/// A field of a pod's spec or of one of its containers.
struct Field {
    /// Names separated by dots.
    path: &'static str,
    /// What happens instead. An empty value needs no warning.
    instead: &'static str,
}

/// Fields of the spec of a pod.
static POD: [Field; 2] = [
    Field { path: "securityContext.seLinuxOptions", instead: "containers run without an SELinux label" },
    Field {
        path: "resourceClaims",
        instead: "no component allocates claims; containers start without the devices",
    },
];

/// Fields of a container and of an init container.
static CONTAINER: [Field; 1] = [Field {
    path: "securityContext.seLinuxOptions",
    instead: "the container runs without an SELinux label",
}];

/// Why `FlowSchemas` and `PriorityLevelConfigurations` have no effect.
pub(crate) const NO_FAIRNESS: &str = "the API server does not sort requests into priority levels";

fn warning(path: &str, instead: &str) -> String {
    format!("{path}: no effect in Plumb: {instead}")
}

/// Warnings about the spec of a pod or of a template. `path` is that of the spec.
pub(crate) fn pod(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    let mut check = |fields: &[Field], value: &Value, at: &str| {
        for field in fields {
            let found = field.path.split('.').fold(value, |value, name| &value[name]);
            if is_set(found) {
                warnings.push(warning(&format!("{at}.{}", field.path), field.instead));
            }
        }
    };
    check(&POD, spec, path);
    for list in ["initContainers", "containers"] {
        for (i, element) in spec[list].as_array().into_iter().flatten().enumerate() {
            check(&CONTAINER, element, &format!("{path}.{list}[{i}]"));
        }
    }
}

/// A warning about an object of a kind that no component reads.
pub(crate) fn of_kind(instead: &str) -> String {
    warning("spec", instead)
}

/// Whether a value is set: not empty, zero or false.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => fields.values().any(is_set),
    }
}
