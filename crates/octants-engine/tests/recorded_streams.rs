//! `stream_parallel` from a kernel's source to the driver's calls. Modules are compiled as in a program, for a driver
//! that records its calls and checks their order. Tests are named by the numbers of the requirements.

#![allow(clippy::unwrap_used)]

#[path = "../../octants-frontend/tests/world_table/mod.rs"]
mod world_table;

use std::path::Path;
use std::sync::Arc;

use octants_backends::backends;
use octants_driver_recording::{Launched, Log, RecordingDriver};
use octants_engine::frontend::Lowered;
use octants_engine::ir::{AutodiffMode, BufferId};
use octants_engine::runtime::{Buffer, Stream, Uninterruptible};
use octants_engine::{Alias, CompileError, Config, Executable, OptionValue, Session};
use world_table::module::Module;

/// A module and a session on a recording driver.
struct Bench {
    module: Module,
    session: Session,
    log: Arc<Log>,
}

/// A kernel, and memory for its fields and arrays.
struct Loaded {
    code: Executable,
    slots: Vec<u64>,
    _memory: Vec<Buffer>,
}

impl Bench {
    fn new(text: &str) -> Bench {
        Bench::with_cache(text, None)
    }

    fn with_cache(text: &str, cache: Option<&Path>) -> Bench {
        let mut config = Config::new(backends());
        match cache {
            Some(folder) => {
                let folder = OptionValue::Str(folder.to_string_lossy().into_owned());
                config.set("offline_cache_file_path", &folder).unwrap();
            }
            None => config.set("offline_cache", &OptionValue::Bool(false)).unwrap(),
        }
        let log = Arc::new(Log::default());
        let session = Session::on(RecordingDriver::new(log.clone()), config, Arc::new(|_: &str| ())).unwrap();
        Bench { module: Module::read("module.py", text), session, log }
    }

    /// The first kernel, with arrays of 64 elements and 8 for every number. Of `aliases`, pairs of arrays that this
    /// call passes the same memory for, the second ones get the first ones' address.
    fn load(&self, aliases: &[Alias]) -> Result<Loaded, CompileError> {
        let kernel = self.module.kernels[0].1;
        let lowering = self.session.lower(&self.module.table, kernel, &self.module.args(kernel), AutodiffMode::None)?;
        if !aliases.is_empty() {
            self.session.check_groups(&self.module.table, &lowering.lowered, aliases)?;
        }
        let code = self.session.build(&lowering, !aliases.is_empty()).unwrap();
        Ok(self.fill(&lowering.lowered, code, aliases))
    }

    fn fill(&self, lowered: &Lowered, code: Executable, aliases: &[Alias]) -> Loaded {
        let mut slots = vec![8; code.layout.slots as usize];
        let mut memory = Vec::new();
        let mut allocate = || {
            memory.push(self.session.allocate(1024).unwrap());
            memory.last().unwrap().ptr().unwrap()
        };
        code.layout.roots.iter().for_each(|&slot| slots[slot as usize] = allocate());
        for (slot, buffer) in code.layout.buffers.iter().zip(&lowered.kernel.buffers) {
            if let &Some(slot) = slot {
                slots[slot as usize] = allocate();
                (1..=buffer.ndim).for_each(|axis| slots[(slot + axis) as usize] = 64);
            }
        }
        for alias in aliases {
            let slot = |b: BufferId| code.layout.buffers[b.index()].unwrap() as usize;
            slots[slot(alias.second)] = slots[slot(alias.first)];
        }
        Loaded { code, slots, _memory: memory }
    }

    /// Launches twice, so that the second launch needs no new memory, and returns its tasks and calls.
    fn launch(&self, kernel: &Loaded, stream: &Stream) -> (Vec<Launched>, Vec<String>) {
        for _ in 0..2 {
            self.log.take();
            self.log.take_launched();
            // SAFETY: the driver runs nothing.
            let end = unsafe { self.session.launch(&kernel.code, &kernel.slots, &[], Some(stream), &Uninterruptible) };
            assert_eq!(end.unwrap(), None);
        }
        (self.log.take_launched(), self.log.take())
    }

    fn stream(&self) -> Stream {
        self.session.device().create_stream(0).unwrap()
    }

    /// Ends everything, and checks that the driver found no mistakes.
    fn finish(self) {
        self.session.close(&Uninterruptible).unwrap();
        drop(self.session);
        assert_eq!(self.log.mistakes(), Vec::<String>::new());
        assert_eq!(self.log.leaks(), Vec::<String>::new());
    }
}

/// The number of calls of a driver function.
fn count(calls: &[String], name: &str) -> usize {
    calls.iter().filter(|c| c.split(' ').next() == Some(name)).count()
}

/// The tasks of each stream, those of `own` first, in the order in which they were queued.
fn by_stream(tasks: &[Launched], own: u64) -> Vec<Vec<&Launched>> {
    let mut out: Vec<Vec<&Launched>> = vec![Vec::new()];
    for task in tasks {
        match out.iter_mut().find(|of| of.first().map_or(task.stream == own, |t| t.stream == task.stream)) {
            Some(of) => of.push(task),
            None => out.push(vec![task]),
        }
    }
    out
}

const ALL_KINDS: &str = "
import octants as qd

x = qd.field(qd.i32, shape=64)
y = qd.field(qd.i32, shape=(8, 8))
z = qd.field(qd.i32, shape=())


@qd.kernel
def all_kinds(a: qd.types.ndarray(dtype=qd.i32, ndim=1), n: qd.i32):
    with qd.stream_parallel():
        for i in range(n):
            x[i] = i
        for i, j in qd.ndrange(n, 8):
            x[8 * i + j] += 1
    with qd.stream_parallel():
        for i, j in y:
            y[i, j] = i
        y[0, 0] = n
        for i in range(n):
            y[0, i] += 1
    with qd.stream_parallel():
        z[None] = n
        for i in a:
            a[i] += 1
";

#[test]
fn s10_every_kind_of_task_runs_in_order_on_the_stream_of_its_group() {
    let bench = Bench::new(ALL_KINDS);
    let kernel = bench.load(&[]).unwrap_or_else(|e| panic!("{e:?}"));
    let stream = bench.stream();
    let (tasks, _) = bench.launch(&kernel, &stream);
    let streams = by_stream(&tasks, stream.handle());
    let names: Vec<_> = streams.iter().map(|of| of.iter().map(|t| t.task.as_str()).collect::<Vec<_>>()).collect();
    // The last group stays on the launching stream.
    let expected = [
        vec!["all_kinds_5_serial", "all_kinds_6_range"],
        vec!["all_kinds_0_range", "all_kinds_1_range"],
        vec!["all_kinds_2_range", "all_kinds_3_serial", "all_kinds_4_range"],
    ];
    assert_eq!(names, expected);
    for of in &streams {
        assert!(of.windows(2).all(|pair| pair[1].happens_after(pair[0])), "{of:#?}");
    }
    for (i, of) in streams.iter().enumerate() {
        for other in streams.iter().enumerate().filter(|(k, _)| *k != i).flat_map(|(_, of)| of) {
            assert!(of.iter().all(|t| !t.happens_after(other)), "groups do not wait for one another: {tasks:#?}");
        }
    }
    drop((kernel, stream));
    bench.finish();
}

const THREE_BLOCKS: &str = "
import octants as qd

x = qd.field(qd.i32, shape=64)
y = qd.field(qd.i32, shape=64)


@qd.kernel
def blocks(n: qd.i32):
    with qd.stream_parallel():
        for i in x:
            x[i] = i
    with qd.stream_parallel():
        pass
    with qd.stream_parallel():
        for i in y:
            y[i] = i
";

#[test]
fn s9_groups_are_concurrent_and_an_empty_one_uses_no_stream() {
    let bench = Bench::new(THREE_BLOCKS);
    let kernel = bench.load(&[]).unwrap_or_else(|e| panic!("{e:?}"));
    let stream = bench.stream();
    let (before, _) = bench.launch(&kernel, &stream);
    let (tasks, calls) = bench.launch(&kernel, &stream);
    let [first, last] = &tasks[..] else { panic!("{tasks:#?}") };
    assert!(!first.happens_after(last) && !last.happens_after(first));
    assert_eq!((count(&calls, "record_event"), count(&calls, "wait_events")), (2, 2), "one worker: {calls:?}");
    // Launches on one stream are ordered with the work that they forked.
    assert!(tasks.iter().all(|t| before.iter().all(|b| t.happens_after(b))));
    assert_eq!(bench.session.device().stream_pool_stats().created, 1);
    drop((kernel, stream));
    bench.finish();
}

#[test]
fn s14_artifacts_that_differ_only_in_groups_have_different_keys() {
    let folder = std::env::temp_dir().join(format!("octants-groups-{}", std::process::id()));
    let loops = ["for i in x:\n            x[i] = i", "for i in y:\n            y[i] = i"];
    let head = THREE_BLOCKS.split("    with").next().unwrap();
    let block = "    with qd.stream_parallel():\n        ";
    let two = format!("{head}{block}{}\n{block}{}\n", loops[0], loops[1]);
    let one = format!("{head}{block}{}\n        {}\n", loops[0], loops[1]);
    let shape = |text: &str| {
        let bench = Bench::with_cache(text, Some(&folder));
        let kernel = bench.load(&[]).unwrap_or_else(|e| panic!("{e:?}"));
        let stream = bench.stream();
        let (tasks, calls) = bench.launch(&kernel, &stream);
        let counts = bench.session.kept_kernels().unwrap().1;
        drop((kernel, stream));
        bench.finish();
        assert_eq!(tasks.len(), 2);
        (counts.hits, tasks[1].happens_after(&tasks[0]), count(&calls, "record_event"), count(&calls, "wait_events"))
    };
    // From the compiler, and then from the folder.
    for found in 0..2 {
        assert_eq!(shape(&two), (found, false, 2, 2));
        assert_eq!(shape(&one), (found, true, 0, 0));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn writes_both(allow: &str) -> String {
    format!(
        "
import octants as qd

Array = qd.types.ndarray(dtype=qd.i32, ndim=1)


@qd.kernel
def both(a: Array, b: Array):
    with qd.stream_parallel():
        for i in a:
            a[i] = 1
    with qd.stream_parallel({allow}):
        for i in b:
            b[i] = 2
"
    )
}

#[test]
fn s13_conflicting_groups_are_refused_unless_allowed() {
    let same = [Alias { first: BufferId(0), second: BufferId(1), same: true }];
    let refusal = |bench: &Bench, aliases: &[Alias]| {
        bench.log.take();
        let Err(CompileError::User(diagnostics, _)) = bench.load(aliases) else { panic!("it compiles") };
        assert!(bench.log.take().is_empty(), "nothing is loaded");
        diagnostics[0].message.clone()
    };
    let bench = Bench::new(&writes_both(""));
    let text = refusal(&bench, &same);
    let expected =
        "two qd.stream_parallel() blocks write the same elements of `a` and `b` (the same memory in this call)";
    assert!(text.starts_with(expected), "{text}");
    // Other arrays of the same kernel are fine.
    let kernel = bench.load(&[]).unwrap_or_else(|e| panic!("{e:?}"));
    let stream = bench.stream();
    let (tasks, _) = bench.launch(&kernel, &stream);
    assert!(tasks[0].args[0] != tasks[0].args[2] && !tasks[1].happens_after(&tasks[0]), "{tasks:#?}");
    drop((kernel, stream));
    bench.finish();

    let certain = writes_both("").replace("in b", "in a").replace("b[i] = 2", "a[i] = 2");
    let bench = Bench::new(&certain);
    assert!(refusal(&bench, &[]).starts_with("two qd.stream_parallel() blocks write the same elements of `a`"));
    bench.finish();

    // If indices may overlap, there is a warning, and the groups are launched unchanged.
    let bench = Bench::new(&certain.replace("a[i] = 2", "a[b[i]] = 2"));
    let kernel = bench.load(&[]).unwrap_or_else(|e| panic!("{e:?}"));
    let warned = bench.module.table.warnings.take();
    assert!(matches!(&warned[..], [w] if w.message.contains("may write the same elements of `a`")), "{warned:?}");
    let stream = bench.stream();
    let (tasks, _) = bench.launch(&kernel, &stream);
    assert!(!tasks[0].happens_after(&tasks[1]) && !tasks[1].happens_after(&tasks[0]));
    drop((kernel, stream));
    bench.finish();

    let bench = Bench::new(&writes_both("allow_overlap=True"));
    let kernel = bench.load(&same).unwrap_or_else(|e| panic!("{e:?}"));
    let stream = bench.stream();
    let (tasks, _) = bench.launch(&kernel, &stream);
    let address = |task: &Launched, array: usize| task.args[kernel.code.layout.buffers[array].unwrap() as usize];
    assert_eq!(address(&tasks[0], 0), address(&tasks[1], 1), "one array, by both names");
    assert!(!tasks[0].happens_after(&tasks[1]) && !tasks[1].happens_after(&tasks[0]), "as the user asked");
    drop((kernel, stream));
    bench.finish();
}
