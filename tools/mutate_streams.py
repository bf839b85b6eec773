"""Takes out one mechanism of the streams at a time and makes sure that a test notices.

    python3 tools/mutate_streams.py [NAME ...]

A file is changed, the tests of the runtime are run, and the file is put back. A mutation that
no test notices is an error.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNTIME = "crates/octants-runtime/src"
QUEUES = "crates/octants-driver-host/src/queues.rs"

# Name, file, text, its replacement.
MUTATIONS = [
    ("fork does not wait", f"{RUNTIME}/fork.rs", "driver.wait_events(worker.stream, &[event])?;", ""),
    (
        "join is forgotten",
        f"{RUNTIME}/fork.rs",
        "match unsafe { self.driver.wait_events(self.stream, &joins) }",
        "match Ok(())",
    ),
    ("worker lost when a fork fails", f"{RUNTIME}/fork.rs", "        let _ = self.finish();", ""),
    ("all groups on workers' pool forever", f"{RUNTIME}/fork.rs", "s.idle.push(worker);", "std::mem::forget(worker);"),
    (
        "memory freed on the default stream",
        f"{RUNTIME}/device.rs",
        "if self.immediate || self.is_closed() || users.is_empty() {",
        "if true {",
    ),
    ("uses are not noted", f"{RUNTIME}/buffer.rs", "uses.push(Use { stream: Arc::downgrade(stream), writes });", ""),
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
        "let _ = unsafe { device.driver.synchronize(handle) };",
        "",
    ),
    (
        "failures of dropped streams vanish",
        f"{RUNTIME}/stream.rs",
        "device.orphans.record(|| failure);",
        "drop(failure);",
    ),
    ("foreign memory is not waited for", f"{RUNTIME}/stream.rs", "if foreign || !kernel", "if !kernel"),
    (
        "adopted streams are destroyed",
        f"{RUNTIME}/stream.rs",
        "        if self.owned {",
        "        if self.number > 0 {",
    ),
    ("waiting queues do not wait", QUEUES, "if p.at.is_none() {", "if false {"),
    ("a queue waits for nothing", QUEUES, "while s.done < until {", "while false {"),
]


def noticed(file: Path, old: str, new: str) -> bool:
    """Whether the tests fail with the change."""
    text = file.read_text()
    if text.count(old) != 1:
        sys.exit(f"{file}: `{old}` is there {text.count(old)} times")
    file.write_text(text.replace(old, new))
    crates = ["-p", "octants-runtime", "-p", "octants-driver-host"]
    try:
        command = ["cargo", "test", "--quiet", "--tests", *crates]
        build = subprocess.run([*command, "--no-run"], cwd=ROOT, capture_output=True, text=True, check=False)
        if build.returncode:
            sys.exit(f"{file}: the mutation does not compile:\n{build.stderr[-2000:]}")
        return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=False).returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(text)


def main() -> None:
    """Runs the mutations named on the command line, or all."""
    missed = []
    for name, file, old, new in MUTATIONS:
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        found = noticed(ROOT / file, old, new)
        print(f"{'noticed' if found else 'MISSED '}  {name}", flush=True)
        if not found:
            missed.append(name)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
