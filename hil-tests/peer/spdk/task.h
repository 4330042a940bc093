/*
 * Tasks as SPDK's accel module has them: memory in pieces, mkeys from a pool, requests of which only the last is
 * signalled, and the expected memory afterwards.
 */
#ifndef TASK_H
#define TASK_H

#include "device.h"

enum { MKEYS_IN_TASK = 16, PIECES_IN_TASK = 48 };

struct layout {
    struct iovec pieces[PIECES_IN_TASK];
    unsigned count;
};

struct task {
    struct device *device;
    uint8_t *area; /* the task's slot of the device's memory */
    uint8_t *expected;
    size_t area_length, length;
    struct layout source, destination; /* equal for a task in place */
    struct spdk_mlx5_mkey_pool_obj *mkeys[MKEYS_IN_TASK];
    unsigned mkey_count, kind;
    struct psv *psv;
    uint32_t crc; /* the CRC that the device must write */
    unsigned requests;
    bool done;
    int status;
    unsigned signature_errors; /* found while waiting for the task */
};

/* Memory of a task: `source` pieces, and `destination` pieces elsewhere (0: in place). */
void task_begin(struct task *task, struct device *device, unsigned slot, size_t length, unsigned source,
                unsigned destination);

/* The way in which a request uses an mkey. SPDK's accel module reads from the mkey; other modules use other ways. */
enum way { READ_FROM_MKEY, WRITE_FROM_MKEY, WRITE_TO_MKEY, READ_TO_MKEY, WAYS };

struct crypto {
    const struct key *key;
    bool encrypt;
    size_t unit;
    uint64_t number; /* number of the first data unit */
    size_t units_in_mkey;
    enum way way;
};

/* Posts a task. A method that needs a single piece on one side gets a layout with a single piece. */
void task_crypto(struct task *task, const struct crypto *crypto);
void task_copy(struct task *task);

/* Copies through an mkey that gathers the source, in two requests. */
void task_gather(struct task *task);

/* Computes a CRC32C over all data, through several mkeys that end at `cuts` and share a PSV. With `halves`, the first
 * mkey is published and completed before the others are configured. */
struct crc {
    struct psv *psv;
    uint32_t seed;
    size_t cuts[MKEYS_IN_TASK];
    unsigned count;
    bool halves;
};

void task_crc(struct task *task, const struct crc *crc);

/* Sets the ends of the mkeys, so that each mkey has at most PIECES pieces. */
void task_cut_at_pieces(const struct task *task, struct crc *crc);

/* These functions make parts of requests, for tests that post the requests themselves. */
unsigned task_slice(const struct task *task, const struct layout *layout, size_t from, size_t length,
                    struct ibv_sge *sge);
uint32_t task_mkey(struct task *task, unsigned kind, unsigned number);
void task_posted(struct task *task, int rc, const char *what);

/* Copies the source to the destination in the expected memory, and returns the source's CRC32C before its complement. */
uint32_t task_expect_copy(struct task *task, uint32_t seed);
void task_wait(struct task *task);

/* Returns whether a task passed: no signature error, and the expected memory. Frees the task and its mkeys. */
bool task_end(struct task *task);
void task_drop(struct task *task);

#endif
