/* Softmax regression by mini-batch SGD with momentum, one batch per call: gather, forward, softmax, gradient and update
   without a copy of the batch. 32 rows at a time stay in the second-level cache between the two products, so that X is
   read from memory once, and the next 32 are fetched meanwhile. The products are compiled once for each kind of register
   (tiles.h): a tile that is larger than the registers costs more than the arithmetic. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ROWS 32    /* a block: 32 x 2,048 floats are 256 KiB */
/* From one row of weights to the next: whole pages apart, all rows of a column would share a few places of the first cache. */
#define STRIDE(width) ((width) + 32)
#define INLINE static inline __attribute__((always_inline))

typedef int32_t word_at __attribute__((aligned(1), may_alias));

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

/* exp(x) for x <= 0, at least exp(-87), to 2 units in the last place: the C library's, called for each number, took most of the
   time of narrow layers. x = n log 2 + r; adding 1.5 * 2^23 rounds to n in the lowest bits. */
INLINE float exp_of(float x) {
    const float round = 12582912.0f;
    x = x < -87.0f ? -87.0f : x;
    float moved = x * 1.44269504f + round, n = moved - round;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &moved, 4);
    bits = (bits << 23) + 0x3f800000u;
    float power;
    memcpy(&power, &bits, 4);
    return p * power;
}

/* Scores of a block -> gradient of the mean cross-entropy in them; rows from `here` on and classes from `classes` on become
   zero. scores: padded x ROWS, so that a register holds one class of many rows and is never summed. */
INLINE void softmax(float *scores, const float *bias, float *dbias, const int64_t *y, long here, long classes, long padded,
                    float share) {
    float top[ROWS], sum[ROWS];
    for (long r = 0; r < ROWS; r++) top[r] = -INFINITY, sum[r] = 0;
    for (long c = 0; c < classes; c++) {
        float *restrict s = scores + c * ROWS;
        for (long r = here; r < ROWS; r++) s[r] = 0;
        for (long r = 0; r < ROWS; r++) {
            s[r] += bias[c];
            top[r] = s[r] > top[r] ? s[r] : top[r];
        }
    }
    for (long c = 0; c < classes; c++) {
        float *restrict s = scores + c * ROWS;
        for (long r = 0; r < ROWS; r++) sum[r] += s[r] = exp_of(s[r] - top[r]);
    }
    for (long r = 0; r < ROWS; r++) sum[r] = r < here ? share / sum[r] : 0;
    for (long c = 0; c < classes; c++) {
        float *restrict s = scores + c * ROWS;
        for (long r = 0; r < ROWS; r++) s[r] *= sum[r];
    }
    for (long r = 0; r < here; r++) scores[y[r] * ROWS + r] -= share;
    for (long c = 0; c < classes; c++) {
        float total = 0;
#pragma omp simd reduction(+ : total)
        for (long r = 0; r < ROWS; r++) total += scores[c * ROWS + r];
        dbias[c] += total;
    }
    memset(scores + classes * ROWS, 0, sizeof(float) * (padded - classes) * ROWS);
}

/* SGD with momentum, in one pass. */
INLINE void descend(float *w, float *velocity, const float *dw, long n, float lr,
                                                          float momentum, float decay) {
    for (long i = 0; i < n; i++) {
        velocity[i] = momentum * velocity[i] + (dw[i] + decay * w[i]);
        w[i] -= lr * velocity[i];
    }
}

CLONES
void driftline_descend(float *w, float *velocity, const float *dw, long n, float lr, float momentum, float decay) {
    descend(w, velocity, dw, n, lr, momentum, decay);
}

/* The same for a gradient in bfloat16; also writes the weights rounded to bfloat16; velocity may be NULL. */
CLONES
void driftline_descend_rounded(float *restrict w, float *restrict velocity, const uint16_t *restrict dw,
                               uint16_t *restrict rounded, long n, float lr, float momentum, float decay) {
    for (long i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)dw[i] << 16;
        float g;
        memcpy(&g, &bits, 4);
        g += decay * w[i];
        if (velocity) g = velocity[i] = momentum * velocity[i] + g;
        float now = w[i] - lr * g;
        w[i] = now;
        memcpy(&bits, &now, 4);
        rounded[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

/* Images, rotated about their centre, shifted and flipped (nearest pixel, black outside), as normalised planes.
   x: n images of height x width x 3 bytes. draws: cosine, sine, rows down, columns right, flip of each. scale, shift: of
   the three channels, factor of a byte and summand. out: n x 3 x height x width. room: 3 x width. */
CLONES
void driftline_show(const uint8_t *x, const float *draws, long n, long height, long width, const float *scale,
                    const float *shift, float *out, int32_t *room) {
    const float middle_row = (height - 1) / 2.0f, middle = (width - 1) / 2.0f;
    const long plane = height * width;
    int32_t *restrict at = room, *restrict keep = room + width, *restrict pixel = room + 2 * width;
    for (long i = 0; i < n; i++) {
        const float cosine = draws[5 * i], sine = draws[5 * i + 1];
        const float down = draws[5 * i + 2] + middle_row, right = draws[5 * i + 3] + middle;
        const int flip = draws[5 * i + 4] != 0;
        const uint8_t *image = x + 3 * plane * i;
        for (long r = 0; r < height; r++) {
            const float v = r - middle_row, row0 = cosine * v + down, column0 = right - sine * v;
            for (int32_t c = 0; c < (int32_t)width; c++) {
                float u = (float)c - middle;
                int32_t row = (int32_t)nearbyintf(sine * u + row0), column = (int32_t)nearbyintf(cosine * u + column0);
                int32_t inside = (row >= 0) & (row < (int32_t)height) & (column >= 0) & (column < (int32_t)width);
                column = flip ? (int32_t)width - 1 - column : column;
                at[c] = inside * 3 * (row * (int32_t)width + column);
                keep[c] = -inside;
            }
            if (i + 1 < n) /* four bytes at once; behind the last image there may be no fourth */
                for (long c = 0; c < width; c++) pixel[c] = *(const word_at *)(image + at[c]);
            else
                for (long c = 0; c < width; c++)
                    pixel[c] = image[at[c]] | image[at[c] + 1] << 8 | image[at[c] + 2] << 16;
            float *restrict red = out + 3 * plane * i + r * width, *restrict green = red + plane, *restrict blue = green + plane;
            for (long c = 0; c < width; c++) {
                int32_t p = pixel[c] & keep[c];
                red[c] = (float)(p & 255) * scale[0] + shift[0];
                green[c] = (float)(p >> 8 & 255) * scale[1] + shift[1];
                blue[c] = (float)(p >> 16 & 255) * scale[2] + shift[2];
            }
        }
    }
}

#define LANES 4
#define TILE_ROWS 4
#define TILE_CLASSES 3
#define TILE_SUMS 6
#define KIND plain
#define TARGET
#include "tiles.h"

#ifdef __x86_64__
#define LANES 8 /* 16 registers: 12 sums */
#define TILE_ROWS 4
#define TILE_CLASSES 3
#define TILE_SUMS 6
#define KIND avx2
#define TARGET __attribute__((target("avx2,fma")))
#include "tiles.h"

#define LANES 16 /* 32 registers: 24 sums */
#define TILE_ROWS 4
#define TILE_CLASSES 6
#define TILE_SUMS 12
#define KIND avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#include "tiles.h"
#endif

/* kind: at most the best. x: pointers to n rows of `width` floats (a multiple of 32), and to those that follow in training,
   `known` in all. w, dw: padded x STRIDE(width), padded a multiple of 12, rows from `classes` on are zero. scores: room for
   padded x 32. */
void driftline_gradient_of(int kind, const float *const *x, const int64_t *y, long n, long known, long width, long classes,
                           long padded, const float *w, const float *bias, float *dw, float *dbias, float *scores) {
#ifdef __x86_64__
    if (kind >= 2) return gradient_avx512(x, y, n, known, width, classes, padded, w, bias, dw, dbias, scores);
    if (kind == 1) return gradient_avx2(x, y, n, known, width, classes, padded, w, bias, dw, dbias, scores);
#endif
    gradient_plain(x, y, n, known, width, classes, padded, w, bias, dw, dbias, scores);
}

/* Steps one after the other, of sizes[i] rows at the rate rates[i]; velocity as w. */
void driftline_steps_float(int kind, const float *const *x, const int64_t *y, const int64_t *sizes, const float *rates, long steps,
                        long width, long classes, long padded, float *w, float *bias, float *velocity,
                        float *bias_velocity, float *dw, float *dbias, float *scores, float momentum, float decay) {
    long known = 0;
    for (long i = 0; i < steps; i++) known += sizes[i];
    for (long i = 0; i < steps; x += sizes[i], y += sizes[i], known -= sizes[i], i++) {
        driftline_gradient_of(kind, x, y, sizes[i], known, width, classes, padded, w, bias, dw, dbias, scores);
        driftline_descend(w, velocity, dw, classes * STRIDE(width), rates[i], momentum, decay);
        driftline_descend(bias, bias_velocity, dbias, classes, rates[i], momentum, 0);
    }
}

#if defined(__x86_64__) && defined(__GNUC__) && (__GNUC__ >= 10 || defined(__clang__))
#include <immintrin.h>
#define LANES 16
#define R 4 /* rows and classes of a tile of the forward product: 24 sums */
#define K 6
#define CLASSES 12 /* classes of a tile of the gradient, two vectors wide: 24 sums */
#define HALF __attribute__((target("avx512f,avx512bw,avx512bf16")))

/* Nearest bfloat16, ties to even; values are finite, or the run has failed anyway. */
static inline uint32_t half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* Stores 32 columns in their order. Unpacking two rows of bfloat16 leaves the columns 0-3 8-11 16-19 24-27 in a, the others
   in b. */
HALF static inline void in_order(__m512 a, __m512 b, float *to) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    _mm512_storeu_ps(to, _mm512_permutex2var_ps(a, first, b));
    _mm512_storeu_ps(to + LANES, _mm512_permutex2var_ps(a, second, b));
}

/* Products in bfloat16, sums and weights in float32: x holds pointers to rows of bfloat16, w_half is space for padded x
   STRIDE(width) of them. The gradient pairs two rows. */
HALF static void gradient_half(const uint16_t *const *x, const int64_t *y, long n, long known, long width, long classes,
                               long padded, const float *w, const float *bias, float *dw, float *dbias, float *scores,
                               uint16_t *w_half) {
    memset(dw, 0, sizeof(float) * padded * STRIDE(width));
    memset(dbias, 0, sizeof(float) * classes);
    const float share = 1.0f / (float)n;
    for (long i = 0; i < padded * STRIDE(width); i += LANES)
        _mm256_storeu_si256((__m256i *)(w_half + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(w + i)));
    for (long start = 0; start < n; start += ROWS) {
        const uint16_t *rows[ROWS], *next[ROWS];
        long here = n - start < ROWS ? n - start : ROWS;
        for (long r = 0; r < ROWS; r++) {
            rows[r] = x[start + (r < here ? r : 0)];
            next[r] = x[start + here + r < known ? start + here + r : known - 1];
        }
        for (long r0 = 0; r0 < ROWS; r0 += R)
            for (long c0 = 0; c0 < padded; c0 += K) {
                __m512 acc[R][K];
                for (int r = 0; r < R; r++)
                    for (int c = 0; c < K; c++) acc[r][c] = _mm512_setzero_ps();
                for (long d = 0; d < width; d += 2 * LANES) {
                    __m512bh xs[R];
                    for (int r = 0; r < R; r++) xs[r] = (__m512bh)_mm512_loadu_si512(rows[r0 + r] + d);
                    for (int c = 0; c < K; c++) {
                        __m512bh ws = (__m512bh)_mm512_loadu_si512(w_half + (c0 + c) * STRIDE(width) + d);
                        for (int r = 0; r < R; r++) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], xs[r], ws);
                    }
                }
                for (int r = 0; r < R; r++)
                    for (int c = 0; c < K; c++) scores[(c0 + c) * ROWS + r0 + r] = _mm512_reduce_add_ps(acc[r][c]);
            }
        uint32_t pairs[ROWS / 2][CLASSES];
        softmax(scores, bias, dbias, y + start, here, classes, padded, share);
        for (long c0 = 0; c0 < padded; c0 += CLASSES) {
            for (long r = 0; r < ROWS; r += 2)
                for (int c = 0; c < CLASSES; c++) {
                    const float *g = scores + (c0 + c) * ROWS + r;
                    pairs[r / 2][c] = half_of(g[0]) | half_of(g[1]) << 16;
                }
            for (long d = 0; d < width; d += 2 * LANES) {
                __m512 acc[CLASSES][2];
                for (int c = 0; c < CLASSES; c++)
                    for (int v = 0; v < 2; v++) acc[c][v] = _mm512_loadu_ps(dw + (c0 + c) * STRIDE(width) + d + v * LANES);
                for (long r = 0; r < ROWS; r += 2) {
                    __m512i a = _mm512_loadu_si512(rows[r] + d), b = _mm512_loadu_si512(rows[r + 1] + d);
                    if (!c0) __builtin_prefetch(next[r] + d, 0, 2), __builtin_prefetch(next[r + 1] + d, 0, 2);
                    __m512bh low = (__m512bh)_mm512_unpacklo_epi16(a, b), high = (__m512bh)_mm512_unpackhi_epi16(a, b);
                    for (int c = 0; c < CLASSES; c++) {
                        __m512bh p = (__m512bh)_mm512_set1_epi32((int)pairs[r / 2][c]);
                        acc[c][0] = _mm512_dpbf16_ps(acc[c][0], low, p);
                        acc[c][1] = _mm512_dpbf16_ps(acc[c][1], high, p);
                    }
                }
                for (int c = 0; c < CLASSES; c++)
                    for (int v = 0; v < 2; v++) _mm512_storeu_ps(dw + (c0 + c) * STRIDE(width) + d + v * LANES, acc[c][v]);
            }
        }
    }
    for (long i = 0; i < classes * STRIDE(width); i += 2 * LANES)
        in_order(_mm512_loadu_ps(dw + i), _mm512_loadu_ps(dw + i + LANES), dw + i);
}

#if defined(__linux__) && (__GNUC__ >= 11 || defined(__clang__))
#include "amx.h"
#else
static int has_amx(void) { return 0; }
#define gradient_amx gradient_half
#endif

/* kind: 3, or 4 with classes padded to a multiple of 16 and more room (amx.h). */
void driftline_gradient_half(int kind, const uint16_t *const *x, const int64_t *y, long n, long known, long width,
                             long classes, long padded, const float *w, const float *bias, float *dw, float *dbias,
                             float *scores, uint16_t *room) {
    if (kind == 4) return gradient_amx(x, y, n, known, width, classes, padded, w, bias, dw, dbias, scores, room);
    gradient_half(x, y, n, known, width, classes, padded, w, bias, dw, dbias, scores, room);
}

void driftline_steps_half(int kind, const uint16_t *const *x, const int64_t *y, const int64_t *sizes, const float *rates,
                          long steps, long width, long classes, long padded, float *w, float *bias, float *velocity,
                          float *bias_velocity, float *dw, float *dbias, float *scores, uint16_t *room,
                          float momentum, float decay) {
    long known = 0;
    for (long i = 0; i < steps; i++) known += sizes[i];
    for (long i = 0; i < steps; x += sizes[i], y += sizes[i], known -= sizes[i], i++) {
        driftline_gradient_half(kind, x, y, sizes[i], known, width, classes, padded, w, bias, dw, dbias, scores, room);
        driftline_descend(w, velocity, dw, classes * STRIDE(width), rates[i], momentum, decay);
        driftline_descend(bias, bias_velocity, dbias, classes, rates[i], momentum, 0); /* decay is of weights only */
    }
}
#endif

static int best_kind(void) {
#ifdef __x86_64__
    __builtin_cpu_init();
    int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#ifdef HALF
    if (wide && __builtin_cpu_supports("avx512bf16")) return has_amx() ? 4 : 3;
#endif
    if (wide) return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

/* The best products that this processor has: 0 plain, 1 AVX2, 2 AVX-512, 3 the same and of bfloat16, 4 and these by AMX. */
int driftline_best_kind(void) {
    static int found = -1; /* a virtual machine answers slowly what its processor has */
    return found = found < 0 ? best_kind() : found;
}
