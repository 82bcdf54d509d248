//! `docs/metrics*.md` list every metric that the program exports. `PLUMB_UPDATE=1` writes them anew.
//!
//! Name, type and help text are read from the source, where each is a literal. The labels of a new metric are guessed from the
//! source around it; after that the page keeps them.

mod declarations;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use xtask::repository::{root, sources};

use declarations::{Declaration, declarations};

/// A page, with its sections in their order.
struct Page {
    file: &'static str,
    title: &'static str,
    intro: &'static str,
    sections: &'static [Section],
}

/// A section: the metrics of some files.
struct Section {
    title: &'static str,
    intro: &'static str,
    /// Files, or folders of files.
    sources: &'static [&'static str],
}

const PAGES: &[Page] = &[
    Page {
        file: "docs/metrics-apiserver.md",
        title: "Metrics of the API server",
        intro: "For operators of a cluster. All are under `/metrics` of the API server; see [all metrics](metrics.md).",
        sections: &[
            Section {
                title: "Requests, connections and the store",
                intro: "",
                sources: &["crates/apiserver/src/metrics.rs", "crates/apiserver/src/in_flight.rs"],
            },
            Section {
                title: "Pod Security",
                intro: "Guide: [Pod Security](admission.md#pod-security).",
                sources: &["crates/kinds/src/admission/pod_security"],
            },
            Section {
                title: "Audit",
                intro: "Only with an audit policy. Guide: [the audit log](audit.md).",
                sources: &["crates/audit/src"],
            },
            Section {
                title: "Encryption at rest",
                intro: "Only with a configuration of encryption. Guide: [encryption at rest](encryption.md).",
                sources: &["crates/cluster/src/encryption.rs"],
            },
            Section { title: "Feature gates", intro: "", sources: &["crates/cluster/src/features.rs"] },
            Section {
                title: "The process",
                intro: "",
                sources: &["crates/apiserver/src/metrics/process.rs"],
            },
        ],
    },
    Page {
        file: "docs/metrics-controllers.md",
        title: "Metrics of the scheduler and the controllers",
        intro: "\
For operators of a cluster. `/metrics` of the API server has them for the components of `plumb up`, and `/metrics` of
`plumb run` for those that it runs on another cluster; see [all metrics](metrics.md).",
        sections: &[
            Section { title: "The scheduler", intro: "", sources: &["crates/scheduler/src"] },
            Section {
                title: "Controllers, work queues, reflectors and clients",
                intro: "A family without series is left out.",
                sources: &["crates/controller-runtime/src"],
            },
            Section {
                title: "The controller of HorizontalPodAutoscalers",
                intro: "",
                sources: &["crates/controllers/src"],
            },
            Section {
                title: "In-place rollouts",
                intro: "Guide: [in-place rollouts](rollout.md).",
                sources: &["crates/rollout/src"],
            },
            Section {
                title: "Tasks of the process",
                intro: "Nodes have them too. Guide: [health](monitoring.md#health).",
                sources: &["crates/supervise/src"],
            },
        ],
    },
    Page {
        file: "docs/metrics-node.md",
        title: "Metrics of nodes",
        intro: "\
For operators of a cluster. `PATH` of a node is `/api/v1/nodes/NAME/proxy/PATH` of the API server; see
[all metrics](metrics.md).",
        sections: &[
            Section {
                title: "/metrics",
                intro: "",
                sources: &["crates/node/src/metrics.rs"],
            },
            Section { title: "/metrics/probes", intro: "", sources: &["crates/node/src/metrics/probes.rs"] },
            Section {
                title: "/metrics/resource",
                intro: "",
                sources: &["crates/node/src/server/stats/resource.rs"],
            },
            Section {
                title: "/metrics/cadvisor",
                intro: "",
                sources: &["crates/node/src/server/stats/cadvisor.rs"],
            },
            Section {
                title: "The DNS server",
                intro: "Part of `/metrics`. Guide: [services and names](services.md).",
                sources: &["crates/dns/src"],
            },
            Section {
                title: "The service proxy",
                intro: "Part of `/metrics`. Guide: [services and names](services.md).",
                sources: &["crates/proxy/src"],
            },
        ],
    },
    Page {
        file: "docs/metrics-autoscaler.md",
        title: "Metrics of the autoscaler",
        intro: "\
For operators of the autoscaler. `/metrics` of the API server has them for the components of `plumb up`, and `/metrics` of
`plumb run` for those that it runs on another cluster; see [all metrics](metrics.md).",
        sections: &[
            Section { title: "The recommender", intro: "", sources: &["crates/recommender/src"] },
            Section { title: "The updater", intro: "", sources: &["crates/updater/src"] },
            Section { title: "The admission webhook", intro: "", sources: &["crates/vpa-admission/src"] },
        ],
    },
];

/// The crate that writes the format, and crates whose metrics only tests read.
const NOT_COMPONENTS: [&str; 2] = ["crates/metrics/", "crates/testkit/"];

/// A metric with the place of its row.
struct Row {
    page: usize,
    section: usize,
    declaration: Declaration,
}

/// The section that has the metrics of a file: the one with the longest matching path.
fn section_of(path: &str) -> Option<(usize, usize)> {
    let mut best: Option<(usize, (usize, usize))> = None;
    for (page_index, page) in PAGES.iter().enumerate() {
        for (section_index, section) in page.sections.iter().enumerate() {
            for source in section.sources {
                let matches = path == *source || path.starts_with(&format!("{source}/"));
                if matches && best.is_none_or(|(length, _)| source.len() > length) {
                    best = Some((source.len(), (page_index, section_index)));
                }
            }
        }
    }
    best.map(|(_, place)| place)
}

/// Every metric that the source declares.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for file in sources(&root().join("crates")).unwrap() {
        let path = file.strip_prefix(root()).unwrap().display().to_string();
        let is_source = path.split('/').nth(2) == Some("src");
        if !is_source || NOT_COMPONENTS.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        for declaration in declarations(&fs::read_to_string(&file).unwrap()) {
            let name = &declaration.name;
            let (page, section) = section_of(&path).unwrap_or_else(|| {
                panic!("{path} declares {name}, and no page has the metrics of that file")
            });
            rows.push(Row { page, section, declaration });
        }
    }
    rows
}

/// The labels that a page has for its metrics, by section and name.
fn known_labels(page: &str) -> BTreeMap<(String, String), String> {
    let mut labels = BTreeMap::new();
    let mut section = String::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut section);
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        if let [name, _, own, ..] = cells[..]
            && let Some(name) = name.strip_prefix("| `").and_then(|name| name.strip_suffix('`'))
        {
            labels.insert((section.clone(), name.to_owned()), own.trim().to_owned());
        }
    }
    labels
}

fn rendered(page_index: usize, page: &Page, rows: &[Row], written: &str) -> String {
    let known = known_labels(written);
    let mut body = format!("# {}\n\n{}\n", page.title, page.intro);
    for (section_index, section) in page.sections.iter().enumerate() {
        let _ = write!(body, "\n## {}\n\n", section.title);
        if !section.intro.is_empty() {
            let _ = write!(body, "{}\n\n", section.intro);
        }
        body.push_str("| metric | type | labels | help |\n|---|---|---|---|\n");
        let own = rows.iter().filter(|row| (row.page, row.section) == (page_index, section_index));
        let mut own: Vec<&Declaration> = own.map(|row| &row.declaration).collect();
        own.sort_by(|a, b| a.name.cmp(&b.name));
        own.dedup_by(|a, b| a.name == b.name);
        for Declaration { name, kind, help, labels } in own {
            let guess = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
            let labels = known.get(&(section.title.to_owned(), name.clone())).unwrap_or(&guess);
            let _ = writeln!(body, "| `{name}` | {kind} | {labels} | {} |", help.replace('|', "\\|"));
        }
    }
    body
}

#[test]
fn the_pages_list_the_metrics_of_the_source() {
    let rows = rows();
    let update = std::env::var_os("PLUMB_UPDATE").is_some();
    for (page_index, page) in PAGES.iter().enumerate() {
        let path = root().join(page.file);
        let written = fs::read_to_string(&path).unwrap_or_default();
        let made = rendered(page_index, page, &rows, &written);
        if update {
            fs::write(path, made).unwrap();
        } else {
            assert!(made == written, "{} is out of date: cargo xtask regenerate metrics", page.file);
        }
    }
}

#[test]
fn every_section_has_metrics() {
    let filled: BTreeSet<(usize, usize)> = rows().iter().map(|row| (row.page, row.section)).collect();
    let all =
        PAGES.iter().enumerate().flat_map(|(page, own)| (0..own.sections.len()).map(move |at| (page, at)));
    let empty: Vec<&str> = all
        .filter(|place| !filled.contains(place))
        .map(|(page, at)| PAGES[page].sections[at].title)
        .collect();
    assert!(empty.is_empty(), "sections without metrics: {empty:?}");
}
