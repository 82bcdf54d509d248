//! Warnings about files of a volume with the same path, or with a path below that of another file.

use serde_json::Value;

/// The path of a file, with the source that it is projected from.
#[derive(Clone, PartialEq)]
struct Source {
    path: String,
    from: String,
}

impl Source {
    fn shown(&self) -> String {
        if self.from.is_empty() {
            format!("{:?}", self.path)
        } else {
            format!("{:?} ({})", self.path, self.from)
        }
    }
}

/// Warnings about the volumes of a pod.
pub(super) fn check(spec: &Value, warnings: &mut Vec<String>) {
    for volume in super::list(spec, "volumes") {
        let name = text(volume, "name");
        let named = |kind: &str, holder: &Value, field: &str| format!("{kind} {:?}", text(holder, field));
        for (what, holder) in [
            (named("ConfigMap", &volume["configMap"], "name"), &volume["configMap"]),
            (named("Secret", &volume["secret"], "secretName"), &volume["secret"]),
            ("DownwardAPI".to_owned(), &volume["downwardAPI"]),
        ] {
            overlaps(name, &what, sources(holder, ""), warnings);
        }
        if volume["projected"].is_null() {
            continue;
        }
        let mut all = Vec::new();
        for source in super::list(&volume["projected"], "sources") {
            if source.as_object().is_none_or(serde_json::Map::is_empty) {
                warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
                continue;
            }
            all.extend(projected(source));
        }
        overlaps(name, "Projected", all, warnings);
    }
}

fn text<'a>(holder: &'a Value, field: &str) -> &'a str {
    holder[field].as_str().unwrap_or_default()
}

fn sources(holder: &Value, from: &str) -> Vec<Source> {
    let items = super::list(holder, "items").iter();
    items.map(|item| Source { path: text(item, "path").to_owned(), from: from.to_owned() }).collect()
}

fn projected(source: &Value) -> Vec<Source> {
    let one = |path: &str, from: String| vec![Source { path: path.to_owned(), from }];
    if source["configMap"]["items"].is_array() {
        return sources(&source["configMap"], &format!("ConfigMap {:?}", text(&source["configMap"], "name")));
    }
    if source["secret"]["items"].is_array() {
        return sources(&source["secret"], &format!("Secret {:?}", text(&source["secret"], "name")));
    }
    if source["downwardAPI"]["items"].is_array() {
        return sources(&source["downwardAPI"], "DownwardAPI");
    }
    if let Some(token) = source.get("serviceAccountToken") {
        return one(text(token, "path"), "ServiceAccountToken".to_owned());
    }
    if let Some(bundle) = source.get("clusterTrustBundle") {
        let name = bundle.get("name").or_else(|| bundle.get("signerName")).and_then(Value::as_str);
        return one(text(bundle, "path"), format!("ClusterTrustBundle {:?}", name.unwrap_or_default()));
    }
    let certificate = &source["podCertificate"];
    let parts = [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ];
    let given = parts.into_iter().filter(|(field, _)| !text(certificate, field).is_empty());
    given
        .map(|(field, from)| Source { path: text(certificate, field).to_owned(), from: from.to_owned() })
        .collect()
}

fn overlaps(volume: &str, what: &str, sources: Vec<Source>, warnings: &mut Vec<String>) {
    let mut seen: Vec<Source> = Vec::new();
    for mut source in sources {
        source.path.truncate(source.path.trim_end_matches('/').len());
        let inside = |one: &str, other: &str| format!("{one}/").starts_with(&format!("{other}/"));
        let meets = |other: &&Source| {
            !other.path.is_empty()
                && !source.path.is_empty()
                && (inside(&other.path, &source.path) || inside(&source.path, &other.path))
        };
        for other in seen.iter().filter(meets) {
            warnings.push(format!(
                "volume {volume:?} ({what}): overlapping paths: {} with {}",
                source.shown(),
                other.shown()
            ));
        }
        seen.push(source);
    }
}
