//! `plumb support-bundle`: what a report of a problem needs, in one file.
//!
//! ```text
//!   about.txt            versions, machine
//!   server/              /version, /livez, /readyz, /metrics
//!   nodes/NAME/          healthz, metrics, configuration of the agents, through the API server
//!   objects/RESOURCE.json
//!   errors.txt           what could not be read
//! ```
//!
//! Secrets and config maps are not read. Values of environment variables and copies of whole objects in annotations are removed.

mod redact;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Request;
use jiff::Timestamp;
use kube::Client;
use plumb_cluster::{announce, say};
use serde_json::Value;

use crate::client::{Target, block_on, refusal};

/// The paths of the server that say how it is.
const SERVER: &[(&str, &str)] = &[
    ("server/version.json", "/version"),
    ("server/livez.txt", "/livez?verbose"),
    ("server/readyz.txt", "/readyz?verbose"),
    ("server/metrics.txt", "/metrics"),
];

/// The paths of a node's agent, below its proxy.
const AGENT: &[(&str, &str)] =
    &[("healthz.txt", "healthz?verbose"), ("metrics.txt", "metrics"), ("configz.json", "configz")];

/// The resources that are listed, in all namespaces.
const RESOURCES: &[(&str, &str)] = &[
    ("/api/v1", "nodes"),
    ("/api/v1", "namespaces"),
    ("/api/v1", "pods"),
    ("/api/v1", "events"),
    ("/api/v1", "services"),
    ("/api/v1", "limitranges"),
    ("/api/v1", "resourcequotas"),
    ("/api/v1", "persistentvolumes"),
    ("/api/v1", "persistentvolumeclaims"),
    ("/apis/apps/v1", "deployments"),
    ("/apis/apps/v1", "replicasets"),
    ("/apis/apps/v1", "statefulsets"),
    ("/apis/apps/v1", "daemonsets"),
    ("/apis/apps.kruise.io/v1alpha1", "clonesets"),
    ("/apis/autoscaling/v2", "horizontalpodautoscalers"),
    ("/apis/autoscaling.k8s.io/v1", "verticalpodautoscalers"),
    ("/apis/autoscaling.k8s.io/v1", "verticalpodautoscalercheckpoints"),
    ("/apis/plumb.dev/v1alpha1", "rolloutpolicies"),
    ("/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
    ("/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"),
    ("/apis/apiregistration.k8s.io/v1", "apiservices"),
    ("/apis/discovery.k8s.io/v1", "endpointslices"),
    ("/apis/networking.k8s.io/v1", "networkpolicies"),
    ("/apis/policy/v1", "poddisruptionbudgets"),
    ("/apis/storage.k8s.io/v1", "storageclasses"),
    ("/apis/coordination.k8s.io/v1", "leases"),
];

/// How many objects of a resource, and of how many nodes the agent, are in a bundle. A report about a large cluster is still one
/// that can be sent.
const MOST_OBJECTS: usize = 5_000;
const MOST_NODES: usize = 20;

/// Collect what a report of a problem needs into one file: versions, health, metrics and objects, without secrets.
///
/// Secrets and config maps are not read, and values of environment variables are removed. Read the file before you send it:
/// names, labels, arguments of containers and events are in it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    plumb support-bundle\n  \
    plumb support-bundle --out /tmp/bundle.tar.gz")]
pub(crate) struct SupportBundle {
    /// The file to write, a .tar.gz; it must not exist. [default: plumb-support-TIME.tar.gz]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: SupportBundle) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let out =
        args.out.unwrap_or_else(|| format!("plumb-support-{}.tar.gz", now.strftime("%Y%m%d-%H%M%S")).into());
    block_on(async {
        let (_, client) = args.target.config().await?;
        // Without the server there is nothing to bundle: say so instead of writing an archive of errors.
        get(&client, "/version").await?;
        // Only its owner reads it, like a kubeconfig.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&out);
        let file = file.with_context(|| format!("creating {}", out.display()))?;
        let mut bundle = Bundle::new(file, now);
        bundle.collect(&client).await?;
        let errors = bundle.errors.len();
        bundle.finish().with_context(|| format!("writing {}", out.display()))?;
        announce!("{} is what a report needs; read it before you send it", out.display());
        if errors > 0 {
            say!("plumb: {errors} parts could not be read; errors.txt in it says why");
        }
        Ok(())
    })
}

/// An archive that is being written, and what could not be read for it.
struct Bundle<W: Write> {
    archive: tar::Builder<GzEncoder<W>>,
    now: Timestamp,
    errors: Vec<String>,
}

impl<W: Write> Bundle<W> {
    fn new(file: W, now: Timestamp) -> Self {
        let archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        Self { archive, now, errors: Vec::new() }
    }

    async fn collect(&mut self, client: &Client) -> anyhow::Result<()> {
        self.add("about.txt", about(self.now).as_bytes())?;
        for (file, path) in SERVER {
            self.add_response(client, file, path).await?;
        }
        let mut nodes = Vec::new();
        for (group_version, resource) in RESOURCES {
            let path = format!("{group_version}/{resource}?limit={MOST_OBJECTS}");
            let response = get(client, &path).await;
            let listed = response.and_then(|text| Ok(serde_json::from_str::<Value>(&text)?));
            match listed {
                Ok(mut list) => {
                    redact::list(&mut list);
                    if *resource == "nodes" {
                        nodes = names(&list);
                    }
                    let text = serde_json::to_vec_pretty(&list)?;
                    self.add(&format!("objects/{resource}.json"), &text)?;
                }
                Err(error) => self.errors.push(format!("{path}: {error:#}")),
            }
        }
        for node in nodes.iter().take(MOST_NODES) {
            for (file, path) in AGENT {
                let path = format!("/api/v1/nodes/{node}/proxy/{path}");
                self.add_response(client, &format!("nodes/{node}/{file}"), &path).await?;
            }
        }
        Ok(())
    }

    /// Adds a response of the server, or notes why there is none.
    async fn add_response(&mut self, client: &Client, file: &str, path: &str) -> anyhow::Result<()> {
        match get(client, path).await {
            Ok(text) => self.add(file, text.as_bytes())?,
            Err(error) => self.errors.push(format!("{path}: {error:#}")),
        }
        Ok(())
    }

    fn add(&mut self, path: &str, content: &[u8]) -> std::io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o600);
        header.set_size(content.len() as u64);
        header.set_mtime(u64::try_from(self.now.as_second()).unwrap_or_default());
        self.archive.append_data(&mut header, path, content)
    }

    fn finish(mut self) -> std::io::Result<()> {
        let errors = self.errors.join("\n");
        self.add("errors.txt", errors.as_bytes())?;
        self.archive.into_inner()?.finish()?.flush()
    }
}

/// The body of a response.
async fn get(client: &Client, path: &str) -> anyhow::Result<String> {
    let request = Request::get(path).body(Vec::new()).context("making a request")?;
    client.request_text(request).await.map_err(refusal)
}

/// The names of the objects of a list.
fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

/// What runs this command, and where.
fn about(now: Timestamp) -> String {
    let kernel = std::fs::read_to_string("/proc/version").unwrap_or_default();
    let cgroups =
        if PathBuf::from("/sys/fs/cgroup/cgroup.controllers").exists() { "v2" } else { "v1, or none" };
    format!(
        "plumb {}\ntime: {now}\nkernel: {}\ncgroups: {cgroups}\n",
        env!("CARGO_PKG_VERSION"),
        kernel.trim_end()
    )
}
