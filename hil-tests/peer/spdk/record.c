#include "record.h"
#include "reference.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { CREATE_MKEY = 0x200, CREATE_PSV = 0x600, CREATE_GENERAL_OBJECT = 0xa00, DEK = 0x0c };

static FILE *g_file;

void
record_open(const char *path, const char *engine, const char *commit)
{
    g_file = fopen(path, "w");
    if (!g_file) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    fprintf(g_file, "{\"device\":{\"engine\":\"%s\",\"spdk\":\"%s\"}}\n", engine, commit);
}

bool
record_is_on(void)
{
    return g_file;
}

void
record_close(void)
{
    if (g_file && (ferror(g_file) || fclose(g_file))) {
        perror("the recording");
        exit(EXIT_FAILURE);
    }
    g_file = NULL;
}

static void
hex(const uint8_t *bytes, size_t length)
{
    size_t i;

    for (i = 0; i < length; i++) {
        fprintf(g_file, "%02x", bytes[i]);
    }
}

static uint32_t
word(const void *bytes, size_t at)
{
    uint32_t value;

    __builtin_memcpy(&value, (const uint8_t *)bytes + at, sizeof(value));
    return be32toh(value);
}

void
record_region(const struct ibv_mr *region)
{
    if (g_file) {
        fprintf(g_file, "{\"region\":{\"key\":%u,\"address\":%zu,\"length\":%zu}}\n", region->lkey,
                (size_t)region->addr, region->length);
    }
}

void
record_fill(const void *address, size_t length, uint64_t seed)
{
    if (g_file) {
        fprintf(g_file, "{\"fill\":{\"address\":%zu,\"length\":%zu,\"seed\":%" PRIu64 "}}\n", (size_t)address, length,
                seed);
    }
}

void
record_write(const void *address, const void *bytes, size_t length)
{
    if (g_file) {
        fprintf(g_file, "{\"write\":{\"address\":%zu,\"bytes\":\"", (size_t)address);
        hex(bytes, length);
        fprintf(g_file, "\"}}\n");
    }
}

void
record_result(const void *address, const void *expected, size_t length)
{
    if (g_file) {
        fprintf(g_file, "{\"result\":{\"address\":%zu,\"length\":%zu,\"hash\":\"%016" PRIx64 "\"}}\n", (size_t)address, length,
                reference_hash(expected, length));
    }
}

void
record_qp(const struct ibv_qp *qp, const struct mlx5dv_qp *queue)
{
    if (g_file) {
        fprintf(g_file, "{\"qp\":{\"number\":%u,\"blocks\":%u}}\n", qp->qp_num, queue->sq.wqe_cnt);
    }
}

void
record_qp_error(const struct ibv_qp *qp)
{
    if (g_file) {
        fprintf(g_file, "{\"qp_error\":%u}\n", qp->qp_num);
    }
}

void
record_ring(const struct ibv_qp *qp, const struct mlx5dv_qp *queue, uint16_t from, uint16_t to)
{
    const uint8_t *ring = queue->sq.buf;

    if (!g_file) {
        return;
    }
    fprintf(g_file, "{\"ring\":{\"qp\":%u,\"from\":%u,\"blocks\":\"", qp->qp_num, from);
    for (; from != to; from++) {
        hex(ring + 64 * (from & (queue->sq.wqe_cnt - 1)), 64);
    }
    fprintf(g_file, "\"}}\n");
}

void
record_completion(const struct mlx5_cqe64 *cqe)
{
    const struct mlx5_err_cqe *error = (const void *)cqe;
    uint8_t opcode = cqe->op_own >> 4;
    uint8_t syndrome = opcode == MLX5_CQE_REQ_ERR ? error->syndrome : 0;

    if (g_file) {
        fprintf(g_file, "{\"completion\":{\"opcode\":%u,\"counter\":%u,\"syndrome\":%u}}\n", opcode,
                be16toh(cqe->wqe_counter), syndrome);
    }
}

/* lib/mlx5 creates every object by this call. The linker redirects the call to this function. */
struct mlx5dv_devx_obj *__real_mlx5dv_devx_obj_create(struct ibv_context *context, const void *in, size_t in_length,
                                                      void *out, size_t out_length);
struct mlx5dv_devx_obj *__wrap_mlx5dv_devx_obj_create(struct ibv_context *context, const void *in, size_t in_length,
                                                      void *out, size_t out_length);

struct mlx5dv_devx_obj *
__wrap_mlx5dv_devx_obj_create(struct ibv_context *context, const void *in, size_t in_length, void *out,
                              size_t out_length)
{
    struct mlx5dv_devx_obj *object = __real_mlx5dv_devx_obj_create(context, in, in_length, out, out_length);
    uint32_t number = word(out, 8);

    if (!g_file || !object) {
        return object;
    }
    switch (word(in, 0) >> 16) {
    case CREATE_MKEY:
        fprintf(g_file, "{\"mkey\":{\"number\":%u,\"context\":\"", number & 0xffffff);
        hex((const uint8_t *)in + 0x10, 64);
        fprintf(g_file, "\"}}\n");
        break;
    case CREATE_PSV:
        fprintf(g_file, "{\"psv\":%u}\n", word(out, 0x10) & 0xffffff);
        break;
    case CREATE_GENERAL_OBJECT:
        if ((word(in, 4) & 0xffff) == DEK) {
            fprintf(g_file, "{\"dek\":{\"number\":%u,\"object\":\"", number);
            hex((const uint8_t *)in + 0x10, 256);
            fprintf(g_file, "\"}}\n");
        }
        break;
    default:
        break;
    }
    return object;
}
