//! Images from a real registry: Debian's `docker-registry`, which `.ci/registry` obtains and runs these tests with.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Event, Pod, Secret, ServiceAccount};
use kube::Api;
use kube::api::{ListParams, PostParams};
use plumb_oci::{Digest, architecture};
use plumb_testkit::{TIMEOUT, eventually, free_port, in_time};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use super::nodes::machine::{Machine, create, pods, until};

/// `user` with the password `password`, as `htpasswd -B` writes it.
const HTPASSWD: &str = "user:$2b$04$Ss9bQ8z5qqWyoahFtM3i5.Sv3XR6j.4qxR6klPBz4OQQ.2Z34WwwK\n";

/// A registry in a process of its own, until it is dropped.
struct Registry {
    child: Child,
    folder: tempfile::TempDir,
    address: SocketAddr,
}

impl Registry {
    fn start(needs_password: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let password = folder.path().join("htpasswd");
        std::fs::write(&password, HTPASSWD).unwrap();
        let auth = if needs_password {
            format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", password.display())
        } else {
            String::new()
        };
        let data = folder.path().join("data");
        let config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {address}\n{auth}",
            data.display()
        );
        std::fs::write(folder.path().join("config.yml"), config).unwrap();
        let child = Self::spawn(folder.path(), address);
        Self { child, folder, address }
    }

    /// Starts the process, and waits until it accepts connections.
    fn spawn(folder: &Path, address: SocketAddr) -> Child {
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let child = Command::new("docker-registry")
            .args(["serve", "config.yml"])
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let start = std::time::Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < TIMEOUT, "the registry does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        child
    }

    /// Kills it.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.child = Self::spawn(self.folder.path(), self.address);
    }

    fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    fn storage(&self) -> PathBuf {
        self.folder.path().join("data/docker/registry/v2")
    }

    /// The file of a blob in the registry's storage.
    fn blob(&self, digest: Digest) -> PathBuf {
        let hex = digest.hex();
        self.storage().join(format!("blobs/sha256/{}/{hex}/data", &hex[..2]))
    }

    fn put_blob(&self, repository: &str, content: &[u8]) -> Digest {
        let digest = Digest::of(content);
        write(&self.blob(digest), content);
        let link = format!("repositories/{repository}/_layers/sha256/{}/link", digest.hex());
        write(&self.storage().join(link), digest.to_string().as_bytes());
        digest
    }

    /// Puts an image into the registry's storage, of one layer that is a compressed tar file.
    fn put_image(&self, repository: &str, tag: &str, plain: &[u8], layer: &[u8]) -> Digest {
        let config = json!({
            "architecture": architecture(), "os": "linux",
            "config": { "Entrypoint": ["/bin/sleep", "1000"], "Env": ["PATH=/bin"] },
            "rootfs": { "type": "layers", "diff_ids": [Digest::of(plain)] },
        });
        let config = config.to_string();
        let described = |media: &str, digest: Digest, size: usize| json!({ "mediaType": media, "digest": digest, "size": size });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": described("application/vnd.oci.image.config.v1+json", self.put_blob(repository, config.as_bytes()), config.len()),
            "layers": [described("application/vnd.oci.image.layer.v1.tar+gzip", self.put_blob(repository, layer), layer.len())],
        });
        let manifest = self.put_manifest(repository, &manifest.to_string(), None);
        let size = std::fs::metadata(self.blob(manifest)).unwrap().len();
        // The tag is of an index, as those of most images are.
        let own = json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": manifest, "size": size,
            "platform": { "os": "linux", "architecture": architecture() },
        });
        let index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [own],
        });
        self.put_manifest(repository, &index.to_string(), Some(tag));
        Digest::of(layer)
    }

    fn put_manifest(&self, repository: &str, text: &str, tag: Option<&str>) -> Digest {
        let digest = Digest::of(text.as_bytes());
        write(&self.blob(digest), text.as_bytes());
        let manifests = self.storage().join(format!("repositories/{repository}/_manifests"));
        let link = digest.to_string();
        write(&manifests.join(format!("revisions/sha256/{}/link", digest.hex())), link.as_bytes());
        if let Some(tag) = tag {
            write(&manifests.join(format!("tags/{tag}/current/link")), link.as_bytes());
            write(&manifests.join(format!("tags/{tag}/index/sha256/{}/link", digest.hex())), link.as_bytes());
        }
        digest
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write(path: &Path, content: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// A tar file with this machine's `sleep` and its libraries in it, and with some bytes that cannot be compressed.
fn layer(filler: usize) -> (Vec<u8>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let libraries = Command::new("ldd").arg("/bin/sleep").output().unwrap().stdout;
    let libraries = String::from_utf8(libraries).unwrap();
    let files = libraries.split_whitespace().filter(|word| word.starts_with('/')).chain(["/bin/sleep"]);
    let mut random = std::fs::File::open("/dev/urandom").unwrap();
    let mut file = std::fs::File::create(folder.path().join("filler")).unwrap();
    std::io::copy(&mut std::io::Read::take(&mut random, filler as u64), &mut file).unwrap();
    let tar = folder.path().join("layer.tar");
    let made = Command::new("tar")
        .args(["--create", "--dereference", "--file"])
        .arg(&tar)
        .args(["--directory", "/"])
        .args(files.map(|file| file.trim_start_matches('/')))
        .arg("--directory")
        .arg(folder.path())
        .arg("filler")
        .status()
        .unwrap();
    assert!(made.success());
    let plain = std::fs::read(&tar).unwrap();
    let packed = Command::new("gzip").arg("-1c").arg(&tar).output().unwrap().stdout;
    (plain, packed)
}

/// `plumb image` on a data directory.
fn plumb_image(data: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.arg("image").args(arguments).arg("--data-dir").arg(data);
    command.env("DOCKER_CONFIG", data).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
#[ignore = "needs docker-registry; .ci/registry has it"]
fn real_registry_images_are_pulled_checked_and_refused_from_the_command_line() {
    let (open, closed) = (Registry::start(false), Registry::start(true));
    let (plain, packed) = layer(1 << 20);
    let digest = open.put_image("test/app", "1", &plain, &packed);
    closed.put_image("test/app", "1", &plain, &packed);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir_all(&data).unwrap();

    let missing = plumb_image(&data, &["pull", &open.image("test/app:2")]);
    assert!(
        !missing.status.success() && said(&missing).contains("test/app:2: not found"),
        "{}",
        said(&missing)
    );
    let denied = plumb_image(&data, &["pull", &closed.image("test/app:1")]);
    assert!(said(&denied).contains("pull access denied"), "{}", said(&denied));
    let auth = STANDARD.encode("user:password");
    let config = json!({ "auths": { closed.address.to_string(): { "auth": auth } } });
    let file = folder.path().join("auth.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let pulled = plumb_image(
        &data,
        &[
            "pull",
            &closed.image("test/app:1"),
            "--auth-file",
            file.to_str().unwrap(),
            "--insecure-registry",
            &closed.address.to_string(),
        ],
    );
    assert!(pulled.status.success(), "{}", said(&pulled));
    assert!(said(&pulled).starts_with(&format!("pulled {} with id sha256:", closed.image("test/app:1"))));
    assert!(said(&plumb_image(&data, &["ls"])).contains(&closed.image("test/app:1")));
    assert!(plumb_image(&data, &["rm", &closed.image("test/app:1")]).status.success());

    // A mirror of another registry, and then a layer that is damaged in the registry's storage.
    let mirror = format!("registry.invalid={}", open.address);
    let pulled = plumb_image(&data, &["pull", "registry.invalid/test/app:1", "--registry-mirror", &mirror]);
    assert!(pulled.status.success(), "{}", said(&pulled));
    assert!(plumb_image(&data, &["rm", "registry.invalid/test/app:1"]).status.success());
    let mut damaged = packed.clone();
    damaged[1000] ^= 1;
    std::fs::write(open.blob(digest), damaged).unwrap();
    let broken = plumb_image(&data, &["pull", &open.image("test/app:1")]);
    assert!(said(&broken).contains("damaged or was changed"), "{}", said(&broken));
    assert!(!said(&plumb_image(&data, &["ls"])).contains("test/app"));
}

/// Passes connections on to a registry. After some bytes it holds all that the registry sends until it is released.
struct Proxy {
    address: SocketAddr,
    received: Arc<AtomicU64>,
    reached: watch::Receiver<bool>,
    release: watch::Sender<bool>,
}

impl Proxy {
    async fn start(to: SocketAddr, hold_after: u64) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let (reach, reached) = watch::channel(false);
        let (release, released) = watch::channel(false);
        let count = received.clone();
        let reach = Arc::new(reach);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (count, reach, mut released) = (count.clone(), reach.clone(), released.clone());
                tokio::spawn(async move {
                    let Ok(server) = tokio::net::TcpStream::connect(to).await else { return };
                    let (mut from_client, mut to_client) = client.into_split();
                    let (mut from_server, mut to_server) = server.into_split();
                    let up =
                        tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                    let mut buffer = vec![0; 64 << 10];
                    while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
                        if to_client.write_all(&buffer[..length]).await.is_err() {
                            break;
                        }
                        if count.fetch_add(length as u64, Ordering::Relaxed) + length as u64 >= hold_after {
                            reach.send_replace(true);
                            let _ = released.wait_for(|released| *released).await;
                        }
                    }
                    up.abort();
                });
            }
        });
        Self { address, received, reached, release }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs docker-registry; .ci/registry has it"]
async fn real_registry_a_pull_outlives_a_slow_registry_that_is_restarted_and_goes_on_where_it_was() {
    let mut registry = Registry::start(false);
    let (plain, packed) = layer(24 << 20);
    registry.put_image("test/app", "1", &plain, &packed);
    let mut proxy = Proxy::start(registry.address, 8 << 20).await;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let image = format!("{}/test/app:1", proxy.address);
    let pulling = tokio::task::spawn_blocking(move || plumb_image(&data, &["pull", &image]));
    in_time(proxy.reached.wait_for(|reached| *reached)).await.unwrap();
    registry.kill();
    registry.restart();
    proxy.release.send_replace(true);
    let pulled = pulling.await.unwrap();
    assert!(pulled.status.success(), "{}", said(&pulled));
    let received = proxy.received.load(Ordering::Relaxed);
    let whole = packed.len() as u64;
    assert!(received < whole + whole / 4, "{received} bytes were sent for a layer of {whole}");
}

fn app(name: &str, image: &str, more: &Value) -> Pod {
    let mut pod = json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": "plumb",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{ "name": "c", "image": image }],
        },
    });
    for (key, value) in more.as_object().unwrap() {
        if key == "imagePullPolicy" {
            pod["spec"]["containers"][0][key] = value.clone();
        } else {
            pod["spec"][key] = value.clone();
        }
    }
    serde_json::from_value(pod).unwrap()
}

fn ready(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.is_some_and(|all| all.iter().all(|status| status.ready) && !all.is_empty())
}

/// Reason and message of why a container waits.
fn waits(pod: &Pod) -> Option<(String, String)> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let waiting = statuses.first()?.state.as_ref()?.waiting.as_ref()?;
    Some((waiting.reason.clone()?, waiting.message.clone().unwrap_or_default()))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs docker-registry; .ci/registry has it"]
async fn real_registry_pods_run_its_images_with_the_words_and_the_credentials_of_the_kubelet() {
    let Some(machine) = Machine::here() else { return };
    let (open, closed) = (Registry::start(false), Registry::start(true));
    let (plain, packed) = layer(1 << 20);
    open.put_image("test/app", "1", &plain, &packed);
    closed.put_image("test/private", "1", &plain, &packed);
    closed.put_image("test/account", "1", &plain, &packed);
    let cluster = machine.start(&["--insecure-registry", &closed.address.to_string()]);
    let (client, pods) = (cluster.client().await, pods(&cluster).await);
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let said = async |pod: &str| -> Vec<(String, String)> {
        let fields = format!("involvedObject.name={pod}");
        let list = events.list(&ListParams::default().fields(&fields)).await.unwrap();
        let pair = |event: Event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default());
        list.items.into_iter().map(pair).collect()
    };
    let emitted = async |pod: &str, reason: &str, part: &str| {
        let found = async || said(pod).await.iter().any(|(r, message)| r == reason && message.contains(part));
        eventually(found).await;
    };

    let image = open.image("test/app:1");
    for name in ["first", "second"] {
        create(&pods, &app(name, &image, &json!({ "imagePullPolicy": "Always" }))).await;
    }
    for name in ["first", "second"] {
        until(&pods, name, "ready", ready).await;
        emitted(name, "Pulling", &format!("Pulling image {image:?}")).await;
        emitted(name, "Pulled", &format!("Successfully pulled image {image:?} in ")).await;
        emitted(name, "Pulled", " including waiting). Image size: ").await;
    }

    let image = open.image("test/app:none");
    create(&pods, &app("missing", &image, &json!({}))).await;
    let pod =
        until(&pods, "missing", "waiting", |pod| waits(pod).is_some_and(|(r, _)| r == "ErrImagePull")).await;
    assert!(waits(&pod).unwrap().1.contains("test/app:none: not found"), "{:?}", waits(&pod));
    emitted("missing", "Failed", &format!("Failed to pull image {image:?}: ")).await;
    emitted("missing", "Failed", "Error: ErrImagePull").await;
    until(&pods, "missing", "backing off", |pod| {
        waits(pod).is_some_and(|(reason, message)| {
            reason == "ImagePullBackOff" && message.starts_with("Back-off pulling image")
        })
    })
    .await;
    emitted("missing", "BackOff", &format!("Back-off pulling image {image:?}")).await;
    emitted("missing", "Failed", "Error: ImagePullBackOff").await;

    create(&pods, &app("never", &open.image("test/other:1"), &json!({ "imagePullPolicy": "Never" }))).await;
    let pod =
        until(&pods, "never", "waiting", |pod| waits(pod).is_some_and(|(r, _)| r == "ErrImageNeverPull"))
            .await;
    let (_, message) = waits(&pod).unwrap();
    assert!(message.contains("is not present with pull policy of Never; `plumb image pull "), "{message}");
    create(&pods, &app("invalid", "Not/Valid", &json!({}))).await;
    let pod =
        until(&pods, "invalid", "waiting", |pod| waits(pod).is_some_and(|(r, _)| r == "InvalidImageName"))
            .await;
    let (_, message) = waits(&pod).unwrap();
    assert!(
        message.contains(r#"couldn't parse image name "Not/Valid": invalid reference format"#),
        "{message}"
    );

    // Images as volumes: one that is there, and one that is not.
    let volume = |reference: String| {
        json!({
            "volumes": [{ "name": "data", "image": { "reference": reference } }],
            "containers": [{ "name": "c", "image": open.image("test/app:1"), "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }],
        })
    };
    create(&pods, &app("volume", "", &volume(open.image("test/app:1")))).await;
    until(&pods, "volume", "ready", ready).await;
    create(&pods, &app("no-volume", "", &volume(open.image("test/data:none")))).await;
    let pod =
        until(&pods, "no-volume", "waiting", |pod| waits(pod).is_some_and(|(r, _)| r == "ErrImagePull"))
            .await;
    assert!(waits(&pod).unwrap().1.contains("test/data:none: not found"), "{:?}", waits(&pod));

    // Credentials: none, those of the pod, those of its service account.
    create(&pods, &app("denied", &closed.image("test/private:1"), &json!({}))).await;
    let pod =
        until(&pods, "denied", "waiting", |pod| waits(pod).is_some_and(|(r, _)| r == "ErrImagePull")).await;
    assert!(waits(&pod).unwrap().1.contains("pull access denied"), "{:?}", waits(&pod));
    let auths = json!({ closed.address.to_string(): { "username": "user", "password": "password" } });
    let json_form = json!({ "auths": auths }).to_string();
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    for (name, type_, key, content) in [
        ("pull", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", json_form),
        ("old", "kubernetes.io/dockercfg", ".dockercfg", auths.to_string()),
    ] {
        let secret = json!({ "metadata": { "name": name }, "type": type_, "stringData": { key: content } });
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let by_pod = json!({ "imagePullSecrets": [{ "name": "absent" }, { "name": "pull" }] });
    create(&pods, &app("allowed", &closed.image("test/private:1"), &by_pod)).await;
    until(&pods, "allowed", "ready", ready).await;
    emitted("allowed", "FailedToRetrieveImagePullSecret", "image pull secrets (absent)").await;
    let account = json!({ "metadata": { "name": "puller" }, "imagePullSecrets": [{ "name": "old" }] });
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
    let by_account = json!({ "serviceAccountName": "puller" });
    create(&pods, &app("of-account", &closed.image("test/account:1"), &by_account)).await;
    until(&pods, "of-account", "ready", ready).await;
    drop(cluster);
    machine.clear();
}
