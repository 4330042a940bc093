#include "device.h"
#include "record.h"

#include <sched.h>
#include <sys/mman.h>

/* The address of the memory: fixed, so that recordings are reproducible. */
#define MEMORY ((void *)0x200000000)
#define CRCS 4096

void
must(int rc, const char *what)
{
    if (rc) {
        fprintf(stderr, "%s: %d (%s)\n", what, rc, strerror(rc < 0 ? -rc : rc));
        exit(EXIT_FAILURE);
    }
}

static void
open_engine(struct device *device, struct ibv_context *context)
{
    struct spdk_mlx5_device_caps caps = { 0 };

    must(spdk_mlx5_device_query_caps(context, &caps), "spdk_mlx5_device_query_caps");
    must(!caps.crypto_supported || !caps.crc32c_supported, "crypto and CRC32C");
    device->multi_block = caps.crypto.multi_block_be_tweak || caps.crypto.multi_block_le_tweak;
    device->engine = caps.crypto.multi_block_be_tweak ? "multi-block"
                     : caps.crypto.multi_block_le_tweak ? "multi-block-le"
                                                        : "single-block";
}

static void
open_memory(struct device *device)
{
    const size_t length = SLOTS * SLOT + CRCS;
    struct ibv_mr *region;

    device->memory = mmap(MEMORY, length, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    must(device->memory != MEMORY, "mmap");
    region = ibv_reg_mr(device->pd, device->memory, length,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    must(!region, "ibv_reg_mr");
    record_region(region);
    device->lkey = region->lkey;
}

static void
open_key(struct device *device, int number)
{
    struct key *key = &device->keys[number];
    uint8_t bytes[72];
    struct spdk_mlx5_crypto_dek_create_attr attr = { .dek = (char *)bytes };

    key->xts.length = number & 1 ? 64 : 32;
    attr.dek_len = key->xts.length;
    reference_fill(bytes, sizeof(bytes), 1000 + number);
    memcpy(key->xts.bytes, bytes, key->xts.length);
    if (number & 2) {
        memcpy(&key->keytag, bytes + key->xts.length, sizeof(key->keytag));
        attr.dek_len += sizeof(key->keytag);
    }
    must(spdk_mlx5_crypto_keytag_create(&attr, &key->handle), "spdk_mlx5_crypto_keytag_create");
    must(spdk_mlx5_crypto_get_dek_data(key->handle, device->pd, &key->dek), "spdk_mlx5_crypto_get_dek_data");
}

static void
open_pools(struct device *device)
{
    uint32_t kind;
    int i;

    for (kind = PLAIN; kind <= SIGNATURE; kind++) {
        struct spdk_mlx5_mkey_pool_param param = { .mkey_count = MKEYS, .cache_per_thread = 0, .flags = kind };

        must(spdk_mlx5_mkey_pool_init(&param, device->pd), "spdk_mlx5_mkey_pool_init");
        device->pools[kind] = spdk_mlx5_mkey_pool_get_ref(device->pd, kind);
        must(!device->pools[kind], "spdk_mlx5_mkey_pool_get_ref");
    }
    for (i = 0; i < PSVS; i++) {
        device->psvs[i].object = spdk_mlx5_create_psv(device->pd);
        must(!device->psvs[i].object, "spdk_mlx5_create_psv");
        device->psvs[i].crc = (uint32_t *)(device->memory + SLOTS * SLOT) + i;
    }
}

void
device_open(struct device *device, const char *record, const char *commit)
{
    struct spdk_mlx5_cq_attr attr = { .cqe_cnt = REQUESTS, .cqe_size = 64 };
    struct mlx5dv_obj object = { 0 };
    struct ibv_context **devices;
    int count = 0, i;

    devices = spdk_mlx5_crypto_devs_get(&count);
    must(count != 1, "one device with crypto");
    device->pd = spdk_rdma_utils_get_pd(devices[0]);
    must(!device->pd, "ibv_alloc_pd");
    open_engine(device, devices[0]);
    spdk_mlx5_crypto_devs_release(devices);
    if (record) {
        record_open(record, device->engine, commit);
    }
    open_memory(device);
    for (i = 0; i < KEYS; i++) {
        open_key(device, i);
    }
    open_pools(device);
    must(spdk_mlx5_cq_create(device->pd, &attr, &device->cq), "spdk_mlx5_cq_create");
    device_new_qp(device, false, false);
    object.cq.in = spdk_mlx5_qp_get_verbs_qp(device->qp)->send_cq;
    object.cq.out = &device->cq_ring;
    must(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
}

void
device_close(struct device *device)
{
    uint32_t kind;
    int i;

    spdk_mlx5_qp_destroy(device->qp);
    must(spdk_mlx5_cq_destroy(device->cq), "spdk_mlx5_cq_destroy");
    for (kind = PLAIN; kind <= SIGNATURE; kind++) {
        spdk_mlx5_mkey_pool_put_ref(device->pools[kind]);
        must(spdk_mlx5_mkey_pool_destroy(kind, device->pd), "spdk_mlx5_mkey_pool_destroy");
    }
    for (i = 0; i < PSVS; i++) {
        must(spdk_mlx5_destroy_psv(device->psvs[i].object), "spdk_mlx5_destroy_psv");
    }
    for (i = 0; i < KEYS; i++) {
        spdk_mlx5_crypto_keytag_destroy(device->keys[i].handle);
    }
    record_close();
}

void
device_new_qp(struct device *device, bool sigall, bool siglast)
{
    struct spdk_mlx5_qp_attr attr = {
        .cap = { .max_send_wr = REQUESTS, .max_send_sge = PIECES, .max_inline_data = PIECES * sizeof(struct ibv_sge) },
        .sigall = sigall,
        .siglast = siglast,
    };
    struct mlx5dv_obj object = { .qp.out = &device->qp_ring };

    if (device->qp) {
        spdk_mlx5_qp_destroy(device->qp);
    }
    must(spdk_mlx5_qp_create(device->pd, device->cq, &attr, &device->qp), "spdk_mlx5_qp_create");
    object.qp.in = spdk_mlx5_qp_get_verbs_qp(device->qp);
    must(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), "mlx5dv_init_obj");
    device->posted = 0;
    device->rung = 0;
    record_qp(object.qp.in, &device->qp_ring);
}

void
device_fail_qp(struct device *device)
{
    must(spdk_mlx5_qp_set_error_state(device->qp), "spdk_mlx5_qp_set_error_state");
    record_qp_error(spdk_mlx5_qp_get_verbs_qp(device->qp));
}

void
device_ring(struct device *device)
{
    uint16_t rung;

    spdk_mlx5_qp_complete_send(device->qp);
    rung = (uint16_t)be32toh(device->qp_ring.dbrec[MLX5_SND_DBR]);
    record_ring(spdk_mlx5_qp_get_verbs_qp(device->qp), &device->qp_ring, device->rung, rung);
    device->rung = rung;
}

int
device_take(struct device *device, struct spdk_mlx5_cq_completion *completion)
{
    const uint8_t *ring = device->cq_ring.buf;
    int rc;

    while ((rc = spdk_mlx5_cq_poll_completions(device->cq, completion, 1)) == 0) {
        sched_yield();
    }
    record_completion((const void *)(ring + 64 * (device->taken++ & (device->cq_ring.cqe_cnt - 1))));
    device->completions++;
    return rc < 0 ? rc : 0;
}

bool
device_is_idle(struct device *device)
{
    struct spdk_mlx5_cq_completion completion;

    return spdk_mlx5_cq_poll_completions(device->cq, &completion, 1) == 0;
}
