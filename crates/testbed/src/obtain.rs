//! Gets the programs: Kubernetes from the Go module registry, the rest from the Debian package registry.
//!
//! Each program is its own step. A finished one is never made again, an unfinished one is never taken for
//! finished (it is made under another name and renamed), so an interrupted run goes on where it stopped.

mod debian;
mod golang;
pub(crate) mod images;
mod tool;

use crate::assets;
use crate::cache::Cache;
use crate::error::Error;
use crate::release::{self, GoModule, Release};

/// Obtains what a cluster of a release is made of and is missing, and reports each step through `say`.
pub fn obtain(cache: &Cache, release: Release, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let _lock = cache.lock(|| say("another obtain is at work; waiting for it"))?;
    debian::obtain(cache, say)?;
    if let Some(folder) = assets::given_folder() {
        say(&format!("KUBEBUILDER_ASSETS is set: Kubernetes and etcd are taken from {}", folder.display()));
    } else {
        golang::obtain(&GoModule::kubernetes(cache, release), say)?;
    }
    Ok(())
}

/// Obtains what comes in Debian packages alone: enough for [`Containerd`](crate::Containerd).
pub fn obtain_packages(cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let _lock = cache.lock(|| say("another obtain is at work; waiting for it"))?;
    debian::obtain(cache, say)
}

/// Obtains the Vertical Pod Autoscaler: its programs, and the manifests that it ships.
pub fn obtain_autoscaler(cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let _lock = cache.lock(|| say("another obtain is at work; waiting for it"))?;
    let module = GoModule::autoscaler(cache);
    golang::obtain(&module, say)?;
    golang::copy(&module, release::AUTOSCALER_MODULE, "deploy", &cache.autoscaler_manifests())
}

/// Obtains Helm.
pub fn obtain_helm(cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let _lock = cache.lock(|| say("another obtain is at work; waiting for it"))?;
    golang::obtain(&GoModule::helm(cache), say)
}

/// Obtains upstream's end-to-end tests, and makes the images that they use.
pub fn obtain_e2e(cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let _lock = cache.lock(|| say("another obtain is at work; waiting for it"))?;
    debian::obtain(cache, say)?;
    let module = GoModule::e2e(cache);
    golang::obtain(&module, say)?;
    // The names of the conformance tests, and the pictures and certificates of images.
    for (folder, name) in [
        ("test/conformance/testdata", "conformance"),
        ("test/images/agnhost/porter", "porter"),
        ("test/images/kitten/html", "kitten"),
        ("test/images/nautilus/html", "nautilus"),
    ] {
        golang::copy(&module, release::KUBERNETES_MODULE, folder, &cache.e2e_folder().join(name))?;
    }
    debian::obtain_with_dependencies(cache, images::PACKAGES, images::ROOT, say)?;
    images::make(cache, say)
}
