//! The traces of a key in the [`Store`]: each is an entry in the folder of that key, named by a hash of all its
//! questions and answers.
//!
//! Processes that add traces concurrently write different files, or the same file twice. No file is read and
//! rewritten, so nothing is lost. If a key has too many traces, the least recently used ones are removed; a process
//! that needed one compiles again.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::store::{is_hexadecimal, list};
use crate::{Key, KeyBuilder, Store, Trace};

/// Traces kept for one key.
const MOST_TRACES: usize = 16;

impl Trace {
    /// Its name among the traces of its key: a hash of its questions, its answers, and the kind of call.
    pub fn name(&self) -> Key {
        KeyBuilder::new().add("lookups", &self.lookups).add("may_alias", &self.outcome.may_alias).key()
    }
}

impl Store {
    /// The traces of a key, the newest first.
    pub fn traces(&self, key: &Key) -> Vec<Trace> {
        let folder = self.trace_folder(key);
        files(&folder).iter().filter_map(|(_, name)| self.read(&folder.join(name), key, Trace::from_bytes)).collect()
    }

    /// Adds a trace to those of a key. Returns whether it was written. Errors are those of [`Store::put`].
    pub fn put_trace(&self, key: &Key, trace: &Trace) -> io::Result<bool> {
        let (folder, name) = (self.trace_folder(key), trace.name());
        let written = self.put_entry(&folder.join(name.to_string()), key, &name, &trace.to_bytes())?;
        for (_, old) in files(&folder).iter().skip(MOST_TRACES) {
            let _ = std::fs::remove_file(folder.join(old));
        }
        Ok(written)
    }

    /// Removes a trace of a key.
    pub fn remove_trace(&self, key: &Key, name: &Key) {
        let _ = std::fs::remove_file(self.trace_folder(key).join(name.to_string()));
    }
}

/// The names of the traces in a folder, and when they were used; the newest first.
fn files(folder: &Path) -> Vec<(SystemTime, String)> {
    let names = list(folder).into_iter().filter(|(_, name)| is_hexadecimal(name, 64));
    let mut all: Vec<_> =
        names.filter_map(|(path, name)| Some((path.symlink_metadata().ok()?.modified().ok()?, name))).collect();
    all.sort_by(|a, b| b.cmp(a));
    all
}
