//! Fields and kinds that the API server accepts, as kube-apiserver does, and that no component of Plumb acts on.
//!
//! kube-apiserver has no such warnings: a kubelet, a network plugin or an admission plugin acts on these. Where a user
//! could believe that one of them protects a workload, the response warns that it does not. Fields that the node agent
//! rejects need no warning. `tests/it/fields` sorts every field of a pod, and `docs/fields.md` lists the result.

use plumb_resize::Quantity;
use serde_json::Value;

/// A field below the spec of a pod, of one of its containers or of one of its volumes.
struct Field {
    /// Names separated by dots. `[]` stands for every element of a list, `[key]` for the value of a key.
    path: &'static str,
    /// Whether the value needs a warning, given the pod's spec and the object that has the field. An empty value never
    /// does.
    matters: fn(spec: &Value, parent: &Value) -> bool,
    /// What happens instead.
    instead: &'static str,
}

const fn always(_: &Value, _: &Value) -> bool {
    true
}

/// Fields of the spec of a pod.
static POD: [Field; 2] = [
    Field {
        path: "securityContext.seLinuxOptions",
        matters: always,
        instead: "containers run without an SELinux label",
    },
    Field {
        path: "resourceClaims",
        matters: always,
        instead: "no component allocates claims; containers start without the devices",
    },
];

/// Fields of a container and of an init container.
static CONTAINER: [Field; 3] = [
    Field {
        path: "securityContext.seLinuxOptions",
        matters: always,
        instead: "the container runs without an SELinux label",
    },
    Field {
        path: "resources.limits[ephemeral-storage]",
        matters: always,
        instead: "local storage is not measured, and no pod is evicted for what it uses",
    },
    Field {
        path: "resources.requests[ephemeral-storage]",
        // With a limit, one warning is enough.
        matters: |_, resources| resources["limits"]["ephemeral-storage"].is_null(),
        instead: "the scheduler counts it, but no pod is evicted under disk pressure for what it uses beyond it",
    },
];

/// Fields of a volume.
static VOLUME: [Field; 1] = [Field {
    path: "emptyDir.sizeLimit",
    // With the medium `Memory` it is the size of the tmpfs.
    matters: |_, directory| directory["medium"].as_str().unwrap_or_default().is_empty(),
    instead: "only volumes with the medium Memory have a size; this one can fill the disk of the node",
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
            visit(value, field.path, at, &mut |parent, value, at| {
                if is_set(value) && (field.matters)(spec, parent) {
                    warnings.push(warning(at, field.instead));
                }
            });
        }
    };
    check(&POD, spec, path);
    for (list, fields) in
        [("volumes", &VOLUME[..]), ("initContainers", &CONTAINER[..]), ("containers", &CONTAINER[..])]
    {
        for (i, element) in spec[list].as_array().into_iter().flatten().enumerate() {
            check(fields, element, &format!("{path}.{list}[{i}]"));
        }
    }
}

/// A warning about an object of a kind that no component reads.
pub(crate) fn of_kind(instead: &str) -> String {
    warning("spec", instead)
}

/// Calls `found` with every value that a path leads to, with the object that has it and with its own path.
fn visit(value: &Value, path: &str, at: &str, found: &mut dyn FnMut(&Value, &Value, &str)) {
    let (step, rest) = path.split_once('.').unwrap_or((path, ""));
    let (name, key) = step.split_once('[').map_or((step, None), |(name, key)| (name, key.strip_suffix(']')));
    let (field, at) = (&value[name], format!("{at}.{name}"));
    // For a key the parent is the object that has the map.
    let mut next = |inner: &Value, at: &str| {
        if rest.is_empty() { found(value, inner, at) } else { visit(inner, rest, at, found) }
    };
    match key {
        None => next(field, &at),
        Some("") => {
            for (i, element) in field.as_array().into_iter().flatten().enumerate() {
                next(element, &format!("{at}[{i}]"));
            }
        }
        Some(key) => next(&field[key], &format!("{at}[{key}]")),
    }
}

/// Whether a value is set: not empty, zero or false.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty() && !text.parse::<Quantity>().is_ok_and(Quantity::is_zero),
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => fields.values().any(is_set),
    }
}
