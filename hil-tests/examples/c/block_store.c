/*
 * A block store of two processes: the target owns memory for blocks, and the initiator writes and reads them
 * by RDMA. The target's memory holds ciphertext only: the initiator's device encrypts each block with its
 * T10-DIF on the way out, and decrypts and checks it on the way back. Keys never reach the target.
 *
 *     block_store target SOCKET &        SOCKET: a path, by which the processes exchange their addresses
 *     block_store initiator SOCKET
 *
 * Both processes open the first mlx5 device.
 */

#define _POSIX_C_SOURCE 200809L

#include <mlx5_mkey.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BLOCKS 256           /* of the store */
#define SIGNED (512 + 8)     /* a block with its T10-DIF, encrypted as one data unit */
#define IO 4                 /* blocks of an I/O */
#define DEPTH 8              /* I/Os at a time */
#define APP_TAG 0xf11e

/* Ends the process where a call of the library fails. */
static mlx5mk_error error;
#define DO(call)                                                                                             \
    do {                                                                                                     \
        if ((call) < 0)                                                                                      \
            fail(error.message);                                                                             \
    } while (0)

static void fail(const char *words)
{
    fprintf(stderr, "error: %s\n", words);
    exit(EXIT_FAILURE);
}

/* What each process tells the other. */
struct hello {
    mlx5mk_address address;
    uint32_t rkey; /* of the store: the target's */
    uint64_t store;
};

/* The objects that both processes have. */
struct side {
    mlx5mk_device *device;
    mlx5mk_pd *pd;
    mlx5mk_cq *cq;
    mlx5mk_qp *qp;
    mlx5mk_mr *mr;
    uint8_t *memory;
    int peer; /* the socket */
};

/* Commands over the socket. The peer answers each with the same byte. */
enum { CONNECTED = 'c', DAMAGE = 'd', END = 'e' };

static void exchange(int peer, const void *own, void *theirs, size_t bytes)
{
    if (send(peer, own, bytes, MSG_NOSIGNAL) != (ssize_t)bytes ||
        recv(peer, theirs, bytes, MSG_WAITALL) != (ssize_t)bytes)
        fail("the peer is gone");
}

static void command(int peer, char byte)
{
    char answer;
    exchange(peer, &byte, &answer, 1);
}

/* Opens the device and registers memory. `mkeys` is the number of mkeys with signatures. */
static struct side set_up(size_t bytes, uint32_t rights, uint32_t mkeys)
{
    /* Room for all I/Os: a configuration of an mkey and a transfer for each. */
    mlx5mk_pool_spec pool = {.flags = MLX5MK_POOL_CRYPTO};
    mlx5mk_request transfer = {.operation = MLX5MK_OP_RDMA_WRITE, .sge_count = 1};
    mlx5mk_size configure = mlx5mk_configure_size(&pool, 1, 1), move = mlx5mk_request_size(&transfer);
    mlx5mk_qp_spec spec = {.send_blocks = DEPTH * (configure.blocks + move.blocks),
                           .receive_slots = 1,
                           .max_requests = DEPTH * (configure.requests + move.requests)};
    struct side s = {.memory = calloc(1, bytes)};
    if (s.memory == NULL)
        fail("no memory");
    DO(mlx5mk_device_open(NULL, &s.device, &error));
    DO(mlx5mk_pd_alloc(s.device, &s.pd, &error));
    DO(mlx5mk_cq_create(s.device, mlx5mk_cq_entries(1, spec.max_requests, 1, mkeys), 0, &s.cq, &error));
    DO(mlx5mk_qp_create(s.pd, s.cq, s.cq, &spec, &s.qp, &error));
    DO(mlx5mk_mr_register(s.pd, s.memory, bytes, rights, &s.mr, &error));
    return s;
}

/* Connects both queue pairs. */
static struct hello introduce(struct side *s, int peer)
{
    mlx5mk_connect_spec options = {.retries = 3};
    struct hello own = {.rkey = mlx5mk_mr_rkey(s->mr), .store = (uintptr_t)s->memory}, theirs;
    s->peer = peer;
    DO(mlx5mk_qp_address(s->qp, &options, &own.address, &error));
    exchange(peer, &own, &theirs, sizeof(own));
    DO(mlx5mk_qp_connect(s->qp, &theirs.address, &options, &error));
    return theirs;
}

static void tear_down(struct side *s)
{
    mlx5mk_qp_destroy(s->qp);
    DO(mlx5mk_mr_deregister(s->mr, &error));
    DO(mlx5mk_cq_destroy(s->cq, &error));
    mlx5mk_pd_free(s->pd);
    mlx5mk_device_close(s->device);
    free(s->memory);
    close(s->peer);
}

static struct sockaddr_un at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        fail("the path of the socket is too long");
    strcpy(address.sun_path, path);
    return address;
}

static void target(const char *path)
{
    struct side s = set_up(BLOCKS * SIGNED, MLX5MK_LOCAL_WRITE | MLX5MK_REMOTE_WRITE | MLX5MK_REMOTE_READ, 0);
    struct sockaddr_un address = at(path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    unlink(path);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, 1) < 0)
        fail("the socket cannot be made");
    introduce(&s, accept(listener, NULL, NULL));
    close(listener);
    for (char byte = 0; byte != END;) {
        if (recv(s.peer, &byte, 1, MSG_WAITALL) != 1)
            fail("the initiator is gone");
        if (byte == DAMAGE)
            s.memory[7 * SIGNED + 100] ^= 1;
        if (send(s.peer, &byte, 1, MSG_NOSIGNAL) != 1)
            fail("the initiator is gone");
    }
    tear_down(&s);
}

/* The initiator's part of the store. */
struct initiator {
    struct side s;
    struct hello store;
    mlx5mk_dek *dek;
    mlx5mk_pool *pool;
    mlx5mk_prepared *prepared;
    mlx5mk_mkey mkeys[DEPTH];
};

static int socket_of(const char *path)
{
    struct sockaddr_un address = at(path);
    int peer = socket(AF_UNIX, SOCK_STREAM, 0);
    for (int wait = 0; wait < 600; wait++) {
        if (connect(peer, (struct sockaddr *)&address, sizeof(address)) == 0)
            return peer;
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    }
    fail("no target at this socket");
    return -1;
}

static void prepare(struct initiator *i)
{
    /* A real program takes keys from a random number generator, or wrapped from a key server. */
    uint8_t key[64];
    for (int byte = 0; byte < 64; byte++)
        key[byte] = (uint8_t)(17 * byte + 1);
    mlx5mk_key_spec spec = {.key = key, .bytes = sizeof(key)};
    mlx5mk_pool_spec mkeys = {.count = DEPTH, .max_entries = 1, .flags = MLX5MK_POOL_CRYPTO};
    DO(mlx5mk_dek_create(i->s.pd, &spec, &i->dek, &error));
    DO(mlx5mk_pool_create(i->s.pd, i->s.cq, &mkeys, &i->pool, &error));
    mlx5mk_config config = {
        .parts = MLX5MK_SET_ACCESS | MLX5MK_SET_SIGNATURE | MLX5MK_SET_CRYPTO,
        .access = MLX5MK_LOCAL_WRITE,
        .wire = {.kind = MLX5MK_T10DIF, .block_size = 512, .flags = MLX5MK_REF_REMAP},
        .crypto = {.dek = i->dek, .direction = MLX5MK_ENCRYPT_ON_TX, .data_unit = SIGNED},
    };
    DO(mlx5mk_prepared_create(i->pool, &config, &i->prepared, &error));
    for (int slot = 0; slot < DEPTH; slot++)
        DO(mlx5mk_pool_take(i->pool, &i->mkeys[slot], &error));
}

/* Posts an I/O of the blocks from `lba` on. The name of its requests is the slot. */
static void post(struct initiator *i, uint32_t slot, uint32_t operation, uint64_t lba)
{
    mlx5mk_range data = {(uintptr_t)i->s.memory + lba * 512, IO * 512, mlx5mk_mr_lkey(i->s.mr)};
    mlx5mk_range all = {.length = IO * SIGNED};
    DO(mlx5mk_mkey_key(i->pool, i->mkeys[slot], &all.key, &error));
    mlx5mk_request request = {.id = slot,
                              .operation = operation,
                              .flags = MLX5MK_SIGNALED,
                              .remote_address = i->store.store + lba * SIGNED,
                              .rkey = i->store.rkey,
                              .sges = &all,
                              .sge_count = 1};
    DO(mlx5mk_prepared_set_tweak(i->prepared, lba, 0, &error));
    DO(mlx5mk_prepared_set_tags(i->prepared, MLX5MK_WIRE, APP_TAG, (uint32_t)lba, &error));
    DO(mlx5mk_post_configure(i->s.qp, slot, 0, i->pool, i->mkeys[slot], i->prepared, &data, 1, &error));
    DO(mlx5mk_post(i->s.qp, &request, &error));
}

/* Moves the whole store, DEPTH I/Os at a time. Returns the number of damaged blocks, the last in `bad`. */
static int transfer(struct initiator *i, uint32_t operation, uint64_t *bad)
{
    uint64_t next = 0, lba[DEPTH];
    int damaged = 0, in_flight = 0;
    for (uint32_t slot = 0; slot < DEPTH; slot++, in_flight++, next += IO)
        post(i, slot, operation, lba[slot] = next);
    mlx5mk_doorbell(i->s.qp);
    while (in_flight > 0) {
        mlx5mk_completion done[DEPTH];
        int count = mlx5mk_cq_wait(i->s.cq, done, DEPTH, 10000, &error);
        if (count == 0)
            fail("no completion within ten seconds");
        DO(count);
        for (int n = 0; n < count; n++) {
            /* A signature error comes before the completion of its data, which asks for the block. */
            if (done[n].kind == MLX5MK_BAD_SIGNATURE)
                continue;
            if (done[n].kind != MLX5MK_SENT) {
                mlx5mk_completion_words(&done[n], error.message, sizeof(error.message));
                fail(error.message);
            }
            uint32_t slot = (uint32_t)done[n].id;
            mlx5mk_bad_block block;
            if (mlx5mk_mkey_check(i->pool, i->mkeys[slot], &block, &error) == MLX5MK_SIGNATURE) {
                *bad = lba[slot] + block.block;
                damaged++;
            }
            in_flight--;
            if (next < BLOCKS) {
                post(i, slot, operation, lba[slot] = next);
                in_flight++, next += IO;
            }
        }
        mlx5mk_doorbell(i->s.qp);
    }
    return damaged;
}

static void initiator(const char *path)
{
    struct initiator i = {.s = set_up(BLOCKS * 512, MLX5MK_LOCAL_WRITE, DEPTH)};
    uint64_t bad = 0;
    i.store = introduce(&i.s, socket_of(path));
    command(i.s.peer, CONNECTED);
    prepare(&i);
    for (size_t byte = 0; byte < BLOCKS * 512; byte++)
        i.s.memory[byte] = (uint8_t)(byte * byte >> 7);
    if (transfer(&i, MLX5MK_OP_RDMA_WRITE, &bad) != 0)
        fail("the device found errors in data that it protects itself");
    memset(i.s.memory, 0, BLOCKS * 512);
    if (transfer(&i, MLX5MK_OP_RDMA_READ, &bad) != 0)
        fail("a block came back damaged");
    for (size_t byte = 0; byte < BLOCKS * 512; byte++)
        if (i.s.memory[byte] != (uint8_t)(byte * byte >> 7))
            fail("other data came back");
    printf("%d blocks written and read back, encrypted and signed on the wire\n", BLOCKS);
    command(i.s.peer, DAMAGE);
    if (transfer(&i, MLX5MK_OP_RDMA_READ, &bad) != 1 || bad != 7)
        fail("a damaged block was not found");
    printf("a flipped bit in the target's memory was found in block %d\n", (int)bad);
    command(i.s.peer, END);
    /* No peer knows the keys of the mkeys, so that they end with the pool. */
    mlx5mk_prepared_destroy(i.prepared);
    mlx5mk_pool_destroy(i.pool);
    mlx5mk_dek_destroy(i.dek);
    tear_down(&i.s);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "target") == 0)
        target(argv[2]);
    else if (argc == 3 && strcmp(argv[1], "initiator") == 0)
        initiator(argv[2]);
    else
        fail("block_store target|initiator SOCKET");
    return EXIT_SUCCESS;
}
