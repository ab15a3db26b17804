/* C += A B in single precision under a schedule of loops: tiles, order of the tile loops, rows that
 * are unrolled and width of a vector. One thread; times are of the thread's own clock, so that other
 * tenants take none of it. Rows are a multiple of 8, columns of 16. */
#define _GNU_SOURCE
#include <time.h>

#define KERNEL(U, V)                                                                            \
    typedef float vector_##U##_##V __attribute__((vector_size(4 * V), aligned(4)));            \
    static void tile_##U##_##V(const float *a, const float *b, float *c, long n, long k, long i0, \
                               long i1, long j0, long j1, long p0, long p1) {                   \
        for (long i = i0; i < i1; i += U)                                                       \
            for (long j = j0; j < j1; j += V) {                                                 \
                vector_##U##_##V sum[U];                                                        \
                for (int u = 0; u < U; u++) sum[u] = *(vector_##U##_##V *)&c[(i + u) * n + j];  \
                for (long p = p0; p < p1; p++) {                                                \
                    vector_##U##_##V row = *(const vector_##U##_##V *)&b[p * n + j];            \
                    for (int u = 0; u < U; u++) sum[u] += a[(i + u) * k + p] * row;             \
                }                                                                               \
                for (int u = 0; u < U; u++) *(vector_##U##_##V *)&c[(i + u) * n + j] = sum[u];  \
            }                                                                                   \
    }

KERNEL(1, 8) KERNEL(4, 8) KERNEL(8, 8) KERNEL(1, 16) KERNEL(4, 16) KERNEL(8, 16)

typedef void (*tile_kernel)(const float *, const float *, float *, long, long, long, long, long, long,
                            long, long);

static tile_kernel kernel_of(int unroll, int vector) {
    if (vector == 8) return unroll == 1 ? tile_1_8 : unroll == 4 ? tile_4_8 : tile_8_8;
    return unroll == 1 ? tile_1_16 : unroll == 4 ? tile_4_16 : tile_8_16;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* order: which size (0 rows, 1 columns, 2 depth) each loop runs over, outermost first.
 * Returns the least microseconds a call of the repeats, each of `calls` calls. */
double run(const float *a, const float *b, float *c, long m, long n, long k, const long *tile,
           const int *order, int unroll, int vector, int repeats, int calls) {
    tile_kernel kernel = kernel_of(unroll, vector);
    long size[3] = {m, n, k};
    double best = 1e30;
    for (int repeat = 0; repeat < repeats; repeat++) {
        double begin = now();
        for (int call = 0; call < calls; call++)
        for (long x = 0; x < size[order[0]]; x += tile[order[0]])
            for (long y = 0; y < size[order[1]]; y += tile[order[1]])
                for (long z = 0; z < size[order[2]]; z += tile[order[2]]) {
                    long first[3], last[3], at[3] = {x, y, z};
                    for (int d = 0; d < 3; d++) {
                        int s = order[d];
                        first[s] = at[d];
                        last[s] = at[d] + tile[s] < size[s] ? at[d] + tile[s] : size[s];
                    }
                    kernel(a, b, c, n, k, first[0], last[0], first[1], last[1], first[2], last[2]);
                }
        double took = (now() - begin) / calls;
        if (took < best) best = took;
    }
    return best;
}
