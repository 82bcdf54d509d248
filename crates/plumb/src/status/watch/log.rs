//! Pods that change, printed one after the other.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use plumb_controller_runtime::ObjectRef;
use plumb_vpa_explain::BoostView;
use serde_json::{Value, json};

use super::super::listing::Listing;
use super::super::{Status, boost_lines, value, vpa};
use super::{now, print_object};
use crate::client::{Columns, Output, write_out};

/// What is printed of a pod. It is printed again when it differs.
#[derive(PartialEq)]
enum Printed {
    /// Its rows and their reasons, and its boosts.
    Rows(Listing, String),
    /// The pod for programs.
    Object(Value, Output),
}

/// The printed state.
pub(super) struct Log<'a> {
    args: &'a Status,
    client: Client,
    /// What was printed last of each pod, without the time.
    printed: BTreeMap<ObjectRef, Printed>,
    columns: Columns,
    has_header: bool,
}

impl<'a> Log<'a> {
    pub(super) fn new(args: &'a Status, client: Client) -> Self {
        Self { args, client, printed: BTreeMap::new(), columns: Columns::default(), has_header: false }
    }

    pub(super) async fn restart(&mut self, pods: &[Pod]) -> anyhow::Result<()> {
        let listed: Vec<ObjectRef> = pods.iter().map(ObjectRef::of).collect();
        let deleted: Vec<ObjectRef> =
            self.printed.keys().filter(|pod| !listed.contains(pod)).cloned().collect();
        for pod in deleted {
            self.delete(&pod)?;
        }
        let boosts = vpa::pods::boosts(&self.client, pods).await;
        if !self.has_header && !pods.is_empty() && self.objects().is_none() {
            let listing = Listing::of(pods, self.args.form(), None)?;
            self.write(&listing, &boost_lines(pods.iter().zip(&boosts)))?;
            for (pod, boosts) in pods.iter().zip(boosts) {
                let printed = self.printed(pod, &boosts)?;
                self.printed.insert(ObjectRef::of(pod), printed);
            }
            return Ok(());
        }
        pods.iter().zip(boosts).try_for_each(|(pod, boosts)| self.print(pod, &boosts))
    }

    pub(super) async fn show(&mut self, pod: &Pod) -> anyhow::Result<()> {
        let boosts = vpa::pods::boosts(&self.client, std::slice::from_ref(pod)).await;
        self.print(pod, &boosts.into_iter().flatten().collect::<Vec<_>>())
    }

    pub(super) fn delete(&mut self, pod: &ObjectRef) -> anyhow::Result<()> {
        self.printed.remove(pod);
        if let Some(output) = self.objects() {
            let deleted = json!({ "namespace": pod.namespace, "pod": pod.name, "deleted": true });
            return print_object(&deleted, output);
        }
        let mut row = vec![pod.name.clone(), "deleted".to_owned()];
        if self.args.all_namespaces {
            row.insert(0, pod.namespace.clone());
        }
        write_out(&self.columns.lines(&[at(&now(), &row)]))
    }

    /// The format of objects, if they are printed.
    fn objects(&self) -> Option<Output> {
        self.args.output.filter(|output| matches!(output, Output::Json | Output::Yaml))
    }

    /// Prints a pod, if it looks otherwise than before.
    fn print(&mut self, pod: &Pod, boosts: &Vec<BoostView>) -> anyhow::Result<()> {
        let printed = self.printed(pod, boosts)?;
        if self.printed.get(&ObjectRef::of(pod)) == Some(&printed) {
            return Ok(());
        }
        match &printed {
            Printed::Rows(listing, boosts) => self.write(listing, boosts)?,
            Printed::Object(value, output) => print_object(value, *output)?,
        }
        self.printed.insert(ObjectRef::of(pod), printed);
        Ok(())
    }

    fn printed(&self, pod: &Pod, boosts: &Vec<BoostView>) -> anyhow::Result<Printed> {
        if let Some(output) = self.objects() {
            return Ok(Printed::Object(value(pod, boosts, None)?, output));
        }
        Ok(Printed::Rows(Listing::of([pod], self.args.form(), None)?, boost_lines([(pod, boosts)])))
    }

    /// Prints rows with the time, and the text below them. The first ones have the header above them: its columns are
    /// as wide as theirs.
    fn write(&mut self, listing: &Listing, boosts: &str) -> anyhow::Result<()> {
        let now = now();
        let mut rows = Vec::new();
        if !self.has_header {
            self.has_header = true;
            rows.push(at("TIME", &listing.head));
        }
        rows.extend(listing.rows.iter().map(|row| at(&now, row)));
        let lines = self.columns.lines(&rows);
        write_out(&format!("{lines}{}{boosts}", listing.why))
    }
}

/// A row with the time that it is of.
fn at(time: &str, row: &[String]) -> Vec<String> {
    std::iter::once(time.to_owned()).chain(row.iter().cloned()).collect()
}
