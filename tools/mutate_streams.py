"""Mutation test of the streams: disables one mechanism at a time and checks that some test fails.

    python3 tools/mutate_streams.py [WORD ...]

It changes a file, runs tests, and restores the file: the Rust tests of the runtime, or the Python tests under schedules
made from seeds. A mutation that no test notices is an error.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNTIME = "crates/octants-runtime/src"
HOST = "crates/octants-driver-host/src"
QUEUES = f"{HOST}/queues.rs"

# Name, file, text, its replacement.
MUTATIONS = [
    ("fork does not wait", f"{RUNTIME}/fork.rs", "device.wait_events(worker.stream, &[event])?;", ""),
    (
        "join is forgotten",
        f"{RUNTIME}/fork.rs",
        "match unsafe { self.device.wait_events(self.stream, &joins) }",
        "match Ok(())",
    ),
    ("worker lost when a fork fails", f"{RUNTIME}/fork.rs", "        let _ = self.finish();", ""),
    ("captures share workers", f"{RUNTIME}/worker_pool.rs", "return capture == Some(with);", "return true;"),
    (
        "all groups on workers' pool forever",
        f"{RUNTIME}/worker_pool.rs",
        "s.idle.push(worker);",
        "std::mem::forget(worker);",
    ),
    (
        "memory freed on the default stream",
        f"{RUNTIME}/free_after.rs",
        "if self.immediate || users.is_empty() {",
        "if true {",
    ),
    ("uses are not noted", f"{RUNTIME}/buffer.rs", "streams.push(Use::of(stream, writes));", ""),
    (
        "host reads do not wait",
        f"{RUNTIME}/buffer.rs",
        "let waited = stream.wait_for_host(caller);",
        "let waited = Ok(());",
    ),
    (
        "host reads wait for readers too",
        f"{RUNTIME}/buffer.rs",
        "|u: &&Use| u.writes || access",
        "|_: &&Use| true || access",
    ),
    (
        "a dropped stream is not drained",
        f"{RUNTIME}/stream.rs",
        "let _ = self.wait_for_own_work(&Uninterruptible);",
        "",
    ),
    (
        "failures of dropped streams vanish",
        f"{RUNTIME}/stream.rs",
        "device.orphans.record(|| failure);",
        "drop(failure);",
    ),
    (
        "S16: memory that no one describes is not waited for",
        f"{RUNTIME}/stream/launch.rs",
        "        if foreign {\n            // The host's",
        "        if false {\n            // The host's",
    ),
    (
        "adopted streams are destroyed",
        f"{RUNTIME}/stream.rs",
        "        if self.owned {",
        "        if self.number > 0 {",
    ),
    ("waiting queues do not wait", QUEUES, "let waits = s.done < self.pieces;", "let waits = false;"),
    ("a queue waits for nothing", QUEUES, "while s.done < pieces {", "while false {"),
    (
        "S17: results are not waited for",
        f"{RUNTIME}/stream/launch.rs",
        "} else if !kernel.meta.result.is_empty() {",
        "} else if false {",
    ),
    ("S16: host arrays are not copied", f"{RUNTIME}/stage_arguments.rs", "shared && staged.waits;", "shared;"),
    (
        "S16: written host arrays are not waited for",
        f"{RUNTIME}/stage_arguments.rs",
        "|| arrays.iter().any(|a| a.written) ||",
        "||",
    ),
    (
        "S16: staging memory is used again at once",
        f"{RUNTIME}/staging.rs",
        "if !unsafe { driver",
        "if false && !unsafe { driver",
    ),
    ("S16: staging has no bound", f"{RUNTIME}/staging.rs", "self.busy_bytes + bytes > MOST_BUSY", "false"),
    ("S16: uploads note no use", f"{RUNTIME}/stream/copies.rs", "        to.note_use(core, true);", ""),
    (
        "S17: arguments stay in the host's memory",
        f"{RUNTIME}/stream/launch.rs",
        "&slots, staged.args_at,",
        "&slots, None,",
    ),
    ("S21: events report nothing", f"{RUNTIME}/event.rs", "|s| s.report_pending()", "|_| Ok(())"),
    (
        "S5: a program that ends leaves work undone",
        f"{RUNTIME}/device.rs",
        "let drained = stream.drain(caller);",
        "let drained = Ok(());",
    ),
    (
        "S7: captured streams are waited for",
        f"{RUNTIME}/stream.rs",
        "Ok(!self.owned && self.handle.0 != 0 && unsafe",
        "Ok(false && unsafe",
    ),
    (
        "S14: artifacts forget their graph",
        "crates/octants-artifact/src/lib.rs",
        "    pub graph: Vec<GraphPart>,",
        "    #[serde(skip)]\n    pub graph: Vec<GraphPart>,",
    ),
    (
        "S8: groups are forked where there are no streams",
        f"{RUNTIME}/stream/launch.rs",
        "if !(device.immediate || nested) {",
        "if !nested {",
    ),
    (
        "S9: blocks run one after the other",
        f"{RUNTIME}/sections.rs",
        "if self.forks && groups.len() > 1 {",
        "if self.forks && groups.len() > 1 && false {",
    ),
    (
        "S13: what overlaps is let through",
        "crates/octants-engine/src/session/stream_groups.rs",
        "if errors.is_empty() { Ok(()) }",
        "if true { Ok(()) }",
    ),
    (
        "S14: the key knows a kernel's name alone",
        "crates/octants-engine/src/artifact_cache.rs",
        '.add("program", from.program)',
        '.add("program", &from.program.name)',
    ),
    (
        "S18, S23: a free waits for one user alone",
        f"{RUNTIME}/free_after.rs",
        "for user in users {\n                user.order_before",
        "for user in users.iter().take(1) {\n                user.order_before",
    ),
    ("versions: writes on streams are not counted", f"{RUNTIME}/buffer.rs", "            self.writes.add();", ""),
    ("versions: the host's writes are not counted", f"{RUNTIME}/buffer.rs", "lock(&self.uses).writes.add();", ""),
    (
        "versions: captures are not feared",
        f"{RUNTIME}/buffer.rs",
        "if writes && stream.may_be_captured() {",
        "if false {",
    ),
    (
        "versions: other streams write at once",
        f"{RUNTIME}/buffer.rs",
        "any(|u| u.writes && is_other(u))",
        "any(|_| false)",
    ),
    (
        "versions: a stream that ends has ended",
        f"{RUNTIME}/stream.rs",
        "device.ended_streams.fetch_add(1, Ordering::Release);",
        "",
    ),
    (
        "versions: others write nothing",
        f"{RUNTIME}/buffer.rs",
        "        self.expose();\n        self.0.shared",
        "        self.0.shared",
    ),
    ("versions: addresses are not told", f"{RUNTIME}/track_uses.rs", "if kernel.exposes_addresses {", "if false {"),
    (
        "versions: a launch inside another writes nothing",
        f"{RUNTIME}/stream/launch.rs",
        "            self.device.note_uses(self, kernel, (args, &[]), &mut updating, &mut Awaited::new());",
        "",
    ),
    (
        "versions: a write on a stream is not noted",
        f"{RUNTIME}/stream/copies.rs",
        "            if !core.device.immediate {\n                to.note_use(&self.0, true);\n            }\n"
        "            // SAFETY: the range is",
        "            // SAFETY: the range is",
    ),
    (
        "versions: the host writes by address unseen",
        f"{RUNTIME}/track_uses.rs",
        "if self.immediate || self.host_addressable {",
        "if self.immediate {",
    ),
    ("S24: queueing allocates", QUEUES, "s.spare.pop().unwrap_or_default()", "<Box<QueuedTask>>::default()"),
]

# The same, for the tests from Python: programs under schedules made from seeds.
FROM_PYTHON = [
    (
        "S17: queued tasks keep the arguments of others",
        f"{HOST}/run_task.rs",
        "        self.args.clear();\n        self.args.extend_from_slice(launch.args);",
        "        if self.args.is_empty() { self.args.extend_from_slice(launch.args); }",
    ),
    (
        "S17: random numbers follow the order of execution",
        f"{HOST}/run_task.rs",
        "number: held.number,",
        "number: { static N: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);"
        " N.fetch_add(1, Ordering::Relaxed) },",
    ),
    (
        "S12, S17: temporaries are shared by streams",
        f"{RUNTIME}/stream/launch.rs",
        "frame: scratch.frame,",
        "frame: { static F: std::sync::OnceLock<DevicePtr> = std::sync::OnceLock::new();"
        " *F.get_or_init(|| DevicePtr(Box::leak(vec![0u64; 1 << 16].into_boxed_slice()).as_ptr() as u64)) },",
    ),
    (
        "S12: sections do not wait for what comes before",
        f"{RUNTIME}/fork.rs",
        "device.wait_events(worker.stream, &[event])?;",
        "",
    ),
    ("S16: host arrays are not copied", f"{RUNTIME}/stage_arguments.rs", "shared && staged.waits;", "shared;"),
    (
        "S18: memory goes before its last use",
        f"{RUNTIME}/free_after.rs",
        "if self.immediate || users.is_empty() {",
        "if true {",
    ),
    (
        "S5: a dropped stream is not drained",
        f"{RUNTIME}/stream.rs",
        "let _ = self.wait_for_own_work(&Uninterruptible);",
        "",
    ),
    (
        "S5: a stream is destroyed before its work is done",
        "crates/octants-python/src/stream.rs",
        "if report { stream.synchronize(caller) } else",
        "if report { Ok(()) } else",
    ),
    (
        "S17: results are not waited for",
        f"{RUNTIME}/stream/launch.rs",
        "} else if !kernel.meta.result.is_empty() {",
        "} else if false {",
    ),
    (
        "S19: host reads do not wait",
        f"{RUNTIME}/buffer.rs",
        "let waited = stream.wait_for_host(caller);",
        "let waited = Ok(());",
    ),
    (
        "S21: a stream goes on after a failure",
        f"{HOST}/run_task.rs",
        "if launch.failures.any() {\n                return;\n            }",
        "",
    ),
    (
        "S21: failures are not reported",
        f"{RUNTIME}/stream.rs",
        "if self.failures.any() { self.report() } else { Ok(()) }",
        "Ok(())",
    ),
    (
        "S15: sections are not joined",
        f"{RUNTIME}/fork.rs",
        "match unsafe { self.device.wait_events(self.stream, &joins) }",
        "match Ok(())",
    ),
    (
        "S13: arrays passed twice are not looked at",
        "crates/octants-python/src/kernel/compile.rs",
        "if !aliases.is_empty() {",
        "if false {",
    ),
    (
        "S13: the key forgets which arrays overlap",
        "crates/octants-python/src/argument.rs",
        "self.key.extend_from_slice(&overlaps);",
        "self.key.push(TAG_OVERLAP);",
    ),
    (
        "S14: groups are one sequence",
        "crates/octants-codegen/src/graph_parts.rs",
        "TaskGraph::Parallel(groups) => out.push(GraphPart::Parallel(groups.iter().map(|g| within(facts, g)).collect())),",
        "TaskGraph::Parallel(groups) => groups.iter().for_each(|g| add(facts, g, out)),",
    ),
    ("S8: schedules leave tasks whole", f"{HOST}/schedule.rs", "1 + self.next() % 4)", "1)"),
    (
        "S2: fills do not go to the stream",
        "crates/octants-python/src/host_work.rs",
        "queues.then(",
        "false.then(",
    ),
]


def mutated(file: Path, old: str, new: str, notices: Callable[[], bool]) -> bool:
    """The result of `notices` while the file is changed."""
    text = file.read_text()
    if text.count(old) != 1:
        sys.exit(f"{file}: `{old}` is there {text.count(old)} times")
    file.write_text(text.replace(old, new))
    try:
        return notices()
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(text)


def build(command: list[str]) -> None:
    """Runs cargo, which must succeed: a mutation that does not compile shows nothing."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the mutation does not compile:\n{done.stderr[-2000:]}")


def fails_in_rust() -> bool:
    """Whether the tests of the runtime, the CPU's driver and the engine fail."""
    crates = ["octants-artifact", "octants-runtime", "octants-driver-host", "octants-engine"]
    command = ["cargo", "test", "--quiet", "--lib", "--tests", *(part for name in crates for part in ("-p", name))]
    build([*command, "--no-run"])
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=False).returncode != 0


def fails_in_python() -> bool:
    """Whether the tests of streams fail with a package built from the changed sources."""
    build(["cargo", "build", "--quiet", "-p", "octants-python"])
    library = {"darwin": "lib_octants.dylib", "win32": "_octants.dll"}.get(sys.platform, "lib_octants.so")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "octants"
        shutil.copytree(ROOT / "python/octants", package, ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
        shutil.copy(target / "debug" / library, package / f"_octants{sysconfig.get_config_var('EXT_SUFFIX')}")
        env = os.environ | {"PYTHONPATH": folder, "OCTANTS_TEST_SEEDS": "25"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/python/streams"]
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=300, check=False).returncode != 0


def main() -> None:
    """Runs the mutations whose names contain one of the command line's words, or all."""
    missed = []
    for mutations, notices in ((MUTATIONS, fails_in_rust), (FROM_PYTHON, fails_in_python)):
        for name, file, old, new in mutations:
            if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
                continue
            found = mutated(ROOT / file, old, new, notices)
            print(f"{'noticed' if found else 'MISSED '}  {name}", flush=True)
            if not found:
                missed.append(name)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
