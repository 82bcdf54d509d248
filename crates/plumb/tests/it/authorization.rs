//! The same people may do the same in kube-apiserver and in `plumb up`.

use std::collections::BTreeSet;
use std::path::Path;

use plumb_conformance::cli::client;
use plumb_conformance::differential::authorization::{
    Question, Table, VIRTUAL, allowed, kept, lines, prepare, questions, recorded, resources,
    served_outside_of_scope,
};
use plumb_testbed::{Config, Parts};

use super::cluster::Cluster;

/// Pods are made before a controller made them an account.
const WITHOUT: &str = "--disable-admission-plugins=ServiceAccount";
/// What fills the roles `admin`, `edit` and `view`, and what a control plane needs to be ready. Others might change
/// what the matrix is about.
const CONTROLLERS: &str = "--controllers=clusterrole-aggregation-controller,serviceaccount-controller";
/// Where what kube-apiserver allows is written to, if that is asked for.
const RECORDED: &str = "../conformance/differential/authorization/allowed.tsv";

/// Questions, as a reader of a failed test wants to see them.
fn shown<'a>(questions: impl IntoIterator<Item = &'a Question>) -> String {
    lines(questions).join("\n")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn plumb_authorizes_as_kube_apiserver_does() {
    let mut config = Config::of(Parts::ControlPlane);
    config.apiserver_flags = vec![WITHOUT.to_owned()];
    config.controllers_flags = vec![CONTROLLERS.to_owned()];
    let reference = plumb_testbed::Cluster::start(config).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--resize-dialect", "v1.36", "--components", "apiserver,controllers", WITHOUT];
    let subject = Cluster::start_with(folder.path(), &flags);
    let theirs = client(Some(reference.kubeconfig_path().to_owned())).await.unwrap();
    let ours = client(Some(subject.kubeconfig())).await.unwrap();

    let (served, own) = (resources(&theirs).await.unwrap(), resources(&ours).await.unwrap());
    for (kind, ours) in &own {
        let theirs = served.get(kind);
        assert!(
            theirs.is_none_or(|theirs| theirs.namespaced == ours.namespaced),
            "{kind:?} has another scope"
        );
    }
    for (client, kinds) in [(&theirs, &served), (&ours, &own)] {
        let wrong = served_outside_of_scope(client, kinds).await.unwrap();
        assert!(wrong.is_empty(), "outside of their scope:\n{}", wrong.join("\n"));
    }
    let mut kinds: BTreeSet<(String, String)> = served.into_keys().chain(own.into_keys()).collect();
    kinds.extend(VIRTUAL.map(|(group, resource)| (group.to_owned(), resource.to_owned())));
    let questions = questions(&kinds);
    let ask = async |client: &kube::Client| {
        prepare(client).await.unwrap();
        allowed(client, &questions).await.unwrap()
    };
    let (theirs, ours) = tokio::join!(ask(&theirs), ask(&ours));
    println!(
        "{} questions about {} kinds: kube-apiserver allows {}",
        questions.len(),
        kinds.len(),
        theirs.len()
    );

    let table = Table { resources: kinds, allowed: theirs };
    if std::env::var_os("PLUMB_RECORD_AUTHORIZATION").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDED);
        std::fs::write(path, table.to_text()).unwrap();
    }
    let missing: BTreeSet<&Question> = table.allowed.difference(&ours).collect();
    let more: BTreeSet<Question> = ours.difference(&table.allowed).cloned().collect();
    let kept = kept().unwrap();
    assert!(missing.is_empty(), "kube-apiserver allows and plumb does not:\n{}", shown(missing));
    let unlisted: Vec<&Question> = more.difference(&kept).collect();
    assert!(unlisted.is_empty(), "plumb allows and kube-apiserver does not:\n{}", shown(unlisted));
    let stale: Vec<&Question> = kept.difference(&more).collect();
    assert!(stale.is_empty(), "kept, but no difference any more:\n{}", shown(stale));
    assert!(
        recorded().unwrap() == table,
        "{RECORDED} is not what kube-apiserver allows; record it anew with PLUMB_RECORD_AUTHORIZATION=1"
    );
    subject.stop();
    reference.stop().await.unwrap();
}
