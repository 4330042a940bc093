/*
 * Makes the calls that every_call.c leaves out: digests, interleaved layouts, memory of a dma-buf, shared
 * PSVs, stores of mkeys, caches of keys, lists in registered memory, mkeys created with their lists, memory
 * windows, many queue pairs of one completion queue, and events. `cargo xtask capi --test` runs it on the
 * software device, under valgrind.
 */

#define _GNU_SOURCE /* memfd_create */

#include "check.h"

#include <poll.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* The queue pair is connected to itself. Requests move data between the two halves of `memory`. */
#define HALF 2048
static mlx5mk_device *device;
static mlx5mk_pd *pd;
static mlx5mk_cq *cq;
static mlx5mk_qp *qp;
static mlx5mk_mr *mr;
static uint8_t memory[2 * HALF];
static uint8_t *const there = memory + HALF;
static uint32_t lkey, rkey;

/* The header of an NVMe/TCP PDU, and its digest. The values are those of nvme_tcp_digests.rs. */
static const uint8_t HEADER[24] = {7, 7, 24, 28, 0x20, 0x10, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0x10};
static const uint8_t DIGEST[4] = {0xe0, 0x94, 0x04, 0xd8};

static void set_up(void)
{
    uint32_t all = MLX5MK_LOCAL_WRITE | MLX5MK_REMOTE_WRITE | MLX5MK_REMOTE_READ;
    mlx5mk_qp_spec spec = {.send_blocks = 64, .receive_slots = 16, .flags = MLX5MK_QP_BLUE_FLAME};
    DONE(mlx5mk_device_open(NULL, &device, &error));
    DONE(mlx5mk_pd_alloc(device, &pd, &error));
    DONE(mlx5mk_cq_create(device, 256, 0, &cq, &error));
    DONE(mlx5mk_qp_create(pd, cq, cq, &spec, &qp, &error));
    CHECK(mlx5mk_qp_has_blue_flame(qp));
    DONE(mlx5mk_qp_connect_local(qp, mlx5mk_qp_number(qp), &error));
    DONE(mlx5mk_mr_register(pd, memory, sizeof(memory), all, &mr, &error));
    lkey = mlx5mk_mr_lkey(mr), rkey = mlx5mk_mr_rkey(mr);
}

/* Rings the doorbell, and takes completions up to that of request `id`. Returns the number of signature errors. */
static int finish(uint64_t id)
{
    mlx5mk_completion done;
    int wrong = 0;
    mlx5mk_doorbell(qp);
    for (;;) {
        CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1);
        CHECK(done.kind == MLX5MK_SENT || done.kind == MLX5MK_BAD_SIGNATURE);
        wrong += done.kind == MLX5MK_BAD_SIGNATURE;
        if (done.kind == MLX5MK_SENT && done.id == id)
            return wrong;
    }
}

/* Writes all data of an mkey to offset `at` of the second half, or reads the data from there. */
static void move(uint64_t id, uint32_t operation, mlx5mk_pool *pool, mlx5mk_mkey mkey, size_t at, uint32_t bytes)
{
    mlx5mk_range all = {0, bytes, 0};
    DONE(mlx5mk_mkey_key(pool, mkey, &all.key, &error));
    mlx5mk_request request = {.id = id,
                              .operation = operation,
                              .flags = MLX5MK_SIGNALED,
                              .remote_address = (uintptr_t)(there + at),
                              .rkey = rkey,
                              .sges = &all,
                              .sge_count = 1};
    DONE(mlx5mk_post(qp, &request, &error));
}

/* Maps an mkey to `bytes` bytes at offset `at` of the first half. */
static void lay(mlx5mk_pool *pool, mlx5mk_mkey mkey, const mlx5mk_prepared *prepared, size_t at, uint32_t bytes)
{
    mlx5mk_range entry = {(uintptr_t)(memory + at), bytes, lkey};
    DONE(mlx5mk_post_configure(qp, 1, 0, pool, mkey, prepared, &entry, 1, &error));
}

static void a_digest_is_behind_the_data(void)
{
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_bad_block bad;
    mlx5mk_mkey mkey;
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 4};
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS | MLX5MK_SET_DIGEST,
                            .access = MLX5MK_LOCAL_WRITE,
                            .digest = {.domain = MLX5MK_WIRE, .seed = MLX5MK_SEED_ONES}};
    DONE(mlx5mk_pool_create(pd, cq, &spec, &pool, &error));
    REFUSED(MLX5MK_ARGUMENT, "not both",
            (config.parts |= MLX5MK_SET_SIGNATURE, mlx5mk_prepared_create(pool, &config, &prepared, &error)));
    config.parts &= ~(uint32_t)MLX5MK_SET_SIGNATURE;
    static const struct {
        const char *words;
        size_t at;
        uint32_t value;
    } ODD[] = {{"domain", offsetof(mlx5mk_config, digest.domain), 2},
               {"seed", offsetof(mlx5mk_config, digest.seed), 2},
               {"part", offsetof(mlx5mk_config, digest.part), 5}};
    for (size_t i = 0; i < sizeof(ODD) / sizeof(ODD[0]); i++) {
        mlx5mk_config odd = config;
        memcpy((uint8_t *)&odd + ODD[i].at, &ODD[i].value, sizeof(uint32_t));
        REFUSED(MLX5MK_ARGUMENT, ODD[i].words, mlx5mk_prepared_create(pool, &odd, &prepared, &error));
    }
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));
    DONE(mlx5mk_pool_take(pool, &mkey, &error));

    memcpy(memory, HEADER, 24);
    lay(pool, mkey, prepared, 0, 24);
    move(2, MLX5MK_OP_RDMA_WRITE, pool, mkey, 0, 28);
    CHECK(finish(2) == 0);
    CHECK(memcmp(there, HEADER, 24) == 0 && memcmp(there + 24, DIGEST, 4) == 0);

    there[9] ^= 4;
    lay(pool, mkey, prepared, 0, 24);
    move(3, MLX5MK_OP_RDMA_READ, pool, mkey, 0, 28);
    CHECK(finish(3) == 1);
    REFUSED(MLX5MK_SIGNATURE, "digest", mlx5mk_mkey_check(pool, mkey, &bad, &error));
    CHECK(bad.part == MLX5MK_BAD_DIGEST && bad.domain == MLX5MK_WIRE && bad.block == 0);
    DONE(mlx5mk_pool_put(pool, mkey, NULL, &error));
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
}

/*
 * A queue pair has two completion queues, and the pool was made for the queue of the sends. A signature error
 * in received data arrives at the other queue, and is reported all the same.
 */
static void errors_at_the_other_queue_are_told(void)
{
    mlx5mk_cq *other = NULL;
    mlx5mk_qp *both = NULL;
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_completion done;
    mlx5mk_bad_block bad;
    mlx5mk_mkey mkey;
    mlx5mk_qp_spec queues = {.send_blocks = 64, .receive_slots = 16};
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 4};
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS | MLX5MK_SET_SIGNATURE,
                            .access = MLX5MK_LOCAL_WRITE,
                            .wire = {.kind = MLX5MK_CRC32C, .block_size = 512}};
    mlx5mk_range entry = {(uintptr_t)memory, 512, lkey}, sent = {(uintptr_t)there, 516, lkey};
    DONE(mlx5mk_cq_create(device, 64, 0, &other, &error));
    DONE(mlx5mk_qp_create(pd, cq, other, &queues, &both, &error));
    DONE(mlx5mk_qp_connect_local(both, mlx5mk_qp_number(both), &error));
    DONE(mlx5mk_pool_create(pd, cq, &spec, &pool, &error));
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));
    DONE(mlx5mk_pool_take(pool, &mkey, &error));
    memset(there, 0x5a, 516);
    for (uint64_t round = 0; round < 2; round++) {
        mlx5mk_range all = {0, 516, 0};
        mlx5mk_request send = {.id = 3,
                               .operation = MLX5MK_OP_SEND,
                               .flags = MLX5MK_SIGNALED,
                               .sges = &sent,
                               .sge_count = 1};
        DONE(mlx5mk_mkey_key(pool, mkey, &all.key, &error));
        DONE(mlx5mk_post_configure(both, 1, MLX5MK_SIGNALED, pool, mkey, prepared, &entry, 1, &error));
        mlx5mk_doorbell(both);
        CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1 && done.id == 1 && done.kind == MLX5MK_SENT);
        DONE(mlx5mk_post_receive(both, 2, &all, 1, &error));
        DONE(mlx5mk_post(both, &send, &error));
        mlx5mk_doorbell(both);
        CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1 && done.id == 3 && done.kind == MLX5MK_SENT);
        CHECK(mlx5mk_cq_wait(other, &done, 1, 5000, &error) == 1 && done.kind == MLX5MK_BAD_ENTRY);
        CHECK(mlx5mk_cq_wait(other, &done, 1, 5000, &error) == 1 && done.id == 2);
        CHECK(done.kind == MLX5MK_RECEIVED && done.bytes == 516);
        if (round == 0) {
            REFUSED(MLX5MK_SIGNATURE, "guard", mlx5mk_mkey_check(pool, mkey, &bad, &error));
            CHECK(bad.part == MLX5MK_BAD_GUARD && bad.domain == MLX5MK_WIRE && bad.block == 0);
        } else {
            /*
             * The mkey goes back before its error was asked for. The next use of the mkey must begin without
             * an error.
             */
            DONE(mlx5mk_pool_put(pool, mkey, NULL, &error));
            DONE(mlx5mk_pool_take(pool, &mkey, &error));
        }
        DONE(mlx5mk_mkey_check(pool, mkey, &bad, &error));
    }
    DONE(mlx5mk_pool_put(pool, mkey, NULL, &error));
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
    mlx5mk_qp_destroy(both);
    DONE(mlx5mk_cq_destroy(other, &error));
}

/*
 * The mkeys of two pools have the same positions, as those of two cards have. Each pool refuses the handles of the
 * other pool, and handles of an earlier use.
 */
static void handles_are_of_one_pool(void)
{
    mlx5mk_pool *pools[2] = {NULL};
    mlx5mk_windows *windows[2] = {NULL};
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_mkey mkeys[2], again;
    mlx5mk_window bound[2], later;
    mlx5mk_bad_block bad;
    uint32_t key;
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 4};
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS, .access = MLX5MK_REMOTE_READ};
    mlx5mk_range entry = {(uintptr_t)memory, 64, lkey};
    for (int i = 0; i < 2; i++) {
        DONE(mlx5mk_pool_create(pd, cq, &spec, &pools[i], &error));
        DONE(mlx5mk_pool_take(pools[i], &mkeys[i], &error));
        DONE(mlx5mk_windows_create(pd, 1, &windows[i], &error));
        DONE(mlx5mk_windows_take(windows[i], &bound[i], &error));
    }
    DONE(mlx5mk_prepared_create(pools[0], &config, &prepared, &error));
    static const char OTHER[] = "another pool";
    REFUSED(MLX5MK_ARGUMENT, OTHER, mlx5mk_mkey_key(pools[0], mkeys[1], &key, &error));
    REFUSED(MLX5MK_ARGUMENT, OTHER, mlx5mk_mkey_check(pools[0], mkeys[1], &bad, &error));
    REFUSED(MLX5MK_ARGUMENT, OTHER, mlx5mk_mkey_forget(pools[0], mkeys[1], &error));
    REFUSED(MLX5MK_ARGUMENT, OTHER,
            mlx5mk_post_configure(qp, 1, 0, pools[0], mkeys[1], prepared, &entry, 1, &error));
    REFUSED(MLX5MK_ARGUMENT, OTHER, mlx5mk_post_invalidate(qp, 1, 0, pools[0], mkeys[1], &error));
    REFUSED(MLX5MK_ARGUMENT, OTHER, mlx5mk_pool_put(pools[0], mkeys[1], NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, OTHER,
            mlx5mk_post_bind(qp, 1, 0, windows[0], bound[1], &entry, MLX5MK_REMOTE_READ, 0, &key, &error));
    REFUSED(MLX5MK_ARGUMENT, OTHER, mlx5mk_post_invalidate_window(qp, 1, 0, windows[0], bound[1], &error));
    REFUSED(MLX5MK_ARGUMENT, OTHER, mlx5mk_windows_put(windows[0], bound[1], NULL, &error));
    REFUSED(MLX5MK_FULL, "in use", mlx5mk_pool_take(pools[0], &again, &error));
    REFUSED(MLX5MK_FULL, "in use", mlx5mk_windows_take(windows[0], &later, &error));

    /* An mkey and a window go back and are taken again. The old handles are refused. */
    DONE(mlx5mk_pool_put(pools[0], mkeys[0], NULL, &error));
    DONE(mlx5mk_pool_take(pools[0], &again, &error));
    REFUSED(MLX5MK_ARGUMENT, "not in use", mlx5mk_pool_put(pools[0], mkeys[0], NULL, &error));
    DONE(mlx5mk_mkey_key(pools[0], again, &key, &error));
    DONE(mlx5mk_windows_put(windows[0], bound[0], NULL, &error));
    DONE(mlx5mk_windows_take(windows[0], &later, &error));
    REFUSED(MLX5MK_ARGUMENT, "not in use", mlx5mk_windows_put(windows[0], bound[0], NULL, &error));
    DONE(mlx5mk_windows_put(windows[0], later, NULL, &error));
    mlx5mk_prepared_destroy(prepared);
    for (int i = 0; i < 2; i++) {
        mlx5mk_pool_destroy(pools[i]);
        mlx5mk_windows_destroy(windows[i]);
    }
}

/*
 * Configurations of a minimal pool write neither tag nor access rights. The tag stays, although the pool
 * allows a new one, and the rights are those from the creation.
 */
static void configurations_write_no_more_than_changes(void)
{
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_mkey mkey;
    uint32_t first = 0, key;
    mlx5mk_pool_spec spec = {.count = 1,
                             .max_entries = 4,
                             .flags = MLX5MK_POOL_MINIMAL | MLX5MK_POOL_UPDATE_TAG,
                             .access = MLX5MK_LOCAL_WRITE};
    mlx5mk_config nothing = {.parts = 0};
    REFUSED(MLX5MK_ARGUMENT, "access", (spec.access = 16, mlx5mk_pool_create(pd, NULL, &spec, &pool, &error)));
    spec.access = MLX5MK_LOCAL_WRITE;
    DONE(mlx5mk_pool_create(pd, NULL, &spec, &pool, &error));
    DONE(mlx5mk_prepared_create(pool, &nothing, &prepared, &error));
    for (uint64_t round = 0; round < 2; round++) {
        DONE(mlx5mk_pool_take(pool, &mkey, &error));
        DONE(mlx5mk_mkey_key(pool, mkey, &key, &error));
        first = round == 0 ? key : first;
        CHECK(key == first);
        lay(pool, mkey, prepared, 0, 24);
        memset(memory, 0, 24);
        memcpy(there, HEADER, 24);
        move(2 + round, MLX5MK_OP_RDMA_READ, pool, mkey, 0, 24);
        CHECK(finish(2 + round) == 0 && memcmp(memory, HEADER, 24) == 0);
        DONE(mlx5mk_pool_put(pool, mkey, NULL, &error));
    }
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
}

static void mkeys_that_share_psvs_make_one_digest(void)
{
    mlx5mk_psvs *psvs = NULL;
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_mkey mkeys[2];
    REFUSED(MLX5MK_ARGUMENT, "pd is NULL", mlx5mk_psvs_create(NULL, &psvs, &error));
    DONE(mlx5mk_psvs_create(pd, &psvs, &error));
    REFUSED(MLX5MK_ARGUMENT, "psvs", mlx5mk_psvs_index(NULL, MLX5MK_WIRE, &error));
    REFUSED(MLX5MK_ARGUMENT, "domain", mlx5mk_psvs_index(psvs, 2, &error));
    int32_t index = mlx5mk_psvs_index(psvs, MLX5MK_WIRE, &error);
    CHECK(index >= 0 && index != mlx5mk_psvs_index(psvs, MLX5MK_MEMORY, &error));
    uint32_t psv = (uint32_t)index;
    mlx5mk_pool_spec spec = {.count = 2, .max_entries = 4, .psvs = psvs};
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS | MLX5MK_SET_DIGEST,
                            .access = MLX5MK_LOCAL_WRITE,
                            .digest = {MLX5MK_WIRE, MLX5MK_SEED_ONES, MLX5MK_DIGEST_FIRST, psv}};
    REFUSED(MLX5MK_ARGUMENT, "give cq", mlx5mk_pool_create(pd, NULL, &spec, &pool, &error));
    DONE(mlx5mk_pool_create(pd, cq, &spec, &pool, &error));
    mlx5mk_psvs_destroy(psvs);
    REFUSED(MLX5MK_ARGUMENT, "PSV index",
            (config.digest.psv = 1 << 24, mlx5mk_prepared_create(pool, &config, &prepared, &error)));
    config.digest.psv = psv;
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));

    for (int i = 0; i < 2; i++)
        DONE(mlx5mk_pool_take(pool, &mkeys[i], &error));
    memcpy(memory, HEADER, 24);
    memset(there, 0, 28);
    lay(pool, mkeys[0], prepared, 0, 10);
    REFUSED(MLX5MK_ARGUMENT, "part", mlx5mk_prepared_set_digest(prepared, 9, psv, &error));
    DONE(mlx5mk_prepared_set_digest(prepared, MLX5MK_DIGEST_LAST, psv, &error));
    lay(pool, mkeys[1], prepared, 10, 14);
    REFUSED(MLX5MK_ARGUMENT, "seed", mlx5mk_post_set_psv(qp, 3, 0, psv, 2, &error));
    REFUSED(MLX5MK_ARGUMENT, "qp is NULL", mlx5mk_post_set_psv(NULL, 3, 0, psv, 0, &error));
    DONE(mlx5mk_post_set_psv(qp, 3, MLX5MK_SIGNALED, psv, MLX5MK_SEED_ONES, &error));
    move(4, MLX5MK_OP_RDMA_WRITE, pool, mkeys[0], 0, 10);
    move(5, MLX5MK_OP_RDMA_WRITE, pool, mkeys[1], 10, 18);
    CHECK(finish(5) == 0);
    CHECK(memcmp(there, HEADER, 24) == 0 && memcmp(there + 24, DIGEST, 4) == 0);
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
    mlx5mk_psvs_destroy(NULL);
}

static void streams_are_interleaved(void)
{
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_mkey mkey;
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 3};
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS, .access = MLX5MK_LOCAL_WRITE};
    mlx5mk_stream streams[] = {{(uintptr_t)memory, 4, 2, lkey}, {(uintptr_t)(memory + 100), 2, 0, lkey}};
    DONE(mlx5mk_pool_create(pd, NULL, &spec, &pool, &error));
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));
    DONE(mlx5mk_pool_take(pool, &mkey, &error));
    memcpy(memory, "aaaa--bbbb--", 12);
    memcpy(memory + 100, "1122", 4);
    REFUSED(MLX5MK_ARGUMENT, "has streams",
            mlx5mk_post_configure_interleaved(qp, 1, 0, pool, mkey, prepared, 2, NULL, 0, &error));
    REFUSED(MLX5MK_ARGUMENT, "streams is NULL",
            mlx5mk_post_configure_interleaved(qp, 1, 0, pool, mkey, prepared, 2, NULL, 1, &error));
    REFUSED(MLX5MK_CONFIG, "stride",
            (streams[1].skip = 65535,
             mlx5mk_post_configure_interleaved(qp, 1, 0, pool, mkey, prepared, 2, streams, 2, &error)));
    streams[1].skip = 0;
    DONE(mlx5mk_post_configure_interleaved(qp, 1, 0, pool, mkey, prepared, 2, streams, 2, &error));
    move(2, MLX5MK_OP_RDMA_WRITE, pool, mkey, 0, 12);
    CHECK(finish(2) == 0 && memcmp(there, "aaaa11bbbb22", 12) == 0);
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
}

/* A memfd takes the place of a dma-buf: the stand-in accepts any descriptor that can be mapped. */
static void memory_of_another_driver(void)
{
    mlx5mk_mr *shared = NULL;
    int fd = memfd_create("exporter", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, 8192) == 0 && pwrite(fd, "of a driver", 11, 5000) == 11);
    uint64_t iova = ((uint64_t)0xd0 << 40) + 5000 % 4096;
    uint32_t access = MLX5MK_LOCAL_WRITE;
    REFUSED(MLX5MK_ARGUMENT, "fd", mlx5mk_mr_register_dmabuf(pd, -1, 5000, 11, iova, access, &shared, &error));
    REFUSED(MLX5MK_ARGUMENT, "length",
            mlx5mk_mr_register_dmabuf(pd, fd, 5000, SIZE_MAX, iova, access, &shared, &error));
    REFUSED(MLX5MK_SYSTEM, "dma-buf", mlx5mk_mr_register_dmabuf(pd, fd, 5000, 0, iova, access, &shared, &error));
    DONE(mlx5mk_mr_register_dmabuf(pd, fd, 5000, 11, iova, access, &shared, &error));
    CHECK(close(fd) == 0);
    mlx5mk_range piece = {iova, 11, 0};
    piece.key = mlx5mk_mr_lkey(shared);
    mlx5mk_request write = {.id = 1,
                            .operation = MLX5MK_OP_RDMA_WRITE,
                            .flags = MLX5MK_SIGNALED,
                            .remote_address = (uintptr_t)there,
                            .rkey = rkey,
                            .sges = &piece,
                            .sge_count = 1};
    DONE(mlx5mk_post(qp, &write, &error));
    CHECK(finish(1) == 0 && memcmp(there, "of a driver", 11) == 0);
    DONE(mlx5mk_mr_deregister(shared, &error));
}

static void pools_take_mkeys_from_a_store(void)
{
    mlx5mk_store *store = NULL;
    mlx5mk_pool *pool = NULL, *other = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_completion done;
    mlx5mk_mkey mkey, second, none;
    uint32_t key;
    mlx5mk_pool_spec spec = {.count = 4, .max_entries = 4, .flags = MLX5MK_POOL_UPDATE_TAG};
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS, .access = MLX5MK_REMOTE_READ};
    REFUSED(MLX5MK_ARGUMENT, "count", (spec.count = 0, mlx5mk_store_create(pd, cq, &spec, &store, &error)));
    spec.count = 4;
    DONE(mlx5mk_store_create(pd, cq, &spec, &store, &error));
    REFUSED(MLX5MK_IN_USE, "1 pools", mlx5mk_cq_destroy(cq, &error));
    REFUSED(MLX5MK_ARGUMENT, "most", mlx5mk_pool_of_store(store, (1 << 16) + 1, &pool, &error));
    DONE(mlx5mk_pool_of_store(store, 16, &pool, &error));
    DONE(mlx5mk_pool_of_store(store, 1024, &other, &error));
    mlx5mk_store_destroy(store);
    mlx5mk_store_destroy(NULL);

    /* The first pool holds all four mkeys until it returns them. */
    DONE(mlx5mk_pool_take(pool, &mkey, &error));
    REFUSED(MLX5MK_FULL, "in use", mlx5mk_pool_take(other, &none, &error));
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));
    lay(pool, mkey, prepared, 0, 24);
    DONE(mlx5mk_pool_take(pool, &second, &error));
    lay(pool, second, prepared, 0, 24);
    /*
     * An mkey is taken out of service before it goes back. The pool tells two requests with the same id
     * apart.
     */
    DONE(mlx5mk_post_invalidate(qp, 2, MLX5MK_SIGNALED, pool, mkey, &error));
    DONE(mlx5mk_post_invalidate(qp, 2, MLX5MK_SIGNALED, pool, second, &error));
    mlx5mk_doorbell(qp);
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1 && done.id == 2);
    REFUSED(MLX5MK_IN_SERVICE, "in service", mlx5mk_pool_put(pool, second, &done, &error));
    DONE(mlx5mk_mkey_key(pool, mkey, &key, &error));
    DONE(mlx5mk_pool_put(pool, mkey, &done, &error));
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1 && done.id == 2);
    DONE(mlx5mk_pool_put(pool, second, &done, &error));
    REFUSED(MLX5MK_ARGUMENT, "not in use", mlx5mk_mkey_key(pool, mkey, &key, &error));
    mlx5mk_pool_destroy(pool);
    DONE(mlx5mk_pool_take(other, &mkey, &error));
    DONE(mlx5mk_pool_put(other, mkey, NULL, &error));
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(other);
}

static void keys_are_lent_by_name(void)
{
    mlx5mk_dek_cache *cache = NULL;
    mlx5mk_dek *first = NULL, *second = NULL;
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    uint8_t key[32] = {1};
    mlx5mk_key_spec secret = {.key = key, .bytes = sizeof(key)};
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 4, .flags = MLX5MK_POOL_CRYPTO};
    REFUSED(MLX5MK_ARGUMENT, "pd is NULL", mlx5mk_dek_cache_create(NULL, &cache, &error));
    DONE(mlx5mk_dek_cache_create(pd, &cache, &error));
    REFUSED(MLX5MK_ARGUMENT, "give spec", mlx5mk_dek_cache_lease(cache, "volume 7", 8, NULL, &first, &error));
    DONE(mlx5mk_dek_cache_lease(cache, "volume 7", 8, &secret, &first, &error));
    DONE(mlx5mk_dek_cache_lease(cache, "volume 7", 8, NULL, &second, &error));
    CHECK(mlx5mk_dek_cache_remove_unused(cache, &error) == 0);
    mlx5mk_dek_destroy(first);
    CHECK(mlx5mk_dek_cache_remove_unused(cache, &error) == 0);

    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS | MLX5MK_SET_CRYPTO,
                            .crypto = {.dek = second, .data_unit = 512}};
    DONE(mlx5mk_pool_create(pd, NULL, &spec, &pool, &error));
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));
    DONE(mlx5mk_prepared_set_dek(prepared, second, NULL, &error));
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);

    mlx5mk_dek_destroy(second);
    CHECK(mlx5mk_dek_cache_remove_unused(cache, &error) == 1);
    DONE(mlx5mk_dek_cache_lease(cache, "volume 8", 8, &secret, &first, &error));
    CHECK(mlx5mk_dek_cache_erase(cache, "volume 7", 8, &error) == 0);
    CHECK(mlx5mk_dek_cache_erase(cache, "volume 8", 8, &error) == 1);
    mlx5mk_dek_destroy(first);
    mlx5mk_dek_cache_destroy(cache);
    mlx5mk_dek_cache_destroy(NULL);
}

/* This check is the last one, because the queue pair fails. */
static void a_failure_is_an_event(void)
{
    mlx5mk_events *events = NULL;
    mlx5mk_event event;
    mlx5mk_completion done;
    static const uint32_t DRAINED = MLX5MK_EVENT_SQ_DRAINED, ODD = 256;
    REFUSED(MLX5MK_ARGUMENT, "device is NULL", mlx5mk_events_create(NULL, &events, &error));
    DONE(mlx5mk_events_create(device, &events, &error));
    REFUSED(MLX5MK_ARGUMENT, "kind of event", mlx5mk_qp_notify(qp, events, &ODD, 1, 7, &error));
    DONE(mlx5mk_qp_notify(qp, events, &DRAINED, 1, 8, &error));
    DONE(mlx5mk_qp_notify(qp, events, NULL, 0, 7, &error));
    DONE(mlx5mk_cq_notify_error(cq, events, 9, &error));
    CHECK(mlx5mk_events_wait(events, &event, 0, &error) == 0);
    mlx5mk_range piece = {(uintptr_t)memory, 8, lkey};
    mlx5mk_request wrong = {.operation = MLX5MK_OP_RDMA_WRITE,
                            .remote_address = (uintptr_t)there,
                            .rkey = rkey + 1,
                            .sges = &piece,
                            .sge_count = 1};
    DONE(mlx5mk_post(qp, &wrong, &error));
    mlx5mk_doorbell(qp);
    struct pollfd readable = {.fd = mlx5mk_events_fd(events, &error), .events = POLLIN};
    CHECK(readable.fd >= 0 && poll(&readable, 1, 5000) == 1);
    CHECK(mlx5mk_events_wait(events, &event, -1, &error) == 1);
    CHECK(event.cookie == 7 && event.kind == MLX5MK_EVENT_QP_ACCESS);
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1 && done.kind == MLX5MK_FAILED);
    mlx5mk_events_destroy(events);
    mlx5mk_events_destroy(NULL);
}

/* Number of entries of one byte each. The first entry maps the last byte. */
#define ENTRIES 200

static void lists_are_longer_than_a_request(void)
{
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_list *list = NULL;
    mlx5mk_mkey mkey;
    mlx5mk_range entries[ENTRIES];
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = ENTRIES};
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS, .access = MLX5MK_LOCAL_WRITE};
    REFUSED(MLX5MK_ARGUMENT, "capacity", mlx5mk_list_create(pd, 65533, &list, &error));
    REFUSED(MLX5MK_ARGUMENT, "pd is NULL", mlx5mk_list_create(NULL, ENTRIES, &list, &error));
    DONE(mlx5mk_list_create(pd, ENTRIES, &list, &error));
    DONE(mlx5mk_pool_create(pd, NULL, &spec, &pool, &error));
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));
    DONE(mlx5mk_pool_take(pool, &mkey, &error));

    for (int i = 0; i < ENTRIES; i++) {
        memory[i] = (uint8_t)i;
        entries[i] = (mlx5mk_range){(uintptr_t)(memory + ENTRIES - 1 - i), 1, lkey};
    }
    REFUSED(MLX5MK_CONFIG, "bytes", (entries[3].length = 0, mlx5mk_list_write(list, entries, 4, &error)));
    entries[3].length = 1;
    REFUSED(MLX5MK_ARGUMENT, "list is NULL", mlx5mk_list_write(NULL, entries, 4, &error));
    DONE(mlx5mk_list_write(list, entries, ENTRIES, &error));
    REFUSED(MLX5MK_CONFIG, "entries",
            mlx5mk_post_configure(qp, 1, 0, pool, mkey, prepared, entries, ENTRIES, &error));
    DONE(mlx5mk_post_configure_list(qp, 1, 0, pool, mkey, prepared, list, &error));
    move(2, MLX5MK_OP_RDMA_WRITE, pool, mkey, 0, ENTRIES);
    CHECK(finish(2) == 0);
    for (int i = 0; i < ENTRIES; i++)
        CHECK(there[i] == ENTRIES - 1 - i);

    /* Entries in a request replace the first four, and a list in registered memory replaces the last four. */
    for (int i = 0; i < 4; i++)
        entries[i].address = (uintptr_t)(memory + i);
    REFUSED(MLX5MK_CONFIG, "4", mlx5mk_post_replace(qp, 3, 0, pool, mkey, 2, entries, 4, &error));
    DONE(mlx5mk_post_replace(qp, 3, 0, pool, mkey, 0, entries, 4, &error));
    DONE(mlx5mk_list_write(list, entries, 4, &error));
    REFUSED(MLX5MK_ARGUMENT, "list is NULL",
            mlx5mk_post_replace_list(qp, 4, 0, pool, mkey, ENTRIES - 4, NULL, &error));
    DONE(mlx5mk_post_replace_list(qp, 4, 0, pool, mkey, ENTRIES - 4, list, &error));
    move(5, MLX5MK_OP_RDMA_WRITE, pool, mkey, 0, ENTRIES);
    CHECK(finish(5) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(there[i] == i && there[ENTRIES - 4 + i] == i && there[4 + i] == ENTRIES - 5 - i);

    /* A list of four entries becomes the layout, and is appended to it once more. */
    REFUSED(MLX5MK_CONFIG, "entries", mlx5mk_post_append_list(qp, 6, 0, pool, mkey, list, &error));
    DONE(mlx5mk_post_configure_list(qp, 6, 0, pool, mkey, prepared, list, &error));
    REFUSED(MLX5MK_ARGUMENT, "list is NULL", mlx5mk_post_append_list(qp, 7, 0, pool, mkey, NULL, &error));
    DONE(mlx5mk_post_append_list(qp, 7, 0, pool, mkey, list, &error));
    move(8, MLX5MK_OP_RDMA_WRITE, pool, mkey, 0, 8);
    CHECK(finish(8) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(there[i] == i % 4);
    DONE(mlx5mk_pool_put(pool, mkey, NULL, &error));
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
    mlx5mk_list_destroy(list);
    mlx5mk_list_destroy(NULL);
}

/* The pages of a region. The lists map some of them, out of order. */
#define PAGE 4096
static uint8_t pages[4 * PAGE] __attribute__((aligned(64)));

/* Makes four entries of one page each. No address is a multiple of the page size. */
static void place(mlx5mk_place places[4], uint32_t key)
{
    static const int ORDER[4] = {2, 0, 1, 0};
    for (int i = 0; i < 4; i++)
        places[i] = (mlx5mk_place){(uintptr_t)(pages + ORDER[i] * PAGE + 9), key};
}

/* Reads 8 bytes through a key, across the border of two entries, and compares them. */
static void read_across(uint64_t id, uint32_t key, uint64_t address, const uint8_t expected[8])
{
    mlx5mk_completion done;
    mlx5mk_range piece = {(uintptr_t)there, 8, lkey};
    mlx5mk_request request = {.id = id,
                              .operation = MLX5MK_OP_RDMA_READ,
                              .flags = MLX5MK_SIGNALED,
                              .remote_address = address,
                              .rkey = key,
                              .sges = &piece,
                              .sge_count = 1};
    memset(there, 0, 8);
    DONE(mlx5mk_post(qp, &request, &error));
    mlx5mk_doorbell(qp);
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1 && done.id == id && done.kind == MLX5MK_SENT);
    CHECK(memcmp(there, expected, 8) == 0);
}

static void entries_have_one_length(void)
{
    mlx5mk_mr *region = NULL;
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_list *list = NULL;
    mlx5mk_place places[4];
    mlx5mk_mkey mkey;
    uint32_t page_key, key, all = MLX5MK_LOCAL_WRITE | MLX5MK_REMOTE_READ;
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 8, .entry_size = PAGE};
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS, .access = all};
    for (size_t i = 0; i < sizeof(pages); i++)
        pages[i] = (uint8_t)(i % 251);
    DONE(mlx5mk_mr_register(pd, pages, sizeof(pages), all, &region, &error));
    page_key = mlx5mk_mr_lkey(region);
    place(places, page_key);
    REFUSED(MLX5MK_ARGUMENT, "entry_size", (spec.entry_size = 3 * PAGE, mlx5mk_pool_create(pd, NULL, &spec, &pool, &error)));
    spec.entry_size = PAGE;
    REFUSED(MLX5MK_COMMAND, "entries of one length", mlx5mk_pool_create(pd, cq, &spec, &pool, &error));
    DONE(mlx5mk_pool_create(pd, NULL, &spec, &pool, &error));
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));
    DONE(mlx5mk_pool_take(pool, &mkey, &error));
    DONE(mlx5mk_mkey_key(pool, mkey, &key, &error));
    DONE(mlx5mk_list_create(pd, 8, &list, &error));
    REFUSED(MLX5MK_ARGUMENT, "entry_size", mlx5mk_list_write_equal(list, 0, places, 4, &error));
    REFUSED(MLX5MK_ARGUMENT, "entries", mlx5mk_list_write_equal(list, PAGE, NULL, 4, &error));
    REFUSED(MLX5MK_CONFIG, "entries", mlx5mk_list_write_equal(list, PAGE, places, 9, &error));
    DONE(mlx5mk_list_write_equal(list, 2 * PAGE, places, 4, &error));
    REFUSED(MLX5MK_CONFIG, "8192 bytes each", mlx5mk_post_configure_list(qp, 1, 0, pool, mkey, prepared, list, &error));
    DONE(mlx5mk_list_write_equal(list, PAGE, places, 4, &error));
    DONE(mlx5mk_post_configure_list(qp, 1, 0, pool, mkey, prepared, list, &error));

    uint8_t expected[8];
    memcpy(expected, pages + 3 * PAGE + 9 - 3, 3);
    memcpy(expected + 3, pages + 9, 5);
    read_across(2, key, PAGE - 3, expected);
    mlx5mk_range one = {(uintptr_t)pages, PAGE, page_key};
    REFUSED(MLX5MK_CONFIG, "4096 bytes each", mlx5mk_post_configure(qp, 3, 0, pool, mkey, prepared, &one, 1, &error));
    DONE(mlx5mk_pool_put(pool, mkey, NULL, &error));
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
    mlx5mk_list_destroy(list);
    DONE(mlx5mk_mr_deregister(region, &error));
}

static void mkeys_bring_their_lists(void)
{
    mlx5mk_mr *region = NULL;
    mlx5mk_list_mkey *mkey = NULL;
    uint32_t page_key, key, all = MLX5MK_LOCAL_WRITE | MLX5MK_REMOTE_READ;
    uint64_t length, start = 0x700000000123;
    uint8_t expected[8];
    mlx5mk_place places[4];
    static mlx5mk_range ranges[300];
    DONE(mlx5mk_mr_register(pd, pages, sizeof(pages), all, &region, &error));
    page_key = mlx5mk_mr_lkey(region);
    /* The list has more entries than a request holds. The first entry maps the highest address. */
    for (int i = 0; i < 300; i++)
        ranges[i] = (mlx5mk_range){(uintptr_t)(pages + 50 * (300 - i)), 5, page_key};
    REFUSED(MLX5MK_ARGUMENT, "pd is NULL", mlx5mk_list_mkey_create(NULL, all, start, ranges, 300, &mkey, &error));
    REFUSED(MLX5MK_ARGUMENT, "access", mlx5mk_list_mkey_create(pd, 16, start, ranges, 300, &mkey, &error));
    REFUSED(MLX5MK_ARGUMENT, "entries", mlx5mk_list_mkey_create(pd, all, start, NULL, 300, &mkey, &error));
    REFUSED(MLX5MK_COMMAND, "0 bytes", mlx5mk_list_mkey_create(pd, all, start, ranges, 0, &mkey, &error));
    REFUSED(MLX5MK_COMMAND, "entry 7 has 0 bytes",
            (ranges[7].length = 0, mlx5mk_list_mkey_create(pd, all, start, ranges, 300, &mkey, &error)));
    ranges[7].length = 5;
    DONE(mlx5mk_list_mkey_create(pd, all, start, ranges, 300, &mkey, &error));
    CHECK(mlx5mk_list_mkey_key(NULL, &key, &length) == MLX5MK_ARGUMENT);
    DONE(mlx5mk_list_mkey_key(mkey, &key, NULL));
    DONE(mlx5mk_list_mkey_key(mkey, NULL, &length));
    CHECK(length == 1500);
    memcpy(expected, pages + 50 * 300, 5);
    memcpy(expected + 5, pages + 50 * 299, 3);
    read_across(1, key, start, expected);
    mlx5mk_list_mkey_destroy(mkey);
    mlx5mk_list_mkey_destroy(NULL);

    place(places, page_key);
    REFUSED(MLX5MK_ARGUMENT, "entry_size",
            mlx5mk_list_mkey_create_equal(pd, all, start, PAGE + 1, places, 4, &mkey, &error));
    REFUSED(MLX5MK_COMMAND, "space", mlx5mk_list_mkey_create_equal(pd, all, UINT64_MAX, PAGE, places, 4, &mkey, &error));
    DONE(mlx5mk_list_mkey_create_equal(pd, all, start, PAGE, places, 4, &mkey, &error));
    DONE(mlx5mk_list_mkey_key(mkey, &key, &length));
    CHECK(length == 4 * PAGE);
    memcpy(expected, pages + PAGE + 9 - 1, 1);
    memcpy(expected + 1, pages + PAGE + 9, 7);
    read_across(2, key, start + 2 * PAGE - 1, expected);
    mlx5mk_list_mkey_destroy(mkey);
    DONE(mlx5mk_mr_deregister(region, &error));
}

/* Resets the queue pair after a failure. */
static void begin_anew(void)
{
    DONE(mlx5mk_qp_reset(qp, NULL, &error));
    DONE(mlx5mk_qp_connect_local(qp, mlx5mk_qp_number(qp), &error));
}

/* Writes or reads 8 bytes through a key of the peer. Returns the kind of the completion. */
static uint32_t reach(uint32_t operation, uint64_t id, uint32_t key, uint64_t address)
{
    mlx5mk_completion done;
    mlx5mk_range piece = {(uintptr_t)memory, 8, lkey};
    mlx5mk_request request = {.id = id,
                              .operation = operation,
                              .flags = MLX5MK_SIGNALED,
                              .remote_address = address,
                              .rkey = key,
                              .sges = &piece,
                              .sge_count = 1};
    DONE(mlx5mk_post(qp, &request, &error));
    mlx5mk_doorbell(qp);
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1 && done.id == id);
    return done.kind;
}

static void windows_are_bound_and_revoked(void)
{
    mlx5mk_windows *windows = NULL;
    mlx5mk_completion done;
    mlx5mk_window window, other;
    uint32_t key, second;
    mlx5mk_range range = {(uintptr_t)there, 64, lkey};
    REFUSED(MLX5MK_ARGUMENT, "count", mlx5mk_windows_create(pd, 0, &windows, &error));
    DONE(mlx5mk_windows_create(pd, 1, &windows, &error));
    REFUSED(MLX5MK_ARGUMENT, "another pool", mlx5mk_windows_put(windows, (mlx5mk_window){0}, NULL, &error));
    DONE(mlx5mk_windows_take(windows, &window, &error));
    REFUSED(MLX5MK_FULL, "windows", mlx5mk_windows_take(windows, &other, &error));
    REFUSED(MLX5MK_ARGUMENT, "access",
            mlx5mk_post_bind(qp, 1, 0, windows, window, &range, 16, 0, &key, &error));
    REFUSED(MLX5MK_CONFIG, "bytes", (range.length = 0, mlx5mk_post_bind(qp, 1, 0, windows, window, &range,
                                                                       MLX5MK_REMOTE_WRITE, 0, &key, &error)));
    range.length = 64;
    DONE(mlx5mk_post_bind(qp, 1, MLX5MK_SIGNALED, windows, window, &range, MLX5MK_REMOTE_WRITE, 4096, &key,
                          &error));
    REFUSED(MLX5MK_CONFIG, "bound", mlx5mk_post_bind(qp, 1, 0, windows, window, &range, MLX5MK_REMOTE_WRITE,
                                                     4096, &second, &error));
    mlx5mk_doorbell(qp);
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1);
    CHECK(done.kind == MLX5MK_SENT && done.operation == MLX5MK_OP_BIND);
    memset(there, 0, 64);
    memcpy(memory, "windowed", 8);
    CHECK(reach(MLX5MK_OP_RDMA_WRITE, 2, key, 4096 + 56) == MLX5MK_SENT);
    CHECK(memcmp(there + 56, "windowed", 8) == 0);

    REFUSED(MLX5MK_IN_SERVICE, "in service", mlx5mk_windows_put(windows, window, NULL, &error));
    REFUSED(MLX5MK_IN_SERVICE, "in service", mlx5mk_windows_put(windows, window, &done, &error));
    DONE(mlx5mk_post_invalidate_window(qp, 3, MLX5MK_SIGNALED, windows, window, &error));
    REFUSED(MLX5MK_IN_SERVICE, "in service", mlx5mk_windows_put(windows, window, NULL, &error));
    mlx5mk_doorbell(qp);
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1 && done.operation == MLX5MK_OP_INVALIDATE);
    DONE(mlx5mk_windows_put(windows, window, &done, &error));
    REFUSED(MLX5MK_ARGUMENT, "not in use", mlx5mk_windows_put(windows, window, &done, &error));
    /*
     * The window is taken again and gets its next key. A request with the old key makes the queue pair fail,
     * but the window stays bound.
     */
    DONE(mlx5mk_windows_take(windows, &window, &error));
    REFUSED(MLX5MK_CONFIG, "not bound", mlx5mk_post_invalidate_window(qp, 4, 0, windows, window, &error));
    DONE(mlx5mk_post_bind(qp, 4, 0, windows, window, &range, MLX5MK_REMOTE_READ | MLX5MK_REMOTE_WRITE, 4096,
                          &second, &error));
    CHECK(second != key);
    CHECK(reach(MLX5MK_OP_RDMA_WRITE, 5, second, 4096) == MLX5MK_SENT);
    CHECK(reach(MLX5MK_OP_RDMA_WRITE, 6, key, 4096) == MLX5MK_FAILED);
    begin_anew();

    /* A flushed revocation revokes nothing. The window is free once the peer's access is refused. */
    mlx5mk_request bad = {.id = 7, .operation = MLX5MK_OP_RDMA_WRITE, .sges = &range, .sge_count = 1};
    DONE(mlx5mk_post(qp, &bad, &error));
    DONE(mlx5mk_post_invalidate_window(qp, 8, MLX5MK_SIGNALED, windows, window, &error));
    mlx5mk_doorbell(qp);
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1 && done.id == 7 && done.kind == MLX5MK_FAILED);
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1 && done.id == 8 && done.kind == MLX5MK_FAILED);
    REFUSED(MLX5MK_IN_SERVICE, "in service", mlx5mk_windows_put(windows, window, &done, &error));
    begin_anew();
    CHECK(reach(MLX5MK_OP_RDMA_READ, 9, second, 4096) == MLX5MK_SENT);
    DONE(mlx5mk_post_invalidate_window(qp, 10, MLX5MK_SIGNALED, windows, window, &error));
    mlx5mk_doorbell(qp);
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1 && done.id == 10 && done.kind == MLX5MK_SENT);
    CHECK(reach(MLX5MK_OP_RDMA_READ, 11, second, 4096) == MLX5MK_FAILED);
    REFUSED(MLX5MK_FULL, "windows", mlx5mk_windows_take(windows, &other, &error));
    DONE(mlx5mk_windows_put(windows, window, &done, &error));
    begin_anew();
    DONE(mlx5mk_windows_take(windows, &window, &error));
    DONE(mlx5mk_windows_put(windows, window, NULL, &error));
    mlx5mk_windows_destroy(windows);
    mlx5mk_windows_destroy(NULL);
}

/* Posts a request to each queue pair, and checks that its completion finds the queue pair. */
static void each_completes(mlx5mk_cq *many, mlx5mk_qp *const *pairs, uint32_t count)
{
    mlx5mk_completion done;
    for (uint32_t i = 0; i < count; i++) {
        mlx5mk_request request = {.id = i, .operation = MLX5MK_OP_NOP, .flags = MLX5MK_SIGNALED};
        DONE(mlx5mk_post(pairs[i], &request, &error));
        mlx5mk_doorbell(pairs[i]);
        CHECK(mlx5mk_cq_wait(many, &done, 1, 5000, &error) == 1);
        CHECK(done.kind == MLX5MK_SENT && done.id == i && done.qpn == mlx5mk_qp_number(pairs[i]));
    }
}

static void a_completion_queue_serves_many_queue_pairs(void)
{
    mlx5mk_cq *many;
    mlx5mk_qp *pairs[40];
    mlx5mk_qp_spec spec = {.send_blocks = 2, .receive_slots = 1};
    DONE(mlx5mk_cq_create(device, 128, 0, &many, &error));
    for (int i = 0; i < 40; i++) {
        DONE(mlx5mk_qp_create(pd, many, many, &spec, &pairs[i], &error));
        DONE(mlx5mk_qp_connect_local(pairs[i], mlx5mk_qp_number(pairs[i]), &error));
    }
    each_completes(many, pairs, 40);
    for (int i = 0; i < 20; i++)
        mlx5mk_qp_destroy(pairs[i]);
    each_completes(many, pairs + 20, 20);
    for (int i = 20; i < 40; i++)
        mlx5mk_qp_destroy(pairs[i]);
    DONE(mlx5mk_cq_destroy(many, &error));
}

int main(void)
{
    set_up();
    a_digest_is_behind_the_data();
    errors_at_the_other_queue_are_told();
    handles_are_of_one_pool();
    configurations_write_no_more_than_changes();
    mkeys_that_share_psvs_make_one_digest();
    streams_are_interleaved();
    memory_of_another_driver();
    pools_take_mkeys_from_a_store();
    keys_are_lent_by_name();
    lists_are_longer_than_a_request();
    entries_have_one_length();
    mkeys_bring_their_lists();
    windows_are_bound_and_revoked();
    a_completion_queue_serves_many_queue_pairs();
    a_failure_is_an_event();
    mlx5mk_qp_destroy(qp);
    DONE(mlx5mk_cq_destroy(cq, &error));
    DONE(mlx5mk_mr_deregister(mr, &error));
    mlx5mk_pd_free(pd);
    mlx5mk_device_close(device);
    /* No pointer may remain: valgrind reports unfreed memory only if no pointer leads to it. */
    device = NULL, pd = NULL, cq = NULL, qp = NULL, mr = NULL;
    printf("digests, streams, shared memory, stores, caches, lists, their mkeys, windows, many queue pairs and events: passed\n");
    return EXIT_SUCCESS;
}
