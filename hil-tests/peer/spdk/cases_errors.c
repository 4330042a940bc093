/*
 * Errors, and tasks after an error; and the number of completions.
 */
#include "cases.h"
#include "record.h"

enum { FLUSHED = 5 };

static uint64_t g_random = 11;

/* Posts a transfer with a checked CRC. An RDMA READ moves data and CRC out of memory, or an RDMA WRITE into memory. */
static void
post_checked_crc(struct task *task, const struct crc *crc, bool in_memory)
{
    struct device *device = task->device;
    struct ibv_sge sge[PIECES], all[PIECES];
    struct ibv_sge behind = {
        .addr = (uintptr_t)crc->psv->crc, .length = sizeof(*crc->psv->crc), .lkey = device->lkey,
    };
    uint32_t mkey = task_mkey(task, SIGNATURE, 0);
    struct spdk_mlx5_umr_attr umr = { .sge = all, .mkey = mkey, .umr_len = task->length };
    struct spdk_mlx5_umr_sig_attr attr = {
        .seed = crc->seed,
        .psv_index = crc->psv->object->index,
        .domain = in_memory ? SPDK_MLX5_UMR_SIG_DOMAIN_MEMORY : SPDK_MLX5_UMR_SIG_DOMAIN_WIRE,
        .sigerr_count = task->mkeys[0]->sig.sigerr_count,
        .raw_data_size = task->length,
        .init = true,
        .check_gen = true,
    };
    uint32_t flags = SPDK_MLX5_WQE_CTRL_STRONG_ORDERING | SPDK_MLX5_WQE_CTRL_CE_CQ_UPDATE;
    unsigned count;

    umr.sge_count = task_slice(task, in_memory ? &task->source : &task->destination, 0, task->length, all);
    if (in_memory) {
        all[umr.sge_count++] = behind;
        umr.umr_len += behind.length;
    }
    task_posted(task, spdk_mlx5_umr_configure_sig(device->qp, &umr, &attr, 0, 0), "UMR with CRC");
    if (crc->psv->error) {
        task_posted(task, spdk_mlx5_qp_set_psv(device->qp, crc->psv->object->index, 0, 0, 0), "SET_PSV");
        crc->psv->error = false;
    }
    count = task_slice(task, in_memory ? &task->destination : &task->source, 0, task->length, sge);
    if (in_memory) {
        task_posted(task, spdk_mlx5_qp_rdma_read(device->qp, sge, count, 0, mkey, (uintptr_t)task, flags), "RDMA READ");
    } else {
        sge[count++] = behind;
        task_posted(task, spdk_mlx5_qp_rdma_write(device->qp, sge, count, 0, mkey, (uintptr_t)task, flags),
                    "RDMA WRITE");
    }
}

/* Moves data with a correct or wrong CRC. A wrong one is reported; the next task sets the PSV again. */
static void
checked_crc(struct device *device, struct psv *psv, unsigned pieces, uint32_t seed, bool in_memory, bool wrong)
{
    struct crc crc = { .psv = psv, .seed = seed };
    struct task task;
    uint32_t value;

    task_begin(&task, device, pieces, 300 + 7 * pieces, pieces, PIECES - pieces);
    value = htole32(~task_expect_copy(&task, seed) ^ (wrong ? 1u << pieces : 0));
    *psv->crc = value;
    record_write(psv->crc, &value, sizeof(value));
    post_checked_crc(&task, &crc, in_memory);
    device_ring(device);
    task_wait(&task);
    check(task.signature_errors == wrong, "%s CRC32C in %s: %u signature errors", wrong ? "wrong" : "right",
          in_memory ? "memory" : "the wire", task.signature_errors);
    if (wrong) {
        task.mkeys[0]->sig.sigerr_count++;
        psv->error = true;
    }
    /* The data move in both cases. */
    task.signature_errors = 0;
    check(task_end(&task), "data behind a %s CRC32C", wrong ? "wrong" : "right");
}

void
cases_signature_errors(struct device *device)
{
    unsigned round, in_memory;

    for (round = 0; round < times(16, 4); round++) {
        for (in_memory = 0; in_memory < 2; in_memory++) {
            struct psv *psv = &device->psvs[round % PSVS];
            uint32_t seed = round & 1 ? UINT32_MAX : 0;
            struct crc crc = { .psv = psv, .seed = seed };
            struct task task;

            checked_crc(device, psv, 1 + round % 15, seed, in_memory, false);
            checked_crc(device, psv, 1 + round % 15, seed, in_memory, true);
            if (round & 2) {
                checked_crc(device, psv, 1 + round % 15, ~seed, in_memory, false);
                continue;
            }
            /* SPDK recovers a PSV in this way: a SET_PSV after the UMRs of the next task. */
            task_begin(&task, device, 0, 3000, 20, 0);
            task_cut_at_pieces(&task, &crc);
            task_crc(&task, &crc);
            device_ring(device);
            check(task_end(&task), "CRC32C behind a signature error");
        }
    }
}

static struct crypto
plain_crypto(struct device *device)
{
    return (struct crypto) {
        .key = &device->keys[2], .encrypt = true, .unit = 512, .number = 9, .units_in_mkey = 1, .way = READ_FROM_MKEY,
    };
}

/* The causes for which a task fails. */
enum { BAD_KEY_OF_MEMORY, BAD_KEYTAG, PAST_THE_END, NO_SUCH_MKEY, BY_COMMAND, FAILURES };

static void
post_failing(struct task *task, int failure)
{
    struct device *device = task->device;
    struct crypto crypto = plain_crypto(device);
    uint32_t flags = SPDK_MLX5_WQE_CTRL_CE_CQ_UPDATE, lkey = device->lkey;
    struct key key = *crypto.key;
    struct ibv_sge sge[PIECES];
    unsigned count;

    switch (failure) {
    case BAD_KEY_OF_MEMORY:
        device->lkey = 0x7fff00;
        task_crypto(task, &crypto);
        device->lkey = lkey;
        break;
    case BAD_KEYTAG:
        key.keytag ^= 1;
        crypto.key = &key;
        task_crypto(task, &crypto);
        break;
    case BY_COMMAND:
        /* The queue pair fails before the task is posted: a request whose doorbell was not rung would be lost. */
        device_fail_qp(device);
        task_crypto(task, &crypto);
        break;
    default:
        /* A good task, then a request for more bytes than its mkey maps. */
        crypto.units_in_mkey = MKEYS_IN_TASK;
        task_crypto(task, &crypto);
        count = task_slice(task, &task->destination, 0, 512, sge);
        task_posted(task,
                    spdk_mlx5_qp_rdma_read(device->qp, sge, count, failure == PAST_THE_END ? task->length - 511 : 0,
                                           failure == PAST_THE_END ? task->mkeys[0]->mkey : 0x7fff42, (uintptr_t)task,
                                           flags),
                    "RDMA READ");
        break;
    }
}

/* Runs a good task, a failing one and another, with one doorbell. Then runs all three again on a new queue pair. */
static void
failure_and_recovery(struct device *device, int failure)
{
    struct crypto crypto = plain_crypto(device);
    struct task before, failing, behind;
    unsigned again;

    task_begin(&before, device, 0, 2048, 5, 3);
    task_crypto(&before, &crypto);
    task_begin(&failing, device, 1, device->multi_block ? 2048 : 512, 3, 4);
    post_failing(&failing, failure);
    task_begin(&behind, device, 2, 1024, 4, 4);
    task_crypto(&behind, &crypto);
    device_ring(device);
    if (failure == BY_COMMAND) {
        task_wait(&before);
        check(before.status == FLUSHED, "before a failure by command: status %d", before.status);
        task_drop(&before);
    } else {
        check(task_end(&before), "before failure %d", failure);
    }
    task_wait(&behind);
    check(failing.done && failing.status != 0, "failure %d: status %d", failure, failing.status);
    check(behind.status == FLUSHED, "behind failure %d: status %d", failure, behind.status);
    task_drop(&failing);
    task_drop(&behind);
    device_new_qp(device, false, false);
    for (again = 0; again < 3; again++) {
        any_task(&before, device, again, reference_random(&g_random));
        device_ring(device);
        check(task_end(&before), "task %u after failure %d", again, failure);
    }
}

void
cases_recovery(struct device *device)
{
    unsigned round;
    int failure;

    for (round = 0; round < times(8, 1); round++) {
        for (failure = 0; failure < FAILURES; failure++) {
            failure_and_recovery(device, failure);
        }
    }
}

/* Runs many tasks with one doorbell. Either the last request alone is signalled, or all requests are. */
static void
one_doorbell(struct device *device, bool all)
{
    struct task tasks[PSVS];
    unsigned before, requests = 0, i;

    device_new_qp(device, all, !all);
    before = device->completions;
    for (i = 0; i < PSVS; i++) {
        struct crypto crypto = plain_crypto(device);

        task_begin(&tasks[i], device, i, 1024, 1 + i, i);
        task_crypto(&tasks[i], &crypto);
        requests += tasks[i].requests;
    }
    device_ring(device);
    task_wait(&tasks[PSVS - 1]);
    check(device_is_idle(device), "there are more completions");
    check(device->completions - before == (all ? requests : 1), "%u completions for %u requests",
          device->completions - before, requests);
    for (i = 0; i < PSVS; i++) {
        tasks[i].done = true;
        check(task_end(&tasks[i]), "task %u under one doorbell", i);
    }
}

/* Fills the ring to its last block, for several laps. Only the last request is signalled. */
static void
full_ring(struct device *device)
{
    struct task task;
    unsigned lap, posted;

    device_new_qp(device, false, true);
    for (lap = 0; lap < times(20, 2); lap++) {
        const uint8_t *source;
        uint8_t *destination;
        int rc;

        task_begin(&task, device, lap, 4096, 1, 1);
        source = task.source.pieces[0].iov_base;
        destination = task.destination.pieces[0].iov_base;
        for (posted = 0;; posted++) {
            size_t at = posted % 4096;
            struct ibv_sge sge = { .addr = (uintptr_t)source + at, .length = 1, .lkey = device->lkey };

            rc = spdk_mlx5_qp_rdma_write(device->qp, &sge, 1, (uintptr_t)destination + at, device->lkey,
                                         (uintptr_t)&task, 0);
            if (rc) {
                break;
            }
            task.expected[destination + at - task.area] = source[at];
        }
        check(rc == -ENOMEM && posted == device->qp_ring.sq.wqe_cnt, "%u requests in a ring of %u blocks: %d", posted,
              device->qp_ring.sq.wqe_cnt, rc);
        device_ring(device);
        check(task_end(&task), "lap %u of a full ring", lap);
    }
}

void
cases_completions(struct device *device)
{
    unsigned round;

    for (round = 0; round < times(8, 1); round++) {
        one_doorbell(device, false);
        one_doorbell(device, true);
    }
    full_ring(device);
}

/* Runs tasks of all kinds, as many in flight as there is room for. */
void
cases_laps(struct device *device)
{
    const unsigned most = 2 * MKEYS_IN_TASK, count = times(6000, 150);
    struct task tasks[PSVS];
    unsigned first = 0, next = 0;

    device_new_qp(device, false, false);
    while (first < count) {
        if (next == count || next - first == PSVS || device->posted + most > REQUESTS) {
            check(task_end(&tasks[first % PSVS]), "task %u of many", first);
            first++;
            continue;
        }
        any_task(&tasks[next % PSVS], device, next % PSVS, reference_random(&g_random));
        next++;
        /* Some doorbells publish several tasks. */
        if (next % 3 == 0 || next == count || next - first == PSVS || device->posted + most > REQUESTS) {
            device_ring(device);
        }
    }
}
