//! `docs/fields.md` shows the tables. `PLUMB_RECORD_FIELDS=1` writes it anew.

use std::fmt::Write as _;
use std::fs;

use super::{Row, apiserver, kinds, root, sorted, texts, warnings_in_pod};

const HEAD: &str = "\
# Fields and kinds without effect

For authors of pods, and for operators who wonder why a field does nothing.

The API server accepts every field of Kubernetes 1.36, and validates it as kube-apiserver does. This page lists the fields of a
pod's spec, and the kinds, that no component of Plumb acts on, and what happens instead. All other fields of a pod are acted on:
`crates/apiserver/tests/it/fields/pod.tsv` names the file that reads each, and a test fails if Kubernetes has a field that is
not sorted there.

`cargo test -p plumb-apiserver --test it fields` checks this page; with `PLUMB_RECORD_FIELDS=1` it writes it.
";

const REFUSED: &str = "
## Refused

The node, or the scheduler, refuses a pod that asks for one of these, so that no container runs without what it asks for.
A node of the virtual runtime prepares no volumes, since it runs no processes.

| field | value and result |
|---|---|
";

const WARNED: &str = "
## Accepted with a warning

The API server answers with a `Warning` header, which kubectl prints, when a pod or the template of a workload (Deployment,
ReplicaSet, StatefulSet, DaemonSet, Job, CronJob, ReplicationController, PodTemplate) has such a field with a value that would
matter. kube-apiserver has no such warnings.

| field | warning |
|---|---|
";

const DROPPED: &str = "
## Dropped

| field | why |
|---|---|
";

const NONE: &str = "
## No effect, and no warning

| field | why |
|---|---|
";

const KINDS: &str = "
## Kinds

Objects of these kinds are stored and validated. The API server warns when one is created and when its spec changes.

| kind | warning |
|---|---|
";

const TAIL: &str = "
Objects are stored unencrypted without [a flag](encryption.md), Secrets included: protect the data directory.

A Service gets a cluster IP, with the type NodePort a port, and [endpoints](controllers.md#endpoints-of-services); with the type
LoadBalancer its status has the addresses of nodes. Nodes [forward connections](services.md#services) to any of these to the
endpoints.
";

/// The page as the tables and the server have it.
async fn page() -> String {
    let rows = sorted();
    let apiserver = apiserver();
    let mut page = HEAD.to_owned();
    let line = |page: &mut String, name: &str, text: &str| {
        writeln!(page, "| {name} | {text} |").unwrap();
    };
    let name = |row: &Row| format!("`{}.{}`", row.holder, row.field);
    for (head, answer) in [(REFUSED, "refused"), (WARNED, "warned"), (DROPPED, "dropped"), (NONE, "none")] {
        page.push_str(head);
        for row in rows.iter().filter(|row| row.answer == answer) {
            if answer == "warned" {
                let warning = warnings_in_pod(&apiserver, row).await.join("; ");
                line(&mut page, &name(row), &format!("`{warning}`"));
            } else {
                line(&mut page, &name(row), row.instead);
            }
        }
    }
    page.push_str(KINDS);
    for (kind, collection, object) in kinds() {
        let warning = texts(&apiserver.post(collection, &object).await).join("; ");
        line(&mut page, kind, &format!("`{warning}`"));
    }
    page.push_str(TAIL);
    page
}

#[tokio::test]
async fn the_document_lists_every_field_and_kind_without_effect() {
    let path = root().join("docs/fields.md");
    let page = page().await;
    if std::env::var_os("PLUMB_RECORD_FIELDS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/fields.md is out of date: run with PLUMB_RECORD_FIELDS=1");
}
