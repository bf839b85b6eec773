"""Code for a processor other than this machine's computes the same results, in an emulator if one is installed."""

import shutil
import subprocess

import numpy as np
import pytest

import octants as qd

N = 1003
BINS = 16

# Emulates the launcher: passes slots, and runs the iterations of each task in two parts.
DRIVER = """
typedef unsigned long u64;
typedef long i64;
static float x[N], y[N];
static i64 keys[N], bins[BINS];
int map(const void *, i64, i64) __asm__("octants.work_0_range");
int count(const void *, i64, i64) __asm__("octants.work_1_range");

static u64 heap[1 << 16], used;
void *calloc(u64 n, u64 bytes) {
    u64 *found = heap + used;
    used += (n * bytes + 15) / 16 * 2;
    return used < sizeof heap / 8 ? found : 0;
}
void free(void *p) { (void)p; }
void *memset(void *to, int value, u64 bytes) {
    for (u64 i = 0; i < bytes; i++) ((volatile char *)to)[i] = value;
    return to;
}

static void call(long number, long a, long b, long c) {
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
}

void _start(void) {
    for (int i = 0; i < N; i++) x[i] = i * 0.5f, y[i] = i, keys[i] = (i64)i * 77777;
    union { float value; unsigned bits; } a = {1.5f};
    u64 slots[] = {(u64)x, N, (u64)y, N, (u64)keys, N, (u64)bins, BINS, a.bits};
    u64 frame[64], result[8], context[8] = {(u64)slots, (u64)frame, (u64)result, 0, 0, 1, 1, 0};
    int wrong = map(context, 0, N / 2) | map(context, N / 2, N) | count(context, 0, N / 3) | count(context, N / 3, N);
    call(64, 1, (long)x, sizeof x), call(64, 1, (long)y, sizeof y);
    call(64, 1, (long)keys, sizeof keys), call(64, 1, (long)bins, sizeof bins);
    call(93, wrong, 0, 0);
}
"""


def find(*names):
    for name in names:
        if path := shutil.which(name) or shutil.which(f"/usr/lib/llvm-22/bin/{name}"):
            return path
    pytest.skip(f"{names[0]} is not installed")


@pytest.mark.parametrize("target", ["aarch64", "neoverse-n1", "neoverse-v1", "apple-m1"])
def test_arm_code_computes_the_same(tmp_path, target):
    emulator, clang, linker = find("qemu-aarch64-static", "qemu-aarch64"), find("clang"), find("ld.lld")
    qd.init(arch=qd.cpu, fast_math=False)
    f32s, i64s = qd.types.ndarray(dtype=qd.f32, ndim=1), qd.types.ndarray(dtype=qd.i64, ndim=1)

    @qd.kernel
    def work(a: qd.f32, x: f32s, y: f32s, keys: i64s, bins: i64s):
        for i in x:
            v = qd.Vector([x[i], y[i], a])
            y[i] = v.dot(v) + qd.sqrt(x[i]) * a - float(i % 7)
            h = keys[i]
            for _ in range(5):
                h = (h ^ (h >> 13)) * qd.i64(1099511628211) + i
            keys[i] = h // 3 + (h % 11)
            if y[i] > 100.0:
                x[i] = qd.max(y[i] * 0.25, 3.0)
        for i in keys:
            bins[keys[i] & 15] += keys[i] % 1000

    arrays = [
        (np.arange(N) * 0.5).astype(np.float32),
        np.arange(N).astype(np.float32),
        np.arange(N, dtype=np.int64) * 77777,
        np.zeros(BINS, dtype=np.int64),
    ]
    (tmp_path / "driver.c").write_text(DRIVER)
    (tmp_path / "work.o").write_bytes(qd.inspect(work, 1.5, *arrays, target=target, emit="object"))
    flags = ["--target=aarch64-linux-gnu", "-O1", "-ffreestanding", "-fno-builtin", f"-DN={N}", f"-DBINS={BINS}"]
    subprocess.run([clang, *flags, "-c", "driver.c", "-o", "driver.o"], cwd=tmp_path, check=True)
    subprocess.run([linker, "-static", "-o", "program", "driver.o", "work.o"], cwd=tmp_path, check=True)
    ran = subprocess.run([emulator, "-cpu", "max", "./program"], cwd=tmp_path, capture_output=True, check=True)
    work(1.5, *arrays)
    assert ran.stdout == b"".join(array.tobytes() for array in arrays)
    qd.reset()
