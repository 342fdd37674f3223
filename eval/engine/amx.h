/* The gradient of softmax regression in bfloat16 by AMX: products of tiles, 16 rows of 64 bytes, with sums in float32. Included
   by kernel.c. One product of tiles does the work of 16 registers, so that moving numbers into place takes most of the time:
   32 columns of a block of rows are copied at a time, which stay in the first-level cache, and sums lie tile behind tile. */

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512bf16")))
#define SIDE 16          /* rows of a tile; floats, or pairs of bfloat16, in one of its rows */
#define TILE (SIDE * 32) /* bfloat16 in a tile */

/* Whether the processor has AMX for bfloat16 and the system lets this process use its registers. */
static int has_amx(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1)) return 0;
    return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* registers of tiles */) == 0;
}

/* 16 x 16 words of 4 bytes. Each pass exchanges one bit of a word's row number with the same bit of its column number. */
AMX INLINE void transpose(__m512i v[SIDE]) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#pragma GCC unroll 4
    for (int bit = SIDE / 2; bit; bit /= 2) {
        const __m512i other = _mm512_xor_si512(lane, _mm512_set1_epi32(bit));
        const __mmask16 set = _mm512_test_epi32_mask(lane, _mm512_set1_epi32(bit));
#pragma GCC unroll 16
        for (int i = 0; i < SIDE; i++)
            if (!(i & bit)) {
                __m512i a = v[i], b = v[i + bit];
                v[i] = _mm512_mask_permutexvar_epi32(a, set, other, b);
                v[i + bit] = _mm512_mask_permutexvar_epi32(b, _knot_mask16(set), other, a);
            }
    }
}

/* 32 floats, rounded to bfloat16. */
AMX INLINE __m512i rounded(const float *from) {
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + SIDE), _mm512_loadu_ps(from));
}

/* As gradient_half, for padded a multiple of 16. room: 3 x padded x width + 2 x TILE of bfloat16, at whole lines of the
   cache: weights, 32 columns of a block of x, sums. */
AMX static void gradient_amx(const uint16_t *const *x, const int64_t *y, long n, long known, long width, long classes,
                             long padded, const float *w, const float *bias, float *dw, float *dbias, float *scores,
                             uint16_t *room) {
    const struct {
        uint8_t palette, start, none[14];
        uint16_t bytes[SIDE];
        uint8_t rows[SIDE];
    } shape = {1, 0, {0}, {64, 64, 64, 64, 64}, {SIDE, SIDE, SIDE, SIDE, SIDE}};
    uint16_t *weights = room, *strip = weights + padded * width;
    float *sums = (float *)(strip + 2 * TILE), product[ROWS * SIDE] __attribute__((aligned(64)));
    uint16_t slopes[TILE] __attribute__((aligned(64)));
    const float share = 1.0f / (float)n;
    __m512i v[SIDE];
    _tile_loadconfig(&shape);
    memset(sums, 0, sizeof(float) * padded * width);
    memset(dbias, 0, sizeof(float) * classes);
    for (long c = 0; c < padded; c += SIDE)
        for (long d = 0; d < width; d += 32) { /* a row of the tile: two columns of 16 classes */
            for (int i = 0; i < SIDE; i++) v[i] = rounded(w + (c + i) * STRIDE(width) + d);
            transpose(v);
            for (int i = 0; i < SIDE; i++) _mm512_store_si512(weights + c * width + d * SIDE + i * 32, v[i]);
        }
    for (long start = 0; start < n; start += ROWS) {
        const uint16_t *rows[ROWS], *next[ROWS];
        long here = n - start < ROWS ? n - start : ROWS;
        for (long r = 0; r < ROWS; r++) {
            rows[r] = x[start + (r < here ? r : 0)];
            next[r] = x[start + here + r < known ? start + here + r : known - 1];
        }
        for (long c = 0; c < padded; c += SIDE) {
            _tile_zero(0);
            _tile_zero(1);
            for (long d = 0; d < width; d += 32) {
                for (long r = 0; r < ROWS; r++) _mm512_store_si512(strip + r * 32, _mm512_loadu_si512(rows[r] + d));
                _tile_loadd(2, weights + c * width + d * SIDE, 64);
                _tile_loadd(3, strip, 64);
                _tile_loadd(4, strip + TILE, 64);
                _tile_dpbf16ps(0, 3, 2);
                _tile_dpbf16ps(1, 4, 2);
            }
            _tile_stored(0, product, 64);
            _tile_stored(1, product + SIDE * SIDE, 64);
            for (long r = 0; r < ROWS; r += SIDE) {
                for (int i = 0; i < SIDE; i++) v[i] = _mm512_load_si512(product + (r + i) * SIDE);
                transpose(v);
                for (int i = 0; i < SIDE; i++) _mm512_storeu_si512(scores + (c + i) * ROWS + r, v[i]);
            }
        }
        softmax(scores, bias, dbias, y + start, here, classes, padded, share);
        for (long c = 0; c < padded; c += SIDE) {
            for (int i = 0; i < SIDE; i++) _mm512_store_si512(slopes + i * 32, rounded(scores + (c + i) * ROWS));
            _tile_loadd(0, slopes, 64);
            for (long d = 0; d < width; d += 32) {
                float *to = sums + c * width + d * SIDE;
                for (long r = 0; r < ROWS; r += 2) { /* a row of the tile: two rows of 16 columns */
                    __m512i a = _mm512_loadu_si512(rows[r] + d), b = _mm512_loadu_si512(rows[r + 1] + d);
                    if (!c) __builtin_prefetch(next[r] + d, 0, 2), __builtin_prefetch(next[r + 1] + d, 0, 2);
                    _mm512_store_si512(strip + r * SIDE, _mm512_unpacklo_epi16(a, b));
                    _mm512_store_si512(strip + r * SIDE + TILE, _mm512_unpackhi_epi16(a, b));
                }
                _tile_loadd(1, to, 64);
                _tile_loadd(2, to + SIDE * SIDE, 64);
                _tile_loadd(3, strip, 64);
                _tile_loadd(4, strip + TILE, 64);
                _tile_dpbf16ps(1, 0, 3);
                _tile_dpbf16ps(2, 0, 4);
                _tile_stored(1, to, 64);
                _tile_stored(2, to + SIDE * SIDE, 64);
            }
        }
    }
    _tile_release();
    for (long c = 0; c < classes; c++)
        for (long d = 0; d < width; d += 32) {
            const float *from = sums + c / SIDE * SIDE * width + d * SIDE + c % SIDE * SIDE;
            in_order(_mm512_load_ps(from), _mm512_load_ps(from + SIDE * SIDE), dw + c * STRIDE(width) + d);
        }
}
