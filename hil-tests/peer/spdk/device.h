/*
 * The device as SPDK's accel module opens it: memory, keys, pools of mkeys and PSVs, a completion queue whose
 * consumer index is never updated, and a queue pair connected to itself.
 */
#ifndef DEVICE_H
#define DEVICE_H

#include "reference.h"

#include "spdk/stdinc.h"
#include "spdk_internal/mlx5.h"
#include "spdk_internal/rdma_utils.h"

enum {
    PIECES = 16,      /* pieces of memory for each mkey and request */
    REQUESTS = 64,    /* requests of a queue pair, and entries of a completion queue */
    KEYS = 4,         /* keys of 128 and 256 bits, without and with keytag */
    PSVS = 8,
    MKEYS = 48,       /* mkeys in each pool */
    SLOT = 256 << 10, /* bytes of memory for each task */
    SLOTS = 12,
};

/* The kinds of mkeys, numbered as SPDK's pools number them. */
enum { PLAIN = 0, CRYPTO = SPDK_MLX5_MKEY_POOL_FLAG_CRYPTO, SIGNATURE = SPDK_MLX5_MKEY_POOL_FLAG_SIGNATURE };

struct key {
    struct xts_key xts;
    uint64_t keytag; /* byte order of memory */
    struct spdk_mlx5_crypto_keytag *handle;
    struct spdk_mlx5_crypto_dek_data dek;
};

/* A PSV, and the memory for its CRC. */
struct psv {
    struct spdk_mlx5_psv *object;
    uint32_t *crc;
    bool error;
};

struct device {
    struct ibv_pd *pd;
    const char *engine;
    bool multi_block;
    uint8_t *memory; /* SLOTS times SLOT bytes, then the CRCs */
    uint32_t lkey;
    struct key keys[KEYS];
    struct psv psvs[PSVS];
    struct spdk_mlx5_mkey_pool *pools[3];
    struct spdk_mlx5_cq *cq;
    struct spdk_mlx5_qp *qp;
    uint16_t posted; /* requests without a completion yet */
    unsigned completions;
    /* The rings, for the recording. */
    struct mlx5dv_cq cq_ring;
    struct mlx5dv_qp qp_ring;
    uint16_t rung;
    uint32_t taken;
};

/* Opens the device. A failure ends the program. */
void device_open(struct device *device, const char *record, const char *commit);
void device_close(struct device *device);

/* Creates a queue pair, which replaces an existing one. */
void device_new_qp(struct device *device, bool sigall, bool siglast);
void device_fail_qp(struct device *device);

/* Rings the doorbell for all posted requests. */
void device_ring(struct device *device);

/* Waits for one completion. Returns -ENODEV for a signature error: SPDK finds no queue pair for it. */
int device_take(struct device *device, struct spdk_mlx5_cq_completion *completion);

/* Returns whether the completion queue has no further completion. Drops a completion that it finds. */
bool device_is_idle(struct device *device);

/* Ends the program if a call of SPDK has failed. */
void must(int rc, const char *what);

#endif
