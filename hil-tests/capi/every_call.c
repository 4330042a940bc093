/*
 * Calls functions of the library for C that protected_write.c and adopt.c leave out, and checks that each
 * refuses invalid arguments. more_calls.c calls the rest. `cargo xtask capi --test` runs it on the software
 * device, under valgrind.
 */

#include "check.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>

#define BYTES 4096

/* Handles that no call has returned. */
static const mlx5mk_mkey no_mkey;
static const mlx5mk_window no_window;

/* Two connected queue pairs, and memory. */
static mlx5mk_device *device;
static mlx5mk_pd *pd;
static mlx5mk_cq *cq;
static mlx5mk_qp *first, *second;
static mlx5mk_mr *mr;
static uint8_t memory[2 * BYTES];
static uint32_t lkey, rkey;

static void arguments_may_not_be_missing(void)
{
    mlx5mk_completion done;
    REFUSED(MLX5MK_ARGUMENT, "device is NULL", mlx5mk_device_open(NULL, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "context is NULL", mlx5mk_device_adopt(NULL, &device, &error));
    REFUSED(MLX5MK_ARGUMENT, "device is NULL", mlx5mk_pd_alloc(NULL, &pd, &error));
    REFUSED(MLX5MK_ARGUMENT, "device is NULL", mlx5mk_pd_adopt(NULL, NULL, &pd, &error));
    REFUSED(MLX5MK_ARGUMENT, "device is NULL", mlx5mk_cq_create(NULL, 64, 0, &cq, &error));
    REFUSED(MLX5MK_ARGUMENT, "device is NULL", mlx5mk_cq_adopt(NULL, NULL, &cq, &error));
    REFUSED(MLX5MK_ARGUMENT, "pd is NULL", mlx5mk_qp_create(NULL, NULL, NULL, NULL, &first, &error));
    REFUSED(MLX5MK_ARGUMENT, "pd is NULL", mlx5mk_qp_adopt(NULL, NULL, NULL, NULL, NULL, &first, &error));
    REFUSED(MLX5MK_ARGUMENT, "pd is NULL", mlx5mk_mr_register(NULL, memory, BYTES, 0, &mr, &error));
    REFUSED(MLX5MK_ARGUMENT, "pd is NULL", mlx5mk_pool_create(NULL, NULL, NULL, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "pd is NULL", mlx5mk_dek_create(NULL, NULL, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "pool is NULL", mlx5mk_prepared_create(NULL, NULL, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "pool is NULL", mlx5mk_pool_take(NULL, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "pool is NULL", mlx5mk_pool_put(NULL, no_mkey, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "qp is NULL", mlx5mk_post_invalidate(NULL, 0, 0, NULL, no_mkey, &error));
    REFUSED(MLX5MK_ARGUMENT, "qp is NULL", mlx5mk_post_invalidate_window(NULL, 0, 0, NULL, no_window, &error));
    REFUSED(MLX5MK_ARGUMENT, "windows is NULL", mlx5mk_windows_put(NULL, no_window, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "pool is NULL", mlx5mk_mkey_key(NULL, no_mkey, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "pool is NULL", mlx5mk_mkey_check(NULL, no_mkey, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "pool is NULL", mlx5mk_mkey_forget(NULL, no_mkey, &error));
    REFUSED(MLX5MK_ARGUMENT, "cq is NULL", mlx5mk_cq_forget_lost_errors(NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "prepared is NULL", mlx5mk_prepared_set_tweak(NULL, 0, 0, &error));
    REFUSED(MLX5MK_ARGUMENT, "prepared is NULL", mlx5mk_prepared_set_tags(NULL, 0, 0, 0, &error));
    REFUSED(MLX5MK_ARGUMENT, "prepared is NULL", mlx5mk_prepared_set_dek(NULL, NULL, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "qp is NULL", mlx5mk_qp_connect_local(NULL, 0, &error));
    REFUSED(MLX5MK_ARGUMENT, "qp is NULL", mlx5mk_qp_connect(NULL, NULL, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "qp is NULL", mlx5mk_qp_address(NULL, NULL, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "qp is NULL", mlx5mk_qp_reset(NULL, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "qp is NULL", mlx5mk_post(NULL, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "qp is NULL", mlx5mk_post_raw(NULL, 0, 0, NULL, 0, &error));
    REFUSED(MLX5MK_ARGUMENT, "qp is NULL", mlx5mk_post_receive(NULL, 0, NULL, 0, &error));
    REFUSED(MLX5MK_ARGUMENT, "qp is NULL", mlx5mk_post_configure(NULL, 0, 0, NULL, no_mkey, NULL, NULL, 0, &error));
    REFUSED(MLX5MK_ARGUMENT, "cq is NULL", mlx5mk_cq_poll(NULL, &done, 1, &error));
    REFUSED(MLX5MK_ARGUMENT, "cq is NULL", mlx5mk_cq_wait(NULL, &done, 1, 0, &error));
    REFUSED(MLX5MK_ARGUMENT, "cq is NULL", mlx5mk_cq_fd(NULL, &error));
    CHECK(mlx5mk_mr_lkey(NULL) == 0 && mlx5mk_mr_rkey(NULL) == 0);
    CHECK(mlx5mk_qp_number(NULL) == 0);
    CHECK(!mlx5mk_qp_has_blue_flame(NULL));
    CHECK(mlx5mk_device_describe(NULL, NULL, 0) == 0);
    CHECK(mlx5mk_completion_words(NULL, NULL, 0) == 0);
    /*
     * Without room for an error, a call returns only its code. The functions that destroy an object accept
     * NULL.
     */
    CHECK(mlx5mk_pd_alloc(NULL, NULL, NULL) == MLX5MK_ARGUMENT);
    mlx5mk_device_close(NULL);
    mlx5mk_pd_free(NULL);
    mlx5mk_qp_destroy(NULL);
    mlx5mk_pool_destroy(NULL);
    mlx5mk_dek_destroy(NULL);
    mlx5mk_prepared_destroy(NULL);
    mlx5mk_doorbell(NULL);
    DONE(mlx5mk_cq_destroy(NULL, &error));
    DONE(mlx5mk_mr_deregister(NULL, &error));
}

static void codes_have_words(void)
{
    for (int32_t code = MLX5MK_SIGNATURE; code <= MLX5MK_OK; code++)
        CHECK(strcmp(mlx5mk_code_words(code), mlx5mk_code_words(-1000)) != 0);
    CHECK(strcmp(mlx5mk_code_words(7), mlx5mk_code_words(MLX5MK_OK)) == 0);
}

static void set_up(void)
{
    char words[16];
    mlx5mk_address addresses[2];
    mlx5mk_connect_spec wrong = {.service_level = 8}, spec = {.first_psn = 0x1234, .ack_packets = 1};
    mlx5mk_qp_spec small = {.send_blocks = 64, .receive_slots = 16, .flags = MLX5MK_QP_MEMCPY | MLX5MK_QP_MASKED_ATOMICS};
    mlx5mk_qp_spec odd = {.flags = 32};

    REFUSED(MLX5MK_DEVICE, "mlx5_7", mlx5mk_device_open("mlx5_7", &device, &error));
    REFUSED(MLX5MK_ARGUMENT, "UTF-8", mlx5mk_device_open("\xff", &device, &error));
    DONE(mlx5mk_device_open("mlx5_0", &device, &error));
    size_t length = mlx5mk_device_describe(device, words, sizeof(words));
    CHECK(length > sizeof(words) && strlen(words) == sizeof(words) - 1);

    REFUSED(MLX5MK_ARGUMENT, "power of two", mlx5mk_cq_create(device, 100, 0, &cq, &error));
    DONE(mlx5mk_pd_alloc(device, &pd, &error));
    DONE(mlx5mk_cq_create(device, 64, 0, &cq, &error));
    REFUSED(MLX5MK_CQ_TOO_SMALL, "free", mlx5mk_qp_create(pd, cq, cq, &small, &first, &error));
    DONE(mlx5mk_cq_destroy(cq, &error));
    DONE(mlx5mk_cq_create(device, 256, 0, &cq, &error));
    REFUSED(MLX5MK_ARGUMENT, "flags", mlx5mk_qp_create(pd, cq, cq, &odd, &first, &error));
    odd.flags = 0, odd.send_blocks = (1 << 15) + 1;
    REFUSED(MLX5MK_ARGUMENT, "send_blocks", mlx5mk_qp_create(pd, cq, cq, &odd, &first, &error));
    odd.send_blocks = 0, odd.receive_slots = (1 << 15) + 1;
    REFUSED(MLX5MK_ARGUMENT, "receive_slots", mlx5mk_qp_create(pd, cq, cq, &odd, &first, &error));
    odd.receive_slots = 0, odd.timestamps = 4;
    REFUSED(MLX5MK_ARGUMENT, "timestamps", mlx5mk_qp_create(pd, cq, cq, &odd, &first, &error));
    /* The software device has a free-running clock only. */
    odd.timestamps = MLX5MK_TIMESTAMPS_REAL_TIME;
    REFUSED(MLX5MK_COMMAND, "time stamps in real time", mlx5mk_qp_create(pd, cq, cq, &odd, &first, &error));
    small.timestamps = MLX5MK_TIMESTAMPS_FREE_RUNNING;
    DONE(mlx5mk_qp_create(pd, cq, cq, &small, &first, &error));
    small.timestamps = MLX5MK_TIMESTAMPS_DEVICE_DEFAULT;
    DONE(mlx5mk_qp_create(pd, cq, cq, &small, &second, &error));
    REFUSED(MLX5MK_IN_USE, "2 queue pairs", mlx5mk_cq_destroy(cq, &error));

    REFUSED(MLX5MK_ARGUMENT, "priority", mlx5mk_qp_address(first, &wrong, &addresses[0], &error));
    wrong = (mlx5mk_connect_spec){.ack_packets = 3};
    REFUSED(MLX5MK_ARGUMENT, "ack_packets", mlx5mk_qp_address(first, &wrong, &addresses[0], &error));
    wrong.ack_packets = 512;
    REFUSED(MLX5MK_ARGUMENT, "packets", mlx5mk_qp_address(first, &wrong, &addresses[0], &error));
    DONE(mlx5mk_qp_address(first, &spec, &addresses[0], &error));
    DONE(mlx5mk_qp_address(second, &spec, &addresses[1], &error));
    DONE(mlx5mk_qp_connect(first, &addresses[1], &spec, &error));
    DONE(mlx5mk_qp_connect(second, &addresses[0], &spec, &error));
    memset(&addresses[0], 0, sizeof(addresses[0]));
    REFUSED(MLX5MK_ARGUMENT, "version", mlx5mk_qp_connect(first, &addresses[0], NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "queue pair number", mlx5mk_qp_connect_local(first, 1 << 24, &error));

    uint32_t all = MLX5MK_LOCAL_WRITE | MLX5MK_REMOTE_WRITE | MLX5MK_REMOTE_READ | MLX5MK_REMOTE_ATOMIC;
    REFUSED(MLX5MK_ARGUMENT, "access", mlx5mk_mr_register(pd, memory, BYTES, 16, &mr, &error));
    REFUSED(MLX5MK_SYSTEM, "", mlx5mk_mr_register(pd, memory, BYTES, MLX5MK_REMOTE_WRITE, &mr, &error));
    CHECK(error.system == EINVAL);
    DONE(mlx5mk_mr_register(pd, memory, sizeof(memory), all, &mr, &error));
    lkey = mlx5mk_mr_lkey(mr), rkey = mlx5mk_mr_rkey(mr);
}

/* Makes a request that moves 16 bytes between the two halves of the memory. */
static mlx5mk_range local = {0, 16, 0};
static mlx5mk_request request(uint64_t id, uint32_t operation)
{
    local.address = (uintptr_t)memory;
    local.key = lkey;
    mlx5mk_request made = {.id = id,
                           .operation = operation,
                           .flags = MLX5MK_SIGNALED,
                           .remote_address = (uintptr_t)(memory + BYTES),
                           .rkey = rkey,
                           .sges = &local,
                           .sge_count = 1};
    return made;
}

/* Takes the next completion, which must be of this kind and complete the request `id`. */
static mlx5mk_completion take(uint32_t kind, uint64_t id)
{
    mlx5mk_completion done;
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1);
    mlx5mk_completion_words(&done, error.message, sizeof(error.message));
    CHECK(done.kind == kind && done.id == id);
    return done;
}

/* Posts a request, which must succeed. Returns its completion. */
static mlx5mk_completion does(const mlx5mk_request *posted)
{
    DONE(mlx5mk_post(first, posted, &error));
    mlx5mk_doorbell(first);
    mlx5mk_completion done = take(MLX5MK_SENT, posted->id);
    CHECK(done.qpn == mlx5mk_qp_number(first));
    return done;
}

static void each_operation_does_what_its_name_says(void)
{
    uint64_t *here = (uint64_t *)(void *)memory, *there = (uint64_t *)(void *)(memory + BYTES);
    mlx5mk_request write = request(1, MLX5MK_OP_RDMA_WRITE), read = request(2, MLX5MK_OP_RDMA_READ);
    mlx5mk_request nop = request(3, MLX5MK_OP_NOP), swap = request(4, MLX5MK_OP_COMPARE_SWAP);
    mlx5mk_request add = request(5, MLX5MK_OP_FETCH_ADD);

    memcpy(memory, "sixteen bytes...", 16);
    CHECK(does(&write).operation == MLX5MK_OP_RDMA_WRITE && memcmp(memory + BYTES, "sixteen bytes...", 16) == 0);
    write.inline_data = "inline", write.inline_bytes = 6;
    does(&write);
    CHECK(memcmp(memory + BYTES, "inlinen bytes...", 16) == 0);
    CHECK(does(&read).bytes == 16 && memcmp(memory, "inlinen bytes...", 16) == 0);
    CHECK(does(&nop).operation == MLX5MK_OP_NOP);

    REFUSED(MLX5MK_ARGUMENT, "one segment", (swap.sge_count = 0, mlx5mk_post(first, &swap, &error)));
    swap.sge_count = 1;
    REFUSED(MLX5MK_ARGUMENT, "8 bytes", mlx5mk_post(first, &swap, &error));
    local.length = 4;
    REFUSED(MLX5MK_ARGUMENT, "8 bytes", mlx5mk_post(first, &add, &error));
    local.length = 8;
    *there = 40;
    swap.sge_count = 1, swap.compare = 40, swap.swap_add = 41;
    does(&swap);
    CHECK(*here == 40 && *there == 41);
    add.swap_add = 1;
    does(&add);
    CHECK(*here == 41 && *there == 42);
    local.length = 16;
}

static void atomics_have_masks(void)
{
    uint64_t *here = (uint64_t *)(void *)memory, *there = (uint64_t *)(void *)(memory + BYTES);
    mlx5mk_request swap = request(6, MLX5MK_OP_MASKED_COMPARE_SWAP), add = request(7, MLX5MK_OP_MASKED_FETCH_ADD);

    local.length = 8;
    *there = 0x1234;
    swap.compare = 0x34, swap.compare_mask = 0xff, swap.swap_add = 0x5678, swap.swap_mask = 0xff00;
    CHECK(does(&swap).operation == MLX5MK_OP_COMPARE_SWAP && *here == 0x1234 && *there == 0x5634);
    add.swap_add = 0xd0, add.compare_mask = 0x80;
    CHECK(does(&add).operation == MLX5MK_OP_FETCH_ADD && *here == 0x5634 && *there == 0x5604);
    /* An old value of 4 bytes is in big endian. */
    local.length = 4;
    does(&add);
    CHECK(((uint8_t *)memory)[3] == 0x04 && ((uint8_t *)memory)[2] == 0x56 && *there == 0x56d4);
    swap.compare = 0xd4;
    does(&swap);
    CHECK(((uint8_t *)memory)[3] == 0xd4 && *there == 0x56d4);
    swap.swap_mask = 1ULL << 32;
    REFUSED(MLX5MK_ARGUMENT, "swap_mask", mlx5mk_post(first, &swap, &error));
    local.length = 16;
    REFUSED(MLX5MK_ARGUMENT, "one segment", mlx5mk_post(first, &swap, &error));
}

static void memory_is_copied(void)
{
    mlx5mk_request copy = request(6, MLX5MK_OP_MEMCPY);

    copy.rkey = lkey;
    memcpy(memory, "a copy of memory", 16);
    CHECK(does(&copy).operation == MLX5MK_OP_MEMCPY && memcmp(memory + BYTES, "a copy of memory", 16) == 0);
    REFUSED(MLX5MK_ARGUMENT, "one segment", (copy.sge_count = 0, mlx5mk_post(first, &copy, &error)));
    copy.sge_count = 1, local.length = 0;
    REFUSED(MLX5MK_REQUEST, "no bytes", mlx5mk_post(first, &copy, &error));
    local.length = UINT32_MAX;
    REFUSED(MLX5MK_REQUEST, "the most", mlx5mk_post(first, &copy, &error));
    local.length = 16;
}

static void a_request_in_bytes_is_posted(void)
{
    /* A NOP of one octoword. Its block number and queue pair number are wrong: the library replaces both. */
    uint8_t nop[32] = {0, 0x12, 0x34, 0, 0xff, 0xff, 0xff, 1};

    DONE(mlx5mk_post_raw(first, 7, MLX5MK_SIGNALED, nop, sizeof(nop), &error));
    mlx5mk_doorbell(first);
    CHECK(take(MLX5MK_SENT, 7).operation == MLX5MK_OP_RAW);
    REFUSED(MLX5MK_ARGUMENT, "wqe is NULL", mlx5mk_post_raw(first, 8, 0, NULL, 16, &error));
    REFUSED(MLX5MK_REQUEST, "15 are given", mlx5mk_post_raw(first, 8, 0, nop, 15, &error));
    nop[7] = 3;
    REFUSED(MLX5MK_REQUEST, "48 bytes", mlx5mk_post_raw(first, 8, 0, nop, sizeof(nop), &error));
    nop[7] = 0;
    REFUSED(MLX5MK_REQUEST, "0 octowords", mlx5mk_post_raw(first, 8, 0, nop, sizeof(nop), &error));
}

static void messages_arrive_with_what_was_sent_along(void)
{
    mlx5mk_range room = {(uintptr_t)(memory + BYTES), BYTES, lkey};
    static const struct {
        uint32_t sent, received, immediate;
    } KINDS[] = {
        {MLX5MK_OP_SEND, MLX5MK_OP_SEND, 0},
        {MLX5MK_OP_SEND_IMM, MLX5MK_OP_SEND_IMM, 0x12345678},
        {MLX5MK_OP_RDMA_WRITE_IMM, MLX5MK_OP_RDMA_WRITE_IMM, 7},
    };
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        mlx5mk_request sent = request(20 + i, KINDS[i].sent);
        sent.immediate = KINDS[i].immediate;
        sent.flags |= MLX5MK_SOLICITED | MLX5MK_FENCED;
        DONE(mlx5mk_post_receive(second, 30 + i, &room, 1, &error));
        mlx5mk_doorbell(second);
        DONE(mlx5mk_post(first, &sent, &error));
        mlx5mk_doorbell(first);
        /* The send and the receive may complete in either order. */
        int received = 0;
        for (int both = 0; both < 2; both++) {
            mlx5mk_completion done;
            CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1);
            if (done.kind == MLX5MK_SENT)
                continue;
            CHECK(done.kind == MLX5MK_RECEIVED && done.id == 30 + i && done.qpn == mlx5mk_qp_number(second));
            CHECK(done.operation == KINDS[i].received && done.immediate == KINDS[i].immediate);
            CHECK(done.bytes == 16);
            received = 1;
        }
        CHECK(received);
    }
}

static void nobody_is_woken_for_nothing(void)
{
    mlx5mk_completion done;
    mlx5mk_request nop = request(40, MLX5MK_OP_NOP);
    struct pollfd readable = {.fd = mlx5mk_cq_fd(cq, &error), .events = POLLIN};
    CHECK(readable.fd >= 0);
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 0, &error) == 0);
    DONE(mlx5mk_post(first, &nop, &error));
    mlx5mk_doorbell(first);
    CHECK(poll(&readable, 1, 5000) == 1);
    take(MLX5MK_SENT, 40);
    CHECK(mlx5mk_cq_poll(cq, &done, 1, &error) == 0);
    CHECK(mlx5mk_cq_poll(cq, NULL, 0, &error) == 0);
    REFUSED(MLX5MK_ARGUMENT, "completions is NULL", mlx5mk_cq_poll(cq, NULL, 1, &error));
}

static void what_is_refused_changes_nothing(void)
{
    mlx5mk_completion done[80];
    mlx5mk_request odd = request(50, 77), nop = request(51, MLX5MK_OP_NOP), write = request(52, MLX5MK_OP_RDMA_WRITE);
    REFUSED(MLX5MK_ARGUMENT, "operation", mlx5mk_post(first, &odd, &error));
    REFUSED(MLX5MK_ARGUMENT, "flags", (nop.flags = 8, mlx5mk_post(first, &nop, &error)));
    REFUSED(MLX5MK_ARGUMENT, "sges is NULL", (write.sges = NULL, mlx5mk_post(first, &write, &error)));
    REFUSED(MLX5MK_REQUEST, "no bytes", (write = request(52, MLX5MK_OP_RDMA_WRITE), local.length = 0,
                                        mlx5mk_post(first, &write, &error)));
    local.length = 16;
    nop.flags = MLX5MK_SIGNALED;
    int posted = 0;
    while (mlx5mk_post(first, &nop, &error) == MLX5MK_OK)
        posted++;
    CHECK(posted == 64 && error.code == MLX5MK_FULL && strstr(error.message, "1 blocks needed, 0 free") != NULL);
    mlx5mk_doorbell(first);
    int taken = 0;
    while (taken < posted) {
        int count = mlx5mk_cq_wait(cq, done, 80, 5000, &error);
        CHECK(count > 0);
        taken += count;
    }
    CHECK(taken == posted && mlx5mk_cq_poll(cq, done, 80, &error) == 0);
}

static void mkeys_are_in_use_or_not(void)
{
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_mkey mkey, other, third;
    uint32_t key = 0;
    mlx5mk_pool_spec spec = {.count = 2, .max_entries = 4, .flags = MLX5MK_POOL_UPDATE_TAG};
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS, .access = MLX5MK_REMOTE_READ};
    mlx5mk_range empty = {(uintptr_t)memory, 0, lkey}, entry = {(uintptr_t)memory, 16, lkey};

    REFUSED(MLX5MK_ARGUMENT, "count", (spec.count = (1 << 16) + 1, mlx5mk_pool_create(pd, NULL, &spec, &pool, &error)));
    REFUSED(MLX5MK_ARGUMENT, "mkey entries", (spec.count = 2, spec.max_entries = (1 << 30) + 1,
                                             mlx5mk_pool_create(pd, NULL, &spec, &pool, &error)));
    REFUSED(MLX5MK_COMMAND, "the device takes", (spec.max_entries = 1 << 30,
                                                     mlx5mk_pool_create(pd, NULL, &spec, &pool, &error)));
    spec.max_entries = 4;
    DONE(mlx5mk_pool_create(pd, NULL, &spec, &pool, &error));
    config.parts = MLX5MK_SET_SIGNATURE;
    config.wire = (mlx5mk_signature_spec){.kind = MLX5MK_CRC32C, .block_size = 512};
    REFUSED(MLX5MK_CONFIG, "without block signature", mlx5mk_prepared_create(pool, &config, &prepared, &error));
    config.parts = MLX5MK_SET_ACCESS;
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));

    REFUSED(MLX5MK_ARGUMENT, "another pool", mlx5mk_mkey_key(pool, no_mkey, &key, &error));
    DONE(mlx5mk_pool_take(pool, &mkey, &error));
    DONE(mlx5mk_pool_take(pool, &other, &error));
    CHECK(memcmp(&mkey, &other, sizeof(mkey)) != 0);
    REFUSED(MLX5MK_FULL, "in use", mlx5mk_pool_take(pool, &third, &error));
    DONE(mlx5mk_mkey_key(pool, mkey, &key, &error));
    REFUSED(MLX5MK_SIGNATURE, "without block signature", mlx5mk_mkey_check(pool, mkey, NULL, &error));
    REFUSED(MLX5MK_CONFIG, "no crypto", mlx5mk_prepared_set_tweak(prepared, 1, 0, &error));
    REFUSED(MLX5MK_CONFIG, "no T10-DIF", mlx5mk_prepared_set_tags(prepared, MLX5MK_MEMORY, 1, 1, &error));
    REFUSED(MLX5MK_ARGUMENT, "domain", mlx5mk_prepared_set_tags(prepared, 2, 1, 1, &error));
    REFUSED(MLX5MK_CONFIG, "0 bytes",
            mlx5mk_post_configure(first, 60, 0, pool, mkey, prepared, &empty, 1, &error));
    REFUSED(MLX5MK_ARGUMENT, "another pool",
            mlx5mk_post_configure(first, 60, 0, pool, no_mkey, prepared, &entry, 1, &error));
    REFUSED(MLX5MK_ARGUMENT, "entries is NULL",
            mlx5mk_post_configure(first, 60, 0, pool, mkey, prepared, NULL, 1, &error));

    /* The peer reads through the mkey. After the mkey is put back, the peer's read is refused. */
    DONE(mlx5mk_post_configure(first, 61, MLX5MK_SIGNALED, pool, mkey, prepared, &entry, 1, &error));
    mlx5mk_doorbell(first);
    mlx5mk_completion earlier = take(MLX5MK_SENT, 61);
    CHECK(earlier.operation == MLX5MK_OP_CONFIGURE);
    REFUSED(MLX5MK_ARGUMENT, "another pool", mlx5mk_post_invalidate(first, 62, 0, pool, no_mkey, &error));
    REFUSED(MLX5MK_ARGUMENT, "flags", mlx5mk_post_invalidate(first, 62, 1 << 7, pool, mkey, &error));
    DONE(mlx5mk_post_invalidate(first, 62, MLX5MK_SIGNALED, pool, mkey, &error));
    REFUSED(MLX5MK_IN_SERVICE, "in service", mlx5mk_pool_put(pool, mkey, NULL, &error));
    mlx5mk_doorbell(first);
    mlx5mk_completion done = take(MLX5MK_SENT, 62), failed = done;
    CHECK(done.operation == MLX5MK_OP_INVALIDATE);
    failed.kind = MLX5MK_FAILED;
    REFUSED(MLX5MK_IN_SERVICE, "in service", mlx5mk_pool_put(pool, mkey, &failed, &error));
    /* An earlier request may have the same id, and its completion does not prove the invalidation. */
    earlier.id = 62;
    REFUSED(MLX5MK_IN_SERVICE, "in service", mlx5mk_pool_put(pool, mkey, &earlier, &error));
    DONE(mlx5mk_pool_put(pool, mkey, &done, &error));
    REFUSED(MLX5MK_ARGUMENT, "not in use", mlx5mk_pool_put(pool, mkey, &done, &error));
    DONE(mlx5mk_pool_take(pool, &mkey, &error));
    REFUSED(MLX5MK_CONFIG, "must give a layout",
            mlx5mk_post_configure(first, 63, 0, pool, mkey, prepared, NULL, 0, &error));
    DONE(mlx5mk_mkey_forget(pool, mkey, &error));
    DONE(mlx5mk_cq_forget_lost_errors(cq, &error));
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
}

static void configurations_are_checked_when_they_are_prepared(void)
{
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_dek *dek = NULL;
    uint8_t key[64] = {0};
    mlx5mk_key_spec secret = {.key = key, .bytes = 33};
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 4, .flags = MLX5MK_POOL_CRYPTO};
    mlx5mk_signature_spec crc64 = {.kind = MLX5MK_CRC64_XP10, .block_size = 512, .seed = MLX5MK_SEED_ONES};
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS | MLX5MK_SET_SIGNATURE | MLX5MK_SET_CRYPTO,
                            .memory = crc64,
                            .wire = crc64,
                            .crypto = {.data_unit = 520}};

    REFUSED(MLX5MK_ARGUMENT, "length", mlx5mk_dek_create(pd, &secret, &dek, &error));
    REFUSED(MLX5MK_ARGUMENT, "same", (secret.bytes = 64, mlx5mk_dek_create(pd, &secret, &dek, &error)));
    REFUSED(MLX5MK_ARGUMENT, "flags", (secret.flags = 4, mlx5mk_dek_create(pd, &secret, &dek, &error)));
    secret.flags = 0, key[0] = 1;
    DONE(mlx5mk_dek_create(pd, &secret, &dek, &error));
    DONE(mlx5mk_pool_create(pd, cq, &spec, &pool, &error));
    REFUSED(MLX5MK_IN_USE, "1 pools", mlx5mk_cq_destroy(cq, &error));

    REFUSED(MLX5MK_ARGUMENT, "dek is NULL", mlx5mk_prepared_create(pool, &config, &prepared, &error));
    config.crypto.dek = dek;
    static const struct {
        const char *words;
        size_t at;
        uint32_t value;
    } ODD[] = {
        {"parts", offsetof(mlx5mk_config, parts), 128},
        {"MLX5MK_SET_SIGNATURE", offsetof(mlx5mk_config, parts), MLX5MK_SET_CHECK_MASK},
        {"access", offsetof(mlx5mk_config, access), 0x100},
        {"kind of signature", offsetof(mlx5mk_config, wire.kind), 5},
        {"block_size", offsetof(mlx5mk_config, wire.block_size), 513},
        {"seed", offsetof(mlx5mk_config, memory.seed), 2},
        {"direction", offsetof(mlx5mk_config, crypto.direction), 2},
        {"order", offsetof(mlx5mk_config, crypto.order), 2},
        {"data_unit", offsetof(mlx5mk_config, crypto.data_unit), 0},
    };
    for (size_t i = 0; i < sizeof(ODD) / sizeof(ODD[0]); i++) {
        mlx5mk_config odd = config;
        memcpy((uint8_t *)&odd + ODD[i].at, &ODD[i].value, sizeof(uint32_t));
        REFUSED(MLX5MK_ARGUMENT, ODD[i].words, mlx5mk_prepared_create(pool, &odd, &prepared, &error));
    }
    mlx5mk_config dif = config;
    REFUSED(MLX5MK_CONFIG, "data unit",
            (dif.crypto.data_unit = 512, mlx5mk_prepared_create(pool, &dif, &prepared, &error)));
    dif.crypto.data_unit = 520;
    dif.wire.kind = MLX5MK_T10DIF;
    dif.wire.flags = MLX5MK_ESCAPE_APP_TAG | MLX5MK_ESCAPE_APP_AND_REF_TAG;
    REFUSED(MLX5MK_ARGUMENT, "flags of a T10-DIF", mlx5mk_prepared_create(pool, &dif, &prepared, &error));
    REFUSED(MLX5MK_ARGUMENT, "guard",
            (dif.wire.flags = 0, dif.wire.guard = 2, mlx5mk_prepared_create(pool, &dif, &prepared, &error)));
    REFUSED(MLX5MK_CONFIG, "copy mask",
            (dif.wire.guard = 0, dif.parts |= MLX5MK_SET_COPY_MASK,
             mlx5mk_prepared_create(pool, &dif, &prepared, &error)));
    config.parts |= MLX5MK_SET_CHECK_MASK | MLX5MK_SET_COPY_MASK;
    config.check_mask = 0xf0, config.copy_mask = 0xf0;
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));
    DONE(mlx5mk_prepared_set_tweak(prepared, 1, 2, &error));
    DONE(mlx5mk_prepared_set_dek(prepared, dek, NULL, &error));
    DONE(mlx5mk_prepared_set_dek(prepared, dek, secret.keytag, &error));
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
    mlx5mk_dek_destroy(dek);
}

static void bytes_of_a_ring_are_told_in_words(void)
{
    /* Block 0 is a signalled NOP of queue pair 0x77. Block 1 gets an unknown opcode below. */
    uint8_t blocks[128] = {0, 0, 0, 0, 0, 0, 0x77, 1, 0, 0, 0, 8}, entry[64] = {0};
    char words[4096];
    size_t length = 0;
    CHECK(mlx5mk_inspect(blocks, 64, MLX5MK_INSPECT_SENDS, words, sizeof(words), &length, &error) ==
          MLX5MK_NOTHING);
    CHECK(strstr(words, "NOP, signalled") != NULL && length == strlen(words));
    blocks[64 + 3] = 0x7e, blocks[64 + 7] = 1;
    CHECK(mlx5mk_inspect(blocks, sizeof(blocks), MLX5MK_INSPECT_SENDS, NULL, 0, &length, NULL) >=
          MLX5MK_SUSPICIOUS);
    CHECK(mlx5mk_inspect(blocks, sizeof(blocks), MLX5MK_INSPECT_SENDS, words, 8, NULL, NULL) >= MLX5MK_SUSPICIOUS);
    CHECK(strlen(words) == 7);
    entry[63] = 0xf0;
    CHECK(mlx5mk_inspect(entry, sizeof(entry), MLX5MK_INSPECT_COMPLETIONS, words, sizeof(words), NULL, &error) >= 0);
    CHECK(strstr(words, "not written") != NULL);
    CHECK(mlx5mk_inspect(NULL, 0, MLX5MK_INSPECT_SENDS, words, sizeof(words), NULL, &error) == MLX5MK_NOTHING);
    CHECK(words[0] == 0);
    REFUSED(MLX5MK_ARGUMENT, "bytes is NULL", mlx5mk_inspect(NULL, 1, 0, NULL, 0, NULL, &error));
    REFUSED(MLX5MK_ARGUMENT, "what", mlx5mk_inspect(entry, 64, 8, NULL, 0, NULL, &error));
    /*
     * The first block is a send of a datagram queue to queue pair 0x45, which is decoded only if the kind of
     * queue is named. The second block is all zeros, so that it was never written.
     */
    uint8_t datagram[128] = {0, 0, 0, 10, 0, 0, 0x77, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0x11, 0x11, 0x11, 0x11};
    datagram[27] = 0x45;
    CHECK(mlx5mk_inspect(datagram, 128, MLX5MK_INSPECT_SENDS, words, sizeof(words), NULL, &error) ==
          MLX5MK_NOTE);
    CHECK(strstr(words, "not decoded") != NULL && strstr(words, "never written") != NULL);
    mlx5mk_inspect(datagram, 64, MLX5MK_INSPECT_SENDS_DATAGRAM, words, sizeof(words), NULL, &error);
    CHECK(strstr(words, "to queue pair 0x45") != NULL);
    const uint32_t others[] = {MLX5MK_INSPECT_SENDS_CONNECTED, MLX5MK_INSPECT_SENDS_DC,
                               MLX5MK_INSPECT_SENDS_XRC, MLX5MK_INSPECT_SENDS_ETHERNET};
    for (size_t other = 0; other < sizeof(others) / sizeof(others[0]); other++) {
        mlx5mk_inspect(datagram, 64, others[other], words, sizeof(words), NULL, &error);
        CHECK(strstr(words, "to queue pair 0x45") == NULL || others[other] == MLX5MK_INSPECT_SENDS_DC);
    }
    /* The fields of a completion entry of 128 bytes are in its second half. */
    uint8_t two[128] = {0};
    two[64 + 59] = 0x77;
    mlx5mk_inspect(two, 128, MLX5MK_INSPECT_COMPLETIONS_128, words, sizeof(words), NULL, &error);
    CHECK(strstr(words, "queue pair 0x77") != NULL && strstr(words, "queue pair 0x0") == NULL);
}

static void a_queue_pair_that_failed_begins_anew(void)
{
    uint64_t sends[64], receives[1];
    mlx5mk_outstanding left = {.sends = {.ids = sends, .room = 64}, .receives = {.ids = receives, .room = 1}};
    mlx5mk_range room = {(uintptr_t)memory, 16, lkey};
    mlx5mk_request wrong = request(70, MLX5MK_OP_RDMA_WRITE), nop = request(71, MLX5MK_OP_NOP);
    mlx5mk_address own;
    wrong.rkey = 0x12345600;
    DONE(mlx5mk_post_receive(first, 72, &room, 1, &error));
    DONE(mlx5mk_post_receive(first, 73, &room, 1, &error));
    DONE(mlx5mk_post(first, &wrong, &error));
    mlx5mk_doorbell(first);
    mlx5mk_completion failed = take(MLX5MK_FAILED, 70);
    /* 0x13 is the PRM's syndrome for a remote access error. */
    CHECK(failed.syndrome == 0x13 && strstr(error.message, "remote access") != NULL);
    DONE(mlx5mk_post(first, &nop, &error));
    REFUSED(MLX5MK_ARGUMENT, "ids is NULL",
            mlx5mk_qp_reset(first, &(mlx5mk_outstanding){.receives = {.room = 1}}, &error));
    DONE(mlx5mk_qp_reset(first, &left, &error));
    CHECK(left.sends.count == 1 && sends[0] == 71);
    CHECK(left.receives.count == 2 && receives[0] == 72);
    DONE(mlx5mk_qp_reset(first, NULL, &error));
    DONE(mlx5mk_qp_connect_local(first, mlx5mk_qp_number(first), &error));
    DONE(mlx5mk_qp_address(first, NULL, &own, &error));
    does(&nop);
}

int main(void)
{
    arguments_may_not_be_missing();
    codes_have_words();
    set_up();
    each_operation_does_what_its_name_says();
    atomics_have_masks();
    memory_is_copied();
    a_request_in_bytes_is_posted();
    messages_arrive_with_what_was_sent_along();
    nobody_is_woken_for_nothing();
    what_is_refused_changes_nothing();
    mkeys_are_in_use_or_not();
    configurations_are_checked_when_they_are_prepared();
    bytes_of_a_ring_are_told_in_words();
    a_queue_pair_that_failed_begins_anew();
    /* Objects may be destroyed in any order, except that a completion queue comes after its queue pairs. */
    mlx5mk_device_close(device);
    mlx5mk_pd_free(pd);
    mlx5mk_qp_destroy(second);
    REFUSED(MLX5MK_IN_USE, "1 queue pairs", mlx5mk_cq_destroy(cq, &error));
    mlx5mk_qp_destroy(first);
    DONE(mlx5mk_cq_destroy(cq, &error));
    DONE(mlx5mk_mr_deregister(mr, &error));
    /* No pointer may remain: valgrind reports unfreed memory only if no pointer leads to it. */
    device = NULL, pd = NULL, cq = NULL, first = NULL, second = NULL, mr = NULL;
    printf("every call did what its page says\n");
    return EXIT_SUCCESS;
}
