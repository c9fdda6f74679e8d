/* A stand-in for cuBLAS and NCCL with their public signatures, for tests of OUR side only; see cuda.c. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static float bf16(uint16_t half) { uint32_t word = (uint32_t)half << 16; float value; memcpy(&value, &word, 4); return value; }

int cublasCreate_v2(void **handle) { *handle = malloc(1); return 0; }
int cublasDestroy_v2(void *handle) { free(handle); return 0; }
int cublasGemmEx(void *handle, int transa, int transb, int m, int n, int k, const float *alpha, const uint16_t *a,
                 int a_type, int lda, const uint16_t *b, int b_type, int ldb, const float *beta, float *c, int c_type,
                 int ldc, int compute, int algorithm)
{
    if (!handle || transa != 1 || transb || a_type != 14 || b_type != 14 || c_type || compute != 68 || algorithm != -1)
        return 7;
    for (int column = 0; column < n; column++)
        for (int row = 0; row < m; row++) {
            float sum = 0;
            for (int i = 0; i < k; i++) sum += bf16(a[row * lda + i]) * bf16(b[column * ldb + i]);
            c[column * ldc + row] = *alpha * sum + (*beta == 0 ? 0 : *beta * c[column * ldc + row]);
        }
    return 0;
}

typedef struct { char internal[128]; } unique_id;
typedef struct { int rank; float *to; const float *from; size_t count; } communicator;
static communicator ranks[8];
static int depth, world;

int ncclGetUniqueId(unique_id *id) { memset(id, 0x5a, sizeof *id); return 0; }
int ncclGroupStart(void) { depth++; return 0; }
int ncclCommInitRank(void **comm, int size, unique_id id, int rank)
{
    /* by value, all 128 bytes of it */
    for (int i = 0; i < 128; i++) if (id.internal[i] != 0x5a) return 4;
    if (!depth || size > 8 || rank >= size) return 4;
    world = size;
    ranks[rank] = (communicator){rank, 0, 0, 0};
    *comm = &ranks[rank];
    return 0;
}
int ncclCommDestroy(void *comm) { return comm ? 0 : 4; }
int ncclAllReduce(const float *from, float *to, size_t count, int type, int operation, void *comm, void *stream)
{
    communicator *one = comm;
    if (!depth || type != 7 || operation || !stream) return 4;
    one->from = from; one->to = to; one->count = count;
    return 0;
}
int ncclGroupEnd(void)
{
    depth--;
    for (size_t i = 0; world && ranks[0].to && i < ranks[0].count; i++) {
        float sum = 0;
        for (int rank = 0; rank < world; rank++) sum += ranks[rank].from[i];
        for (int rank = 0; rank < world; rank++) ranks[rank].to[i] = sum;
    }
    if (getenv("FAKE_CUDA") && !strcmp(getenv("FAKE_CUDA"), "flip") && ranks[0].to) ranks[0].to[7] += 1;
    return 0;
}
