//! What holds of every resize that is let in, and of everything that is tried.

use std::cell::Cell;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use plumb_features::FeatureGates;
use plumb_resize::accounting::{in_quota, on_node, requested};
use plumb_resize::defaulting::{allocate_at_creation, copy_back, default_pod};
use plumb_resize::features;
use plumb_resize::qos::QosClass;
use plumb_resize::rules::{Dialect, Rules};
use plumb_resize::{status, validate};
use plumb_validation::field::aggregate_message;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use super::pods::{ContainerExt, PodExt, container, pod, resources};

const CPU: [&str; 5] = ["0", "100m", "0.2", "1", "2"];
const MEMORY: [&str; 5] = ["0", "64Mi", "100M", "1Gi", "2Gi"];

/// A request and a limit of a resource, either of which may be missing.
fn amounts(name: &'static str, values: &'static [&'static str]) -> impl Strategy<Value = (String, String)> {
    let written =
        move |value: Option<usize>| value.map_or(String::new(), |i| format!("{name}={}", values[i]));
    let any = || prop::option::weighted(0.8, 0..values.len());
    let equal = any().prop_map(move |value| (written(value), written(value)));
    let apart = (any(), any()).prop_map(move |(a, b)| match (a, b) {
        (Some(a), Some(b)) => (written(Some(a.min(b))), written(Some(a.max(b)))),
        (a, b) => (written(a), written(b)),
    });
    prop_oneof![equal, apart]
}

fn requirements() -> impl Strategy<Value = ResourceRequirements> {
    let more = select(vec!["", "", "ephemeral-storage=1Gi", "example.com/gpu=1", "hugepages-2Mi=4Mi"]);
    (amounts("cpu", &CPU), amounts("memory", &MEMORY), more).prop_map(|(cpu, memory, more)| {
        resources(&format!("{} {}", cpu.0, memory.0), &format!("{} {} {more}", cpu.1, memory.1))
    })
}

fn containers(of: &'static str, most: usize) -> impl Strategy<Value = Vec<Container>> {
    let policy = select(vec!["", "", "cpu=NotRequired memory=NotRequired", "memory=RestartContainer"]);
    prop::collection::vec((requirements(), policy, any::<bool>()), usize::from(of == "main")..=most).prop_map(
        move |all| {
            let named = all.into_iter().enumerate().map(|(i, (resources, policy, sidecar))| {
                let plain =
                    Container { resources: Some(resources), ..container(&format!("{of}-{i}"), "", "") };
                let plain = if policy.is_empty() { plain } else { plain.policy(policy) };
                if sidecar && of == "init" { plain.sidecar() } else { plain }
            });
            named.collect()
        },
    )
}

fn pods() -> impl Strategy<Value = Pod> {
    let whole = prop::option::weighted(0.2, requirements());
    (containers("main", 3), containers("init", 2), whole, any::<bool>()).prop_map(
        |(main, init, whole, running)| {
            let pod = pod(main).init(init).with(|spec| spec.resources = whole);
            if running { pod.running() } else { pod }
        },
    )
}

/// One thing that a request asks for.
#[derive(Clone, Debug)]
enum Edit {
    /// Another amount, mostly of something that is declared already.
    Amount { of: usize, limit: bool, cpu: bool, value: usize },
    /// The same amounts for request and limit.
    Equal { of: usize, cpu: usize, memory: usize },
    /// Other resources altogether.
    Replace { of: usize, with: ResourceRequirements },
    /// Other pod-level resources.
    Whole(Option<ResourceRequirements>),
    /// Something that no resize may touch.
    Mischief(u8),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        12 => (0..5usize, any::<bool>(), any::<bool>(), 0..5usize)
            .prop_map(|(of, limit, cpu, value)| Edit::Amount { of, limit, cpu, value }),
        4 => (0..5usize, 1..5usize, 1..5usize).prop_map(|(of, cpu, memory)| Edit::Equal { of, cpu, memory }),
        2 => (0..5usize, requirements()).prop_map(|(of, with)| Edit::Replace { of, with }),
        1 => prop::option::of(requirements()).prop_map(Edit::Whole),
        1 => (0..8u8).prop_map(Edit::Mischief),
    ];
    prop::collection::vec(edit, 1..4)
}

impl Edit {
    fn apply(&self, pod: &mut Pod) {
        let spec = pod.spec.as_mut().unwrap();
        let chosen = |spec: &mut PodSpec, of: usize, change: &dyn Fn(&mut ResourceRequirements)| {
            let mut all: Vec<_> =
                spec.init_containers.iter_mut().flatten().chain(&mut spec.containers).collect();
            if !all.is_empty() {
                let at = of % all.len();
                change(all[at].resources.get_or_insert_default());
            }
        };
        let put = |list: &mut Option<_>, name: &str, value: &str| {
            let list: &mut plumb_resize::list::WireList = list.get_or_insert_default();
            list.insert(name.to_owned(), Quantity(value.to_owned()));
        };
        match self {
            Self::Amount { of, limit, cpu, value } => chosen(spec, *of, &|own| {
                let (name, value) = if *cpu { ("cpu", CPU[*value]) } else { ("memory", MEMORY[*value]) };
                put(if *limit { &mut own.limits } else { &mut own.requests }, name, value);
            }),
            Self::Equal { of, cpu, memory } => chosen(spec, *of, &|own| {
                for list in [&mut own.requests, &mut own.limits] {
                    put(list, "cpu", CPU[*cpu]);
                    put(list, "memory", MEMORY[*memory]);
                }
            }),
            Self::Replace { of, with } => chosen(spec, *of, &|own| own.clone_from(with)),
            Self::Whole(whole) => spec.resources.clone_from(whole),
            Self::Mischief(what) => mischief(pod, *what),
        }
    }
}

fn mischief(pod: &mut Pod, what: u8) {
    let spec = pod.spec.as_mut().unwrap();
    match what {
        0 => spec.containers[0].name.push('x'),
        1 => spec.containers.push(container("new", "", "")),
        2 => spec.init_containers = None,
        3 => spec.containers[0].resize_policy = None,
        4 => {
            spec.containers[0] = spec.containers[0].clone().policy("cpu=RestartContainer memory=NotRequired");
        }
        5 => spec.containers.reverse(),
        6 => spec.containers[0].image = Some("other".to_owned()),
        _ => spec.init_containers.iter_mut().flatten().for_each(|own| own.resize_policy = None),
    }
}

fn all_rules() -> Vec<Rules> {
    let off = FeatureGates::default().with(&features::POD_LEVEL_RESOURCES, false);
    [Dialect::Kep, Dialect::V1_36]
        .into_iter()
        .flat_map(|dialect| [&FeatureGates::default(), &off].map(|gates| Rules::new(dialect, gates)))
        .collect()
}

/// What must not change of a pod: all of it, but for cpu and memory.
fn apart_from_cpu_and_memory(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    let spec = pod.spec.as_mut().unwrap();
    let drop = |own: &mut Option<ResourceRequirements>| {
        let mut rest = own.take().unwrap_or_default();
        for list in [&mut rest.requests, &mut rest.limits] {
            let mut others = list.take().unwrap_or_default();
            others.retain(|name, _| name != "cpu" && name != "memory");
            *list = Some(others).filter(|others| !others.is_empty());
        }
        *own = Some(rest);
    };
    drop(&mut spec.resources);
    spec.init_containers = spec.init_containers.take().filter(|init| !init.is_empty());
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        drop(&mut container.resources);
    }
    pod
}

/// Validates many requests in both ways and passes those that are accepted to `law`, with what was stored and
/// what would be. Says how many there were, so that no law holds of nothing.
fn of_all_accepted(law: impl Fn(&Pod, &Pod, &str) -> Result<(), TestCaseError>) -> usize {
    let accepted = Cell::new(0);
    let mut runner = TestRunner::new_with_rng(
        Config { cases: 2_000, failure_persistence: None, ..Config::default() },
        prop::test_runner::TestRng::deterministic_rng(prop::test_runner::RngAlgorithm::ChaCha),
    );
    let requests = (pods(), edits(), select(all_rules()));
    let outcome = runner.run(&requests, |(mut stored, edits, rules)| {
        default_pod(&mut stored, &rules).unwrap();
        if !validate::pod(&stored, None).is_empty() {
            return Ok(());
        }
        let mut body = stored.clone();
        for edit in &edits {
            edit.apply(&mut body);
        }
        default_pod(&mut body, &rules).unwrap();
        let new = validate::prepare_resize(&stored, body.clone(), &rules);
        if validate::resize(&stored, &new, &rules).is_empty() {
            accepted.set(accepted.get() + usize::from(new.spec != stored.spec));
            law(&stored, &new, "/resize")?;
        }
        if validate::update(&stored, &body, &rules).is_empty() {
            accepted.set(accepted.get() + usize::from(body.spec != stored.spec));
            // A pod update may change an image, too.
            let mut body = body;
            for (new, old) in
                body.spec.as_mut().unwrap().containers.iter_mut().zip(&stored.spec_of().containers)
            {
                new.image.clone_from(&old.image);
            }
            law(&stored, &body, "the pod itself")?;
        }
        Ok(())
    });
    outcome.unwrap();
    accepted.get()
}

#[test]
fn the_class_never_changes_through_an_accepted_resize() {
    let accepted = of_all_accepted(|stored, new, way| {
        let after = QosClass::of_spec(new.spec_of());
        prop_assert_eq!(QosClass::of_pod(stored), after, "through {}", way);
        Ok(())
    });
    assert!(accepted > 500, "only {accepted} requests were let in");
}

#[test]
fn an_accepted_resize_leaves_everything_but_cpu_and_memory_as_it_was() {
    let accepted = of_all_accepted(|stored, new, way| {
        prop_assert_eq!(apart_from_cpu_and_memory(stored), apart_from_cpu_and_memory(new), "through {}", way);
        Ok(())
    });
    assert!(accepted > 500, "only {accepted} requests were let in");
}

#[test]
fn an_accepted_resize_can_be_counted() {
    of_all_accepted(|_, new, _| {
        for rules in all_rules() {
            prop_assert!(on_node(new, &rules).is_ok() && in_quota(new, &rules).is_ok());
        }
        prop_assert!(requested(new).is_ok() && status::read(new).is_ok());
        Ok(())
    });
}

fn odd_texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[+-]?[0-9]{0,40}(\\.[0-9]{0,12})?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?",
        select(vec!["", "0", "-1", "9223372036854775807", "9300P", "1e400", "16Ei"]).prop_map(str::to_owned),
    ]
}

fn odd_names() -> impl Strategy<Value = String> {
    let known =
        ["cpu", "memory", "hugepages-2Mi", "hugepages-", "hugepages-1n", "example.com/gpu", "/", "a/b/c", ""];
    prop_oneof![
        any::<String>(),
        select(known.to_vec()).prop_map(str::to_owned),
        "hugepages-[0-9]{1,20}[KMG]?i?"
    ]
}

fn odd_requirements() -> impl Strategy<Value = ResourceRequirements> {
    let list =
        || prop::collection::btree_map(odd_names(), odd_texts().prop_map(Quantity), 0..4).prop_map(Some);
    (list(), list()).prop_map(|(requests, limits)| ResourceRequirements { requests, limits, claims: None })
}

fn odd_pods() -> impl Strategy<Value = Pod> {
    let status = (prop::option::of(odd_requirements()), prop::option::of(odd_texts()));
    (prop::collection::vec(odd_requirements(), 0..3), prop::option::of(odd_requirements()), status).prop_map(
        |(all, whole, (actual, word))| {
            let main = all
                .into_iter()
                .enumerate()
                .map(|(i, own)| Container { resources: Some(own), ..container(&format!("c-{i}"), "", "") });
            let sidecar = Container { resources: whole.clone(), ..container("s", "", "").sidecar() };
            pod(main).init([sidecar]).with(|spec| spec.resources = whole).status(|status| {
                status.resources.clone_from(&actual);
                status.allocated_resources = actual.and_then(|actual| actual.requests);
                status.resize = word;
            })
        },
    )
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn any_text_may_be_tried_as_a_resource_or_an_amount(stored in odd_pods(), body in odd_pods()) {
        for rules in all_rules() {
            let mut filled = body.clone();
            copy_back(&stored, &mut filled, &rules);
            let _ = default_pod(&mut filled, &rules);
            allocate_at_creation(&mut filled, &rules);
            for body in [&body, &filled] {
                let new = validate::prepare_resize(&stored, body.clone(), &rules);
                let errors = [validate::resize(&stored, &new, &rules), validate::update(&stored, body, &rules)];
                prop_assert!(errors.iter().all(|errors| errors.is_empty() == aggregate_message(errors).is_empty()));
                let _ = (on_node(body, &rules), in_quota(body, &rules), requested(body), status::read(body));
                let _ = status::propose(&stored, &mut new.clone(), &rules);
            }
        }
    }
}
