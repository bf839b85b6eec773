//! [`SharedCode`]: compiled kernels that the sessions of a process share when there is no cache on disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use octants_artifact::{Artifact, Key, KeyBuilder};

use crate::artifact_cache::{Ingredients, common_part_for, key_after};
use crate::machine::Machine;

type Artifacts = Mutex<HashMap<Key, Arc<Artifact>>>;

/// Artifacts by the keys that they would have on disk, so that devices of one target run the same code.
pub(crate) struct SharedCode {
    artifacts: Arc<Artifacts>,
    /// The part of keys that is the same for all kernels of a session.
    common: OnceLock<Option<KeyBuilder>>,
}

impl SharedCode {
    /// The part that is not shared between sessions.
    pub fn new() -> SharedCode {
        SharedCode { artifacts: Arc::default(), common: OnceLock::new() }
    }

    /// The same artifacts, for another session.
    pub fn beside(&self) -> SharedCode {
        SharedCode { artifacts: self.artifacts.clone(), common: OnceLock::new() }
    }

    /// The key of a kernel's code; `None` if this machine cannot be identified.
    pub fn key(&self, machine: &Machine, from: &Ingredients<'_>) -> Option<Key> {
        let common = self.common.get_or_init(|| common_part_for(machine)).clone()?;
        Some(key_after(common, from))
    }

    /// The artifact of a key.
    pub fn get(&self, key: &Key) -> Option<Arc<Artifact>> {
        self.artifacts.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Keeps an artifact.
    pub fn put(&self, key: Key, artifact: &Artifact) {
        let artifact = Arc::new(artifact.clone());
        self.artifacts.lock().unwrap_or_else(PoisonError::into_inner).insert(key, artifact);
    }
}
