/* Batch normalisation of images whose channels lie together (rows x channels), with the ReLU and the 3 x 3 pooling that
   follow it, forwards and backwards, in float32 or bfloat16: each tensor is read once per pass, and intermediate results are
   never written. Sums run in float32 over 64 rows and in float64 over those. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 64
#define MOST 4096 /* channels */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE float get(const void *x, long i, int half) {
    if (!half) return ((const float *)x)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

INLINE void put(void *x, long i, float value, int half) {
    if (!half) {
        ((float *)x)[i] = value;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, 4);
    ((uint16_t *)x)[i] = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* sum[c], square[c] over rows of x and x^2. */
INLINE void moments(const void *x, long rows, long channels, double *sum, double *square, int half) {
    float s[MOST], q[MOST];
    memset(sum, 0, sizeof(double) * channels);
    memset(square, 0, sizeof(double) * channels);
    for (long low = 0; low < rows; low += BLOCK) {
        long high = low + BLOCK < rows ? low + BLOCK : rows;
        memset(s, 0, sizeof(float) * channels);
        memset(q, 0, sizeof(float) * channels);
        for (long r = low; r < high; r++)
            for (long c = 0; c < channels; c++) {
                float value = get(x, r * channels + c, half);
                s[c] += value;
                q[c] += value * value;
            }
        for (long c = 0; c < channels; c++) {
            sum[c] += s[c];
            square[c] += q[c];
        }
    }
}

/* out = a x + b, or its positive part. */
INLINE void scaled(const void *x, long rows, long channels, const float *a, const float *b, int relu, void *out, int half) {
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < channels; c++) {
            float value = a[c] * get(x, r * channels + c, half) + b[c];
            put(out, r * channels + c, relu && value <= 0 ? 0 : value, half);
        }
}

/* sum[c] of g and product[c] of g x, over rows where a x + b is above zero if relu. */
INLINE void sums_back(const void *x, const void *g, long rows, long channels, const float *a, const float *b, int relu,
                      double *sum, double *product, int half) {
    float s[MOST], p[MOST];
    memset(sum, 0, sizeof(double) * channels);
    memset(product, 0, sizeof(double) * channels);
    for (long low = 0; low < rows; low += BLOCK) {
        long high = low + BLOCK < rows ? low + BLOCK : rows;
        memset(s, 0, sizeof(float) * channels);
        memset(p, 0, sizeof(float) * channels);
        for (long r = low; r < high; r++)
            for (long c = 0; c < channels; c++) {
                float value = get(x, r * channels + c, half), slope = get(g, r * channels + c, half);
                if (relu && a[c] * value + b[c] <= 0) slope = 0;
                s[c] += slope;
                p[c] += slope * value;
            }
        for (long c = 0; c < channels; c++) {
            sum[c] += s[c];
            product[c] += p[c];
        }
    }
}

/* out = a g + k x + m, where g counts as zero below the ReLU. */
INLINE void scaled_back(const void *x, const void *g, long rows, long channels, const float *a, const float *b,
                        const float *k, const float *m, int relu, void *out, int half) {
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < channels; c++) {
            float value = get(x, r * channels + c, half), slope = get(g, r * channels + c, half);
            if (relu && a[c] * value + b[c] <= 0) slope = 0;
            put(out, r * channels + c, a[c] * slope + k[c] * value + m[c], half);
        }
}

/* Maximum of 3 x 3 with stride 2 and padding 1 of relu(a x + b); place: which of the nine, 9 for none. */
INLINE void pooled(const void *x, long n, long height, long width, long channels, const float *a, const float *b, void *out,
                   uint8_t *place, int half) {
    long tall = (height - 1) / 2 + 1, wide = (width - 1) / 2 + 1;
    float top[MOST];
    for (long i = 0; i < n * tall * wide; i++) {
        long image = i / (tall * wide), row = i / wide % tall * 2 - 1, column = i % wide * 2 - 1;
        uint8_t *at = place + i * channels;
        memset(top, 0, sizeof(float) * channels);
        memset(at, 9, channels);
        for (long k = 0; k < 9; k++) {
            long h = row + k / 3, w = column + k % 3;
            if (h < 0 || h >= height || w < 0 || w >= width) continue;
            long from = ((image * height + h) * width + w) * channels;
            for (long c = 0; c < channels; c++) {
                float value = a[c] * get(x, from + c, half) + b[c];
                int more = value > top[c];
                top[c] = more ? value : top[c];
                at[c] = more ? (uint8_t)k : at[c];
            }
        }
        for (long c = 0; c < channels; c++) put(out, i * channels + c, top[c], half);
    }
}

/* g (at the pools) -> slope (height x width x channels of one image). */
INLINE void spread(const void *g, const uint8_t *place, long image, long height, long width, long channels, float *slope,
                   int half) {
    long tall = (height - 1) / 2 + 1, wide = (width - 1) / 2 + 1;
    memset(slope, 0, sizeof(float) * height * width * channels);
    for (long i = 0; i < tall * wide; i++) {
        long row = i / wide * 2 - 1, column = i % wide * 2 - 1, from = (image * tall * wide + i) * channels;
        for (long k = 0; k < 9; k++) {
            long h = row + k / 3, w = column + k % 3;
            if (h < 0 || h >= height || w < 0 || w >= width) continue;
            float *to = slope + (h * width + w) * channels;
            for (long c = 0; c < channels; c++) to[c] += place[from + c] == k ? get(g, from + c, half) : 0;
        }
    }
}

INLINE void pooled_sums(const void *x, const void *g, const uint8_t *place, long n, long height, long width, long channels,
                        double *sum, double *product, float *slope, int half) {
    long rows = height * width;
    float s[MOST], p[MOST];
    memset(sum, 0, sizeof(double) * channels);
    memset(product, 0, sizeof(double) * channels);
    for (long image = 0; image < n; image++) {
        spread(g, place, image, height, width, channels, slope, half);
        memset(s, 0, sizeof(float) * channels);
        memset(p, 0, sizeof(float) * channels);
        for (long r = 0; r < rows; r++)
            for (long c = 0; c < channels; c++) {
                s[c] += slope[r * channels + c];
                p[c] += slope[r * channels + c] * get(x, (image * rows + r) * channels + c, half);
            }
        for (long c = 0; c < channels; c++) {
            sum[c] += s[c];
            product[c] += p[c];
        }
    }
}

INLINE void pooled_back(const void *x, const void *g, const uint8_t *place, long n, long height, long width, long channels,
                        const float *a, const float *k, const float *m, float *slope, void *out, int half) {
    long rows = height * width;
    for (long image = 0; image < n; image++) {
        spread(g, place, image, height, width, channels, slope, half);
        for (long r = 0; r < rows; r++)
            for (long c = 0; c < channels; c++) {
                long at = (image * rows + r) * channels + c;
                put(out, at, a[c] * slope[r * channels + c] + k[c] * get(x, at, half) + m[c], half);
            }
    }
}

/* Each for both types: the compiler makes two loops of one source. */
#define BOTH(call) if (half) { int half = 1; call; } else { int half = 0; call; }

CLONES void driftline_moments(const void *x, long rows, long channels, double *sum, double *square, int half) {
    BOTH(moments(x, rows, channels, sum, square, half))
}

CLONES void driftline_scaled(const void *x, long rows, long channels, const float *a, const float *b, int relu, void *out,
                             int half) {
    BOTH(scaled(x, rows, channels, a, b, relu, out, half))
}

CLONES void driftline_sums_back(const void *x, const void *g, long rows, long channels, const float *a, const float *b,
                                int relu, double *sum, double *product, int half) {
    BOTH(sums_back(x, g, rows, channels, a, b, relu, sum, product, half))
}

CLONES void driftline_scaled_back(const void *x, const void *g, long rows, long channels, const float *a, const float *b,
                                  const float *k, const float *m, int relu, void *out, int half) {
    BOTH(scaled_back(x, g, rows, channels, a, b, k, m, relu, out, half))
}

CLONES void driftline_pooled(const void *x, long n, long height, long width, long channels, const float *a, const float *b,
                             void *out, uint8_t *place, int half) {
    BOTH(pooled(x, n, height, width, channels, a, b, out, place, half))
}

CLONES void driftline_pooled_sums(const void *x, const void *g, const uint8_t *place, long n, long height, long width,
                                  long channels, double *sum, double *product, float *slope, int half) {
    BOTH(pooled_sums(x, g, place, n, height, width, channels, sum, product, slope, half))
}

CLONES void driftline_pooled_back(const void *x, const void *g, const uint8_t *place, long n, long height, long width,
                                  long channels, const float *a, const float *k, const float *m, float *slope, void *out,
                                  int half) {
    BOTH(pooled_back(x, g, place, n, height, width, channels, a, k, m, slope, out, half))
}
