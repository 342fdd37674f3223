/* Softmax regression by mini-batch SGD with momentum, one batch a call: gather, forward, softmax, gradient and update
   without a copy of the batch. 32 rows at a time stay in the second-level cache between the two products, so that X is
   read from memory once. Tiles are as large as the registers of AVX-512 allow; other machines get the same code, split
   by the compiler. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ROWS 32   /* a block: 32 x 2,048 floats are 256 KiB */
#define LANES 16
#define R 4       /* rows and classes of a tile of the forward product: 24 sums */
#define K 6
#define CLASSES 12 /* classes of a tile of the gradient, two vectors wide: 24 sums */

typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

static inline float total(vec v) {
    float s = 0;
    for (int i = 0; i < LANES; i++) s += v[i];
    return s;
}

/* s[r][c] = <x[r], w[c]>, width a multiple of LANES, classes a multiple of K (w is padded with zero rows). */
static inline __attribute__((always_inline)) void forward(const float *const *x, const float *w, float *s, long width, long classes) {
    for (long r0 = 0; r0 < ROWS; r0 += R)
        for (long c0 = 0; c0 < classes; c0 += K) {
            vec acc[R][K];
            memset(acc, 0, sizeof acc);
            for (long d = 0; d < width; d += LANES) {
                vec xs[R];
                for (int r = 0; r < R; r++) xs[r] = *(const vec *)(x[r0 + r] + d);
                for (int c = 0; c < K; c++) {
                    vec ws = *(const vec *)(w + (c0 + c) * width + d);
                    for (int r = 0; r < R; r++) acc[r][c] += xs[r] * ws;
                }
            }
            for (int r = 0; r < R; r++)
                for (int c = 0; c < K; c++) s[(r0 + r) * classes + c0 + c] = total(acc[r][c]);
        }
}

static inline __attribute__((always_inline)) void backward(const float *const *x, const float *g, float *dw, long width, long classes) {
    for (long c0 = 0; c0 < classes; c0 += CLASSES)
        for (long d = 0; d < width; d += 2 * LANES) {
            vec acc[CLASSES][2];
            for (int c = 0; c < CLASSES; c++)
                for (int v = 0; v < 2; v++) acc[c][v] = *(const vec *)(dw + (c0 + c) * width + d + v * LANES);
            for (long r = 0; r < ROWS; r++) {
                vec a = *(const vec *)(x[r] + d), b = *(const vec *)(x[r] + d + LANES);
                for (int c = 0; c < CLASSES; c++) {
                    float p = g[r * classes + c0 + c];
                    acc[c][0] += a * p;
                    acc[c][1] += b * p;
                }
            }
            for (int c = 0; c < CLASSES; c++)
                for (int v = 0; v < 2; v++) *(vec *)(dw + (c0 + c) * width + d + v * LANES) = acc[c][v];
        }
}

/* Scores of a block -> gradient of the mean cross-entropy in them; rows from `here` on become zero. */
static inline __attribute__((always_inline)) void softmax(float *scores, const float *bias, float *dbias, const int64_t *y, long here,
                                                          long classes, long padded, float share) {
    for (long r = 0; r < ROWS; r++) {
        float *s = scores + r * padded, top = -INFINITY, sum = 0;
        if (r >= here) {
            memset(s, 0, sizeof(float) * padded);
            continue;
        }
        for (long c = 0; c < classes; c++) {
            s[c] += bias[c];
            if (s[c] > top) top = s[c];
        }
        for (long c = 0; c < classes; c++) sum += s[c] = expf(s[c] - top);
        for (long c = 0; c < classes; c++) {
            s[c] = (s[c] / sum - (float)(c == y[r])) * share;
            dbias[c] += s[c];
        }
        for (long c = classes; c < padded; c++) s[c] = 0;
    }
}

/* SGD with momentum; weight decay is for weights, not for biases. */
static inline __attribute__((always_inline)) void update(float *w, float *bias, float *velocity, float *bias_velocity,
                                                         const float *dw, const float *dbias, long classes, long width,
                                                         float lr, float momentum, float decay) {
    for (long i = 0; i < classes * width; i++) {
        velocity[i] = momentum * velocity[i] + (dw[i] + decay * w[i]);
        w[i] -= lr * velocity[i];
    }
    for (long c = 0; c < classes; c++) {
        bias_velocity[c] = momentum * bias_velocity[c] + dbias[c];
        bias[c] -= lr * bias_velocity[c];
    }
}

/* One step. x: n pointers to rows of `width` floats (a multiple of 32). w, velocity, dw: padded x width, padded a
   multiple of 12, rows from `classes` on are zero. scores: room for 32 x padded. */
CLONES
void driftline_step(const float *const *x, const int64_t *y, long n, long width, long classes, long padded, float *w,
                    float *bias, float *velocity, float *bias_velocity, float *dw, float *dbias, float *scores,
                    float lr, float momentum, float decay) {
    memset(dw, 0, sizeof(float) * padded * width);
    memset(dbias, 0, sizeof(float) * classes);
    const float share = 1.0f / (float)n;
    for (long start = 0; start < n; start += ROWS) {
        const float *rows[ROWS];
        long here = n - start < ROWS ? n - start : ROWS;
        for (long r = 0; r < ROWS; r++) rows[r] = x[start + (r < here ? r : 0)];
        forward(rows, w, scores, width, padded);
        softmax(scores, bias, dbias, y + start, here, classes, padded, share);
        backward(rows, scores, dw, width, padded);
    }
    update(w, bias, velocity, bias_velocity, dw, dbias, classes, width, lr, momentum, decay);
}

#if defined(__x86_64__) && defined(__GNUC__) && (__GNUC__ >= 10 || defined(__clang__))
#include <immintrin.h>
#define HALF __attribute__((target("avx512f,avx512bw,avx512bf16")))

int driftline_has_half(void) { return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw"); }

/* Nearest bfloat16, ties to even; what is given is finite or the run is lost anyway. */
static inline uint32_t half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* Products in bfloat16, sums and weights in float32: x holds pointers to rows of bfloat16, w_half is room for padded x
   width of them. The gradient pairs two rows; unpacking leaves its columns in the order 0-3 8-11 16-19 24-27 | 4-7 12-15
   20-23 28-31 of every 32, which is undone when it is added to the velocity. */
HALF void driftline_step_half(const uint16_t *const *x, const int64_t *y, long n, long width, long classes, long padded,
                              float *w, float *bias, float *velocity, float *bias_velocity, float *dw, float *dbias,
                              float *scores, uint16_t *w_half, float lr, float momentum, float decay) {
    memset(dw, 0, sizeof(float) * padded * width);
    memset(dbias, 0, sizeof(float) * classes);
    const float share = 1.0f / (float)n;
    for (long i = 0; i < padded * width; i += LANES)
        _mm256_storeu_si256((__m256i *)(w_half + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(w + i)));
    for (long start = 0; start < n; start += ROWS) {
        const uint16_t *rows[ROWS];
        long here = n - start < ROWS ? n - start : ROWS;
        for (long r = 0; r < ROWS; r++) rows[r] = x[start + (r < here ? r : 0)];
        for (long r0 = 0; r0 < ROWS; r0 += R)
            for (long c0 = 0; c0 < padded; c0 += K) {
                __m512 acc[R][K];
                for (int r = 0; r < R; r++)
                    for (int c = 0; c < K; c++) acc[r][c] = _mm512_setzero_ps();
                for (long d = 0; d < width; d += 2 * LANES) {
                    __m512bh xs[R];
                    for (int r = 0; r < R; r++) xs[r] = (__m512bh)_mm512_loadu_si512(rows[r0 + r] + d);
                    for (int c = 0; c < K; c++) {
                        __m512bh ws = (__m512bh)_mm512_loadu_si512(w_half + (c0 + c) * width + d);
                        for (int r = 0; r < R; r++) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], xs[r], ws);
                    }
                }
                for (int r = 0; r < R; r++)
                    for (int c = 0; c < K; c++) scores[(r0 + r) * padded + c0 + c] = _mm512_reduce_add_ps(acc[r][c]);
            }
        uint32_t pairs[ROWS / 2][CLASSES];
        softmax(scores, bias, dbias, y + start, here, classes, padded, share);
        for (long c0 = 0; c0 < padded; c0 += CLASSES) {
            for (long r = 0; r < ROWS; r += 2)
                for (int c = 0; c < CLASSES; c++) {
                    uint32_t low = half_of(scores[r * padded + c0 + c]), high = half_of(scores[(r + 1) * padded + c0 + c]);
                    pairs[r / 2][c] = low | high << 16;
                }
            for (long d = 0; d < width; d += 2 * LANES) {
                __m512 acc[CLASSES][2];
                for (int c = 0; c < CLASSES; c++)
                    for (int v = 0; v < 2; v++) acc[c][v] = _mm512_loadu_ps(dw + (c0 + c) * width + d + v * LANES);
                for (long r = 0; r < ROWS; r += 2) {
                    __m512i a = _mm512_loadu_si512(rows[r] + d), b = _mm512_loadu_si512(rows[r + 1] + d);
                    __m512bh low = (__m512bh)_mm512_unpacklo_epi16(a, b), high = (__m512bh)_mm512_unpackhi_epi16(a, b);
                    for (int c = 0; c < CLASSES; c++) {
                        __m512bh p = (__m512bh)_mm512_set1_epi32((int)pairs[r / 2][c]);
                        acc[c][0] = _mm512_dpbf16_ps(acc[c][0], low, p);
                        acc[c][1] = _mm512_dpbf16_ps(acc[c][1], high, p);
                    }
                }
                for (int c = 0; c < CLASSES; c++)
                    for (int v = 0; v < 2; v++) _mm512_storeu_ps(dw + (c0 + c) * width + d + v * LANES, acc[c][v]);
            }
        }
    }
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    for (long i = 0; i < classes * width; i += 2 * LANES) {
        __m512 a = _mm512_loadu_ps(dw + i), b = _mm512_loadu_ps(dw + i + LANES);
        _mm512_storeu_ps(dw + i, _mm512_permutex2var_ps(a, first, b));
        _mm512_storeu_ps(dw + i + LANES, _mm512_permutex2var_ps(a, second, b));
    }
    update(w, bias, velocity, bias_velocity, dw, dbias, classes, width, lr, momentum, decay);
}
#else
int driftline_has_half(void) { return 0; }
#endif
