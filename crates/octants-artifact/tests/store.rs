//! The store against all that happens to files: damage, other processes, their death, full and read-only disks.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File, FileTimes};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use octants_artifact::{
    ArgumentPlan, ArraySource, Artifact, Dependence, Key, KeyBuilder, Lookup, Made, Outcome, ParamSource, Pointer,
    Policy, ScalarKind, Store, StoreOptions, StoredWarning, Trace, ValueType, WarningKind, key_of_bytes,
};

/// A folder that is removed after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("octants-store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(folder: &Path) -> StoreOptions {
    StoreOptions {
        folder: folder.to_path_buf(),
        compiler: key_of_bytes(b"this"),
        most_bytes: 1 << 30,
        policy: Policy::LeastRecentlyUsed,
        free_part: 0.25,
        named: false,
    }
}

fn key(i: u64) -> Key {
    KeyBuilder::new().add("number", &i).key()
}

fn artifact(i: u64, bytes: usize) -> Artifact {
    Artifact {
        kernel: format!("kernel{i}"),
        target: String::from("machine"),
        modules: vec![(0..bytes).map(|k| (k as u64 * 31 + i) as u8).collect()],
        arg_slots: i as u32,
        frame_bytes: 8,
        ..Artifact::default()
    }
}

fn trace(i: u64) -> Trace {
    let lookups = [
        Lookup::Entity(i as u32),
        Lookup::Call { function: 1, args: vec![2, 3], named: vec![("by".into(), 4)] },
        Lookup::Make(Made::Int(i128::MIN)),
        Lookup::Make(Made::Float(f64::NAN.to_bits())),
        Lookup::Make(Made::Slice(None, Some(5), None)),
    ];
    Trace {
        lookups: lookups.into_iter().zip((0..).map(|n| [n; 16])).collect(),
        outcome: Outcome {
            artifact: key(i),
            may_alias: false,
            has_groups: true,
            may_record_trip_counts: false,
            arguments: ArgumentPlan {
                roots: vec![7],
                buffers: vec![None, Some((ArraySource::Object(8, Some((0, vec!["x".into()]))), 1))],
                params: vec![ParamSource { index: 1, path: Vec::new(), slot: 3, leaves: vec![ScalarKind::F32] }],
                slots: 4,
                pointers: vec![
                    Pointer { slot: 0, written: true, buffer: Some(0) },
                    Pointer { slot: 1, written: false, buffer: None },
                ],
                exposes_addresses: true,
            },
            store: None,
            depends: Some(Dependence { slots: vec![0, 3], addresses: vec![0] }),
            access_lines: vec![vec!["kernel.py:3".into()]],
            result: ValueType::Struct("Pair".into(), vec![("a".into(), ValueType::Vector(ScalarKind::F64, 3))]),
            returns: vec![9],
            checkpoints: vec![(-3, 9)],
            warnings: vec![StoredWarning {
                text: "long".into(),
                place: Some(("a.py".into(), 3)),
                about: WarningKind::Syntax,
            }],
            printed: vec!["a line".into()],
        },
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { out.extend(files(&path)) } else { out.push(path) }
    }
    out
}

fn bytes_in(folder: &Path) -> u64 {
    files(folder).iter().filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum()
}

fn file_of(folder: &Path, key: &Key) -> PathBuf {
    let name = key.to_string();
    folder.join(&name[..2]).join(&name[2..])
}

fn trace_file(folder: &Path, key: &Key, trace: &Trace) -> PathBuf {
    let name = key.to_string();
    folder.join(&name[..2]).join(format!("{}.traces", &name[2..])).join(trace.name().to_string())
}

fn set_age(path: &Path, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    File::options().write(true).open(path).unwrap().set_times(FileTimes::new().set_modified(then)).unwrap();
}

#[test]
fn an_entry_is_found_by_another_store() {
    let folder = Folder::new("found");
    let store = Store::open(options(&folder.0));
    assert_eq!(store.get(&key(1)), None);
    store.put(&key(1), &artifact(1, 1000)).unwrap();
    let other = Store::open(options(&folder.0));
    assert_eq!(other.get(&key(1)), Some(artifact(1, 1000)));
    assert_eq!(other.get(&key(2)), None);
    assert_eq!((other.counts().hits, other.counts().misses, store.counts().stored), (1, 1, 1));
}

#[test]
fn damage_to_any_byte_is_detected_and_the_entry_dropped() {
    let folder = Folder::new("damage");
    let store = Store::open(options(&folder.0));
    store.put(&key(1), &artifact(1, 40)).unwrap();
    let path = file_of(&folder.0, &key(1));
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        for bit in [1, 0x80] {
            let mut damaged = whole.clone();
            damaged[at] ^= bit;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(store.get(&key(1)), None, "byte {at}");
            assert!(!path.exists(), "byte {at}: the entry stays");
        }
    }
    store.put(&key(1), &artifact(1, 40)).unwrap();
    assert_eq!(store.get(&key(1)), Some(artifact(1, 40)));
}

#[test]
fn truncated_and_extended_entries_are_dropped() {
    let folder = Folder::new("cut");
    let store = Store::open(options(&folder.0));
    store.put(&key(1), &artifact(1, 40)).unwrap();
    let path = file_of(&folder.0, &key(1));
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(store.get(&key(1)), None, "length {length}");
        assert!(!path.exists());
    }
    fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    assert_eq!(store.get(&key(1)), None);
    fs::create_dir(&path).unwrap();
    assert_eq!(store.get(&key(1)), None, "a folder in the place of an entry");
}

#[test]
fn an_entry_under_the_wrong_key_is_refused() {
    let folder = Folder::new("moved");
    let store = Store::open(options(&folder.0));
    store.put(&key(1), &artifact(1, 40)).unwrap();
    let to = file_of(&folder.0, &key(2));
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(file_of(&folder.0, &key(1)), to).unwrap();
    assert_eq!(store.get(&key(2)), None);
    assert!(store.get(&key(1)).is_some());
}

#[test]
fn examining_distinguishes_intact_damaged_and_foreign_entries() {
    let folder = Folder::new("examine");
    let store = Store::open(options(&folder.0));
    let other = Store::open(StoreOptions { compiler: key_of_bytes(b"other"), ..options(&folder.0) });
    (0..3).for_each(|i| store.put(&key(i), &artifact(i, 40)).unwrap());
    (3..5).for_each(|i| other.put(&key(i), &artifact(i, 40)).unwrap());
    let path = file_of(&folder.0, &key(1));
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    fs::write(folder.0.join("notes.txt"), "not the store's").unwrap();
    let contents = store.examine();
    assert_eq!((contents.entries, contents.other_entries), (2, 2));
    assert_eq!(contents.damaged, [path]);
    assert_eq!(store.clear().unwrap().0, 5);
    assert_eq!(files(&folder.0), [folder.0.join("notes.txt")]);
}

#[test]
fn traces_are_kept_beside_the_artifact_of_the_same_key() {
    let folder = Folder::new("traces");
    let store = Store::open(options(&folder.0));
    store.put(&key(1), &artifact(1, 40)).unwrap();
    assert_eq!(store.traces(&key(1)), []);
    store.put_trace(&key(1), &trace(1)).unwrap();
    set_age(&trace_file(&folder.0, &key(1), &trace(1)), 100);
    store.put_trace(&key(1), &trace(2)).unwrap();
    store.put_trace(&key(1), &trace(2)).unwrap();
    let other = Store::open(options(&folder.0));
    assert_eq!(other.traces(&key(1)), [trace(2), trace(1)]);
    assert_eq!(other.traces(&key(2)), []);
    assert_eq!(other.get_again(&key(1)), Some(artifact(1, 40)));
    assert_eq!(other.get_again(&key(2)), None);
    assert_eq!((other.counts().hits, other.counts().misses, store.counts().stored), (1, 0, 1));
    let contents = other.examine();
    assert_eq!((contents.entries, contents.traces), (1, 2));
    assert_eq!(contents.bytes + contents.trace_bytes, bytes_in(&folder.0));
    other.remove_trace(&key(1), &trace(1).name());
    assert_eq!(store.traces(&key(1)), [trace(2)]);
    assert_eq!(other.clear().unwrap().0, 1);
    assert_eq!(files(&folder.0), [] as [PathBuf; 0]);
    assert!(!trace_file(&folder.0, &key(1), &trace(1)).parent().unwrap().exists(), "its folder is left");
}

#[test]
fn only_the_newest_traces_are_kept() {
    let folder = Folder::new("many-traces");
    let store = Store::open(options(&folder.0));
    for i in 0..20 {
        store.put_trace(&key(1), &trace(i)).unwrap();
        set_age(&trace_file(&folder.0, &key(1), &trace(i)), 300 - i);
    }
    assert_eq!(store.traces(&key(1)), (4..20).rev().map(trace).collect::<Vec<_>>());
}

#[test]
fn a_trace_under_the_wrong_key_is_refused() {
    let folder = Folder::new("moved-trace");
    let store = Store::open(options(&folder.0));
    (1..=2).for_each(|i| _ = store.put_trace(&key(i), &trace(i)).unwrap());
    fs::rename(trace_file(&folder.0, &key(1), &trace(1)), trace_file(&folder.0, &key(2), &trace(1))).unwrap();
    assert_eq!(store.traces(&key(2)), [trace(2)]);
}

#[test]
fn damage_to_any_byte_of_a_trace_is_detected() {
    let folder = Folder::new("damaged-traces");
    let store = Store::open(options(&folder.0));
    store.put_trace(&key(1), &trace(1)).unwrap();
    let [path] = &files(&folder.0)[..] else { panic!("one entry, one file") };
    let whole = fs::read(path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        fs::write(path, &damaged).unwrap();
        assert_eq!(store.traces(&key(1)), [], "byte {at}");
        assert!(!path.exists(), "byte {at}: the entry stays");
    }
    for length in 0..whole.len() {
        fs::write(path, &whole[..length]).unwrap();
        assert_eq!(store.traces(&key(1)), [], "length {length}");
    }
}

#[test]
fn the_least_recently_used_entry_is_evicted_first() {
    let folder = Folder::new("order");
    let store = Store::open(StoreOptions { most_bytes: 8_000, free_part: 0.5, ..options(&folder.0) });
    let keep_all = Store::open(options(&folder.0));
    for i in 0..10 {
        keep_all.put(&key(i), &artifact(i, 700)).unwrap();
        set_age(&file_of(&folder.0, &key(i)), 10_000 - 100 * i);
    }
    // The oldest is used, and young again by that.
    assert!(store.get(&key(0)).is_some());
    store.sweep();
    let left: Vec<u64> = (0..10).filter(|i| file_of(&folder.0, &key(*i)).exists()).collect();
    assert_eq!(left, [0, 7, 8, 9], "four of some 830 bytes fit half the bound");
}

#[test]
fn each_policy_keeps_its_entries() {
    let folder = Folder::new("policies");
    let with = |policy, compiler: &[u8]| {
        Store::open(StoreOptions {
            most_bytes: 2_000,
            policy,
            compiler: key_of_bytes(compiler),
            free_part: 1.0,
            ..options(&folder.0)
        })
    };
    let all = Store::open(options(&folder.0));
    let other = Store::open(StoreOptions { compiler: key_of_bytes(b"other"), ..options(&folder.0) });
    (0..4).for_each(|i| all.put(&key(i), &artifact(i, 700)).unwrap());
    (4..6).for_each(|i| other.put(&key(i), &artifact(i, 700)).unwrap());
    with(Policy::Never, b"this").sweep();
    assert_eq!(files(&folder.0).len(), 6);
    with(Policy::Version, b"this").sweep();
    assert_eq!(files(&folder.0).len(), 4);
    assert_eq!(all.examine().entries, 4);
    // The oldest entry is evicted, regardless of reads.
    set_age(&file_of(&folder.0, &key(2)), 1_000);
    let first_written = Store::open(StoreOptions {
        most_bytes: 3_000,
        policy: Policy::FirstWritten,
        free_part: 0.0,
        ..options(&folder.0)
    });
    assert!(first_written.get(&key(2)).is_some());
    first_written.sweep();
    assert!(!file_of(&folder.0, &key(2)).exists());
    assert!(files(&folder.0).len() >= 2);
}

#[test]
fn the_folder_stays_near_its_size_limit() {
    let folder = Folder::new("bound");
    let mut most = 0;
    for i in 0..1500 {
        // Each entry is written by its own process, so that none knows the others.
        let store = Store::open(StoreOptions { most_bytes: 100_000, ..options(&folder.0) });
        store.put(&key(i), &artifact(i, 800)).unwrap();
        if i % 10 == 0 {
            most = most.max(bytes_in(&folder.0));
        }
    }
    assert!(most > 90_000, "the bound is not used: {most}");
    assert!(most < 150_000, "the bound is not kept: {most}");
}

#[test]
fn leftovers_of_dead_processes_are_removed() {
    let folder = Folder::new("left");
    let store = Store::open(options(&folder.0));
    store.put(&key(1), &artifact(1, 40)).unwrap();
    let beside = file_of(&folder.0, &key(1));
    let (old, young) = (beside.with_file_name(".tmp-1-2-3"), beside.with_file_name(".tmp-1-2-4"));
    fs::write(&old, "half an ent").unwrap();
    fs::write(&young, "half an ent").unwrap();
    set_age(&old, 10_000);
    store.sweep();
    assert!(!old.exists() && young.exists() && beside.exists());
    store.put_trace(&key(1), &trace(1)).unwrap();
    let old = trace_file(&folder.0, &key(1), &trace(1)).with_file_name(".tmp-1-2-3");
    fs::write(&old, "half an ent").unwrap();
    set_age(&old, 10_000);
    store.sweep();
    assert!(!old.exists());
    assert_eq!(store.traces(&key(1)), [trace(1)]);
}

#[test]
fn a_folder_that_cannot_be_created_is_reported_once() {
    // A file in place of the folder stops even the superuser.
    let folder = Folder::new("refused");
    fs::create_dir_all(&folder.0).unwrap();
    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    let store = Store::open(options(&file));
    assert_eq!(store.get(&key(1)), None);
    assert!(store.put(&key(1), &artifact(1, 40)).is_err());
    store.put(&key(1), &artifact(1, 40)).unwrap();
    assert_eq!(store.get(&key(1)), None);
    assert_eq!(store.counts().stored, 0);
}

#[test]
fn a_read_only_folder_is_readable() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("read-only");
    let store = Store::open(options(&folder.0));
    store.put(&key(1), &artifact(1, 40)).unwrap();
    store.put_trace(&key(1), &trace(1)).unwrap();
    let paths = [file_of(&folder.0, &key(1)), trace_file(&folder.0, &key(1), &trace(1))];
    paths.iter().for_each(|path| set_age(path, 10_000));
    let allow = |mode| {
        for path in &paths {
            fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o666)).unwrap();
            fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    allow(0o555);
    let store = Store::open(options(&folder.0));
    let found = (store.get(&key(1)), store.traces(&key(1)));
    allow(0o755);
    assert_eq!(found, (Some(artifact(1, 40)), vec![trace(1)]));
}

#[test]
fn concurrent_put_get_sweep_and_clear_see_whole_entries() {
    let folder = Folder::new("threads");
    let store = Store::open(StoreOptions { most_bytes: 20_000, ..options(&folder.0) });
    std::thread::scope(|s| {
        for thread in 0..6u64 {
            let (store, folder) = (&store, &folder);
            s.spawn(move || {
                for i in 0..300 {
                    let n = (i * 7 + thread * 3) % 20;
                    if let Some(found) = store.get(&key(n)) {
                        assert_eq!(found, artifact(n, 2000));
                    }
                    let _ = store.put(&key(n), &artifact(n, 2000));
                    let _ = store.put_trace(&key(n), &trace(thread));
                    assert!(store.traces(&key(n)).iter().all(|t| (0..6).any(|i| *t == trace(i))));
                    match (thread, i % 50) {
                        (0, 0) => _ = store.clear(),
                        (1, 0) => store.sweep(),
                        (2, 0) => _ = fs::remove_dir_all(&folder.0),
                        _ => {}
                    }
                }
            });
        }
    });
    assert_eq!(store.counts().damaged, 0);
    assert_eq!(store.examine().damaged, Vec::<PathBuf>::new());
}

const FOLDER: &str = "OCTANTS_TEST_STORE_FOLDER";
const LIMIT: &str = "OCTANTS_TEST_STORE_LIMIT";

/// Runs an ignored test of this file in its own process.
fn child(test: &str, folder: &Path, limit: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(LIMIT, limit.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "run by other tests, in processes of their own"]
fn put_for_ever() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let store = Store::open(options(Path::new(&folder)));
    for i in 0.. {
        let n = i % 16;
        if let Some(found) = store.get(&key(n)) {
            assert_eq!(found, artifact(n, 200_000));
        }
        store.put(&key(n), &artifact(n, 200_000)).unwrap();
        store.put_trace(&key(n % 2), &trace(n)).unwrap();
        assert_eq!(store.counts().damaged, 0);
    }
}

#[test]
fn processes_killed_during_a_put_leave_whole_entries() {
    let folder = Folder::new("killed");
    let store = Store::open(options(&folder.0));
    for round in 0..12 {
        store.clear().unwrap();
        let mut children: Vec<Child> = (0..2).map(|_| child("put_for_ever", &folder.0, 0)).collect();
        let mut running = || {
            for c in &mut children {
                assert!(c.try_wait().unwrap().is_none(), "ended by itself: {}", said(c));
            }
        };
        // On a busy machine they may start late.
        while store.examine().entries == 0 {
            running();
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(7 * round));
        running();
        for c in &mut children {
            c.kill().unwrap();
            c.wait().unwrap();
        }
        let found: Vec<u64> =
            (0..16).filter(|n| store.get(&key(*n)).is_some_and(|a| a == artifact(*n, 200_000))).collect();
        assert_eq!((found.len() as u64, store.counts().damaged), (store.examine().entries, 0));
        let traces = [store.traces(&key(0)), store.traces(&key(1))].concat();
        assert!(traces.iter().all(|t| (0..16).any(|n| *t == trace(n))));
    }
}

#[test]
#[ignore = "run by another test, in processes of their own"]
fn put_a_trace_of_each_key() {
    let (Some(folder), Ok(number)) = (std::env::var_os(FOLDER), std::env::var(LIMIT)) else { return };
    let store = Store::open(options(Path::new(&folder)));
    for i in 0..KEYS {
        // In the order of a compilation: others may add traces between lookup and insertion.
        store.traces(&key(i));
        store.put_trace(&key(i), &trace(number.parse().unwrap())).unwrap();
    }
}

const KEYS: u64 = 200;

#[test]
fn processes_that_add_traces_concurrently_lose_none() {
    let folder = Folder::new("traces-at-once");
    let mut children: Vec<Child> = (0..8).map(|n| child("put_a_trace_of_each_key", &folder.0, n)).collect();
    for c in &mut children {
        let text = said(c);
        assert!(c.wait().unwrap().success() && text.contains("1 passed"), "{text}");
    }
    let store = Store::open(options(&folder.0));
    for i in 0..KEYS {
        let found = store.traces(&key(i));
        for n in 0..8 {
            assert!(found.contains(&trace(n)), "the trace of process {n} for key {i} is lost");
        }
    }
}

fn said(c: &mut Child) -> String {
    let mut text = String::new();
    c.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    c.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn put_with_a_full_disk() {
    let (Some(folder), Ok(limit)) = (std::env::var_os(FOLDER), std::env::var(LIMIT)) else { return };
    let limit = limit.parse().unwrap();
    // SAFETY: plain calls; a write beyond the limit is then an error like that of a full disk instead of a signal.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
    let store = Store::open(options(Path::new(&folder)));
    store.put(&key(1), &artifact(1, 100)).unwrap();
    assert!(store.put(&key(2), &artifact(2, 100_000)).is_err());
    store.put(&key(3), &artifact(3, 100_000)).unwrap();
    assert!(!store.put_trace(&key(3), &trace(3)).unwrap(), "nothing is written any more");
    assert_eq!(store.get(&key(2)), None);
    assert_eq!(store.get(&key(1)), Some(artifact(1, 100)));
}

#[test]
fn a_full_disk_is_reported_once_and_leaves_no_partial_entry() {
    let folder = Folder::new("full");
    let mut c = child("put_with_a_full_disk", &folder.0, 10_000);
    let text = said(&mut c);
    assert!(c.wait().unwrap().success() && text.contains("1 passed"), "{text}");
    assert_eq!(files(&folder.0), [file_of(&folder.0, &key(1))]);
}
