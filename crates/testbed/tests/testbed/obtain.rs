//! `testbed obtain`, with scripts in place of the tools that fetch and build.

use std::fs;

use plumb_testbed::Release;

use crate::scratch::{Scratch, said};

/// Writes the program that is to be built, unless the file `broken` names it.
const GO: &str = r#"
case "$1" in
mod) echo "modules" >>"$CALLS"; [ ! -e "$XDG_CACHE_HOME/unreachable" ] || { echo "no answer" >&2; exit 1; } ;;
build)
    while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
    echo "build ${1##*/}" >>"$CALLS"
    echo half >"$out"
    read -r broken 2>/dev/null <"$XDG_CACHE_HOME/broken" || true
    [ "$broken" != "${1##*/}" ] || { echo "it does not compile" >&2; exit 1; }
    echo whole >"$out" ;;
list)
    [ ! -e "$XDG_CACHE_HOME/unlisted" ] || { echo "not a known dependency" >&2; exit 1; }
    # The folder of a module, with the manifests that it ships.
    /bin/mkdir -p "$XDG_CACHE_HOME/module/deploy"
    echo manifest >"$XDG_CACHE_HOME/module/deploy/vpa.yaml"
    echo "$XDG_CACHE_HOME/module" ;;
esac
"#;
const APT: &str = r#"
[ "$2" = download ] || exit 0
echo "fetch $3" >>"$CALLS"
[ ! -e "$XDG_CACHE_HOME/unreachable" ] || { echo "no answer" >&2; exit 100; }
echo >"$3.deb"
"#;
const DPKG: &str = r#"/bin/mkdir -p "$3""#;

fn machine(test: &str) -> Scratch {
    let scratch = Scratch::new(test);
    scratch.script("go", GO);
    scratch.script("apt-get", APT);
    scratch.script("dpkg-deb", DPKG);
    scratch
}

fn builds(calls: &[String]) -> Vec<&str> {
    calls.iter().filter_map(|call| call.strip_prefix("build ")).collect()
}

#[test]
fn cached_programs_are_not_obtained_again() {
    let machine = machine("again");
    let first = machine.testbed(&["obtain"]).output().expect("testbed runs");
    assert!(first.status.success(), "{}", said(&first));
    let calls = machine.calls();
    assert_eq!(builds(&calls).len(), 6, "{calls:?}");
    assert_eq!(calls.iter().filter(|call| call.starts_with("fetch ")).count(), 5, "{calls:?}");

    let second = machine.testbed(&["obtain"]).output().expect("testbed runs");
    assert!(second.status.success(), "{}", said(&second));
    assert_eq!(machine.calls(), Vec::<String>::new());
    assert!(said(&second).contains("all 6 programs cached"), "{}", said(&second));
}

#[test]
fn the_autoscaler_is_obtained_on_request() {
    let machine = machine("autoscaler");
    let done = machine.testbed(&["obtain", "--autoscaler"]).output().expect("testbed runs");
    assert!(done.status.success(), "{}", said(&done));
    let calls = machine.calls();
    for program in ["recommender", "updater", "admission-controller"] {
        assert!(builds(&calls).contains(&program), "{program}: {calls:?}");
    }
    let found = machine.testbed(&["which", "vpa-recommender"]).output().expect("testbed runs");
    assert!(found.status.success(), "{}", said(&found));
}

#[test]
fn manifests_of_a_module_that_go_does_not_find_are_not_copied_from_elsewhere() {
    let machine = machine("unlisted");
    fs::write(machine.path("cache/unlisted"), "").expect("the cache can be written");
    let output = machine.testbed(&["obtain", "--autoscaler"]).output().expect("testbed runs");
    assert!(!output.status.success());
    assert!(said(&output).contains("not a known dependency"), "{}", said(&output));
}

#[test]
fn each_release_is_obtained_into_a_folder_of_its_own() {
    let machine = machine("release");
    for release in Release::ALL.into_iter().filter(|release| *release != Release::default()) {
        let minor = release.version().trim_start_matches('v').rsplit_once('.').expect("a patch release").0;
        let done = machine.testbed(&["obtain", "--release", minor]).output().expect("testbed runs");
        assert!(done.status.success(), "{}", said(&done));
        let calls = machine.calls();
        let programs = ["kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler", "kubelet"];
        assert_eq!(builds(&calls), programs, "{calls:?}");
        let found =
            machine.testbed(&["which", "--release", minor, "kubelet"]).output().expect("testbed runs");
        let path = String::from_utf8(found.stdout).expect("a path");
        assert!(path.contains(release.version()), "{path}");
    }
}

#[test]
fn an_interrupted_build_continues_with_the_program_that_failed() {
    let machine = machine("broken");
    let broken = machine.path("cache/broken");
    fs::write(&broken, "kube-scheduler\n").expect("the cache can be written");
    let first = machine.testbed(&["obtain"]).output().expect("testbed runs");
    assert!(!first.status.success());
    assert!(said(&first).contains("building kube-scheduler failed"), "{}", said(&first));
    assert!(said(&first).contains("it does not compile"), "{}", said(&first));
    machine.calls();

    fs::remove_file(&broken).expect("the cache can be written");
    let second = machine.testbed(&["obtain"]).output().expect("testbed runs");
    assert!(second.status.success(), "{}", said(&second));
    assert_eq!(builds(&machine.calls()), ["kube-scheduler", "kubelet", "metrics-server"]);
    let program = machine.path("cache/plumb/testbed").join(plumb_testbed::VERSION).join("bin/kube-scheduler");
    assert_eq!(fs::read_to_string(program).expect("it was built"), "whole\n");
}

#[test]
fn a_registry_that_does_not_answer_is_named_by_its_kind() {
    for (test, without_packages, registry) in [
        ("packages", true, "the Debian package registry can't be reached"),
        ("modules", false, "the Go module registry can't be reached"),
    ] {
        let machine = machine(test);
        if !without_packages {
            let first = machine.testbed(&["obtain"]).output().expect("testbed runs");
            assert!(first.status.success(), "{}", said(&first));
            let programs = machine.path("cache/plumb/testbed").join(plumb_testbed::VERSION);
            fs::remove_dir_all(programs).expect("the cache can be written");
        }
        fs::write(machine.path("cache/unreachable"), "").expect("the cache can be written");
        let output = machine.testbed(&["obtain"]).output().expect("testbed runs");
        assert!(!output.status.success());
        assert!(said(&output).contains(registry), "{}", said(&output));
        assert!(said(&output).contains("no answer"), "{}", said(&output));
    }
}

#[test]
fn without_go_the_error_says_how_to_get_it() {
    let machine = machine("without-go");
    fs::remove_file(machine.path("bin/go")).expect("a script can be removed");
    let output = machine.testbed(&["obtain"]).output().expect("testbed runs");
    assert!(!output.status.success());
    assert!(said(&output).contains("install Go 1.26 or newer"), "{}", said(&output));
}

#[test]
fn given_assets_are_neither_fetched_nor_built() {
    let machine = machine("given");
    let output = machine
        .testbed(&["obtain"])
        .env("KUBEBUILDER_ASSETS", machine.path("assets"))
        .output()
        .expect("testbed runs");
    assert!(output.status.success(), "{}", said(&output));
    let calls = machine.calls();
    assert_eq!(builds(&calls), Vec::<&str>::new());
    assert!(!calls.contains(&"fetch etcd-server".to_owned()), "{calls:?}");
}
