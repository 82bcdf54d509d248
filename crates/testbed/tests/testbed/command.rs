//! `testbed up`, with scripts in place of Kubernetes.

use std::fs;

use crate::scratch::{Scratch, said};

/// A program that reports its version, and else sleeps.
const SLEEPING: &str = r#"[ "$1" != --version ] || { echo Kubernetes v1.2.3; exit; }; exec /bin/sleep 60"#;

#[test]
fn a_start_without_programs_says_what_to_run() {
    let machine = Scratch::new("nothing");
    let output = machine.testbed(&["up", "--control-plane-only"]).output().expect("testbed runs");
    assert!(!output.status.success());
    assert!(said(&output).contains("run `testbed obtain`"), "{}", said(&output));
}

#[test]
fn a_start_that_fails_says_why_and_keeps_only_the_logs() {
    let machine = Scratch::new("failing");
    machine.script("etcd", "echo no space for a database; exit 3");
    for program in ["kube-apiserver", "kubectl"] {
        machine.script(program, SLEEPING);
    }
    let output = machine
        .testbed(&["up", "--control-plane-only"])
        .env("KUBEBUILDER_ASSETS", machine.path("bin"))
        .output()
        .expect("testbed runs");
    assert!(!output.status.success());
    let said = said(&output);
    assert!(said.contains("etcd ended by itself (exit status: 3)"), "{said}");
    assert!(said.contains("no space for a database"), "{said}");
    assert!(said.contains("KUBEBUILDER_ASSETS has Kubernetes v1.2.3, not Kubernetes v1.36"), "{said}");
    let kept = said.rsplit_once("its logs are in ").map(|(_, path)| path.trim()).expect("it says where");
    let log = fs::read_to_string(std::path::Path::new(kept).join("etcd.log")).expect("the log is there");
    assert_eq!(log, "no space for a database\n");
    let left: Vec<_> = fs::read_dir(machine.path("tmp")).expect("the folder is there").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_folder_with_something_in_it_is_not_used() {
    let machine = Scratch::new("full");
    for program in ["etcd", "kube-apiserver", "kubectl"] {
        machine.script(program, SLEEPING);
    }
    let folder = machine.path("full");
    fs::create_dir(&folder).expect("a folder can be made");
    fs::write(folder.join("precious"), "kept").expect("a file can be written");
    let output = machine
        .testbed(&["up", "--control-plane-only", "--dir"])
        .arg(&folder)
        .env("KUBEBUILDER_ASSETS", machine.path("bin"))
        .output()
        .expect("testbed runs");
    assert!(!output.status.success());
    assert!(said(&output).contains("could not use"), "{}", said(&output));
    assert_eq!(fs::read_to_string(folder.join("precious")).expect("it is still there"), "kept");
}
