/* Five steps of the kernel on numbers from standard input: rows, width, classes, the rows, their labels. Prints the kind of
   registers, then weights and biases. Argument: another kind than the best. For test_kernel_elsewhere.py. */
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
#include <string.h>
int driftline_best_kind(void);
void driftline_steps_float(int, const float *const *, const int64_t *, const int64_t *, const float *, long, long, long, long, float *, float *, float *, float *, float *, float *, float *, float, float);
int main(int argc, char **argv) {
    long n, width, classes;
    if (scanf("%ld %ld %ld", &n, &width, &classes) != 3) return 1;
    long padded = (classes + 11) / 12 * 12, stride = width + 32; /* as in kernel.c */
    float *x = malloc(4 * n * width), *w = calloc(padded * stride, 4), *v = calloc(padded * stride, 4), *dw = calloc(padded * stride, 4);
    float *b = calloc(classes, 4), *bv = calloc(classes, 4), *db = calloc(classes, 4), *s = malloc(4 * 32 * padded);
    int64_t *y = malloc(8 * n); const float **rows = malloc(8 * n);
    for (long i = 0; i < n * width; i++) if (scanf("%f", x + i) != 1) return 1;
    for (long i = 0; i < n; i++) {
        if (scanf("%ld", &y[i]) != 1) return 1;
        rows[i] = x + i * width;
    }
    int kind = argc > 1 ? atoi(argv[1]) : driftline_best_kind();
    const int64_t size = n;
    const float rate = 0.5f;
    for (int t = 0; t < 5; t++) driftline_steps_float(kind, rows, y, &size, &rate, 1, width, classes, padded, w, b, v, bv, dw, db, s, 0.9f, 0.01f);
    printf("%d", driftline_best_kind());
    for (long i = 0; i < classes * width; i++) printf(" %.7g", w[i / width * stride + i % width]);
    for (long i = 0; i < classes; i++) printf(" %.7g", b[i]);
    return 0;
}
