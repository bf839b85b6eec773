//! The cache of code that a driver has compiled, stored with the artifacts for later processes. There is one entry for
//! each device and driver version.

use octants_artifact::{Artifact, Key, KeyBuilder};
use octants_runtime::Device;

use crate::artifact_cache::ArtifactCache;

fn key(name: &str) -> Key {
    let mut key = KeyBuilder::new();
    key.add("driver cache", name);
    key.key()
}

/// Loads the code cache of an earlier process into a device's driver.
pub(crate) fn load_driver_cache(cache: &ArtifactCache, device: &Device) {
    let Some(name) = device.cache_name() else { return };
    if let Some(kept) = cache.get(&key(&name)) {
        kept.modules.iter().for_each(|contents| device.load_cache(contents));
    }
}

/// Stores the code cache of a device's driver, if it has grown.
pub(crate) fn keep_driver_cache(cache: &ArtifactCache, device: &Device) {
    let Some(name) = device.cache_name() else { return };
    let Some(contents) = device.cache_contents() else { return };
    let artifact = Artifact { kernel: name.clone(), modules: vec![contents], ..Artifact::default() };
    // A failure to write was reported when the first kernel was to be stored.
    let _ = cache.put(&key(&name), &artifact);
}
