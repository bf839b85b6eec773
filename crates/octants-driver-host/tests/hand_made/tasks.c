/* Handwritten tasks in the form of generated code, for tests of the driver and the launcher. */
#include <math.h>
#include <stdint.h>

typedef struct Context {
    const uint64_t *args;
    uint8_t *frame;
    uint64_t *result;
    void (*print)(const struct Context *, uint32_t, const uint64_t *);
    void (*fail)(const struct Context *, uint32_t, const uint64_t *);
    uint64_t seed;
    uint64_t launch;
    const void *owner;
    const void *copies;
    uint64_t copy_count;
    uint64_t copy_offset;
    void (*poll)(const struct Context *);
} Context;

/* No arguments, nothing to do. */
uint32_t nothing(const Context *c, int64_t begin, int64_t end) { return 0; }

/* args: address, count. a[i] += 1 */
int64_t count_arg1(const Context *c) { return (int64_t)c->args[1]; }

uint32_t increment(const Context *c, int64_t begin, int64_t end) {
    int32_t *a = (int32_t *)c->args[0];
    for (int64_t i = begin; i < end; i++) a[i] += 1;
    return 0;
}

/* args: address, count. a[i] = a[i] * a[i] */
uint32_t square_floats(const Context *c, int64_t begin, int64_t end) {
    float *a = (float *)c->args[0];
    for (int64_t i = begin; i < end; i++) a[i] *= a[i];
    return 0;
}

/* args: address, count. a[0] += i over all i; once with atomics and once without. */
uint32_t sum_shared(const Context *c, int64_t begin, int64_t end) {
    int64_t *a = (int64_t *)c->args[0];
    for (int64_t i = begin; i < end; i++) __atomic_fetch_add(a, i, __ATOMIC_RELAXED);
    return 0;
}

uint32_t sum_alone(const Context *c, int64_t begin, int64_t end) {
    int64_t *a = (int64_t *)c->args[0];
    for (int64_t i = begin; i < end; i++) a[0] += i;
    a[1] += 1;
    return 0;
}

/* args: n. Puts n * n into the frame; the next task's count is read from there; the last returns results. */
uint32_t square_to_frame(const Context *c, int64_t begin, int64_t end) {
    *(uint64_t *)c->frame = c->args[0] * c->args[0];
    *(uint64_t *)(c->frame + 8) = 0;
    return 0;
}

int64_t count_frame(const Context *c) { return *(int64_t *)c->frame; }

uint32_t count_up(const Context *c, int64_t begin, int64_t end) {
    __atomic_fetch_add((int64_t *)(c->frame + 8), end - begin, __ATOMIC_RELAXED);
    return 0;
}

uint32_t results(const Context *c, int64_t begin, int64_t end) {
    double root = sqrt((double)*(uint64_t *)(c->frame + 8)), sine = sin(root);
    c->result[0] = *(uint64_t *)(c->frame + 8);
    __builtin_memcpy(&c->result[1], &sine, 8);
    c->result[2] = c->seed;
    c->result[3] = c->launch;
    c->result[4] = 55;
    return 0;
}

/* args: n. Prints i for i < n, in order. */
uint32_t print_numbers(const Context *c, int64_t begin, int64_t end) {
    for (uint64_t i = 0; i < c->args[0]; i++) {
        float half = i * 0.5f;
        uint64_t values[2] = {i, 0};
        __builtin_memcpy(&values[1], &half, 4);
        c->print(c, 0, values);
    }
    return 0;
}

/* args: address, count. Iterations that are multiples of 100 fail. */
uint32_t fail_some(const Context *c, int64_t begin, int64_t end) {
    int32_t *a = (int32_t *)c->args[0];
    uint32_t failed = 0;
    for (int64_t i = begin; i < end; i++) {
        if (i % 100 == 0) {
            uint64_t value = (uint64_t)i;
            c->fail(c, 1, &value);
            failed = 1;
            continue;
        }
        a[i] = 1;
    }
    return failed;
}

/* args: nanoseconds-ish. A serial task that takes a while. */
/* args: address. Adds to it without end, and polls. */
uint32_t endless(const Context *c, int64_t begin, int64_t end) {
    volatile int32_t *a = (int32_t *)c->args[0];
    for (;;) {
        a[0] += 1;
        c->poll(c);
    }
}

/* args: address, count. The last iteration never ends, and polls. */
uint32_t last_endless(const Context *c, int64_t begin, int64_t end) {
    volatile int32_t *a = (int32_t *)c->args[0];
    for (int64_t i = begin; i < end; i++)
        do {
            a[i] += 1;
            c->poll(c);
        } while (i + 1 == (int64_t)c->args[1]);
    return 0;
}

uint32_t spin(const Context *c, int64_t begin, int64_t end) {
    for (volatile uint64_t i = 0; i < c->args[0]; i++) {}
    return 0;
}

