//! [`Store`]: artifacts and their traces in a folder, by key, shared by any number of concurrent processes.
//!
//! # Invariants
//!
//! - An entry appears whole or not at all: it is written to a temporary file in the same folder and renamed. A process
//!   may die at any moment. It then leaves a temporary file, which a later sweep removes.
//! - No lock is taken, within a process or between processes. Two that compile the same code write the same entry
//!   twice.
//! - Everything read is validated. A damaged entry is removed and counts as missing; no state of the folder is an
//!   error of [`Store::get`].
//! - Files that are not regular, or that an untrusted user may have written (`trust.rs`), count as missing. They are
//!   reported once.
//! - If the folder is not writable, the store is read-only ([`Store::put`] reports the reason once).
//! - Reading an artifact costs one open and one read, and touches no other file.
//! - The traces of one key are entries in a folder of their own (`trace_entries.rs`), each named by a hash of its
//!   questions and answers. No file is read and rewritten, so two processes that each add a trace lose neither.
//!
//! # Size
//!
//! Each byte written has the same chance to start a sweep. On average, one sweep happens each time a sixteenth of the
//! size limit is written, by any number of processes, without a shared counter. A sweep removes the least recently
//! used entries, by modification time, which reads update now and then.

use std::fs::{self, File, FileTimes};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use crate::entry::{HEADER, Refused, check_entry, compiler_of, read_entry, write_entry};
use crate::trust::{Trust, open_regular};
use crate::{Artifact, Corrupted, Key};

/// Resolution of the recorded time of use. It is coarse, so that reading rarely writes.
const FRESH: Duration = Duration::from_secs(600);
/// A temporary file this old was left by a process that died.
const ABANDONED: Duration = Duration::from_secs(3600);
/// A sweep is expected each time that this part of the bound is written.
const SWEEPS_PER_BOUND: u64 = 16;
const TEMPORARY: &str = ".tmp-";
/// Suffix of the folders that contain the traces of a key.
const TRACES: &str = ".traces";

/// The contents of a folder and its size limit.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The folder; created when something is first stored.
    pub folder: PathBuf,
    /// Names the compiler, its version and build: only to recognize entries of other compilers; keys contain it
    /// already.
    pub compiler: Key,
    /// Bytes that the entries may take.
    pub most_bytes: u64,
    /// The eviction policy of a full store.
    pub policy: Policy,
    /// Fraction of the limit that a sweep frees, so that the next one is not due immediately.
    pub free_part: f64,
    /// The user has named the folder, and may share it.
    pub named: bool,
}

/// The eviction policy when the store exceeds its size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Keep everything.
    Never,
    /// Remove only entries that other versions of the compiler wrote.
    Version,
    /// Remove the least recently used entries.
    LeastRecentlyUsed,
    /// Remove the oldest entries.
    FirstWritten,
}

/// Artifacts in a folder.
#[derive(Debug)]
pub struct Store {
    options: StoreOptions,
    /// The owners whose files are loaded, once the folder exists.
    trust: OnceLock<Trust>,
    /// A file that was not loaded, until it is reported.
    refused: Mutex<Refusals>,
    read_only: AtomicBool,
    written: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    stored: AtomicU64,
    damaged: AtomicU64,
}

/// Files that were not loaded.
#[derive(Debug, Default)]
struct Refusals {
    told: bool,
    notice: Option<String>,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Artifact,
    Trace,
}

/// Statistics of a store since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreCounts {
    /// Artifacts found.
    pub hits: u64,
    /// Artifacts not found, damaged ones among them.
    pub misses: u64,
    /// Artifacts stored.
    pub stored: u64,
    /// Entries that were damaged, and removed.
    pub damaged: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// Statistics of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// Artifacts of this compiler.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its traces.
    pub traces: u64,
    /// Their bytes.
    pub trace_bytes: u64,
    /// Entries of other compilers.
    pub other_entries: u64,
    /// Their bytes.
    pub other_bytes: u64,
    /// Files of damaged entries.
    pub damaged: Vec<PathBuf>,
}

/// A file of an entry, or one that was to become one.
struct Found {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
    temporary: bool,
    kind: Kind,
}

impl Store {
    /// A store over a folder, which need not be there. Touches nothing.
    pub fn open(options: StoreOptions) -> Store {
        Store {
            options,
            trust: OnceLock::new(),
            refused: Mutex::default(),
            read_only: AtomicBool::new(false),
            written: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.options.folder
    }

    /// The owners whose files are loaded from the folder. The error gives the reason if none are.
    fn trust(&self) -> Result<Trust, String> {
        if let Some(trust) = self.trust.get() {
            return Ok(*trust);
        }
        match fs::metadata(self.folder()) {
            Ok(about) => {
                let trust = Trust::of(&about, self.options.named)?;
                Ok(*self.trust.get_or_init(|| trust))
            }
            Err(_) => Ok(Trust::new()),
        }
    }

    /// Why the folder must not be used: others than those whom the user trusts may have written to it.
    pub fn distrust(&self) -> Option<String> {
        let why = self.trust().err()?;
        Some(format!("compiled kernels are not cached in {}: {why}", self.folder().display()))
    }

    fn refuse(&self, path: &Path, why: String) {
        let mut refusals = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut refusals.told, true) {
            refusals.notice = Some(format!(
                "cached kernels are not loaded, because other users can write them: {} ({why})",
                path.display()
            ));
        }
    }

    /// The warning about files that were not loaded; once.
    pub fn take_warning(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).notice.take()
    }

    /// The counts of operations so far.
    pub fn counts(&self) -> StoreCounts {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        StoreCounts {
            hits: get(&self.hits),
            misses: get(&self.misses),
            stored: get(&self.stored),
            damaged: get(&self.damaged),
            written_bytes: get(&self.written),
        }
    }

    /// The artifact of a key.
    pub fn get(&self, key: &Key) -> Option<Artifact> {
        let found = self.read(&self.path(key), key, Artifact::from_bytes);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// The artifact of a key that was stored before. A missing artifact does not count as a miss here, because it will
    /// be requested again.
    pub fn get_again(&self, key: &Key) -> Option<Artifact> {
        let found = self.read(&self.path(key), key, Artifact::from_bytes);
        self.hits.fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
        found
    }

    /// The contents of the entry with this key.
    pub(crate) fn read<T>(
        &self,
        path: &Path,
        key: &Key,
        decode: impl FnOnce(&[u8]) -> Result<T, Corrupted>,
    ) -> Option<T> {
        let opened = self.trust().and_then(|trust| trust.open(path).map_err(|e| e.to_string()));
        let (mut file, about) = opened.unwrap_or_else(|why| {
            self.refuse(path, why);
            None
        })?;
        let mut bytes = Vec::new();
        // A failed read does not make the entry invalid.
        bytes.try_reserve_exact(usize::try_from(about.len()).ok()?.checked_add(1)?).ok()?;
        file.read_to_end(&mut bytes).ok()?;
        match read_entry(key, &bytes).and_then(|body| decode(body).map_err(|_| Refused::Damaged)) {
            Ok(found) => {
                if self.options.policy == Policy::LeastRecentlyUsed {
                    refresh(&file, about.modified().ok());
                }
                Some(found)
            }
            Err(refused) => {
                if refused == Refused::Damaged {
                    self.damaged.fetch_add(1, Ordering::Relaxed);
                }
                // A read-only folder keeps it; then it is refused again next time.
                let _ = fs::remove_file(path);
                None
            }
        }
    }

    /// Stores an artifact. Reports the first error only, and writes nothing after it.
    pub fn put(&self, key: &Key, artifact: &Artifact) -> io::Result<()> {
        let stored = self.put_entry(&self.path(key), key, key, &artifact.to_bytes())?;
        self.stored.fetch_add(u64::from(stored), Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether it was written. `name` identifies the entry if several entries have one key.
    pub(crate) fn put_entry(&self, path: &Path, key: &Key, name: &Key, body: &[u8]) -> io::Result<bool> {
        if self.read_only.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let bytes = write_entry(&self.options.compiler, key, body);
        // A sweep of another process, or someone who clears the folder, may take a folder away between two steps.
        let trust = self.trust().map_err(io::Error::other)?;
        let written = write(path, trust, &bytes).or_else(|e| match e.kind() {
            ErrorKind::NotFound => write(path, trust, &bytes),
            _ => Err(e),
        });
        match written {
            Ok(()) => {
                self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                if self.sweep_is_due(name, bytes.len() as u64) {
                    self.sweep();
                }
                Ok(true)
            }
            Err(_) if self.read_only.swap(true, Ordering::Relaxed) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Determined by the name, whose bits are effectively random: each written byte starts a sweep with the same
    /// probability in every process.
    fn sweep_is_due(&self, name: &Key, bytes: u64) -> bool {
        if self.options.policy == Policy::Never {
            return false;
        }
        // Other bits than those that name the folder.
        let [.., a, b, c, d] = *name.bytes();
        let draw = u64::from(u32::from_le_bytes([a, b, c, d]));
        let interval = (self.options.most_bytes / SWEEPS_PER_BOUND).max(1);
        draw < (u64::from(u32::MAX) + 1).saturating_mul(bytes) / interval
    }

    /// Removes the entries that the policy evicts, and leftovers of dead processes.
    pub fn sweep(&self) {
        let now = SystemTime::now();
        let mut entries = Vec::new();
        let mut total = 0;
        for found in self.files() {
            if found.temporary {
                if now.duration_since(found.used).is_ok_and(|age| age > ABANDONED) {
                    let _ = found.remove();
                }
                continue;
            }
            total += found.bytes;
            entries.push(found);
        }
        if total <= self.options.most_bytes || self.options.policy == Policy::Never {
            return;
        }
        let keep = (self.options.most_bytes as f64 * (1.0 - self.options.free_part.clamp(0.0, 1.0))) as u64;
        entries.sort_by_key(|e| e.used);
        for entry in entries {
            if total <= keep {
                break;
            }
            if self.options.policy == Policy::Version && self.is_own(&entry.path) {
                continue;
            }
            // Another process may have been faster.
            let _ = entry.remove();
            total -= entry.bytes;
        }
    }

    /// Checks all entries.
    pub fn examine(&self) -> Contents {
        let mut contents = Contents::default();
        for found in self.files().into_iter().filter(|f| !f.temporary) {
            let Some(bytes) = read_regular(&found.path, u64::MAX) else { continue };
            match check_entry(&bytes) {
                Err(Refused::Damaged) => contents.damaged.push(found.path),
                Ok(_) if compiler_of(&bytes) == Some(self.options.compiler.bytes()) => {
                    let (count, bytes) = match found.kind {
                        Kind::Artifact => (&mut contents.entries, &mut contents.bytes),
                        Kind::Trace => (&mut contents.traces, &mut contents.trace_bytes),
                    };
                    *count += 1;
                    *bytes += found.bytes;
                }
                Ok(_) | Err(Refused::OtherFormat) => {
                    contents.other_entries += 1;
                    contents.other_bytes += found.bytes;
                }
            }
        }
        contents
    }

    /// Removes every entry, of any compiler, and temporary file; how many artifacts there were, and the bytes of
    /// all.
    pub fn clear(&self) -> io::Result<(u64, u64)> {
        let (mut count, mut bytes) = (0, 0);
        for found in self.files() {
            match found.remove() {
                Ok(()) => {
                    count += u64::from(found.kind == Kind::Artifact && !found.temporary);
                    bytes += found.bytes;
                }
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok((count, bytes))
    }

    fn is_own(&self, path: &Path) -> bool {
        let head = read_regular(path, HEADER as u64).filter(|head| head.len() == HEADER);
        head.is_some_and(|head| compiler_of(&head) == Some(self.options.compiler.bytes()))
    }

    /// Folders by the first two digits: few files in each, few folders in all.
    fn path(&self, key: &Key) -> PathBuf {
        let name = key.to_string();
        let (folder, file) = name.split_at(2);
        self.options.folder.join(folder).join(file)
    }

    /// The folder of a key's traces.
    pub(crate) fn trace_folder(&self, key: &Key) -> PathBuf {
        let mut path = self.path(key).into_os_string();
        path.push(TRACES);
        path.into()
    }

    /// Files that this store, or another version of it, has made. Others in the folder are not its own.
    fn files(&self) -> Vec<Found> {
        let mut all = Vec::new();
        for (folder, name) in list(&self.options.folder) {
            if !is_hexadecimal(&name, 2) {
                continue;
            }
            for (path, name) in list(&folder) {
                match name.strip_suffix(TRACES).filter(|name| is_hexadecimal(name, 62)) {
                    Some(_) if path.is_dir() => {
                        let traces = list(&path).into_iter();
                        all.extend(traces.filter_map(|(path, name)| Found::new(path, &name, Kind::Trace, 64)));
                    }
                    // Versions before this one kept all traces of a key in one file.
                    Some(name) => all.extend(Found::new(path, name, Kind::Trace, 62)),
                    None => all.extend(Found::new(path, &name, Kind::Artifact, 62)),
                }
            }
        }
        all
    }
}

impl Found {
    /// A file that a store has made, by its name.
    fn new(path: PathBuf, name: &str, kind: Kind, digits: usize) -> Option<Found> {
        let temporary = name.starts_with(TEMPORARY);
        if !temporary && !is_hexadecimal(name, digits) {
            return None;
        }
        let about = path.symlink_metadata().ok().filter(|about| about.is_file())?;
        Some(Found { bytes: about.len(), used: about.modified().ok()?, path, temporary, kind })
    }

    /// Removes the file, and its folder of traces if that is then empty.
    fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)?;
        if let Some(folder) = self.path.parent().filter(|f| f.to_string_lossy().ends_with(TRACES)) {
            // A folder that is not empty remains.
            let _ = fs::remove_dir(folder);
        }
        Ok(())
    }
}

/// Paths and names of the files in a folder; empty if there is no folder.
pub(crate) fn list(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|e| (e.path(), e.file_name().to_string_lossy().into_owned())).collect()
}

/// Creates an entry atomically.
fn write(path: &Path, trust: Trust, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().expect("compiler bug: a cache entry without a parent folder");
    trust.make_folders(folder)?;
    let temporary = folder.join(temporary_name());
    let written =
        trust.create(&temporary).and_then(|mut file| file.write_all(bytes)).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

pub(crate) fn is_hexadecimal(name: &str, digits: usize) -> bool {
    name.len() == digits && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Updates the last use of an entry, unless it is recent.
fn refresh(file: &File, used: Option<SystemTime>) {
    let now = SystemTime::now();
    let fresh = used.is_some_and(|t| now.duration_since(t).is_ok_and(|age| age < FRESH));
    if !fresh {
        // This only helps other processes, so a failure on a read-only folder is ignored.
        let _ = file.set_times(FileTimes::new().set_modified(now));
    }
}

/// A name that no other process or thread uses. If clocks do not advance, or machines that share the folder use equal
/// process numbers, creating the file fails, and the entry is not stored.
fn temporary_name() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let thread = crate::KeyBuilder::new().add("thread", &std::thread::current().id()).key().to_string();
    format!("{TEMPORARY}{}-{}-{now:x}", std::process::id(), &thread[..8])
}

/// The beginning of a regular file.
fn read_regular(path: &Path, most: u64) -> Option<Vec<u8>> {
    let (file, _) = open_regular(path).ok()??;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
