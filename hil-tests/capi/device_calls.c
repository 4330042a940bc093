/*
 * Makes the calls about the device itself: versions and sizes, logins, keys that get other values, the clock
 * and time stamps, commands that the program builds, answers that nobody waits for, fields of mkeys that few
 * configurations change, and combined CRCs. `cargo xtask capi --test` runs it on the software device, under
 * valgrind, with keys in plaintext, and with the argument `wrapped` on a device that asks for a login. With
 * the argument `kept` it provokes an error of a destroyed handle, whose memory stays allocated.
 */

#define _GNU_SOURCE /* memfd_create, MAP_ANONYMOUS */

#include "check.h"

#include <poll.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

/* The queue pair is connected to itself. */
static mlx5mk_device *device;
static mlx5mk_pd *pd;
static mlx5mk_cq *cq;
static mlx5mk_qp *qp;
static mlx5mk_mr *mr;
static uint8_t *pages;
static uint32_t lkey, rkey;

/* Wrapped values of hil-tests/emulator/verbs/crypto_test_info.json. */
static const uint8_t CREDENTIAL[48] = {
    0x01, 0xe2, 0x4c, 0xd4, 0x98, 0xc7, 0x6d, 0x60, 0x10, 0x05, 0x7f, 0xfc, 0xcf, 0xfb, 0x85, 0x11,
    0x59, 0x3c, 0xb6, 0x95, 0x29, 0x9b, 0x61, 0xae, 0x6b, 0x7f, 0xf1, 0x70, 0xbb, 0x90, 0x1a, 0x34,
    0xdf, 0xcf, 0x1a, 0xf4, 0x6b, 0x17, 0x4b, 0xbe, 0xa7, 0x53, 0x05, 0x60, 0xc0, 0xcb, 0x58, 0xcd};
static const uint8_t WRAPPED_KEY[40] = {
    0x77, 0x37, 0x8c, 0xcc, 0x71, 0xcb, 0x4a, 0x37, 0xe6, 0xaa, 0xb0, 0xe3, 0xdd, 0x01,
    0x96, 0xdf, 0xa1, 0xcf, 0x8d, 0x06, 0x21, 0x05, 0x49, 0xbc, 0xbe, 0xdf, 0x95, 0xa4,
    0x44, 0xdf, 0x2b, 0x73, 0x34, 0xe0, 0xbe, 0x52, 0x54, 0x21, 0x46, 0x0c};

static uint8_t KEY[2][32];

static void set_up(void)
{
    uint32_t all = MLX5MK_LOCAL_WRITE | MLX5MK_REMOTE_WRITE | MLX5MK_REMOTE_READ;
    mlx5mk_qp_spec spec = {
        .send_blocks = 64, .receive_slots = 16, .timestamps = MLX5MK_TIMESTAMPS_FREE_RUNNING};
    for (int i = 0; i < 64; i++)
        KEY[i / 32][i % 32] = (uint8_t)(7 * i + 1);
    pages = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    DONE(mlx5mk_device_open(NULL, &device, &error));
    DONE(mlx5mk_pd_alloc(device, &pd, &error));
    REFUSED(MLX5MK_ARGUMENT, "flags", mlx5mk_cq_create(device, 256, 2, &cq, &error));
    DONE(mlx5mk_cq_create(device, 256, MLX5MK_CQ_LONG_ENTRIES, &cq, &error));
    DONE(mlx5mk_qp_create(pd, cq, cq, &spec, &qp, &error));
    DONE(mlx5mk_qp_connect_local(qp, mlx5mk_qp_number(qp), &error));
    DONE(mlx5mk_mr_register(pd, pages, 4 * PAGE, all, &mr, &error));
    lkey = mlx5mk_mr_lkey(mr), rkey = mlx5mk_mr_rkey(mr);
}

static void tear_down(void)
{
    mlx5mk_qp_destroy(qp);
    DONE(mlx5mk_cq_destroy(cq, &error));
    DONE(mlx5mk_mr_deregister(mr, &error));
    mlx5mk_pd_free(pd);
    mlx5mk_device_close(device);
    device = NULL, pd = NULL, cq = NULL, qp = NULL, mr = NULL;
    munmap(pages, 4 * PAGE);
}

/* Rings the doorbell, and waits for the success of request `id`. */
static void finish(uint64_t id)
{
    mlx5mk_completion done;
    mlx5mk_doorbell(qp);
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1);
    CHECK(done.kind == MLX5MK_SENT && done.id == id);
}

/* Configures an mkey with `entry` by request `id`, and writes its range `all` to the second page. */
static void write_through(uint64_t id, mlx5mk_pool *pool, mlx5mk_mkey mkey, const mlx5mk_prepared *prepared,
                          const mlx5mk_range *entry, const mlx5mk_range *all)
{
    mlx5mk_request write = {.id = id + 1,
                            .operation = MLX5MK_OP_RDMA_WRITE,
                            .flags = MLX5MK_SIGNALED,
                            .remote_address = (uintptr_t)(pages + PAGE),
                            .rkey = rkey,
                            .sges = all,
                            .sge_count = 1};
    DONE(mlx5mk_post_configure(qp, id, 0, pool, mkey, prepared, entry, 1, &error));
    DONE(mlx5mk_post(qp, &write, &error));
    finish(id + 1);
}

static void header_and_library_have_one_version(void)
{
    CHECK(mlx5mk_version() ==
          MLX5MK_VERSION_MAJOR * 10000 + MLX5MK_VERSION_MINOR * 100 + MLX5MK_VERSION_PATCH);
}

static void sizes_are_those_of_the_queues(void)
{
    mlx5mk_pool_spec encrypted = {.count = 1, .max_entries = 4, .flags = MLX5MK_POOL_CRYPTO};
    mlx5mk_range sges[2];
    mlx5mk_request write = {.operation = MLX5MK_OP_RDMA_WRITE, .sges = sges, .sge_count = 1};
    /* The numbers are those of the example of `RequestSize` in Rust: 4 entries, T10-DIF, AES-XTS, a write. */
    mlx5mk_size configure = mlx5mk_configure_size(&encrypted, 4, 1), transfer = mlx5mk_request_size(&write);
    CHECK(configure.blocks + transfer.blocks == 7 && configure.requests + transfer.requests == 3);
    CHECK(mlx5mk_cq_entries(2, 256, 64, 32) == 1024);
    /* An mkey with signatures needs the BSF of its signature even if no domain has one. */
    CHECK(mlx5mk_configure_size(&encrypted, 4, 0).blocks == configure.blocks - 1);
    CHECK(mlx5mk_configure_size(&encrypted, 4, MLX5MK_NO_SIGNATURES).blocks == 4);
    CHECK(mlx5mk_configure_size(NULL, 4, 1).blocks == 0 && mlx5mk_request_size(NULL).blocks == 0);
    static const struct {
        uint32_t operation, bytes, blocks;
    } SIZES[] = {{MLX5MK_OP_NOP, 0, 1},        {MLX5MK_OP_SEND, 0, 1},       {MLX5MK_OP_SEND, 60, 2},
                 {MLX5MK_OP_SEND, 44, 1},      {MLX5MK_OP_RDMA_WRITE, 44, 2}, {MLX5MK_OP_RDMA_READ, 0, 1},
                 {MLX5MK_OP_COMPARE_SWAP, 0, 1}, {MLX5MK_OP_MEMCPY, 0, 1},     {MLX5MK_OP_INVALIDATE, 0, 2},
                 {MLX5MK_OP_MASKED_FETCH_ADD, 0, 1}, {MLX5MK_OP_MASKED_COMPARE_SWAP, 0, 2},
                 {MLX5MK_OP_BIND, 0, 3}};
    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++) {
        mlx5mk_request one = {.operation = SIZES[i].operation, .sges = sges, .sge_count = 2};
        one.inline_data = SIZES[i].bytes ? pages : NULL, one.inline_bytes = SIZES[i].bytes;
        CHECK(mlx5mk_request_size(&one).blocks == SIZES[i].blocks && mlx5mk_request_size(&one).requests == 1);
    }
    mlx5mk_request raw = {.operation = MLX5MK_OP_RAW};
    CHECK(mlx5mk_request_size(&raw).blocks == 0);
}

static void options_of_a_connection_are_checked(void)
{
    mlx5mk_address own;
    mlx5mk_connect_spec spec = {.mtu = 1024, .retries = MLX5MK_NO_RETRIES, .rnr_retries = 3, .rnr_timer = 14};
    spec.hop_limit = 4, spec.flow_label = 7, spec.service_level = 3;
    DONE(mlx5mk_qp_reset(qp, NULL, &error));
    DONE(mlx5mk_qp_address(qp, &spec, &own, &error));
    DONE(mlx5mk_qp_connect(qp, &own, &spec, &error));
    spec.mtu = 1000;
    REFUSED(MLX5MK_ARGUMENT, "mtu", mlx5mk_qp_address(qp, &spec, &own, &error));
    spec.mtu = 0, spec.retries = 8;
    REFUSED(MLX5MK_ARGUMENT, "retries", mlx5mk_qp_address(qp, &spec, &own, &error));
    spec.retries = 0, spec.rnr_retries = 8;
    REFUSED(MLX5MK_ARGUMENT, "retries", mlx5mk_qp_address(qp, &spec, &own, &error));
    spec.rnr_retries = 0, spec.rnr_timer = 32;
    REFUSED(MLX5MK_ARGUMENT, "timer", mlx5mk_qp_address(qp, &spec, &own, &error));
    spec.rnr_timer = 0, spec.flow_label = 1 << 20;
    REFUSED(MLX5MK_ARGUMENT, "flow label", mlx5mk_qp_address(qp, &spec, &own, &error));
}

static void completions_have_time_stamps(void)
{
    mlx5mk_completion done[2];
    uint64_t stamps[2], before, after;
    mlx5mk_clock clock;
    REFUSED(MLX5MK_ARGUMENT, "device is NULL", mlx5mk_device_ticks(NULL, &before, &error));
    REFUSED(MLX5MK_ARGUMENT, "device is NULL", mlx5mk_device_clock(NULL, &clock, &error));
    DONE(mlx5mk_device_clock(device, &clock, &error));
    DONE(mlx5mk_device_ticks(device, &before, &error));
    mlx5mk_request nop = {.id = 1, .operation = MLX5MK_OP_NOP, .flags = MLX5MK_SIGNALED};
    DONE(mlx5mk_post(qp, &nop, &error));
    mlx5mk_doorbell(qp);
    int32_t taken = 0;
    while (taken == 0)
        taken = mlx5mk_cq_poll_stamped(cq, done, stamps, 2, &error);
    CHECK(taken == 1 && done[0].id == 1);
    DONE(mlx5mk_device_ticks(device, &after, &error));
    CHECK(before <= stamps[0] && stamps[0] <= after);
    CHECK(mlx5mk_clock_nanoseconds(&clock, before) <= mlx5mk_clock_nanoseconds(&clock, after));
    CHECK(mlx5mk_clock_nanoseconds(NULL, before) == 0);
    /* Real time has seconds in the high half, nanoseconds in the low half. */
    CHECK(mlx5mk_real_time_nanoseconds((uint64_t)2 << 32 | 5) == 2000000005);
    REFUSED(MLX5MK_ARGUMENT, "cq is NULL", mlx5mk_cq_poll_stamped(NULL, done, stamps, 2, &error));
    REFUSED(MLX5MK_ARGUMENT, "timestamps is NULL", mlx5mk_cq_poll_stamped(cq, done, NULL, 2, &error));
}

/* Writes the first page to the second, encrypted with a key: a data unit of 512 bytes. */
static void encrypt(const mlx5mk_dek *dek)
{
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_mkey mkey;
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 4, .flags = MLX5MK_POOL_CRYPTO};
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS | MLX5MK_SET_CRYPTO,
                            .access = MLX5MK_LOCAL_WRITE,
                            .crypto = {.dek = dek, .direction = MLX5MK_ENCRYPT_ON_TX, .data_unit = 512}};
    DONE(mlx5mk_pool_create(pd, NULL, &spec, &pool, &error));
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));
    DONE(mlx5mk_pool_take(pool, &mkey, &error));
    mlx5mk_range entry = {(uintptr_t)pages, 512, lkey}, all = {0, 512, 0};
    DONE(mlx5mk_mkey_key(pool, mkey, &all.key, &error));
    write_through(1, pool, mkey, prepared, &entry, &all);
    DONE(mlx5mk_pool_put(pool, mkey, NULL, &error));
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
}

static void a_key_gets_another_value(void)
{
    mlx5mk_dek *one = NULL, *other = NULL, *lent = NULL;
    mlx5mk_dek_cache *cache = NULL;
    uint8_t opaque[8], first[512], second[512];
    mlx5mk_key_spec specs[2] = {{.key = KEY[0], .bytes = 32, .opaque = "volume"},
                                {.key = KEY[1], .bytes = 32}};
    DONE(mlx5mk_dek_create(pd, &specs[0], &one, &error));
    DONE(mlx5mk_dek_create(pd, &specs[1], &other, &error));
    CHECK(mlx5mk_dek_query(one, &opaque, &error) == MLX5MK_DEK_READY && memcmp(opaque, "volume\0", 8) == 0);
    encrypt(one);
    memcpy(first, pages + PAGE, 512);
    encrypt(other);
    memcpy(second, pages + PAGE, 512);
    CHECK(memcmp(first, second, 512) != 0);

    DONE(mlx5mk_sync_crypto(device, &error));
    DONE(mlx5mk_dek_replace(one, &specs[1], &error));
    encrypt(one);
    CHECK(memcmp(pages + PAGE, second, 512) == 0);
    mlx5mk_key_spec odd = {.key = KEY[0], .bytes = 33};
    REFUSED(MLX5MK_ARGUMENT, "length", mlx5mk_dek_replace(one, &odd, &error));
    REFUSED(MLX5MK_ARGUMENT, "dek is NULL", mlx5mk_dek_replace(NULL, &specs[1], &error));
    REFUSED(MLX5MK_ARGUMENT, "dek is NULL", mlx5mk_dek_query(NULL, &opaque, &error));
    REFUSED(MLX5MK_ARGUMENT, "device is NULL", mlx5mk_sync_crypto(NULL, &error));

    /* Only the cache changes a key that it has lent. */
    DONE(mlx5mk_dek_cache_create(pd, &cache, &error));
    DONE(mlx5mk_dek_cache_lease(cache, "volume", 6, &specs[0], &lent, &error));
    REFUSED(MLX5MK_ARGUMENT, "cache", mlx5mk_dek_replace(lent, &specs[1], &error));
    REFUSED(MLX5MK_ARGUMENT, "cache", mlx5mk_dek_query(lent, &opaque, &error));
    mlx5mk_dek_destroy(lent);
    mlx5mk_dek_cache_destroy(cache);
    mlx5mk_dek_destroy(one);
    mlx5mk_dek_destroy(other);
}

static void be32(uint8_t *place, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        place[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t word(const uint8_t *place)
{
    return (uint32_t)place[0] << 24 | (uint32_t)place[1] << 16 | (uint32_t)place[2] << 8 | place[3];
}

/*
 * Writes CREATE_CQ: a completion queue of 64 entries in registered memory, its doorbell record in the next
 * page.
 */
static void create_cq(uint8_t request[272], const mlx5mk_umem *umem, const mlx5mk_uar *uar)
{
    uint32_t page, event_queue;
    DONE(mlx5mk_uar_number(uar, &page, &error));
    DONE(mlx5mk_device_event_queue(device, 0, &event_queue, &error));
    memset(request, 0, 272);
    request[0] = 0x04;
    be32(request + 0x10, 1 << 25); /* the doorbell record is in registered memory */
    be32(request + 0x14, mlx5mk_umem_number(umem));
    be32(request + 0x1c, 6u << 24 | page);
    be32(request + 0x24, event_queue);
    be32(request + 0x4c, PAGE); /* offset of the record */
    be32(request + 0x58, mlx5mk_umem_number(umem));
    be32(request + 0x5c, 1u << 31); /* so are the entries */
}

/* A completion queue that the program's own command creates, in the program's memory. */
static void a_command_creates_a_queue_in_registered_memory(void)
{
    mlx5mk_umem *umem = NULL;
    mlx5mk_uar *uar = NULL;
    mlx5mk_object *object = NULL;
    uint8_t request[272], reply[16];
    REFUSED(MLX5MK_ARGUMENT, "page sizes",
            mlx5mk_umem_register(device, pages, PAGE, MLX5MK_LOCAL_WRITE, 512, &umem, &error));
    REFUSED(MLX5MK_ARGUMENT, "address is NULL",
            mlx5mk_umem_register(device, NULL, PAGE, 0, 0, &umem, &error));
    REFUSED(MLX5MK_SYSTEM, "mlx5dv_devx_umem_reg_ex",
            mlx5mk_umem_register(device, pages, PAGE, MLX5MK_LOCAL_WRITE, 1 << 30, &umem, &error));
    memset(pages, 0xff, PAGE);
    DONE(mlx5mk_umem_register(device, pages, 2 * PAGE, MLX5MK_LOCAL_WRITE, 0, &umem, &error));
    DONE(mlx5mk_uar_alloc(device, &uar, &error));
    CHECK(mlx5mk_uar_address(uar) != NULL && mlx5mk_uar_address(NULL) == NULL);
    create_cq(request, umem, uar);
    REFUSED(MLX5MK_ARGUMENT, "reply", mlx5mk_object_create(device, request, 272, NULL, 0, &object, &error));
    DONE(mlx5mk_object_create(device, request, sizeof(request), reply, sizeof(reply), &object, &error));
    CHECK(word(reply + 8) != 0);
    DONE(mlx5mk_object_destroy(object, &error));
    request[0x1c] = 31; /* more entries than any queue has */
    REFUSED(MLX5MK_COMMAND, "CREATE_CQ",
            mlx5mk_object_create(device, request, 272, reply, 16, &object, &error));
    CHECK(reply[0] != 0);
    mlx5mk_uar_free(uar);
    DONE(mlx5mk_umem_deregister(umem, &error));

    int fd = memfd_create("no dma-buf", 0);
    REFUSED(MLX5MK_ARGUMENT, "descriptor",
            mlx5mk_umem_register_dmabuf(device, -1, 0, PAGE, MLX5MK_LOCAL_WRITE, 0, &umem, &error));
    CHECK(mlx5mk_umem_register_dmabuf(device, fd, 0, 0, MLX5MK_LOCAL_WRITE, 0, &umem, &error) ==
          MLX5MK_SYSTEM);
    close(fd);
    DONE(mlx5mk_umem_deregister(NULL, &error));
    DONE(mlx5mk_object_destroy(NULL, &error));
    mlx5mk_uar_free(NULL);
    CHECK(mlx5mk_umem_number(NULL) == 0);
}

/* A key that the program's own commands create, change and query (general object 0x0c). */
static void commands_change_and_query_an_object(void)
{
    mlx5mk_object *object = NULL;
    mlx5mk_queries *queries = NULL;
    uint8_t request[272] = {0x0a, 0x00, [7] = 0x0c}, reply[272], later[272];
    uint32_t domain;
    DONE(mlx5mk_pd_number(pd, &domain, &error));
    be32(request + 24, 3); /* AES-XTS, halves of 128 bits */
    be32(request + 28, domain);
    memcpy(request + 64, "opaque.", 8);
    memcpy(request + 80, KEY[0], 32);
    DONE(mlx5mk_object_create(device, request, sizeof(request), reply, 16, &object, &error));
    uint32_t number = word(reply + 8);

    request[1] = 0x01, request[23] = 1; /* MODIFY_GENERAL_OBJECT: the key */
    be32(request + 8, number);
    memcpy(request + 80, KEY[1], 32);
    DONE(mlx5mk_object_modify(object, request, sizeof(request), reply, 16, &error));
    uint8_t query[16] = {0x0a, 0x02, [7] = 0x0c};
    be32(query + 8, number);
    DONE(mlx5mk_object_query(object, query, sizeof(query), reply, sizeof(reply), &error));
    CHECK(memcmp(reply + 64, "opaque.", 8) == 0);
    /* Nobody reads another object by this handle. */
    be32(query + 8, number + 1);
    CHECK(mlx5mk_object_query(object, query, sizeof(query), reply, sizeof(reply), &error) < 0);

    be32(query + 8, number);
    DONE(mlx5mk_queries_create(device, &queries, &error));
    DONE(mlx5mk_object_query_later(object, queries, query, sizeof(query), sizeof(later), 77, &error));
    mlx5mk_answer answer = {.reply = later, .room = sizeof(later)};
    CHECK(mlx5mk_queries_next(queries, &answer, 5000, &error) == 1);
    CHECK(answer.id == 77 && answer.bytes == sizeof(later) && memcmp(later + 64, "opaque.", 8) == 0);
    mlx5mk_queries_destroy(queries);
    DONE(mlx5mk_object_destroy(object, &error));
}

static void answers_come_when_they_are_there(void)
{
    mlx5mk_queries *queries = NULL;
    mlx5mk_dek *dek = NULL;
    mlx5mk_qp_info now, later;
    uint8_t reply[1024], opaque[8];
    mlx5mk_answer answer = {.reply = reply, .room = sizeof(reply)};
    mlx5mk_key_spec spec = {.key = KEY[0], .bytes = 32, .opaque = "seven"};
    DONE(mlx5mk_dek_create(pd, &spec, &dek, &error));
    DONE(mlx5mk_queries_create(device, &queries, &error));
    CHECK(mlx5mk_queries_next(queries, &answer, 0, &error) == 0);
    DONE(mlx5mk_qp_query_later(qp, queries, 5, &error));
    struct pollfd ready = {.fd = mlx5mk_queries_fd(queries, &error), .events = POLLIN};
    CHECK(ready.fd >= 0 && poll(&ready, 1, 5000) == 1);
    CHECK(mlx5mk_queries_next(queries, &answer, 5000, &error) == 1 && answer.id == 5);
    DONE(mlx5mk_answer_qp(&answer, &later, &error));
    DONE(mlx5mk_qp_query(qp, &now, &error));
    CHECK(memcmp(&now, &later, sizeof(now)) == 0 && now.state == MLX5MK_QP_RTS);
    CHECK(now.remote_qpn == mlx5mk_qp_number(qp));
    DONE(mlx5mk_dek_query_later(dek, queries, 6, &error));
    CHECK(mlx5mk_queries_next(queries, &answer, -1, &error) == 1 && answer.id == 6);
    CHECK(mlx5mk_answer_dek(&answer, &opaque, &error) == MLX5MK_DEK_READY);
    CHECK(memcmp(opaque, "seven\0\0", 8) == 0);
    /* An answer that was cut off is none. */
    answer.bytes = 8;
    CHECK(mlx5mk_answer_dek(&answer, &opaque, &error) == MLX5MK_COMMAND);
    CHECK(mlx5mk_answer_qp(&answer, &later, &error) == MLX5MK_COMMAND);
    REFUSED(MLX5MK_ARGUMENT, "qp is NULL", mlx5mk_qp_query_later(NULL, queries, 5, &error));
    REFUSED(MLX5MK_ARGUMENT, "dek is NULL", mlx5mk_dek_query_later(NULL, queries, 5, &error));
    REFUSED(MLX5MK_ARGUMENT, "queries is NULL", mlx5mk_queries_next(NULL, &answer, 5, &error));
    mlx5mk_queries_destroy(queries);
    mlx5mk_dek_destroy(dek);
}

/* Fields that few configurations change: start of the space, orderings, invalidation by the peer. */
static void fields_change_by_request(void)
{
    mlx5mk_pool *pool = NULL, *protected = NULL;
    mlx5mk_prepared *prepared = NULL, *other = NULL;
    mlx5mk_mkey mkey;
    const uint64_t START = 0x100000;
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 4}, crypto = spec;
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS, .access = MLX5MK_LOCAL_WRITE};
    DONE(mlx5mk_pool_create(pd, NULL, &spec, &pool, &error));
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));
    DONE(mlx5mk_prepared_set_start(prepared, START, &error));
    DONE(mlx5mk_prepared_set_remote_invalidate(prepared, 1, &error));
    REFUSED(MLX5MK_ARGUMENT, "allowed", mlx5mk_prepared_set_remote_invalidate(prepared, 2, &error));
    DONE(mlx5mk_prepared_set_ordering(prepared, MLX5MK_ORDER_WRITES | MLX5MK_ORDER_READS, 1, &error));
    REFUSED(MLX5MK_ARGUMENT, "which", mlx5mk_prepared_set_ordering(prepared, 4, 1, &error));
    REFUSED(MLX5MK_ARGUMENT, "relaxed", mlx5mk_prepared_set_ordering(prepared, 1, 2, &error));
    REFUSED(MLX5MK_ARGUMENT, "prepared is NULL", mlx5mk_prepared_set_start(NULL, START, &error));
    DONE(mlx5mk_pool_take(pool, &mkey, &error));
    mlx5mk_range entry = {(uintptr_t)pages, 16, lkey}, all = {START, 16, 0};
    DONE(mlx5mk_mkey_key(pool, mkey, &all.key, &error));
    memcpy(pages, "begins elsewhere", 16);
    write_through(3, pool, mkey, prepared, &entry, &all);
    CHECK(memcmp(pages + PAGE, "begins elsewhere", 16) == 0);

    /* The peer may invalidate the key from now on: the queue pair is its own peer. */
    mlx5mk_completion done[2];
    mlx5mk_range place = {(uintptr_t)(pages + 2 * PAGE), 16, lkey};
    mlx5mk_request revoke = {.id = 5, .operation = MLX5MK_OP_SEND_INVALIDATE, .flags = MLX5MK_SIGNALED};
    revoke.immediate = all.key;
    DONE(mlx5mk_post_receive(qp, 6, &place, 1, &error));
    DONE(mlx5mk_post(qp, &revoke, &error));
    mlx5mk_doorbell(qp);
    for (int32_t taken = 0; taken < 2;) {
        int32_t more = mlx5mk_cq_wait(cq, done + taken, (uint32_t)(2 - taken), 5000, &error);
        CHECK(more > 0);
        taken += more;
    }
    const mlx5mk_completion *received = done[0].kind == MLX5MK_RECEIVED ? &done[0] : &done[1];
    CHECK(received->operation == MLX5MK_OP_SEND_INVALIDATE && received->immediate == all.key);
    DONE(mlx5mk_pool_put(pool, mkey, received, &error));

    crypto.flags = MLX5MK_POOL_CRYPTO;
    DONE(mlx5mk_pool_create(pd, NULL, &crypto, &protected, &error));
    DONE(mlx5mk_prepared_create(protected, &config, &other, &error));
    CHECK(mlx5mk_prepared_set_start(other, START, &error) == MLX5MK_CONFIG);
    mlx5mk_prepared_destroy(other);
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(protected);
    mlx5mk_pool_destroy(pool);
}

/* Where the cipher is around the signature, a data unit need not be a block with its signature. */
static void data_units_may_differ_from_blocks(void)
{
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_dek *dek = NULL;
    mlx5mk_key_spec key = {.key = KEY[0], .bytes = 32};
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 4, .flags = MLX5MK_POOL_CRYPTO};
    DONE(mlx5mk_dek_create(pd, &key, &dek, &error));
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS | MLX5MK_SET_SIGNATURE | MLX5MK_SET_CRYPTO,
                            .wire = {.kind = MLX5MK_T10DIF, .block_size = 512},
                            .crypto = {.dek = dek, .direction = MLX5MK_ENCRYPT_ON_TX, .data_unit = 512}};
    DONE(mlx5mk_pool_create(pd, cq, &spec, &pool, &error));
    CHECK(mlx5mk_prepared_create(pool, &config, &prepared, &error) == MLX5MK_CONFIG);
    config.parts |= MLX5MK_ANY_DATA_UNIT;
    DONE(mlx5mk_prepared_create(pool, &config, &prepared, &error));
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
    mlx5mk_dek_destroy(dek);
}

static void crcs_of_blocks_make_the_crc_of_all(void)
{
    /* The CRCs of "1234" and "56789" make that of "123456789". */
    const uint32_t last = 0x83b565d8, zeros[2] = {0, 0};
    uint32_t crc;
    uint64_t long_crc;
    DONE(mlx5mk_crc32c_combine(0xf63af4ee, &last, 1, 5, MLX5MK_SEED_ONES, &crc, &error));
    CHECK(crc == 0xe3069283);
    DONE(mlx5mk_crc32c_combine(0, zeros, 2, 512, MLX5MK_SEED_ONES, &crc, &error));
    REFUSED(MLX5MK_ARGUMENT, "seed", mlx5mk_crc32c_combine(0, zeros, 2, 512, 2, &crc, &error));
    REFUSED(MLX5MK_ARGUMENT, "blocks is NULL", mlx5mk_crc32c_combine(0, NULL, 2, 512, 1, &crc, &error));
    /* The CRC of one block is its own. */
    const uint64_t block = 0x6482d367eb22b64e;
    DONE(mlx5mk_crc64_combine(0, &block, 1, 4096, MLX5MK_SEED_ONES, &long_crc, &error));
    CHECK(long_crc == block);
    DONE(mlx5mk_crc32c_combine(UINT32_MAX, &last, 1, 512, MLX5MK_SEED_ZEROS, &crc, &error));
    CHECK(crc == last);
    DONE(mlx5mk_crc64_combine(UINT64_MAX, &block, 1, 4096, MLX5MK_SEED_ZEROS, &long_crc, &error));
    CHECK(long_crc == block);
    REFUSED(MLX5MK_ARGUMENT, "crc is NULL", mlx5mk_crc64_combine(0, &block, 1, 4096, 1, NULL, &error));
}

static int told;
static void tell(const mlx5mk_error *dropped)
{
    CHECK(dropped->code == MLX5MK_SYSTEM && dropped->message[0] != 0);
    told++;
}

/* Memory that a queue uses cannot be deregistered, and the handle is gone. */
static void errors_of_destroyed_handles_are_told(void)
{
    mlx5mk_umem *umem = NULL;
    mlx5mk_object *object = NULL;
    mlx5mk_uar *uar = NULL;
    uint8_t request[272], reply[16];
    mlx5mk_on_drop_error(tell);
    memset(pages, 0xff, PAGE);
    DONE(mlx5mk_umem_register(device, pages, 2 * PAGE, MLX5MK_LOCAL_WRITE, 0, &umem, &error));
    DONE(mlx5mk_uar_alloc(device, &uar, &error));
    create_cq(request, umem, uar);
    DONE(mlx5mk_object_create(device, request, sizeof(request), reply, sizeof(reply), &object, &error));
    /* The queue still uses the memory. */
    CHECK(mlx5mk_umem_deregister(umem, &error) == MLX5MK_SYSTEM);
    CHECK(told == 1);
    mlx5mk_on_drop_error(NULL);
    DONE(mlx5mk_object_destroy(object, &error));
    mlx5mk_uar_free(uar);
}

/* Loads a wrapped key under a login. */
static void a_login_lets_wrapped_keys_in(void)
{
    mlx5mk_login *login = NULL, *other = NULL;
    mlx5mk_dek *dek = NULL;
    mlx5mk_login_spec spec = {.credential = CREDENTIAL, .bytes = sizeof(CREDENTIAL)};
    mlx5mk_key_spec key = {.key = WRAPPED_KEY, .bytes = sizeof(WRAPPED_KEY), .flags = MLX5MK_KEY_WRAPPED};
    CHECK(mlx5mk_dek_create(pd, &key, &dek, &error) == MLX5MK_COMMAND);
    DONE(mlx5mk_login_create(device, &spec, &login, &error));
    CHECK(mlx5mk_login_query(login, &error) == MLX5MK_LOGIN_VALID);
    REFUSED(MLX5MK_SYSTEM, "login", mlx5mk_login_create(device, &spec, &other, &error));
    DONE(mlx5mk_dek_create(pd, &key, &dek, &error));
    DONE(mlx5mk_login_destroy(login, &error));
    encrypt(dek);
    mlx5mk_dek_destroy(dek);
}

static void logins_are_refused(void)
{
    mlx5mk_login *login = NULL;
    mlx5mk_login_spec spec = {.credential = CREDENTIAL, .bytes = sizeof(CREDENTIAL)};
    CHECK(mlx5mk_login_create(device, &spec, &login, &error) == MLX5MK_COMMAND);
    spec.bytes = 49;
    REFUSED(MLX5MK_ARGUMENT, "credential length", mlx5mk_login_create(device, &spec, &login, &error));
    spec.bytes = 48, spec.credential_id = 1 << 24;
    REFUSED(MLX5MK_ARGUMENT, "credential id", mlx5mk_login_create(device, &spec, &login, &error));
    REFUSED(MLX5MK_ARGUMENT, "login is NULL", mlx5mk_login_query(NULL, &error));
    DONE(mlx5mk_login_destroy(NULL, &error));
}

static void a_queue_that_is_not_drained_goes_on(void)
{
    mlx5mk_qp_info info;
    mlx5mk_completion done;
    mlx5mk_request nop = {.id = 8, .operation = MLX5MK_OP_NOP, .flags = MLX5MK_SIGNALED};
    REFUSED(MLX5MK_ARGUMENT, "drained", mlx5mk_qp_cancel(qp, 1, &error));
    CHECK(mlx5mk_qp_resume(qp, &error) == MLX5MK_COMMAND);
    DONE(mlx5mk_qp_fail(qp, &error));
    DONE(mlx5mk_qp_query(qp, &info, &error));
    CHECK(info.state == MLX5MK_QP_ERROR);
    DONE(mlx5mk_post(qp, &nop, &error));
    mlx5mk_doorbell(qp);
    CHECK(mlx5mk_cq_wait(cq, &done, 1, 5000, &error) == 1 && done.kind == MLX5MK_FAILED && done.id == 8);
}

int main(int argc, char **argv)
{
    set_up();
    if (argc > 1 && strcmp(argv[1], "wrapped") == 0) {
        a_login_lets_wrapped_keys_in();
    } else if (argc > 1 && strcmp(argv[1], "kept") == 0) {
        errors_of_destroyed_handles_are_told();
    } else {
        header_and_library_have_one_version();
        sizes_are_those_of_the_queues();
        options_of_a_connection_are_checked();
        completions_have_time_stamps();
        a_key_gets_another_value();
        a_command_creates_a_queue_in_registered_memory();
        commands_change_and_query_an_object();
        answers_come_when_they_are_there();
        fields_change_by_request();
        data_units_may_differ_from_blocks();
        crcs_of_blocks_make_the_crc_of_all();
        logins_are_refused();
        a_queue_that_is_not_drained_goes_on();
    }
    tear_down();
    printf("every call about the device did what its page says\n");
    return EXIT_SUCCESS;
}
