/*
 * The device as SPDK's accel module opens it: memory, keys, pools of mkeys and PSVs, a completion queue that is never
 * told what was taken, and a queue pair connected to itself.
 */
#ifndef DEVICE_H
#define DEVICE_H

#include "reference.h"

#include "spdk/stdinc.h"
#include "spdk_internal/mlx5.h"
#include "spdk_internal/rdma_utils.h"

enum {
    PIECES = 16,      /* of memory, for each mkey and each request */
    REQUESTS = 64,    /* that a queue pair holds; a completion queue has as many entries */
    KEYS = 4,         /* of 128 and 256 bits, without and with a keytag */
    PSVS = 8,
    MKEYS = 48,       /* in each pool */
    SLOT = 256 << 10, /* bytes of memory for each task */
    SLOTS = 12,
};

/* The kinds of mkeys, as SPDK's pools number them. */
enum { PLAIN = 0, CRYPTO = SPDK_MLX5_MKEY_POOL_FLAG_CRYPTO, SIGNATURE = SPDK_MLX5_MKEY_POOL_FLAG_SIGNATURE };

struct key {
    struct xts_key xts;
    uint64_t keytag; /* as it stands in memory */
    struct spdk_mlx5_crypto_keytag *handle;
    struct spdk_mlx5_crypto_dek_data dek;
};

/* A PSV, and memory where its CRC goes. */
struct psv {
    struct spdk_mlx5_psv *object;
    uint32_t *crc;
    bool error;
};

struct device {
    struct ibv_pd *pd;
    const char *engine;
    bool multi_block;
    uint8_t *memory; /* SLOTS times SLOT, and the CRCs behind them */
    uint32_t lkey;
    struct key keys[KEYS];
    struct psv psvs[PSVS];
    struct spdk_mlx5_mkey_pool *pools[3];
    struct spdk_mlx5_cq *cq;
    struct spdk_mlx5_qp *qp;
    uint16_t posted; /* requests that nobody has taken back yet */
    unsigned completions;
    /* What the recording needs: the rings themselves. */
    struct mlx5dv_cq cq_ring;
    struct mlx5dv_qp qp_ring;
    uint16_t rung;
    uint32_t taken;
};

/* Opens the device, or ends the program. */
void device_open(struct device *device, const char *record, const char *commit);
void device_close(struct device *device);

/* Makes a queue pair instead of the one that is there, if any. */
void device_new_qp(struct device *device, bool sigall, bool siglast);
void device_fail_qp(struct device *device);

/* Rings the doorbell for all that was posted. */
void device_ring(struct device *device);

/* Takes one completion, waiting for it. -ENODEV stands for a signature error: SPDK looks for a queue pair in it. */
int device_take(struct device *device, struct spdk_mlx5_cq_completion *completion);

/* Whether there is no completion left, behind a request whose completion must be the last. */
bool device_is_idle(struct device *device);

/* Ends the program if a call of SPDK's has failed. */
void must(int rc, const char *what);

#endif
