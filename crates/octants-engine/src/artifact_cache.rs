//! [`ArtifactCache`]: the cache of compiled kernels on disk, and its keys.
//!
//! A key covers everything that determines the machine code and the data stored with it: the program before code
//! generation, the source locations that its messages name, the options, the machine, the versions of this compiler
//! and of the code generator, the text of the device's math library, and the tool that generates the device's own
//! code. The key of the IR is derived by `Hash`, which covers every member of every type. Spans are the one exception:
//! a comment above a kernel changes no code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use octants_artifact::{
    Artifact, CodeTarget, Key, KeyBuilder, Policy, Store, StoreCounts, StoreOptions, Trace, key_of_bytes,
};
use octants_diag::Sources;
use octants_ir::{Body, BufferId, CodegenOptions, DeviceLibrary, Op, Program, ScheduleOptions};

use crate::config::Config;
use crate::environment::user_cache_folder;
use crate::machine::Machine;

/// Names the compiler: its version and the text of its sources.
const COMPILER: &str = concat!(env!("CARGO_PKG_VERSION"), " ", env!("OCTANTS_BUILD"));

/// Compiled kernels on disk.
pub(crate) struct ArtifactCache {
    store: Store,
    /// The part of keys that is the same for all kernels of a session.
    common: OnceLock<KeyBuilder>,
}

/// The store that the options request; `None` if disabled. The error gives the reason if it is unavailable.
pub fn open_store(config: &Config) -> Result<Option<Store>, String> {
    if !config.offline_cache {
        return Ok(None);
    }
    let folder = match config.offline_cache_file_path.as_str() {
        "" => user_cache_folder().ok_or(
            "compiled kernels are not cached: neither XDG_CACHE_HOME nor HOME is set. Pass a folder with \
             `offline_cache_file_path`, or pass `offline_cache=False`",
        )?,
        // As it is meant now: a program may change its working folder.
        given => {
            let folder = std::path::absolute(given).unwrap_or_else(|_| given.into());
            return Ok(Some(store_in(folder, true, config)));
        }
    };
    Ok(Some(store_in(folder.join("octants").join("kernels"), false, config)))
}

fn store_in(folder: PathBuf, named: bool, config: &Config) -> Store {
    Store::open(StoreOptions {
        folder,
        compiler: key_of_bytes(COMPILER.as_bytes()),
        most_bytes: config.offline_cache_max_size_of_files,
        policy: match config.offline_cache_cleaning_policy.as_str() {
            "never" => Policy::Never,
            "version" => Policy::Version,
            "fifo" => Policy::FirstWritten,
            _ => Policy::LeastRecentlyUsed,
        },
        free_part: config.offline_cache_cleaning_factor,
        named,
    })
}

/// The inputs that determine a kernel's code.
pub(crate) struct Ingredients<'a> {
    /// The program.
    pub program: &'a Program,
    /// The origin of its instructions.
    pub sources: &'a Sources,
    /// The source location of the kernel in the artifact.
    pub defined_at: Option<&'a str>,
    /// The options of the code generator.
    pub options: &'a CodegenOptions,
    /// The options of the schedule.
    pub schedule_options: &'a ScheduleOptions,
    /// The arrays that are split over ranks.
    pub split: &'a BTreeMap<BufferId, u32>,
}

impl ArtifactCache {
    /// Keeps artifacts in a store.
    pub fn new(store: Store) -> ArtifactCache {
        ArtifactCache { store, common: OnceLock::new() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.store.folder()
    }

    /// Takes the message about files that were not loaded.
    pub fn take_warning(&self) -> Option<String> {
        self.store.take_warning()
    }

    /// Statistics of the cache so far.
    pub fn counts(&self) -> StoreCounts {
        self.store.counts()
    }

    /// The key of a kernel's code; `None` if this machine cannot be identified.
    pub fn key(&self, machine: &Machine, from: &Ingredients<'_>) -> Option<Key> {
        Some(key_after(self.common(machine)?, from))
    }

    /// The beginning of all keys of a session.
    pub fn common(&self, machine: &Machine) -> Option<KeyBuilder> {
        if self.common.get().is_none() {
            let made = common_part_for(machine)?;
            // Another thread may have been faster, with the same.
            let _ = self.common.set(made);
        }
        self.common.get().cloned()
    }

    /// The artifact of a key.
    pub fn get(&self, key: &Key) -> Option<Artifact> {
        self.store.get(key)
    }

    /// The artifact of a key that some trace names.
    pub fn get_again(&self, key: &Key) -> Option<Artifact> {
        self.store.get_again(key)
    }

    /// The traces of a key.
    pub fn traces(&self, key: &Key) -> Vec<Trace> {
        self.store.traces(key)
    }

    /// Stores an artifact. The error is a notice for the user, returned once.
    pub fn put(&self, key: &Key, artifact: &Artifact) -> Result<(), String> {
        self.store.put(key, artifact).map_err(|e| self.not_kept(&e))
    }

    /// Stores a trace of a key. Returns whether it was written. The error is a notice for the user, returned once.
    pub fn put_trace(&self, key: &Key, trace: &Trace) -> Result<bool, String> {
        self.store.put_trace(key, trace).map_err(|e| self.not_kept(&e))
    }

    /// Removes a trace of a key.
    pub fn remove_trace(&self, key: &Key, name: &Key) {
        self.store.remove_trace(key, name);
    }

    fn not_kept(&self, error: &std::io::Error) -> String {
        format!(
            "compiled kernels are not cached in {}: {error}. Pass another folder with `offline_cache_file_path`, or \
             pass `offline_cache=False`",
            self.store.folder().display()
        )
    }
}

/// The part of the key that all kernels of a session share.
/// Identifies the compiler and its target.
pub fn made_for(machine: &Machine) -> Option<Key> {
    common_part_for(machine).map(|common| common.key())
}

pub(crate) fn common_part_for(machine: &Machine) -> Option<KeyBuilder> {
    let generator = machine.code_generator().identity(&machine.target).ok()?;
    Some(common_part(&generator, &machine.target, &machine.library))
}

fn common_part(generator: &str, target: &CodeTarget, library: &DeviceLibrary) -> KeyBuilder {
    let mut key = KeyBuilder::new();
    key.add("compiler", COMPILER).add("code generator", generator).add("target", target);
    if let CodeTarget::Device { .. } = target {
        // If it cannot be read, the code generator reports that; the key is then that of a kernel that needs none.
        let library = library.path.as_deref().and_then(|path| std::fs::read(path).ok());
        key.add("library", &library.map(|bytes| key_of_bytes(&bytes)));
    }
    key
}

/// Adds the part that is specific to a kernel.
pub(crate) fn key_after(mut key: KeyBuilder, from: &Ingredients<'_>) -> Key {
    // By name, so that a new option cannot be forgotten here.
    let CodegenOptions {
        fast_math,
        opt_level,
        processor,
        vector_math,
        vector_bits,
        device_library: DeviceLibrary { path: _ },
        threads: _,
    } = from.options;
    let ScheduleOptions {
        opt_level: of_schedule,
        arrays_may_alias,
        single_thread_variants,
        concurrent_launches,
        privatizes_arrays,
    } = from.schedule_options;
    key.add("fast_math", fast_math)
        .add("opt_level", opt_level)
        .add("opt_level of the schedule", of_schedule)
        .add("processor", processor)
        .add("arrays_may_alias", arrays_may_alias)
        .add("vector_math", vector_math)
        .add("vector_bits", vector_bits)
        .add("single_thread_variants", single_thread_variants)
        .add("concurrent_launches", concurrent_launches)
        .add("privatizes_arrays", privatizes_arrays)
        .add("split", from.split)
        .add("program", from.program)
        .add("places", &places(from.program, from.sources))
        .add("defined_at", &from.defined_at);
    key.key()
}

/// The locations of the instructions that the artifact names by `path:line`: those that print and assert.
fn places(program: &Program, sources: &Sources) -> Vec<String> {
    let tasks = program.tasks.iter().map(|t| &t.body);
    let bodies = program.functions.iter().map(|f| &f.body).chain(tasks);
    let named = |body: &Body| {
        let all = body.insts.iter().filter(|i| matches!(i.op, Op::Print(_) | Op::Assert(..)));
        all.map(|i| sources.location_with_call(i.span)).collect::<Vec<_>>()
    };
    bodies.flat_map(named).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use octants_diag::{SourceFile, Span};

    use super::*;

    const PROGRAM: &str = r#"
program k -> f32 {
  struct !Pair { a: i32, b: f32 }
  roots 1
  param n: i32
  param p: !Pair
  buffer @0 x: f32[1] contiguous
  buffer @1 y: vec2<f32>[1] dense shape [8] offset [0] {
    component root 0 base 0 axes [[8 * 8]]
    component root 0 base 4 axes [[8 * 8]]
  }
  func fn0 half(f32) -> f32 {
    %0: f32 = param 0
    %1: f32 = const 0.5
    %2: f32 = mul %0, %1
    return %2
  }
  frame0: i32
  task k_0_serial serial reads [@1] writes [frame0] {
    %0: i32 = param 0
    %1: ref i32 = frame_addr frame0
    store %1, %0
    %3: u1 = lt %0, %0
    assert %3, ("n is ", %0:"d")
  }
  task k_1_range parallel(block_dim 64, num_threads 2, name "loop", group 1) reads [@0, frame0] writes [@0] {
    local $0 t: f32
    %0: i32 = const 0
    %1: i32 = const 8
    %2 = for [%0..%1] parallel(block_dim 64, num_threads 2, name "loop", group 1) {
      %3: i32 = loop_index %2, 0
      %4: ref f32 = buffer_addr @0[%3]
      %5: f32 = load %4
      %6: f32 = call fn0(%5)
      store %4, %6
    }
  }
  graph {
    launch k_0_serial count 1
    parallel {
      group {
        launch k_1_range count 8
      }
    }
  }
}
"#;

    fn parse(text: &str) -> Program {
        text.parse().unwrap_or_else(|e| panic!("{e:?}\n{text}"))
    }

    fn with<R>(text: &str, change: impl FnOnce(&mut Program) -> R) -> Program {
        let mut program = parse(text);
        change(&mut program);
        program
    }

    fn sources(path: &str, first_line: u32) -> Sources {
        let mut sources = Sources::default();
        sources.add(Arc::new(SourceFile { path: path.into(), text: "a\nb\n".into(), first_line, is_library: false }));
        sources
    }

    fn device(triple: &str, cpu: &str, features: &str) -> CodeTarget {
        CodeTarget::Device { triple: triple.into(), cpu: cpu.into(), features: features.into() }
    }

    fn key(program: &Program, sources: &Sources, options: &CodegenOptions, target: &CodeTarget) -> String {
        scheduled_key(program, sources, (options, &ScheduleOptions::default()), target)
    }

    fn scheduled_key(
        program: &Program,
        sources: &Sources,
        asked: (&CodegenOptions, &ScheduleOptions),
        target: &CodeTarget,
    ) -> String {
        generated_key("a generator", program, sources, asked, target)
    }

    fn generated_key(
        generator: &str,
        program: &Program,
        sources: &Sources,
        (options, schedule_options): (&CodegenOptions, &ScheduleOptions),
        target: &CodeTarget,
    ) -> String {
        split_key(generator, (program, sources), (options, schedule_options), target, &BTreeMap::new())
    }

    fn split_key(
        generator: &str,
        (program, sources): (&Program, &Sources),
        (options, schedule_options): (&CodegenOptions, &ScheduleOptions),
        target: &CodeTarget,
        split: &BTreeMap<BufferId, u32>,
    ) -> String {
        let from = Ingredients { program, sources, defined_at: None, options, schedule_options, split };
        key_after(common_part(generator, target, &options.device_library), &from).to_string()
    }

    #[test]
    fn every_ingredient_changes_the_key() {
        let (program, places) = (parse(PROGRAM), sources("a.py", 1));
        let options = CodegenOptions::default();
        let host = CodeTarget::Host;
        let first = key(&program, &places, &options, &host);
        assert_eq!(first, key(&parse(PROGRAM), &places.clone(), &options.clone(), &host));

        let mut keys = HashMap::from([(first.clone(), String::from("unchanged"))]);
        let mut add = |what: &str, key: String| {
            if let Some(same) = keys.insert(key, what.into()) {
                panic!("{what} has the key of {same}");
            }
        };
        let texts = [
            ("name of the kernel", "program k", "program l"),
            ("result", "-> f32 {\n  struct", "-> f64 {\n  struct"),
            ("name of a struct", "Pair", "Couple"),
            ("name of a member", "b: f32", "c: f32"),
            ("type of a member", "b: f32", "b: f64"),
            ("roots", "roots 1", "roots 2"),
            ("name of a parameter", "param n", "param m"),
            ("type of a parameter", "param n: i32", "param n: i64"),
            ("name of an array", "@0 x:", "@0 z:"),
            ("element of an array", "x: f32[1]", "x: f64[1]"),
            ("axes of an array", "f32[1] contiguous", "f32[2] contiguous"),
            ("kind of an array", "contiguous", "strided"),
            ("shape", "shape [8]", "shape [9]"),
            ("offset", "offset [0]", "offset [-1]"),
            ("root of a field", "root 0 base 4", "root 1 base 4"),
            ("place of a field", "base 4 axes", "base 64 axes"),
            ("layout of a field", "base 4 axes [[8 * 8]]", "base 4 axes [[2 * 32, 4 * 8]]"),
            ("stride of a field", "base 4 axes [[8 * 8]]", "base 4 axes [[8 * 16]]"),
            ("name of a function", "half(", "hall("),
            ("constant in a function", "const 0.5", "const 0.25"),
            ("operation in a function", "mul %0, %1", "add %0, %1"),
            ("frame", "frame0: i32", "frame0: i64"),
            ("name of a task", "k_0_serial", "k_0_other"),
            ("kind of a task", "task k_0_serial serial", "task k_0_serial parallel"),
            ("what a task reads", "reads [@0, frame0]", "reads [@0, @1, frame0]"),
            ("what a task writes", "writes [@0]", "writes [@0, @1]"),
            ("frame slots read", "reads [@0, frame0]", "reads [@0]"),
            ("frame slots written", "reads [@1] writes [frame0]", "reads [@1]"),
            ("graph", "parallel {\n      group {", "sequence {\n      sequence {"),
            ("count of a launch", "k_1_range count 8", "k_1_range count argument"),
            ("block", "parallel(block_dim 64", "parallel(block_dim 32"),
            ("threads", "num_threads 2", "num_threads 3"),
            ("order", "parallel(block_dim", "parallel(serialize, block_dim"),
            ("name of a loop", "name \"loop\"", "name \"pool\""),
            ("group of a loop", ", group 1)", ", group 3)"),
            ("message", "\"n is \"", "\"n was \""),
            ("format of a message", ":\"d\"", ":\"x\""),
            ("bound of a loop", "const 8", "const 7"),
            ("name of a local", "local $0 t", "local $0 u"),
            ("type of a local", "local $0 t: f32", "local $0 t: f64"),
            ("index of a value", "store %4, %6", "store %4, %5"),
        ];
        for (what, from, to) in texts {
            assert!(PROGRAM.contains(from), "{what}: {from}");
            add(what, key(&parse(&PROGRAM.replace(from, to)), &places, &options, &host));
        }

        let constant =
            |c: f64| with(PROGRAM, |p| p.functions[0].body.insts[1].op = Op::Const(octants_ir::Const::Float(c)));
        add("0.0", key(&constant(0.0), &places, &options, &host));
        add("-0.0", key(&constant(-0.0), &places, &options, &host));
        add("a NaN", key(&constant(f64::NAN), &places, &options, &host));
        add("another NaN", key(&constant(-f64::NAN), &places, &options, &host));

        add("path of a message", key(&program, &sources("b.py", 1), &options, &host));
        add("line of a message", key(&program, &sources("a.py", 2), &options, &host));

        let defaults = CodegenOptions::default();
        for (what, changed) in [
            ("fast_math", CodegenOptions { fast_math: false, ..defaults.clone() }),
            ("opt_level", CodegenOptions { opt_level: 2, ..defaults.clone() }),
            ("processor", CodegenOptions { processor: Some("x86-64".into()), ..defaults.clone() }),
            ("vector_math", CodegenOptions { vector_math: false, ..defaults.clone() }),
            ("vector_bits", CodegenOptions { vector_bits: Some(128), ..defaults.clone() }),
        ] {
            add(what, key(&program, &places, &changed, &host));
        }
        let defaults = ScheduleOptions::default();
        for (what, changed) in [
            ("opt_level of the schedule", ScheduleOptions { opt_level: 2, ..defaults }),
            ("arrays_may_alias", ScheduleOptions { arrays_may_alias: true, ..defaults }),
            ("single_thread_variants", ScheduleOptions { single_thread_variants: false, ..defaults }),
            ("concurrent_launches", ScheduleOptions { concurrent_launches: true, ..defaults }),
            ("privatizes_arrays", ScheduleOptions { privatizes_arrays: false, ..defaults }),
        ] {
            add(what, scheduled_key(&program, &places, (&options, &changed), &host));
        }

        let asked = (&options, &ScheduleOptions::default());
        let split = BTreeMap::from([(BufferId(0), 0)]);
        add("split arrays", split_key("a generator", (&program, &places), asked, &host, &split));
        add("code generator", generated_key("another generator", &program, &places, asked, &host));
        add("triple", key(&program, &places, &options, &device("t", "c", "f")));
        add("another triple", key(&program, &places, &options, &device("u", "c", "f")));
        add("cpu", key(&program, &places, &options, &device("t", "d", "f")));
        add("features", key(&program, &places, &options, &device("t", "c", "g")));

        let path = std::env::temp_dir().join(format!("octants-library-{}", std::process::id()));
        let library = DeviceLibrary { path: Some(path.clone()) };
        let linked = CodegenOptions { device_library: library, ..options.clone() };
        for text in ["one", "two"] {
            std::fs::write(&path, text).expect("the folder of temporary files can be written to");
            add(text, key(&program, &places, &linked, &device("t", "c", "f")));
        }
        std::fs::remove_file(&path).expect("written above");
    }

    #[test]
    fn options_without_effect_on_code_keep_the_key() {
        let places = sources("a.py", 1);
        let options = CodegenOptions::default();
        let of = |program: &Program| key(program, &places, &options, &CodeTarget::Host);
        let moved = with(PROGRAM, |p| p.functions[0].body.insts[1].span = Span { file: 0, start: 2, end: 3, call: 0 });
        assert_eq!(of(&moved), of(&parse(PROGRAM)));
        let printing = with(PROGRAM, |p| {
            p.tasks[0].body.insts.iter_mut().for_each(|i| i.span = Span { file: 0, start: 2, end: 3, call: 0 });
        });
        assert_ne!(of(&printing), of(&parse(PROGRAM)), "the line of an assertion is in the artifact");
    }
}
