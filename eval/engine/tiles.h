/* The two products of softmax regression for one kind of register. Included by kernel.c once for each, with
   KIND (a suffix of names), TARGET (instructions), LANES (floats in a register), TILE_ROWS and TILE_CLASSES (of a tile of the
   scores) and TILE_SUMS (classes of a tile of the gradient, two registers wide). */

#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define NAME(x) JOIN(x, KIND)
#define VEC NAME(vec)

typedef float VEC __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

typedef float NAME(four) __attribute__((vector_size(16), aligned(4), may_alias));

/* The sum of a register: halves are added until four numbers are left. */
TARGET static inline float NAME(total)(VEC v) {
    NAME(four) parts[LANES / 4];
    memcpy(parts, &v, sizeof v);
    for (int half = LANES / 8; half; half /= 2)
        for (int i = 0; i < half; i++) parts[i] += parts[i + half];
    return (parts[0][0] + parts[0][2]) + (parts[0][1] + parts[0][3]);
}

/* s[c][r] = <x[r], w[c]> for the first rows of a block (a whole tile at a time); w is padded with zero rows. */
TARGET static void NAME(forward)(const float *const *x, const float *w, float *s, long width, long classes,
                                 long here) {
    for (long r0 = 0; r0 < here; r0 += TILE_ROWS)
        for (long c0 = 0; c0 < classes; c0 += TILE_CLASSES) {
            VEC sums[TILE_ROWS][TILE_CLASSES];
            for (int r = 0; r < TILE_ROWS; r++)
                for (int c = 0; c < TILE_CLASSES; c++) sums[r][c] = (VEC){0};
            for (long d = 0; d < width; d += LANES) {
                VEC xs[TILE_ROWS];
                for (int r = 0; r < TILE_ROWS; r++) xs[r] = *(const VEC *)(x[r0 + r] + d);
                for (int c = 0; c < TILE_CLASSES; c++) {
                    VEC ws = *(const VEC *)(w + (c0 + c) * STRIDE(width) + d);
                    for (int r = 0; r < TILE_ROWS; r++) sums[r][c] += xs[r] * ws;
                }
            }
            for (int r = 0; r < TILE_ROWS; r++)
                for (int c = 0; c < TILE_CLASSES; c++) s[(c0 + c) * ROWS + r0 + r] = NAME(total)(sums[r][c]);
        }
}

/* dw[c] += sum over them of g[c][r] x[r]. The first pass over x also asks for the same columns of the next block. */
TARGET static void NAME(backward)(const float *const *x, const float *const *next, const float *g, float *dw, long width,
                                  long classes, long here) {
    for (long c0 = 0; c0 < classes; c0 += TILE_SUMS)
        for (long d = 0; d < width; d += 2 * LANES) {
            VEC sums[TILE_SUMS][2];
            for (int c = 0; c < TILE_SUMS; c++)
                for (int v = 0; v < 2; v++) sums[c][v] = *(const VEC *)(dw + (c0 + c) * STRIDE(width) + d + v * LANES);
            for (long r = 0; r < here; r++) {
                VEC a = *(const VEC *)(x[r] + d), b = *(const VEC *)(x[r] + d + LANES);
                if (!c0)
                    for (int line = 0; line < 2 * LANES; line += 16) __builtin_prefetch(next[r] + d + line, 0, 2);
                for (int c = 0; c < TILE_SUMS; c++) {
                    float p = g[(c0 + c) * ROWS + r];
                    sums[c][0] += a * p;
                    sums[c][1] += b * p;
                }
            }
            for (int c = 0; c < TILE_SUMS; c++)
                for (int v = 0; v < 2; v++) *(VEC *)(dw + (c0 + c) * STRIDE(width) + d + v * LANES) = sums[c][v];
        }
}

TARGET static void NAME(gradient)(const float *const *x, const int64_t *y, long n, long known, long width, long classes,
                                  long padded, const float *w, const float *bias, float *dw, float *dbias,
                                  float *scores) {
    memset(dw, 0, sizeof(float) * padded * STRIDE(width));
    memset(dbias, 0, sizeof(float) * classes);
    const float share = 1.0f / (float)n;
    for (long start = 0; start < n; start += ROWS) {
        const float *rows[ROWS], *next[ROWS];
        long here = n - start < ROWS ? n - start : ROWS;
        for (long r = 0; r < ROWS; r++) {
            rows[r] = x[start + (r < here ? r : 0)];
            next[r] = x[start + here + r < known ? start + here + r : known - 1];
        }
        NAME(forward)(rows, w, scores, width, padded, here);
        softmax(scores, bias, dbias, y + start, here, classes, padded, share);
        NAME(backward)(rows, next, scores, dw, width, padded, here);
    }
}

#undef VEC
#undef NAME
#undef JOIN
#undef JOIN2
#undef TILE_CLASSES
#undef TILE_SUMS
#undef TILE_ROWS
#undef LANES
#undef TARGET
#undef KIND
