"""Where a step of MPM88 spends its time, by number of threads: rates of octants and C, and each task's time (median, profiler's
minimum) beside what it would be if the time on one thread were shared out evenly.

    python measure.py BENCHES [THREADS ...]
"""
import json, os, statistics, subprocess, sys, time

benches = sys.argv[1]
threads = [int(n) for n in sys.argv[2:]] or [1, 2, 4, 8, 16]

PROFILE = r"""
import sys, time
sys.path.insert(0, sys.argv[1])
import package_kernels as pk
import octants as qd
n = int(sys.argv[2])
qd.init(arch=qd.cpu, cpu_max_num_threads=n, kernel_profiler=True)
call, _ = pk.prepare("mpm88")
for _ in range(600): call()
qd.profiler.clear_kernel_profiler_info()
for _ in range(4000): call()
import json
out = {}
for task in ("mpm88:0_range", "mpm88:1_range", "mpm88:2_range", "mpm88:3_range", "mpm88"):
    r = qd.profiler.query_kernel_profiler_info(task)
    out[task] = (r.min * 1e3, r.avg * 1e3)
print("@@" + json.dumps(out))
"""

def child(args, n):
    env = dict(os.environ, OMP_NUM_THREADS=str(n))
    done = subprocess.run([sys.executable, "-W", "ignore", *args], capture_output=True, text=True, env=env, timeout=60)
    if "@@" not in done.stdout:
        print("failed:", args[:2], done.stderr[-800:])
    return [json.loads(l[2:]) for l in done.stdout.splitlines() if l.startswith("@@")]

def rates(system, n, names):
    return {r["name"]: r["value"] for r in child([f"{benches}/worker.py", system, "throughput", str(n), *names], n)}

rounds = int(os.environ.get("ROUNDS", "2"))
systems = os.environ.get("SYSTEMS", "octants c").split()
names = os.environ.get("NAMES", "mpm88 mandelbrot").split()
print(os.cpu_count(), "cores", os.getloadavg())
for n in threads:
    found = {}
    for _ in range(rounds):
        for s in systems:
            for k, v in rates(s, n, names).items():
                found.setdefault((k, s), []).append(v)
    for (k, s), v in sorted(found.items()):
        print(f"{n:3} threads {k:12} {s:8} median {statistics.median(v):10.1f}  all {[round(x, 1) for x in v]}", flush=True)
one = {}
for n in threads:
    for got in child(["-c", PROFILE, benches, str(n)], n):
        one = one or got
        line = "  ".join(f"{k.split(':')[-1]} min {m:.1f} avg {a:.1f} (even {one[k][0] / n:.1f})" for k, (m, a) in got.items())
        print(f"{n:3} threads: {line}", flush=True)
