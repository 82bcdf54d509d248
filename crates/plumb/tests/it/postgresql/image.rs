//! The image of `PostgreSQL`: the files of Debian's packages that are installed on this machine, with the libraries that they
//! load.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::USER;

/// The name of the image.
pub(super) const NAME: &str = "postgres-test";

/// The installed packages, by the directory of their programs.
pub(super) struct Installed {
    programs: PathBuf,
    /// The version, as directories are called.
    version: String,
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

impl Installed {
    /// The newest version that is installed.
    pub(super) fn find() -> Option<Self> {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(Result::ok);
        let versions = versions.filter_map(|entry| entry.file_name().into_string().ok()?.parse::<u32>().ok());
        let version = versions.max()?.to_string();
        let programs = Path::new("/usr/lib/postgresql").join(&version).join("bin");
        let is_complete = ["postgres", "initdb", "psql"].iter().all(|name| programs.join(name).exists());
        is_complete.then_some(Self { programs, version })
    }

    /// A program of the packages.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Makes the image below a scratch folder, and imports it into the data directory of a node.
    pub(super) fn import(&self, scratch: &Path, data: &Path) {
        let root = scratch.join("root");
        self.copy(&root);
        let layout = scratch.join("image");
        pack(&root, &layout, &self.programs);
        fs::remove_dir_all(&root).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
        command.args(["image", "--data-dir"]).arg(data).arg("import").arg(&layout);
        run(command.args(["--name", NAME]));
        fs::remove_dir_all(&layout).unwrap();
    }

    fn copy(&self, root: &Path) {
        for folder in ["bin", "etc", "tmp", "data"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        // `initdb` wants its user to have a name.
        let passwd =
            format!("root:x:0:0:root:/:/bin/sh\npostgres:x:{USER}:{USER}:PostgreSQL:/data:/bin/sh\n");
        fs::write(root.join("etc/passwd"), passwd).unwrap();
        let modules = format!("usr/lib/postgresql/{}/lib", self.version);
        for folder in [modules.clone(), format!("usr/share/postgresql/{}", self.version)] {
            let to = root.join(&folder);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            run(Command::new("cp").arg("-a").arg(Path::new("/").join(&folder)).arg(to));
        }
        // What the compiler of queries reads, which is not used.
        let bitcode = root.join(modules).join("bitcode");
        if bitcode.exists() {
            fs::remove_dir_all(bitcode).unwrap();
        }
        let own = ["postgres", "initdb"].map(|name| self.program(name));
        let tools = ["sh", "rm", "mv"].map(|name| Path::new("/bin").join(name));
        let programs: Vec<PathBuf> = own.into_iter().chain(tools).collect();
        let listed = String::from_utf8(run(Command::new("ldd").args(&programs))).unwrap();
        let is_library = |word: &&str| word.starts_with('/') && !word.ends_with(':');
        let libraries: BTreeSet<&str> = listed.split_whitespace().filter(is_library).collect();
        let mut copy = Command::new("cp");
        run(copy.args(["-L", "--parents", "-t"]).arg(root).args(&programs).args(libraries));
    }
}

/// Writes an OCI layout with one image of one layer.
fn pack(root: &Path, layout: &Path, programs: &Path) {
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let keep = |file: &Path| {
        let digest = String::from_utf8(run(Command::new("sha256sum").arg(file))).unwrap();
        let digest = digest.split_whitespace().next().unwrap().to_owned();
        let size = fs::metadata(file).unwrap().len();
        fs::rename(file, blobs.join(&digest)).unwrap();
        (format!("sha256:{digest}"), size)
    };
    let scratch = layout.join("scratch");
    let keep_text = |text: String| {
        fs::write(&scratch, text).unwrap();
        keep(&scratch)
    };
    run(Command::new("tar")
        .args(["--owner=0", "--group=0", "-cf"])
        .arg(&scratch)
        .arg("-C")
        .arg(root)
        .arg("."));
    let (layer, layer_size) = keep(&scratch);
    let path = format!("PATH=/bin:{}", programs.display());
    let (config, config_size) = keep_text(
        json!({ "config": { "Env": [path, "TZ=UTC", "HOME=/data"] }, "rootfs": { "type": "layers", "diff_ids": [layer] } })
            .to_string(),
    );
    let manifest = json!({
        "schemaVersion": 2,
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": config_size },
        "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer, "size": layer_size }],
    });
    let (manifest, manifest_size) = keep_text(manifest.to_string());
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let index = json!({ "schemaVersion": 2, "manifests": [
        { "mediaType": media_type, "digest": manifest, "size": manifest_size },
    ] });
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
}
