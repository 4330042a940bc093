/*
 * Opens a device through libmlx5, creates an mkey with T10-DIF on the wire inside AES-XTS, writes through the mkey to
 * plain memory and compares the result. Then reads the data back with a flipped bit, and prints which block is wrong.
 * protected_write.rs does the same.
 *
 *   cc -std=c11 protected_write.c $(pkg-config --cflags --libs mlx5-mkey) -o protected_write
 *
 * `cargo xtask capi` makes the library, the header and the file for pkg-config. `cargo xtask emulate -- ./protected_write`
 * runs the program on the software device. On a BlueField or any other mlx5 device with plaintext keys it runs
 * unchanged. Argument: the name of the device; the first one by default.
 */

#include <mlx5_mkey.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of data: two blocks. On the wire each block of 512 bytes has 8 bytes of T10-DIF. */
#define DATA 1024
#define WIRE 1040

/* The LBA of the first block: its tweak and its reference tag. */
#define LBA 0x1000

/*
 * The expected bytes at some offsets: the beginning, and the end of each block with its T10-DIF. They were computed
 * with Python; protected_write.rs says how.
 */
static const struct {
    size_t at;
    uint8_t bytes[16];
} CIPHERTEXT[] = {
    {0, {0xee, 0x38, 0x62, 0x8d, 0x24, 0xd5, 0xd1, 0xf7, 0xea, 0x6e, 0xda, 0xda, 0x47, 0x5e, 0x8b, 0x73}},
    {504, {0xcf, 0xc6, 0x9a, 0xe7, 0x6f, 0x26, 0x4d, 0x10, 0xa4, 0x5f, 0xda, 0x3d, 0xd1, 0x5c, 0x1c, 0x01}},
    {1024, {0x2b, 0xa1, 0x49, 0x3d, 0x59, 0xf7, 0x08, 0x8c, 0x89, 0x72, 0x0f, 0x39, 0x4a, 0xc0, 0xc0, 0x25}},
};

/* All objects. NULL means not created. */
struct service {
    mlx5mk_device *device;
    mlx5mk_pd *pd;
    mlx5mk_cq *cq;
    mlx5mk_qp *qp;
    mlx5mk_dek *dek;
    mlx5mk_mr *source, *target;
    mlx5mk_pool *pool;
    mlx5mk_prepared *prepared;
    uint8_t *data, *wire;
    uint32_t source_lkey, target_rkey;
    mlx5mk_error error;
};

/* Opens the device and creates the queues. */
static int open_device(struct service *s, const char *name)
{
    char words[256];
    if (mlx5mk_device_open(name, &s->device, &s->error) < 0)
        return -1;
    mlx5mk_device_describe(s->device, words, sizeof(words));
    printf("device: %s\n", words);

    mlx5mk_qp_spec spec = {.send_blocks = 64, .receive_slots = 16};
    if (mlx5mk_pd_alloc(s->device, &s->pd, &s->error) < 0 ||
        mlx5mk_cq_create(s->device, 128, 0, &s->cq, &s->error) < 0 ||
        mlx5mk_qp_create(s->pd, s->cq, s->cq, &spec, &s->qp, &s->error) < 0)
        return -1;
    /*
     * The queue pair is connected to itself. To connect to a peer, use mlx5mk_qp_address and
     * mlx5mk_qp_connect.
     */
    return mlx5mk_qp_connect_local(s->qp, mlx5mk_qp_number(s->qp), &s->error);
}

/* Registers memory, and loads the key. */
static int make_memory(struct service *s)
{
    uint8_t key[64];
    s->data = calloc(1, DATA);
    s->wire = calloc(1, WIRE);
    if (s->data == NULL || s->wire == NULL)
        return -1;
    for (size_t i = 0; i < DATA; i++)
        s->data[i] = (uint8_t)i;
    uint32_t writable = MLX5MK_LOCAL_WRITE | MLX5MK_REMOTE_WRITE | MLX5MK_REMOTE_READ;
    if (mlx5mk_mr_register(s->pd, s->data, DATA, MLX5MK_LOCAL_WRITE, &s->source, &s->error) < 0 ||
        mlx5mk_mr_register(s->pd, s->wire, WIRE, writable, &s->target, &s->error) < 0)
        return -1;
    s->source_lkey = mlx5mk_mr_lkey(s->source);
    s->target_rkey = mlx5mk_mr_rkey(s->target);

    /* A real program takes keys from a random number generator, or wrapped from a key server. */
    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)(i * 7 + 1);
    mlx5mk_key_spec spec = {.key = key, .bytes = sizeof(key), .opaque = "example"};
    return mlx5mk_dek_create(s->pd, &spec, &s->dek, &s->error);
}

/* Creates mkeys, and prepares the common part of all requests. */
static int prepare(struct service *s)
{
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 4, .flags = MLX5MK_POOL_CRYPTO};
    if (mlx5mk_pool_create(s->pd, s->cq, &spec, &s->pool, &s->error) < 0)
        return -1;
    mlx5mk_config config = {
        .parts = MLX5MK_SET_ACCESS | MLX5MK_SET_SIGNATURE | MLX5MK_SET_CRYPTO,
        .access = MLX5MK_LOCAL_WRITE,
        .wire = {.kind = MLX5MK_T10DIF,
                 .block_size = 512,
                 .seed = MLX5MK_SEED_ZEROS,
                 .guard = MLX5MK_GUARD_CRC,
                 .app_tag = 0xf11e,
                 .flags = MLX5MK_REF_REMAP},
        .crypto = {.dek = s->dek,
                   .direction = MLX5MK_ENCRYPT_ON_TX,
                   .order = MLX5MK_SIGNATURE_BEFORE_CRYPTO,
                   .data_unit = 520},
    };
    return mlx5mk_prepared_create(s->pool, &config, &s->prepared, &s->error);
}

/* Maps the mkey to two pieces of memory, and moves all data through the mkey. One doorbell publishes both requests. */
static int transfer(struct service *s, mlx5mk_mkey mkey, uint32_t operation, uint64_t id)
{
    mlx5mk_range entries[] = {
        {(uintptr_t)s->data, 300, s->source_lkey},
        {(uintptr_t)s->data + 300, DATA - 300, s->source_lkey},
    };
    mlx5mk_range all = {.length = WIRE};
    if (mlx5mk_mkey_key(s->pool, mkey, &all.key, &s->error) < 0)
        return -1;
    mlx5mk_request request = {
        .id = id,
        .operation = operation,
        .flags = MLX5MK_SIGNALED,
        .remote_address = (uintptr_t)s->wire,
        .rkey = s->target_rkey,
        .sges = &all,
        .sge_count = 1,
    };
    /* Tweak and tags depend on the blocks of the I/O: each I/O sets them. */
    if (mlx5mk_prepared_set_tweak(s->prepared, LBA, 0, &s->error) < 0 ||
        mlx5mk_prepared_set_tags(s->prepared, MLX5MK_WIRE, 0xf11e, LBA, &s->error) < 0)
        return -1;
    int posted = mlx5mk_post_configure(s->qp, id, 0, s->pool, mkey, s->prepared, entries, 2, &s->error);
    if (posted == MLX5MK_OK)
        posted = mlx5mk_post(s->qp, &request, &s->error);
    /* The doorbell is rung even if the second request was refused, because the first is posted. */
    mlx5mk_doorbell(s->qp);
    return posted;
}

/* Takes completions up to that of request `id`. Fails after five seconds. */
static int finish(struct service *s, uint64_t id)
{
    for (;;) {
        mlx5mk_completion done[8];
        int count = mlx5mk_cq_wait(s->cq, done, 8, 5000, &s->error);
        if (count < 0)
            return -1;
        if (count == 0) {
            snprintf(s->error.message, sizeof(s->error.message), "no completion within five seconds");
            return -1;
        }
        for (int i = 0; i < count; i++) {
            if (done[i].kind == MLX5MK_SENT && done[i].id == id)
                return 0;
            if (done[i].kind == MLX5MK_SENT)
                continue;
            /* A signature error arrives before the completion of the data. Continue. */
            if (done[i].kind == MLX5MK_BAD_SIGNATURE) {
                char words[128];
                mlx5mk_completion_words(&done[i], words, sizeof(words));
                printf("%s\n", words);
                continue;
            }
            mlx5mk_completion_words(&done[i], s->error.message, sizeof(s->error.message));
            return -1;
        }
    }
}

/* Writes the data to the target, and compares the bytes there with the expected ones. */
static int write_out(struct service *s, mlx5mk_mkey mkey)
{
    if (transfer(s, mkey, MLX5MK_OP_RDMA_WRITE, 2) < 0 || finish(s, 2) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(CIPHERTEXT) / sizeof(CIPHERTEXT[0]); i++) {
        if (memcmp(s->wire + CIPHERTEXT[i].at, CIPHERTEXT[i].bytes, 16) != 0) {
            snprintf(s->error.message, sizeof(s->error.message), "the ciphertext from byte %zu is another",
                     CIPHERTEXT[i].at);
            return -1;
        }
    }
    printf("written: encrypted, each block with its T10-DIF\n");
    return 0;
}

/* Reads back with a flipped bit in the second block: the device decrypts, checks and finds the error. */
static int read_back(struct service *s, mlx5mk_mkey mkey)
{
    mlx5mk_bad_block bad;
    s->wire[WIRE - 100] ^= 1;
    if (transfer(s, mkey, MLX5MK_OP_RDMA_READ, 4) < 0 || finish(s, 4) < 0)
        return -1;
    /* The transfer has completed. The check tells whether all signatures of its data were right. */
    int checked = mlx5mk_mkey_check(s->pool, mkey, &bad, &s->error);
    if (checked == MLX5MK_SIGNATURE && bad.block == 1) {
        printf("read back: %s\n", s->error.message);
        return 0;
    }
    if (checked == MLX5MK_OK)
        snprintf(s->error.message, sizeof(s->error.message), "a flipped bit in block 1, and nothing was found");
    return -1;
}

static int run(struct service *s, const char *name)
{
    mlx5mk_mkey mkey;
    if (open_device(s, name) < 0 || make_memory(s) < 0 || prepare(s) < 0 ||
        mlx5mk_pool_take(s->pool, &mkey, &s->error) < 0)
        return -1;
    int result = write_out(s, mkey);
    if (result == 0)
        result = read_back(s, mkey);
    /* No peer knows the key of this mkey, so that the mkey may go back without an invalidation. */
    if (result == 0)
        result = mlx5mk_pool_put(s->pool, mkey, NULL, &s->error);
    return result;
}

/* Destroys each object before those that it was created from. The functions ignore NULL. */
static int destroy(struct service *s)
{
    mlx5mk_prepared_destroy(s->prepared);
    mlx5mk_qp_destroy(s->qp);
    mlx5mk_pool_destroy(s->pool);
    mlx5mk_dek_destroy(s->dek);
    int target = mlx5mk_mr_deregister(s->target, &s->error);
    int source = mlx5mk_mr_deregister(s->source, &s->error);
    /* Memory that the device may still access stays allocated. */
    if (target == MLX5MK_OK)
        free(s->wire);
    if (source == MLX5MK_OK)
        free(s->data);
    int cq = mlx5mk_cq_destroy(s->cq, &s->error);
    mlx5mk_pd_free(s->pd);
    mlx5mk_device_close(s->device);
    return target < 0 || source < 0 || cq < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    struct service s = {.error = {.code = MLX5MK_OK}};
    int done = run(&s, argc > 1 ? argv[1] : NULL);
    if (done < 0)
        fprintf(stderr, "error: %s\n", s.error.message);
    if (destroy(&s) < 0) {
        fprintf(stderr, "error: %s\n", s.error.message);
        return EXIT_FAILURE;
    }
    return done < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
