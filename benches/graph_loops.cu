// The loop of graph_loops.py in CUDA C++: a conditional graph, a persistent kernel, and loops that the host decides.
// Prints microseconds per iteration, medians of eight runs. In guarded iterations, each task checks itself whether the
// loop has ended, so several can be queued ahead.
#include <algorithm>
#include <chrono>
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <functional>
#include <vector>

static void check(cudaError_t error, int line) {
    if (error != cudaSuccess) {
        std::printf("line %d: %s\n", line, cudaGetErrorString(error));
        std::exit(1);
    }
}
#define CHECK(call) check(call, __LINE__)

const int ITERATIONS = 1000;
const int BLOCK = 256;
using Counter = volatile int *;

static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

__device__ bool leaves(const int *guard) { return guard != nullptr && *guard == 0; }

__global__ void add_one(float *a, int n, const int *guard) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (!leaves(guard) && i < n) a[i] += 1;
}

__global__ void add(float *b, const float *a, int n, const int *guard) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (!leaves(guard) && i < n) b[i] += a[i];
}

__global__ void count(int *left) { *left -= 1; }

__global__ void count_and_decide(int *left, cudaGraphConditionalHandle handle) {
    *left -= 1;
    cudaGraphSetConditional(handle, *left != 0);
}

__global__ void count_guarded(int *left, Counter for_host) {
    if (*left != 0) *left -= 1;
    if (*left == 0) *for_host = 0;
}

template <bool ONE_BLOCK> __device__ void meet() {
    if (ONE_BLOCK) __syncthreads();
    else cooperative_groups::this_grid().sync();
}

template <bool ONE_BLOCK> __global__ void persistent(float *a, float *b, float *c, int n, int *left) {
    int first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    do {
        for (int i = first; i < n; i += step) a[i] += 1;
        meet<ONE_BLOCK>();
        for (int i = first; i < n; i += step) b[i] += a[i];
        meet<ONE_BLOCK>();
        for (int i = first; i < n; i += step) c[i] += b[i];
        meet<ONE_BLOCK>();
        if (first == 0) *left -= 1;
        meet<ONE_BLOCK>();
    } while (*(Counter)left);
}

struct Loop {
    int n, blocks;
    float *a, *b, *c;
    int *left, *start, *pinned;
    cudaStream_t stream;

    template <typename... P, typename... A>
    static void launch(cudaStream_t on, bool early, int blocks, void (*kernel)(P...), A... arguments) {
        cudaLaunchAttribute attribute;
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = blocks;
        config.blockDim = BLOCK;
        config.stream = on;
        config.attrs = &attribute;
        config.numAttrs = early;
        CHECK(cudaLaunchKernelEx(&config, kernel, P(arguments)...));
    }

    void tasks(cudaStream_t on, bool early, const int *guard) const {
        launch(on, false, blocks, add_one, a, n, guard);
        launch(on, early, blocks, add, b, a, n, guard);
        launch(on, early, blocks, add, c, b, n, guard);
    }

    void time(const char *name, const std::function<void()> &run) const {
        std::vector<double> times;
        for (int r = 0; r < 8; r++) {
            CHECK(cudaMemcpyAsync(left, start, sizeof(int), cudaMemcpyHostToDevice, stream));
            CHECK(cudaMemsetAsync(a, 0, sizeof(float) * n, stream));
            CHECK(cudaStreamSynchronize(stream));
            double began = now();
            run();
            CHECK(cudaStreamSynchronize(stream));
            times.push_back(now() - began);
        }
        std::sort(times.begin(), times.end());
        float sum;
        CHECK(cudaMemcpy(&sum, a, sizeof(float), cudaMemcpyDeviceToHost));
        const char *wrong = sum == ITERATIONS ? "" : " (wrong result)";
        std::printf("CUDA C++, n=%7d, %-42s %8.2f%s\n", n, name, times[4] / ITERATIONS * 1e6, wrong);
    }

    void conditional(bool early) const {
        cudaGraph_t graph;
        CHECK(cudaGraphCreate(&graph, 0));
        cudaGraphConditionalHandle handle;
        CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
        cudaGraphNodeParams node = {};
        node.type = cudaGraphNodeTypeConditional;
        node.conditional.handle = handle;
        node.conditional.type = cudaGraphCondTypeWhile;
        node.conditional.size = 1;
        cudaGraphNode_t added;
#if CUDART_VERSION >= 13000
        CHECK(cudaGraphAddNode(&added, graph, nullptr, nullptr, 0, &node));
#else
        CHECK(cudaGraphAddNode(&added, graph, nullptr, 0, &node));
#endif
        cudaGraph_t body = node.conditional.phGraph_out[0];
        cudaStream_t recorded;
        CHECK(cudaStreamCreateWithFlags(&recorded, cudaStreamNonBlocking));
        auto mode = cudaStreamCaptureModeThreadLocal;
        CHECK(cudaStreamBeginCaptureToGraph(recorded, body, nullptr, nullptr, 0, mode));
        tasks(recorded, early, nullptr);
        count_and_decide<<<1, 1, 0, recorded>>>(left, handle);
        CHECK(cudaStreamEndCapture(recorded, &body));
        cudaGraphExec_t ready;
        CHECK(cudaGraphInstantiate(&ready, graph, 0));
        const char *name = early ? "conditional graph, programmatic edges" : "conditional graph";
        time(name, [&] { CHECK(cudaGraphLaunch(ready, stream)); });
    }

    void on_host() const {
        time("decided by the host, copy and poll", [&] {
            Counter word = pinned;
            do {
                tasks(stream, false, nullptr);
                count<<<1, 1, 0, stream>>>(left);
                *word = -1;
                CHECK(cudaMemcpyAsync(pinned, left, sizeof(int), cudaMemcpyDeviceToHost, stream));
                while (*word == -1) {
                }
            } while (*word != 0);
        });
    }

    void guarded(int iterations) const {
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < iterations; i++) {
            tasks(stream, false, left);
            count_guarded<<<1, 1, 0, stream>>>(left, pinned);
        }
        CHECK(cudaStreamEndCapture(stream, &graph));
        cudaGraphExec_t ready;
        CHECK(cudaGraphInstantiate(&ready, graph, 0));
        cudaEvent_t ends[2];
        for (auto &end : ends) CHECK(cudaEventCreateWithFlags(&end, cudaEventDisableTiming));
        char name[64];
        std::snprintf(name, sizeof(name), "graphs of %d guarded iterations, 2 ahead", iterations);
        time(name, [&] {
            Counter word = pinned;
            *word = -1;
            for (int k = 0; *word != 0; k++) {
                while (k >= 2 && *word != 0 && cudaEventQuery(ends[k % 2]) == cudaErrorNotReady) {
                }
                CHECK(cudaGraphLaunch(ready, stream));
                CHECK(cudaEventRecord(ends[k % 2], stream));
            }
        });
    }

    void in_one_kernel(const char *name, void (*kernel)(float *, float *, float *, int, int *), int grid, int block) {
        void *arguments[] = {&a, &b, &c, &n, &left};
        time(name, [&] {
            CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void *>(kernel), grid, block, arguments, 0, stream));
        });
    }
};

int main() {
    Loop loop;
    CHECK(cudaStreamCreateWithFlags(&loop.stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&loop.left, sizeof(int)));
    CHECK(cudaMallocHost(&loop.start, sizeof(int)));
    CHECK(cudaMallocHost(&loop.pinned, sizeof(int)));
    *loop.start = ITERATIONS;
    int device, multiprocessors;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    for (int n : {2048, 8192, 1 << 16, 1 << 18, 1 << 20}) {
        loop.n = n;
        loop.blocks = (n + BLOCK - 1) / BLOCK;
        for (float **array : {&loop.a, &loop.b, &loop.c}) {
            CHECK(cudaMalloc(array, sizeof(float) * n));
            CHECK(cudaMemset(*array, 0, sizeof(float) * n));
        }
        loop.conditional(false);
        loop.conditional(true);
        const char *blocks = "persistent kernel, a block per multiprocessor";
        loop.in_one_kernel(blocks, persistent<false>, std::min(loop.blocks, multiprocessors), BLOCK);
        if (n < 1 << 16) loop.in_one_kernel("persistent kernel, one block", persistent<true>, 1, 2 * BLOCK);
        loop.on_host();
        loop.guarded(1);
        loop.guarded(4);
        for (float *array : {loop.a, loop.b, loop.c}) CHECK(cudaFree(array));
    }
}
