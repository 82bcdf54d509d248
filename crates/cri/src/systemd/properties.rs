//! Conversion of resources to properties of a unit.
//!
//! The properties of cgroup v1 and v2 differ, and some are newer than the oldest systemd that runtimes support. Settings
//! without a property (huge pages, memory and swap together on v1, cpusets on v1) are written to files only, which systemd
//! does not touch.

use std::collections::BTreeMap;

use plumb_resize::cgroup::{DEFAULT_PERIOD, WeightScale, swap_limit};
use plumb_runtime::cgroup::Version;
use plumb_runtime::types::{CpuSet, InvalidCpuSet, LinuxResources};

/// The first version of systemd with `CPUQuotaPeriodUSec`.
const HAS_PERIOD: u32 = 242;
/// The first version of systemd with `AllowedCPUs` and `AllowedMemoryNodes`.
const HAS_CPUSETS: u32 = 244;
/// systemd's number for no limit.
const INFINITY: u64 = u64::MAX;
const MICROS_PER_SECOND: u128 = 1_000_000;
/// The resolution of quotas in systemd, a hundredth of a core. systemd rounds down; quotas are rounded up here, so that that of
/// a pod is never smaller than the sum of its containers. runc does the same.
const QUOTA_STEP: u128 = 10_000;

/// A property of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The name of the property on D-Bus.
    pub name: &'static str,
    /// The value of the property.
    pub value: Value,
}

impl Property {
    fn new(name: &'static str, value: Value) -> Self {
        Self { name, value }
    }
}

/// The value of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A boolean.
    Bool(bool),
    /// A number; [`u64::MAX`] is systemd's `infinity`.
    Number(u64),
    /// A string.
    Text(String),
    /// A bit mask, the lowest bits first.
    Mask(Vec<u8>),
}

/// The environment of a unit: the cgroup version of the controllers, and the version of systemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) cgroups: Version,
    pub(crate) systemd: u32,
}

/// The properties that a slice is created with. Slices cannot be delegated (`Delegate=`); the runtime delegates the scopes of
/// containers.
pub(crate) fn slice_properties(unit: &str, environment: Environment) -> Vec<Property> {
    let mut properties = vec![
        Property::new("Description", Value::Text(format!("Pods of Plumb, {unit}"))),
        // Without this, systemd would stop the slice at the shutdown of the machine before the containers in it.
        Property::new("DefaultDependencies", Value::Bool(false)),
    ];
    properties.extend(accounting(environment));
    properties
}

/// The properties that enable accounting, which enables the controllers.
pub(crate) fn accounting(environment: Environment) -> Vec<Property> {
    let io = match environment.cgroups {
        Version::V1 => "BlockIOAccounting",
        Version::V2 => "IOAccounting",
    };
    ["CPUAccounting", "MemoryAccounting", "TasksAccounting", io]
        .map(|name| Property::new(name, Value::Bool(true)))
        .into()
}

/// The properties of resources. A setting that is `None` does not change. A quota without a period has the default period, and
/// swap without a memory limit has no property: [`completed`] adds the missing settings.
pub(crate) fn resource_properties(resources: &LinuxResources, environment: Environment) -> Vec<Property> {
    let mut found: BTreeMap<&'static str, Value> = BTreeMap::new();
    let mut number = |name, value| _ = found.insert(name, Value::Number(value));
    if let Some(shares) = resources.cpu_shares {
        match environment.cgroups {
            Version::V1 => number("CPUShares", shares),
            // The linear scale, as the kubelet writes the file of a pod.
            Version::V2 => number("CPUWeight", WeightScale::Linear.weight(shares)),
        }
    }
    if let Some(period) = resources.cpu_period.filter(|_| environment.systemd >= HAS_PERIOD) {
        number("CPUQuotaPeriodUSec", period);
    }
    if let Some(quota) = resources.cpu_quota {
        number("CPUQuotaPerSecUSec", per_second(quota, resources.cpu_period.unwrap_or(DEFAULT_PERIOD)));
    }
    if let Some(limit) = resources.memory_limit {
        number(if environment.cgroups == Version::V1 { "MemoryLimit" } else { "MemoryMax" }, limited(limit));
    }
    if let Some(limit) = resources.pids_limit {
        number("TasksMax", limited(limit));
    }
    if environment.cgroups == Version::V2 {
        add_v2(resources, environment, &mut found);
    }
    found.into_iter().map(|(name, value)| Property { name, value }).collect()
}

/// Adds the properties that only cgroup v2 has.
fn add_v2(resources: &LinuxResources, environment: Environment, found: &mut BTreeMap<&'static str, Value>) {
    if let Some(both) = resources.memory_swap_limit {
        let swap = swap_limit(resources.memory_limit.unwrap_or(-1), both);
        found.insert("MemorySwapMax", Value::Number(limited(swap)));
    }
    if let Some(high) = resources.memory_high {
        found.insert("MemoryHigh", Value::Number(limited(high)));
    }
    if environment.systemd >= HAS_CPUSETS {
        let sets = [("AllowedCPUs", &resources.cpuset_cpus), ("AllowedMemoryNodes", &resources.cpuset_mems)];
        for (name, list) in sets {
            if let Some(mask) = list.as_deref().and_then(|list| mask(list).ok()) {
                found.insert(name, Value::Mask(mask));
            }
        }
    }
    let files = [
        ("memory.min", "MemoryMin"),
        ("memory.low", "MemoryLow"),
        ("memory.high", "MemoryHigh"),
        ("memory.max", "MemoryMax"),
        ("memory.swap.max", "MemorySwapMax"),
        ("cpu.weight", "CPUWeight"),
        ("pids.max", "TasksMax"),
    ];
    for (file, name) in files {
        let text = resources.unified.get(file).map(|text| text.trim());
        let value = text.and_then(|text| if text == "max" { Some(INFINITY) } else { text.parse().ok() });
        found.extend(value.map(|value| (name, Value::Number(value))));
    }
}

/// Completes a change with the previous settings on which a changed property depends, such as the period of a quota.
pub(crate) fn completed(to: &LinuxResources, before: &LinuxResources) -> LinuxResources {
    let mut all = to.clone();
    if to.cpu_quota.is_some() || to.cpu_period.is_some() {
        all.cpu_quota = to.cpu_quota.or(before.cpu_quota);
        all.cpu_period = to.cpu_period.or(before.cpu_period);
    }
    if to.memory_swap_limit.is_some() {
        all.memory_limit = to.memory_limit.or(before.memory_limit);
    }
    all
}

fn limited(limit: i64) -> u64 {
    u64::try_from(limit).unwrap_or(INFINITY)
}

/// Converts a quota per period to one per second.
fn per_second(quota: i64, period: u64) -> u64 {
    let Some(quota) = u128::try_from(quota).ok().filter(|quota| *quota > 0) else { return INFINITY };
    let exact = (quota * MICROS_PER_SECOND).div_ceil(u128::from(period.max(1)));
    u64::try_from(exact.div_ceil(QUOTA_STEP) * QUOTA_STEP).unwrap_or(INFINITY)
}

/// Converts a list of CPUs or memory nodes such as `0-2,7` to a mask.
fn mask(list: &str) -> Result<Vec<u8>, InvalidCpuSet> {
    let mut mask = Vec::new();
    for number in list.parse::<CpuSet>()?.iter() {
        let byte = (number / 8) as usize;
        if mask.len() <= byte {
            mask.resize(byte + 1, 0);
        }
        mask[byte] |= 1 << (number % 8);
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: Environment = Environment { cgroups: Version::V1, systemd: 252 };
    const V2: Environment = Environment { cgroups: Version::V2, systemd: 252 };
    const OLD: Environment = Environment { cgroups: Version::V2, systemd: 239 };
    const MIB: i64 = 1 << 20;

    fn numbers(resources: &LinuxResources, environment: Environment) -> Vec<(&'static str, u64)> {
        let number = |property: Property| match property.value {
            Value::Number(number) => (property.name, number),
            other => panic!("{} {other:?}", property.name),
        };
        resource_properties(resources, environment).into_iter().map(number).collect()
    }

    #[test]
    fn resources_have_the_properties_of_their_cgroup_version() {
        let pod = LinuxResources {
            cpu_period: Some(100_000),
            cpu_quota: Some(65_500),
            cpu_shares: Some(512),
            memory_limit: Some(64 * MIB),
            memory_swap_limit: Some(64 * MIB),
            pids_limit: Some(100),
            ..LinuxResources::default()
        };
        let mib = 1 << 20;
        let cpu = [("CPUQuotaPerSecUSec", 660_000), ("CPUQuotaPeriodUSec", 100_000)];
        let memory = [("MemoryMax", 64 * mib), ("MemorySwapMax", 0), ("TasksMax", 100)];
        assert_eq!(
            numbers(&pod, V1),
            [&cpu[..], &[("CPUShares", 512), ("MemoryLimit", 64 * mib), ("TasksMax", 100)]].concat()
        );
        assert_eq!(numbers(&pod, V2), [&cpu[..], &[("CPUWeight", 20)], &memory].concat());
        assert_eq!(numbers(&pod, OLD), [&cpu[..1], &[("CPUWeight", 20)], &memory].concat());
        assert_eq!(numbers(&LinuxResources::default(), V2), []);
    }

    #[test]
    fn no_limit_is_infinity() {
        let none = LinuxResources {
            cpu_quota: Some(-1),
            memory_limit: Some(-1),
            memory_swap_limit: Some(-1),
            memory_high: Some(-1),
            pids_limit: Some(-1),
            ..LinuxResources::default()
        };
        let expected = ["CPUQuotaPerSecUSec", "MemoryHigh", "MemoryMax", "MemorySwapMax", "TasksMax"];
        assert_eq!(numbers(&none, V2), expected.map(|name| (name, INFINITY)));
    }

    #[test]
    fn a_quota_is_rounded_up_to_a_hundredth_of_a_core() {
        let table = [
            (100_000, 100_000, 1_000_000),
            (65_500, 100_000, 660_000),
            (1_000, 100_000, 10_000),
            (1_001, 100_000, 20_000),
            (5_000, 10_000, 500_000),
            (1, 3, 340_000),
            (0, 100_000, INFINITY),
            (i64::MAX, 1, INFINITY),
        ];
        for (quota, period, expected) in table {
            assert_eq!(per_second(quota, period), expected, "{quota} {period}");
        }
    }

    #[test]
    fn files_of_v2_have_properties() {
        let mut resources = LinuxResources::default();
        for (file, text) in [("memory.min", "4096"), ("memory.high", "max"), ("cpu.idle", "1")] {
            resources.unified.insert(file.to_owned(), text.to_owned());
        }
        assert_eq!(numbers(&resources, V2), [("MemoryHigh", INFINITY), ("MemoryMin", 4096)]);
        assert_eq!(numbers(&resources, V1), []);
    }

    #[test]
    fn cpusets_are_masks() {
        let table = [
            ("", Some(vec![])),
            ("0", Some(vec![1])),
            ("0-2,7", Some(vec![0b1000_0111])),
            ("8,1", Some(vec![2, 1])),
            ("2-1", None),
            ("two", None),
        ];
        for (list, expected) in table {
            assert_eq!(mask(list).ok(), expected, "{list}");
        }
        let cpus = LinuxResources { cpuset_cpus: Some("1".into()), ..LinuxResources::default() };
        assert_eq!(resource_properties(&cpus, V2), [Property::new("AllowedCPUs", Value::Mask(vec![2]))]);
        assert_eq!((resource_properties(&cpus, V1), resource_properties(&cpus, OLD)), (vec![], vec![]));
    }

    #[test]
    fn a_change_is_completed_with_what_was_before() {
        let before = LinuxResources {
            cpu_period: Some(50_000),
            cpu_quota: Some(25_000),
            cpu_shares: Some(512),
            memory_limit: Some(64 * MIB),
            ..LinuxResources::default()
        };
        let quota = LinuxResources { cpu_quota: Some(5_000), ..LinuxResources::default() };
        assert_eq!(
            numbers(&completed(&quota, &before), V2),
            [("CPUQuotaPerSecUSec", 100_000), ("CPUQuotaPeriodUSec", 50_000)]
        );
        let swap = LinuxResources { memory_swap_limit: Some(65 * MIB), ..LinuxResources::default() };
        assert_eq!(
            numbers(&completed(&swap, &before), V2),
            [("MemoryMax", 64 << 20), ("MemorySwapMax", 1 << 20)]
        );
        let shares = LinuxResources { cpu_shares: Some(2), ..LinuxResources::default() };
        assert_eq!(completed(&shares, &before), shares);
    }

    #[test]
    fn a_slice_accounts_for_what_its_controllers_limit() {
        let names = |environment| {
            let all = slice_properties("a.slice", environment).into_iter();
            all.filter(|property| property.value == Value::Bool(true)).map(|property| property.name)
        };
        let v2: Vec<_> = names(V2).collect();
        assert_eq!(v2, ["CPUAccounting", "MemoryAccounting", "TasksAccounting", "IOAccounting"]);
        assert_eq!(names(V1).next_back(), Some("BlockIOAccounting"));
        let description = Value::Text("Pods of Plumb, a.slice".into());
        assert_eq!(slice_properties("a.slice", V2)[0].value, description);
    }
}
