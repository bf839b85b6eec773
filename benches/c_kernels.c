/* The benchmarks in C, as plainly as the kernels are written; threads by OpenMP where the compiler has it.
   Histogram and particle-to-grid use a private copy per thread, which is how one writes them by hand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
static int thread_id(void) { return omp_get_thread_num(); }
void set_threads(int n) { omp_set_num_threads(n); }
static int threads(void) { return omp_get_max_threads(); }
#else
static int thread_id(void) { return 0; }
void set_threads(int n) { (void)n; }
static int threads(void) { return 1; }
#endif

void triad(const float *restrict a, const float *restrict b, float *restrict c, float s, long n) {
#pragma omp parallel for
    for (long i = 0; i < n; i++) c[i] = a[i] + s * b[i];
}

void stencil(const float *restrict a, float *restrict b, long n) {
#pragma omp parallel for
    for (long i = 1; i < n - 1; i++)
        for (long j = 1; j < n - 1; j++)
            b[i * n + j] = 0.2f * (a[i * n + j] + a[(i - 1) * n + j] + a[(i + 1) * n + j] + a[i * n + j - 1] + a[i * n + j + 1]);
}

void map(const float *restrict x, float *restrict y, long n) {
#pragma omp parallel for
    for (long i = 0; i < n; i++) y[i] = sinf(x[i]) * expf(-x[i]) + sqrtf(x[i]);
}

void sum(const float *restrict x, float *restrict s, long n) {
    float total = 0;
#pragma omp parallel for reduction(+ : total)
    for (long i = 0; i < n; i++) total += x[i];
    s[0] += total;
}

void histogram(const int *restrict x, int *restrict counts, long n, int levels) {
#pragma omp parallel
    {
        int *mine = calloc(levels, sizeof(int));
#pragma omp for
        for (long i = 0; i < n; i++) mine[x[i]]++;
#pragma omp critical
        for (int k = 0; k < levels; k++) counts[k] += mine[k];
        free(mine);
    }
}

void mandelbrot(int *restrict steps, long n, int most) {
#pragma omp parallel for schedule(dynamic, 8)
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            float cx = -2.0f + 3.0f * j / n, cy = -1.5f + 3.0f * i / n, zx = 0, zy = 0;
            int count = 0;
            while (zx * zx + zy * zy < 4.0f && count < most) {
                float t = zx * zx - zy * zy + cx;
                zy = 2.0f * zx * zy + cy;
                zx = t;
                count++;
            }
            steps[i * n + j] = count;
        }
}

void nbody(const float *restrict x, const float *restrict y, const float *restrict z, float *restrict ax,
           float *restrict ay, float *restrict az, long n) {
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        float sx = 0, sy = 0, sz = 0;
        for (long j = 0; j < n; j++) {
            float dx = x[j] - x[i], dy = y[j] - y[i], dz = z[j] - z[i];
            float inverse = 1.0f / sqrtf(dx * dx + dy * dy + dz * dz + 1e-3f), cube = inverse * inverse * inverse;
            sx += dx * cube;
            sy += dy * cube;
            sz += dz * cube;
        }
        ax[i] = sx, ay[i] = sy, az[i] = sz;
    }
}

void matmul(const float *restrict a, const float *restrict b, float *restrict c, long n) {
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        for (long j = 0; j < n; j++) c[i * n + j] = 0;
        for (long k = 0; k < n; k++)
            for (long j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
}

void blur(const float *restrict a, const float *restrict weights, float *restrict b, long n, int radius) {
#pragma omp parallel for
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            float s = 0;
            for (int k = -radius; k <= radius; k++) {
                long at = j + k < 0 ? 0 : j + k > n - 1 ? n - 1 : j + k;
                s += weights[k + radius] * a[i * n + at];
            }
            b[i * n + j] = s;
        }
}

static void spline(float f, float w[3]) {
    w[0] = 0.5f * (1.5f - f) * (1.5f - f);
    w[1] = 0.75f - (f - 1) * (f - 1);
    w[2] = 0.5f * (f - 0.5f) * (f - 0.5f);
}

/* x, v: [n][2]; C: [n][2][2]; J: [n]; grid_v: [m][m][2]; grid_m: [m][m]. */
void mpm88(float *restrict x, float *restrict v, float *restrict C, float *restrict J, float *restrict grid_v,
           float *restrict grid_m, long n, int m, float dt) {
    static float *parts = NULL;
    static long room = 0;
    const float inv_dx = m, dx = 1.0f / m, p_mass = (0.5f * dx) * (0.5f * dx);
    const long cells = (long)m * m;
    const int count = threads();
    if (room < cells * 3 * count) parts = realloc(parts, (room = cells * 3 * count) * sizeof(float));
    memset(parts, 0, cells * 3 * count * sizeof(float));
#pragma omp parallel for
    for (long p = 0; p < n; p++) {
        float *mine = parts + thread_id() * cells * 3, wx[3], wy[3];
        int bx = (int)(x[2 * p] * inv_dx - 0.5f), by = (int)(x[2 * p + 1] * inv_dx - 0.5f);
        float fx = x[2 * p] * inv_dx - bx, fy = x[2 * p + 1] * inv_dx - by;
        spline(fx, wx), spline(fy, wy);
        float stress = -dt * 4 * 400.0f * p_mass * (J[p] - 1) * inv_dx * inv_dx;
        float a00 = stress + p_mass * C[4 * p], a01 = p_mass * C[4 * p + 1];
        float a10 = p_mass * C[4 * p + 2], a11 = stress + p_mass * C[4 * p + 3];
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++) {
                float ox = (i - fx) * dx, oy = (j - fy) * dx, weight = wx[i] * wy[j];
                float *to = mine + 3 * ((long)(bx + i) * m + by + j);
                to[0] += weight * (p_mass * v[2 * p] + a00 * ox + a01 * oy);
                to[1] += weight * (p_mass * v[2 * p + 1] + a10 * ox + a11 * oy);
                to[2] += weight * p_mass;
            }
    }
#pragma omp parallel for
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) {
            long k = (long)i * m + j;
            float vx = 0, vy = 0, mass = 0;
            for (int t = 0; t < count; t++)
                vx += parts[3 * (t * cells + k)], vy += parts[3 * (t * cells + k) + 1], mass += parts[3 * (t * cells + k) + 2];
            if (mass > 0) vx /= mass, vy /= mass;
            vy -= dt * 9.8f;
            if (i < 3 && vx < 0) vx = 0;
            if (i > m - 3 && vx > 0) vx = 0;
            if (j < 3 && vy < 0) vy = 0;
            if (j > m - 3 && vy > 0) vy = 0;
            grid_v[2 * k] = vx, grid_v[2 * k + 1] = vy, grid_m[k] = mass;
        }
#pragma omp parallel for
    for (long p = 0; p < n; p++) {
        float wx[3], wy[3], vx = 0, vy = 0, c[4] = {0, 0, 0, 0};
        int bx = (int)(x[2 * p] * inv_dx - 0.5f), by = (int)(x[2 * p + 1] * inv_dx - 0.5f);
        float fx = x[2 * p] * inv_dx - bx, fy = x[2 * p + 1] * inv_dx - by;
        spline(fx, wx), spline(fy, wy);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++) {
                float weight = wx[i] * wy[j], four = 4 * weight * inv_dx;
                const float *g = grid_v + 2 * ((long)(bx + i) * m + by + j);
                vx += weight * g[0], vy += weight * g[1];
                c[0] += four * g[0] * (i - fx), c[1] += four * g[0] * (j - fy);
                c[2] += four * g[1] * (i - fx), c[3] += four * g[1] * (j - fy);
            }
        v[2 * p] = vx, v[2 * p + 1] = vy;
        x[2 * p] += dt * vx, x[2 * p + 1] += dt * vy;
        J[p] *= 1 + dt * (c[0] + c[3]);
        memcpy(C + 4 * p, c, sizeof c);
    }
}
