/* The kernels of the device suite: GPU-style code for the host's processor, in the form that the stand-in for HIP runs.
 * One call of a kernel is one thread; `P` is its parameter: the slots follow what every launch passes. */

#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <time.h>

typedef int32_t Word __attribute__((may_alias));
typedef uint64_t Long __attribute__((may_alias));

/* The operations of a thread: its registers (its number in the block, the block's threads, the block's number, blocks),
 * barriers, and the error of an access to unmapped memory. */
struct {
    int (*reg)(int);
    void (*barrier)(void);
    int (*exchange)(int, int);
    void (*fault)(void);
} *octants_host_gpu;

#define KERNEL(NAME, SLOTS)                                               \
    const uint64_t NAME##_bytes __asm__(#NAME ".bytes") = CONTEXT + 8 * (SLOTS); \
    const uint64_t NAME##_threads __asm__(#NAME ".threads") = 1024;       \
    void NAME(const Long *P)
#define SLOT(N) P[CONTEXT / 8 + (N)]

KERNEL(mad, 5) {
    Word *x = (Word *)SLOT(0);
    uint64_t n = SLOT(1), ns = SLOT(2);
    uint32_t a = SLOT(3), b = SLOT(4);
    uint64_t thread = octants_host_gpu->reg(0), threads = octants_host_gpu->reg(1);
    uint64_t block = octants_host_gpu->reg(2), blocks = octants_host_gpu->reg(3);
    /* The first thread runs before all others. */
    if (ns && !thread && !block)
        nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, 0);
    for (uint64_t i = block * threads + thread; i < n; i += blocks * threads)
        x[i] = (uint32_t)x[i] * a + b;
}

KERNEL(answer, 1) {
    if (!SLOT(0))
        octants_host_gpu->fault();
    *(Long *)P[1] = SLOT(0) + 1;
}

KERNEL(speak, 1) {
    char *channel = (char *)P[2];
    uint64_t head = (P[5] + 1) << 32;
    uint64_t at = 8 * (uint64_t)__atomic_fetch_add((uint32_t *)channel, 2, __ATOMIC_RELAXED);
    *(Long *)(channel + at + 264) = SLOT(0);
    __atomic_store_n((Long *)(channel + at + 256), head, __ATOMIC_RELEASE);
    __atomic_exchange_n((uint32_t *)(channel + 4), 1, __ATOMIC_RELAXED);
    *(Long *)(channel + 24) = SLOT(0);
    __atomic_store_n((Long *)(channel + 16), head | 1, __ATOMIC_RELEASE);
}

KERNEL(sum, 1) {
    const Long *slots = (const Long *)SLOT(0);
    uint64_t total = 0;
    for (uint64_t i = 0; i < slots[1]; i++)
        total += slots[2 + i];
    *(Word *)slots[0] = total;
}
