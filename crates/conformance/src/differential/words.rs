//! Values: what a field may be given, right and wrong.

use plumb_apischema::Schema;
use plumb_apischema::schema::{Shape, TypeId};
use serde_json::{Map, Value, json};

use super::random::Random;

/// What an object may say that it is, or of which version, and is not.
const OTHER_KINDS: [&str; 9] = [
    "widget",
    "WidgetList",
    "Gadget",
    "Pod",
    "v1",
    "example.com/v1",
    "differential.example.com/v2",
    "differential.example.com",
    "a/b/c",
];

/// What an object may say that it is, and is not.
pub(super) fn another_kind(random: &mut Random) -> &'static str {
    OTHER_KINDS[random.below(OTHER_KINDS.len())]
}

/// The maximal depth of a generated value.
const DEPTH: usize = 3;

/// Words that mean something in some field.
const WORDS: &[(&str, &[&str])] = &[
    ("restartPolicy", &["Always", "OnFailure", "Never", "always", "RestartAllContainers"]),
    ("imagePullPolicy", &["Always", "IfNotPresent", "Never", "Sometimes"]),
    ("pullPolicy", &["Always", "IfNotPresent", "Never", "Sometimes"]),
    ("protocol", &["TCP", "UDP", "SCTP", "tcp", "HTTP"]),
    ("dnsPolicy", &["ClusterFirst", "Default", "None", "ClusterFirstWithHostNet", "First"]),
    ("operator", &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "in"]),
    ("effect", &["NoSchedule", "PreferNoSchedule", "NoExecute", "Never"]),
    ("whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway", "Maybe"]),
    ("nodeAffinityPolicy", &["Honor", "Ignore", "honor"]),
    ("nodeTaintsPolicy", &["Honor", "Ignore", "honor"]),
    ("terminationMessagePolicy", &["File", "FallbackToLogsOnError", "Log"]),
    ("scheme", &["HTTP", "HTTPS", "http"]),
    ("procMount", &["Default", "Unmasked", "Masked"]),
    ("mountPropagation", &["None", "HostToContainer", "Bidirectional", "Both"]),
    ("recursiveReadOnly", &["Disabled", "IfPossible", "Enabled", "On"]),
    ("fsGroupChangePolicy", &["OnRootMismatch", "Always", "Never"]),
    ("supplementalGroupsPolicy", &["Merge", "Strict", "merge"]),
    ("preemptionPolicy", &["Never", "PreemptLowerPriority", "Always"]),
    ("medium", &["", "Memory", "HugePages", "HugePages-2Mi", "Disk"]),
    ("resourceName", &["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"]),
    ("resource", &["limits.cpu", "requests.memory", "limits.ephemeral-storage", "limits.disk"]),
    (
        "fieldPath",
        &["metadata.name", "status.podIP", "spec.nodeName", "metadata.labels['a']", "spec.replicas"],
    ),
    ("topologyKey", &["kubernetes.io/hostname", "zone", "a/b/c", ""]),
    ("name", &["a", "main", "web", "A", "a.b", "a_b", ""]),
    ("key", &["a", "example.com/a", "a/b/c", "a b", ""]),
    ("mountPath", &["/a", "/a:b", "a", "", "/data", "/data/../x"]),
    ("subPath", &["a", "../a", "/a", "a/b", "$(A)"]),
    ("path", &["/", "/a", "a", "../a", "a/..", ""]),
    ("host", &["", "localhost", "127.0.0.1"]),
    ("ip", &["10.0.0.1", "::1", "300.0.0.1", "10.0.0.01", "", "127.0.0.1"]),
    ("podIP", &["10.0.0.1", "::1", "300.0.0.1", "10.0.0.01", ""]),
    ("hostIP", &["10.0.0.1", "::1", "300.0.0.1", "10.0.0.01", ""]),
    ("nodeName", &["node-1", "Node", "a.b", ""]),
    (
        "hostname",
        &["host", "Host", "a.b", "x23456789-x23456789-x23456789-x23456789-x23456789-x23456789-abcd"],
    ),
    ("subdomain", &["sub", "Sub", "a.b"]),
    ("schedulerName", &["default-scheduler", "mine", "Mine", "a b"]),
    ("priorityClassName", &["", "system-node-critical", "high", "High"]),
    ("runtimeClassName", &["gvisor", "GVisor", ""]),
    ("serviceAccountName", &["default", "Default", "a.b"]),
    ("phase", &["Pending", "Running", "Succeeded", "Failed", "Unknown", "Sleeping"]),
    ("status", &["True", "False", "Unknown", "Maybe", ""]),
    (
        "type",
        &[
            "RuntimeDefault",
            "Unconfined",
            "Localhost",
            "Directory",
            "ClusterIP",
            "NodePort",
            "LoadBalancer",
            "ExternalName",
            "Recreate",
            "RollingUpdate",
            "OnDelete",
            "Ready",
            "PodReadyToStartContainers",
            "Container",
            "Pod",
            "PersistentVolumeClaim",
            "Socket",
            "Opaque",
            "a/b",
            "",
        ],
    ),
    ("clusterIP", &["None", "", "$address", "10.0.0.1", "300.1.1.1", "fd00::1"]),
    ("ipFamilyPolicy", &["SingleStack", "PreferDualStack", "RequireDualStack", "Dual"]),
    ("sessionAffinity", &["None", "ClientIP", "Cookie"]),
    ("externalTrafficPolicy", &["Cluster", "Local", "", "Near"]),
    ("internalTrafficPolicy", &["Cluster", "Local", "Near"]),
    ("trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode", "Near"]),
    ("concurrencyPolicy", &["Allow", "Forbid", "Replace", "Maybe"]),
    ("schedule", &["* * * * *", "@hourly", "@every 5m", "* * *", "61 * * * *", "TZ=UTC * * * * *", ""]),
    ("timeZone", &["UTC", "Europe/Berlin", "Local", "Mars/Crater", ""]),
    ("completionMode", &["NonIndexed", "Indexed", "Sorted"]),
    ("podReplacementPolicy", &["Failed", "TerminatingOrFailed", "Never"]),
    ("podManagementPolicy", &["OrderedReady", "Parallel", "Any"]),
    ("whenDeleted", &["Retain", "Delete", "Keep"]),
    ("whenScaled", &["Retain", "Delete", "Keep"]),
    ("volumeMode", &["Filesystem", "Block", "Object"]),
    ("storageClassName", &["", "fast", "Fast"]),
    ("apiVersion", &["v1", "apps/v1", "v1beta1", "", "a/b/c"]),
    ("apiGroup", &["", "example.com", "Example"]),
    ("scopeName", &["BestEffort", "NotBestEffort", "Terminating", "PriorityClass", "All"]),
    ("action", &["FailJob", "Ignore", "Count", "FailIndex", "Restart", "RestartAllContainers"]),
    ("stopSignal", &["SIGTERM", "SIGKILL", "TERM"]),
    ("externalName", &["example.com", "Example", "example.com.", "a b"]),
    ("appProtocol", &["http", "example.com/proto", "a b"]),
    ("image", &["a:1", "plumb/load", " a", "a ", "", "A:latest", "registry.example/a@sha256:0"]),
    ("unhealthyPodEvictionPolicy", &["IfHealthyBudget", "AlwaysAllow", "Never"]),
];

const TEXTS: &[&str] = &[
    "",
    "a",
    "A",
    "a_b",
    "a.b",
    "a/b",
    "/",
    "/a",
    "../a",
    "-a",
    "a-",
    "1",
    "a b",
    "\u{e9}",
    "example.com/a",
    "kubernetes.io/a",
    "10.0.0.1",
    "::1",
    "http",
    "None",
    "true",
    "$(A)",
    "a,b",
    "%41",
    "[x]",
    "a=b",
    "a:b",
];

const LENGTHS: &[usize] = &[15, 16, 52, 53, 63, 64, 100, 253, 254];

const QUANTITIES: &[&str] = &[
    "0",
    "1",
    "2",
    "100m",
    "250m",
    "1.5",
    "1Gi",
    "64Mi",
    "-1",
    "-100m",
    "0.0001",
    "1e3",
    "10k",
    "abc",
    "1 Gi",
    "",
    "9223372036854775807",
    "1Ki",
    "1n",
    "0.5",
    "1E",
    "2Ei",
    "100000000000Ti",
    "+1",
    "1.",
    ".5",
    "0x1",
    "1gi",
    "01",
];

const TIMES: &[&str] =
    &["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2026-01-01T01:00:00+01:00", "2026-01-01", "now", ""];

const INTEGERS: &[i64] = &[
    -1,
    0,
    1,
    2,
    3,
    10,
    30,
    59,
    60,
    63,
    64,
    100,
    101,
    420,
    511,
    512,
    1000,
    1001,
    32767,
    65535,
    65536,
    86400,
    86401,
    2_147_483_647,
    2_147_483_648,
    -2_147_483_648,
    i64::MAX,
    i64::MIN,
    1_000_000_000,
    1_000_000_001,
];

/// A value for a field of a type, as often right as wrong.
pub(super) fn value(random: &mut Random, ty: TypeId, field: &str) -> Value {
    if random.percent(4) {
        return wrong(random);
    }
    made(random, ty, field, DEPTH)
}

/// A value of any type, most likely a wrong one.
pub(super) fn wrong(random: &mut Random) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(1),
        json!(1.5),
        json!("text"),
        json!([]),
        json!({}),
        json!(["a"]),
        json!({"a": "b"}),
        json!([{}]),
        json!("1"),
        json!([null]),
    ];
    random.pick(&values).cloned().unwrap_or_default()
}

/// A value for a field whose type is not in the table.
pub(super) fn of_no_type(random: &mut Random, field: &str) -> Value {
    match random.below(4) {
        0 => json!(integer(random)),
        1 => quantity(random),
        _ => json!(text(random, field)),
    }
}

/// The name of a field that may be there or not.
pub(super) fn field(random: &mut Random) -> &'static str {
    let fields = ["size", "mode", "port", "free", "tags", "nested", "unknownField", "replicas", "parts"];
    fields[random.below(fields.len())]
}

fn made(random: &mut Random, ty: TypeId, field: &str, depth: usize) -> Value {
    let schema = Schema::builtin();
    match schema[ty].shape {
        Shape::Text => json!(text(random, field)),
        Shape::Bool => json!(random.percent(50)),
        Shape::Int32 | Shape::Int64 => json!(integer(random)),
        Shape::Double => json!(1.5),
        Shape::Bytes => json!(["YQ==", "", "not base64", "YQ"][random.below(4)]),
        Shape::Quantity => quantity(random),
        Shape::IntOrString => match random.below(3) {
            0 => json!(integer(random)),
            1 => {
                json!(["50%", "150%", "-1%", "0%", "http", "HTTP", "", "1", "a-b-c", "x%"][random.below(10)])
            }
            _ => json!([80, 1, 0, 8080][random.below(4)]),
        },
        Shape::Time | Shape::MicroTime => json!(TIMES[random.below(TIMES.len())]),
        Shape::Duration => json!(["1s", "5m", "x"][random.below(3)]),
        Shape::Pointer(inner) => made(random, inner, field, depth),
        Shape::List(inner) | Shape::WrappedList(inner) => {
            let count = [0, 1, 1, 1, 2, 3][random.below(6)];
            (0..count).map(|_| made(random, inner, field, depth.saturating_sub(1))).collect()
        }
        Shape::Map(inner) => {
            let count = [0, 1, 1, 2][random.below(4)];
            let keys =
                ["a", "cpu", "memory", "example.com/a", "A b", "ephemeral-storage", "hugepages-2Mi", "pods"];
            let entry = |random: &mut Random| {
                let key = keys[random.below(keys.len())].to_owned();
                (key, made(random, inner, field, depth.saturating_sub(1)))
            };
            Value::Object((0..count).map(|_| entry(random)).collect())
        }
        Shape::Struct(id) => {
            let mut object = Map::new();
            let fields = schema[id].fields();
            if depth > 0 {
                let share = 100 * 2 / fields.len().max(2);
                for field in fields {
                    if field.required && random.percent(85) || random.percent(share) {
                        object.insert(field.json.to_owned(), made(random, field.ty, field.json, depth - 1));
                    }
                }
            }
            Value::Object(object)
        }
        _ => json!({}),
    }
}

fn text(random: &mut Random, field: &str) -> String {
    let known = WORDS.iter().find(|(name, _)| *name == field);
    match known {
        Some((_, words)) if random.percent(80) => words[random.below(words.len())].to_owned(),
        _ if random.percent(15) => "x".repeat(LENGTHS[random.below(LENGTHS.len())]),
        _ => TEXTS[random.below(TEXTS.len())].to_owned(),
    }
}

fn integer(random: &mut Random) -> i64 {
    INTEGERS[random.below(INTEGERS.len())]
}

/// An amount of a resource.
pub(super) fn quantity(random: &mut Random) -> Value {
    match random.below(20) {
        0 => json!(1),
        1 => json!(0.5),
        _ => json!(QUANTITIES[random.below(QUANTITIES.len())]),
    }
}
