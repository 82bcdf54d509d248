//! Public information of a cluster for machines that join, and for nodes that have joined: its address, its
//! certificate authorities, its rules.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use plumb_features::FeatureGates;
use plumb_resize::rules::Dialect;
use serde_json::{Value, json};

use crate::features;
use crate::nodes::DnsSettings;
use crate::pod_network::PodNetwork;

/// The user that writes it.
pub(crate) const WRITER: &str = "cluster-info";
/// The information for everyone.
const PUBLIC: (&str, &str) = ("kube-public", "cluster-info");
/// The information for nodes.
const OF_NODES: (&str, &str) = ("kube-system", "plumb-node");
/// The key of the authorities of clients in it, as `extension-apiserver-authentication` of kube-apiserver calls it.
const CLIENT_CA: &str = "client-ca-file";

/// The keys of the cluster's DNS in it, as the kubelet's flags are called.
const CLUSTER_DNS: &str = "cluster-dns";
const CLUSTER_DOMAIN: &str = "cluster-domain";

/// Where a cluster is, and whom to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// The address of the API.
    pub server: String,
    /// The certificate of its authority, in PEM.
    pub authority: String,
}

/// Which rules bind on nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) dialect: Dialect,
    pub(crate) gates: FeatureGates,
}

/// The settings that a cluster publishes for nodes on other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeSettings {
    /// Which rules bind.
    pub(crate) binding: Binding,
    /// The network of the pods of all nodes, if they have one.
    pub(crate) pod_network: Option<PodNetwork>,
    /// The cluster's DNS.
    pub(crate) dns: DnsSettings,
    /// The certificates, in PEM, of the authorities that sign the client certificates that a node's server accepts. Empty
    /// where the cluster does not say.
    pub(crate) client_authorities: String,
}

/// Publishes it, as kubeadm does: a kubeconfig without a user.
pub(crate) async fn publish(
    client: &Client,
    invitation: &Invitation,
    settings: &NodeSettings,
) -> anyhow::Result<()> {
    let kubeconfig = to_kubeconfig(invitation)?;
    put(client, PUBLIC, json!({ "kubeconfig": kubeconfig })).await?;
    let mut data = json!({
        "resize-dialect": name_of(settings.binding.dialect),
        "feature-gates": features::list(&settings.binding.gates),
        CLUSTER_DNS: settings.dns.server.map(|server| server.to_string()).unwrap_or_default(),
        CLUSTER_DOMAIN: settings.dns.domain,
        CLIENT_CA: settings.client_authorities,
    });
    if let (Some(data), Some(network)) = (data.as_object_mut(), settings.pod_network) {
        data.extend(network.to_entries());
    }
    put(client, OF_NODES, data).await
}

async fn put(client: &Client, (namespace, name): (&str, &str), data: Value) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": name }, "data": data }))?;
    let made = match maps.get_opt(name).await? {
        None => maps.create(&kube::api::PostParams::default(), &map).await,
        Some(found) if found.data == map.data => return Ok(()),
        Some(_) => {
            let patch = Patch::Merge(json!({ "data": map.data }));
            maps.patch(name, &PatchParams::default(), &patch).await
        }
    };
    made.map(drop).with_context(|| format!("writing the ConfigMap {name} in {namespace}"))
}

fn to_kubeconfig(invitation: &Invitation) -> anyhow::Result<String> {
    use base64::Engine as _;
    let authority = base64::prelude::BASE64_STANDARD.encode(&invitation.authority);
    let cluster = json!({ "certificate-authority-data": authority, "server": invitation.server });
    // JSON is YAML too.
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "clusters": [{ "name": "", "cluster": cluster }],
        "contexts": [], "current-context": "", "preferences": {}, "users": [],
    });
    serde_json::to_string(&config).context("writing a kubeconfig")
}

/// Parses an invitation.
pub fn read_invitation(map: &ConfigMap) -> Option<Invitation> {
    use base64::Engine as _;
    let config: Value = serde_saphyr::from_str(map.data.as_ref()?.get("kubeconfig")?).ok()?;
    let cluster = &config["clusters"][0]["cluster"];
    let authority =
        base64::prelude::BASE64_STANDARD.decode(cluster["certificate-authority-data"].as_str()?).ok()?;
    Some(Invitation {
        server: cluster["server"].as_str()?.to_owned(),
        authority: String::from_utf8(authority).ok()?,
    })
}

/// Reads the settings of nodes; the defaults in a cluster that publishes none, such as one that Plumb does not run.
pub(crate) async fn settings(client: &Client) -> anyhow::Result<NodeSettings> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), OF_NODES.0);
    let usual = NodeSettings {
        binding: Binding { dialect: Dialect::default(), gates: FeatureGates::default() },
        pod_network: None,
        // A cluster of other nodes has a DNS server of its own somewhere.
        dns: DnsSettings { server: None, ..DnsSettings::default() },
        client_authorities: String::new(),
    };
    let found = match maps.get_opt(OF_NODES.1).await {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(usual),
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(usual),
        Err(error) => return Err(error).context("asking the cluster which rules bind"),
    };
    let text = |name: &str| found.data.as_ref().and_then(|data| data.get(name)).map_or("", String::as_str);
    let (gates, refused) = features::parse_lenient(text("feature-gates"));
    for error in refused {
        tracing::warn!(%error, "the cluster is of another version; its feature gate is left out");
    }
    let binding = Binding { dialect: text("resize-dialect").parse()?, gates };
    let dns = DnsSettings { server: text(CLUSTER_DNS).parse().ok(), ..DnsSettings::default() };
    let dns = match text(CLUSTER_DOMAIN) {
        "" => dns,
        domain => DnsSettings { domain: domain.to_owned(), ..dns },
    };
    let pod_network = PodNetwork::from_entries(|name| Some(text(name)));
    Ok(NodeSettings { binding, dns, pod_network, client_authorities: text(CLIENT_CA).to_owned() })
}

fn name_of(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Kep => "kep",
        Dialect::V1_36 => "v1.36",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_invitation_can_be_parsed() {
        let published = Invitation { server: "https://10.0.0.1:6443".into(), authority: "PEM\n".into() };
        let map: ConfigMap =
            serde_json::from_value(json!({ "data": { "kubeconfig": to_kubeconfig(&published).unwrap() } }))
                .unwrap();
        assert_eq!(read_invitation(&map), Some(published));
    }
}
