"""Genesis' scenes, and its own tests, on Octants and on Quadrants.

    python benches/genesis.py                                      every scene, 0, 1 and 128 environments, both modes
    python benches/genesis.py --scene box go2 --envs 1 --mode ndarray --steps 2000
    python benches/genesis.py --module octants --warm-only --caches /tmp/genesis
    python benches/genesis.py --scene boxes --rounds 20 --steps 50     the packages in turns, on a busy machine
    python benches/genesis.py --backend gpu --scene franka --envs 4096 30000 --mode ndarray
    python benches/genesis.py --tests ../Genesis --files test_grad.py --out tests.jsonl

Needs `pip install genesis-world torch` (which brings Quadrants). Any Python that has them will do: `PYTHONPATH` may
name the folder in which Octants is. Each case runs in a process of its own, the packages in turn: cold, with an empty
folder for compiled kernels, then warm, with the kernels that the cold run left. Steps are timed in the warm run, by the
wall clock and by the processor time of all threads: compare the second on a machine that is not idle. What Genesis and
Numba keep of their own (meshes, distance fields, compiled helpers) is made before and is the same for both packages.

States are compared element by element after 15 steps, while small differences have not grown, to the scene's tolerance.
After 60 steps contacts have amplified the rounding of single precision: there the means over all elements are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
PARTS = HERE / "genesis_runs"
# The parts are in a separate folder, because a process that starts in this one would find this file as `genesis`.
sys.path.insert(0, str(PARTS))

from in_turns import step_in_turns  # noqa: E402
from one_scene import EARLY, LATE, SCENES  # noqa: E402
from own_tests import cache_environment, run_tests  # noqa: E402

# Largest difference of an element at the early comparison: positions in m (and quaternions), velocities in m/s (and
# rad/s).
TOLERANCES: dict[str, tuple[float, float]] = {
    "box": (1e-5, 1e-4),
    "franka": (1e-3, 1e-1),
    "sphere-on-box": (1e-4, 1e-2),
    "go2": (1e-3, 1e-1),
    "boxes": (1e-3, 1e-1),
    "mpm": (1e-4, 1e-2),
    "sph": (1e-3, 5e-2),
}

# Largest difference of the means at the late comparison, as a multiple of the early tolerance, and at least this much.
LATE_FACTOR, LATE_LEAST = 10.0, 5e-3

# The columns of the table for each package: heading, key in the result of a run, and which run.
COLUMNS = [
    ("import s", "import", "warm"),
    ("build cold s", "build", "cold"),
    ("build cold cpu s", "build cpu", "cold"),
    ("build warm s", "build", "warm"),
    ("build warm cpu s", "build cpu", "warm"),
    ("first step s", "first step", "warm"),
    ("steps/s", "steps/s", "warm"),
    ("steps/cpu s", "steps/cpu s", "warm"),
]

Result = dict[str, Any]


def missing(modules: Iterable[str]) -> list[str]:
    """The packages that are not installed for this Python."""
    places = [p for p in sys.path if Path(p).resolve() != HERE]
    return [m for m in ("genesis", "torch", *modules) if PathFinder.find_spec(m, places) is None]


def command_of(module: str, scene: str, envs: int, mode: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """A process of `one_scene.py` with caches in a folder: its command and environment."""
    environment = cache_environment(folder)
    # Data that does not depend on the package is shared.
    for variable, name in {
        "GS_CACHE_FILE_PATH": "assets",
        "NUMBA_CACHE_DIR": "numba",
        "XDG_CACHE_HOME": "home",
    }.items():
        environment[variable] = str(folder.parent / name)
    command = [sys.executable, "-W", "ignore", str(PARTS / "one_scene.py"), "--module", module]
    return [*command, "--scene", scene, "--envs", str(envs), "--mode", mode], environment


def run_case(module: str, scene: str, envs: int, mode: str, folder: Path, limit: float, *options: str) -> Result:
    """One process of `one_scene.py`: its result; with `failed` when it did not reach the end."""
    command, environment = command_of(module, scene, envs, mode, folder)
    command += options
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=environment, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no end after {limit:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("@@")]
    result: Result = json.loads(lines[-1][2:]) if lines else {"stage": "start"}
    if done.returncode != 0 or result["stage"] != "done":
        said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()[:2] not in ("", "@@")]
        result["failed"] = f"{result['stage']}: exit {done.returncode}: {said[-1] if said else 'no output'}"
    if "import module" in result and "import genesis" in result:
        result["import"] = round(result["import module"] + result["import genesis"], 3)
    return result


def load(path: Path) -> dict[str, np.ndarray]:
    """The states that a case saved; none when it failed before."""
    if not path.exists():
        return {}
    with np.load(path) as saved:
        return {name: saved[name] for name in saved.files}


def compare_states(scene: str, one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> Result:
    """The differences of two runs' states, and whether they are within the tolerance of the scene."""
    if not one or set(one) != set(other):
        return {"agree": None}
    found: Result = {}
    agree = True
    for key, tolerance in zip(("pos", "vel"), TOLERANCES[scene], strict=True):
        early, late = f"early {key}", f"late {key}"
        if one[early].shape != other[early].shape:
            return {"agree": False, "shapes": [list(one[early].shape), list(other[early].shape)]}
        found[early] = float(np.max(np.abs(one[early] - other[early]), initial=0.0))
        found[f"{late} mean"] = float(abs(np.mean(one[late]) - np.mean(other[late])))
        found[late] = float(np.max(np.abs(one[late] - other[late]), initial=0.0))
        agree &= found[early] <= tolerance and found[f"{late} mean"] <= max(LATE_LEAST, LATE_FACTOR * tolerance)
    return {"agree": agree} | found


def ratio(key: str, one: Result, other: Result) -> float | None:
    """How many times better the first result is: rates one over other, times other over one."""
    if not one.get(key) or not other.get(key):
        return None
    value = one[key] / other[key] if "/" in key else other[key] / one[key]
    return value if math.isfinite(value) else None


def table_lines(cases: list[Result], modules: list[str]) -> list[str]:
    """A row for each case and package, then one with their ratios. Failures state the reason."""
    heads = ["scene", "envs", "mode", "package", *(c[0] for c in COLUMNS), "states"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]

    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"

    for case in cases:
        first = [case["scene"], str(case["envs"]), case["mode"]]
        for module in modules:
            runs = case["runs"].get(module, {})
            cells = [cell(runs.get(run, {}).get(key)) for _, key, run in COLUMNS]
            failed = [f"{run}: {r['failed']}" for run, r in runs.items() if "failed" in r]
            lines.append("| " + " | ".join([*first, module, *cells, "; ".join(failed).replace("|", "/")]) + " |")
        if len(modules) == 2:
            one, other = (case["runs"].get(m, {}) for m in modules)
            cells = [cell(ratio(key, one.get(run, {}), other.get(run, {}))) for _, key, run in COLUMNS]
            lines.append("| " + " | ".join([*first, "**times better**", *cells, verdict(case["states"])]) + " |")
    return lines


def verdict(states: Result) -> str:
    """One cell about the states."""
    if states.get("agree") is None:
        return "not compared"
    if "shapes" in states:
        return f"differ: shapes {states['shapes']}"
    word = "agree" if states["agree"] else "differ"
    return (
        f"{word}: {EARLY} steps, at most {states['early pos']:.1e}, {states['early vel']:.1e}; "
        f"{LATE} steps, means {states['late pos mean']:.1e}, {states['late vel mean']:.1e}"
    )


def prepare(args: argparse.Namespace, modules: list[str], scene: str, folder: Path) -> None:
    """Runs a scene once to cache data that does not depend on the package: meshes, distance fields and Numba's code."""
    if not (marker := folder / "prepared" / scene).exists():
        # The kernels that this leaves are not kept.
        run_case(modules[0], scene, 0, "ndarray", folder / "prepare", args.limit, "--backend", args.backend)
        shutil.rmtree(folder / "prepare", ignore_errors=True)
        marker.parent.mkdir(exist_ok=True)
        marker.touch()


def turns_of(args: argparse.Namespace, modules: list[str], scene: str, envs: int, mode: str, folder: Path) -> Result:
    """One case with a process per package. One process steps at a time."""
    prepare(args, modules, scene, folder)
    commands = {module: command_of(module, scene, envs, mode, folder / module) for module in modules}
    for command, _ in commands.values():
        command += ["--backend", args.backend]
    return {"scene": scene, "envs": envs, "mode": mode} | step_in_turns(commands, args.steps, args.rounds)


def run_scene(args: argparse.Namespace, modules: list[str], scene: str, envs: int, mode: str, folder: Path) -> Result:
    """All runs of one case, the packages in turn."""
    timed = ["--steps", str(args.steps), "--seconds", str(args.seconds)]
    prepare(args, modules, scene, folder)
    runs: dict[str, dict[str, Result]] = {}
    states: dict[str, dict[str, np.ndarray]] = {}
    for step in ("cold", "warm"):
        for module in modules:
            own = folder / (module if args.warm_only else f"{module}-{scene}-{envs}-{mode}")
            known = own / f"ran-{scene}-{envs}-{mode}"
            if step == "cold" and args.warm_only and known.exists():
                continue
            saved = folder / f"{module}.npz"
            saved.unlink(missing_ok=True)
            options = ["--state", str(saved), "--backend", args.backend, *(timed if step == "warm" else [])]
            result = run_case(module, scene, envs, mode, own, args.limit, *options)
            if not (step == "cold" and args.warm_only):
                runs.setdefault(module, {})[step] = result
            states[module] = load(saved)
            if "failed" not in result:
                known.touch()
    if not args.warm_only:
        for module in modules:
            shutil.rmtree(folder / f"{module}-{scene}-{envs}-{mode}", ignore_errors=True)
    case: Result = {"scene": scene, "envs": envs, "mode": mode, "runs": runs, "states": {"agree": None}}
    if len(modules) == 2:
        case["states"] = compare_states(scene, *(states.get(m, {}) for m in modules))
    return case


def run_scenes(args: argparse.Namespace, modules: list[str]) -> int:
    """Prints a JSON line for each case as it ends, then the table; 1 when a case failed or states differ."""
    cases: list[Result] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.caches or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for scene in args.scene:
            for mode in args.mode:
                for envs in args.envs:
                    run = turns_of if args.rounds else run_scene
                    case = run(args, modules, scene, envs, mode, folder)
                    cases.append(case)
                    print(json.dumps(case), flush=True)
                    if args.out is not None:
                        with args.out.open("a") as record:
                            record.write(json.dumps(case) + "\n")
    if args.rounds:
        return int(any("failed" in case for case in cases))
    print("\n" + "\n".join(table_lines(cases, modules)))
    failed = any("failed" in r for c in cases for runs in c["runs"].values() for r in runs.values())
    return int(failed or any(c["states"]["agree"] is False for c in cases))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", choices=["octants", "quadrants", "both"], default="both")
    parser.add_argument("--scene", nargs="+", choices=list(SCENES), default=list(SCENES), metavar="SCENE")
    parser.add_argument("--backend", choices=["cpu", "gpu"], default="cpu", help="(default: cpu)")
    parser.add_argument("--envs", nargs="+", type=int, default=[0, 1, 128], help="environments (default: 0 1 128)")
    parser.add_argument("--mode", nargs="+", choices=["ndarray", "field"], default=["ndarray", "field"])
    parser.add_argument("--steps", type=int, default=2000, help="timed steps at most (default: 2000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of timed steps at most (default: 10)")
    parser.add_argument(
        "--rounds", type=int, default=0, help="rounds of --steps, packages in turns; prints ratios alone"
    )
    parser.add_argument("--limit", type=float, default=900.0, help="seconds after which a process, or a test, is ended")
    parser.add_argument("--out", type=Path, help="append a JSON line for each case, or test, to this file")
    parser.add_argument("--caches", type=Path, help="keep caches in this folder (default: a temporary one)")
    parser.add_argument("--warm-only", action="store_true", help="one kernel cache for each package; no cold times")
    tests = parser.add_argument_group("Genesis' own tests")
    tests.add_argument(
        "--tests", type=Path, metavar="CHECKOUT", help="run the tests of this checkout of Genesis instead"
    )
    tests.add_argument("--files", nargs="+", default=[], help="names of test files (default: all)")
    tests.add_argument("--select", help="pytest's -k")
    tests.add_argument("--marks", default="not benchmarks and not examples", help="pytest's -m (default: %(default)s)")
    tests.add_argument(
        "--failed-only", action="store_true", help="the second package runs only what did not pass on the first"
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Runs scenes or tests."""
    args = parse()
    modules = ["octants", "quadrants"] if args.module == "both" else [args.module]
    if absent := missing([*modules, "pytest"] if args.tests else modules):
        print(f"not installed for {sys.executable}: {', '.join(absent)}; pip install genesis-world torch")
        return 2
    return run_tests(args.tests.resolve(), modules, args) if args.tests else run_scenes(args, modules)


if __name__ == "__main__":
    sys.exit(main())
