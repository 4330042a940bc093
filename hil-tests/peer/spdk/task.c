#include "task.h"
#include "record.h"

/* The number of bytes around each piece that must stay unchanged. */
enum { GAP = 24 };

static uint64_t g_seed = 1;

/* Cuts `length` bytes at `at` into pieces, in ascending or descending order, with gaps. Returns the end. */
static uint8_t *
lay_out(struct layout *layout, uint8_t *at, size_t length, unsigned count, uint64_t *random)
{
    bool backwards = reference_random(random) & 1;
    unsigned i;

    assert(count <= PIECES_IN_TASK && count <= length);
    layout->count = count;
    for (i = 0; i < count; i++) {
        size_t left = count - i, most = length / left * 2 - 1;
        size_t piece = left == 1 ? length : 1 + reference_random(random) % spdk_min(most, length - (left - 1));

        layout->pieces[i].iov_len = piece;
        length -= piece;
    }
    for (i = 0; i < count; i++) {
        struct iovec *piece = &layout->pieces[backwards ? count - 1 - i : i];

        at += 1 + reference_random(random) % GAP;
        piece->iov_base = at;
        at += piece->iov_len;
    }
    return at + GAP;
}

void
task_begin(struct task *task, struct device *device, unsigned slot, size_t length, unsigned source,
           unsigned destination)
{
    uint64_t seed = g_seed++, random = seed;
    uint8_t *end;

    memset(task, 0, sizeof(*task));
    task->device = device;
    task->length = length;
    task->area = device->memory + (slot % SLOTS) * SLOT;
    end = lay_out(&task->source, task->area, length, source, &random);
    if (destination) {
        end = lay_out(&task->destination, end, length, destination, &random);
    } else {
        task->destination = task->source;
    }
    task->area_length = end - task->area;
    assert(task->area_length <= SLOT);
    reference_fill(task->area, task->area_length, seed);
    record_fill(task->area, task->area_length, seed);
    task->expected = malloc(task->area_length);
    must(!task->expected, "malloc");
    memcpy(task->expected, task->area, task->area_length);
}

unsigned
task_slice(const struct task *task, const struct layout *layout, size_t from, size_t length, struct ibv_sge *sge)
{
    unsigned i, count = 0;

    for (i = 0; i < layout->count && length; i++) {
        const struct iovec *piece = &layout->pieces[i];
        size_t part;

        if (from >= piece->iov_len) {
            from -= piece->iov_len;
            continue;
        }
        part = spdk_min(piece->iov_len - from, length);
        assert(count < PIECES);
        sge[count++] = (struct ibv_sge) {
            .addr = (uintptr_t)piece->iov_base + from, .length = part, .lkey = task->device->lkey,
        };
        length -= part;
        from = 0;
    }
    assert(length == 0);
    return count;
}

/* Copies between a layout of the expected memory and a buffer. */
static void
expected_copy(struct task *task, const struct layout *layout, uint8_t *buffer, bool scatter)
{
    unsigned i;

    for (i = 0; i < layout->count; i++) {
        uint8_t *piece = task->expected + ((uint8_t *)layout->pieces[i].iov_base - task->area);

        memcpy(scatter ? piece : buffer, scatter ? buffer : piece, layout->pieces[i].iov_len);
        buffer += layout->pieces[i].iov_len;
    }
}

/* Sets the expected destination: the source, encrypted or decrypted if there is a cipher. Returns the source's CRC. */
static uint32_t
expect(struct task *task, const struct crypto *crypto, uint32_t seed)
{
    uint8_t *buffer = malloc(task->length);
    uint32_t crc;

    must(!buffer, "malloc");
    expected_copy(task, &task->source, buffer, false);
    crc = reference_crc32c(seed, buffer, task->length);
    if (crypto) {
        reference_xts(&crypto->key->xts, crypto->encrypt, crypto->number, crypto->unit, buffer, task->length);
    }
    expected_copy(task, &task->destination, buffer, true);
    free(buffer);
    return crc;
}

uint32_t
task_mkey(struct task *task, unsigned kind, unsigned number)
{
    assert(number < MKEYS_IN_TASK && number <= task->mkey_count);
    if (number == task->mkey_count) {
        must(spdk_mlx5_mkey_pool_get_bulk(task->device->pools[kind], &task->mkeys[number], 1), "no mkey");
        task->kind = kind;
        task->mkey_count++;
    }
    return task->mkeys[number]->mkey;
}

void
task_posted(struct task *task, int rc, const char *what)
{
    must(rc, what);
    task->requests++;
    task->device->posted++;
    assert(task->device->posted <= REQUESTS);
}

static void
configure_crypto(struct task *task, const struct crypto *crypto, unsigned number, size_t from, size_t length)
{
    bool inwards = crypto->way == WRITE_TO_MKEY || crypto->way == READ_TO_MKEY;
    struct spdk_mlx5_umr_crypto_attr attr = {
        /* The ciphertext is on the wire or in memory. */
        .enc_order = crypto->encrypt != inwards ? SPDK_MLX5_ENCRYPTION_ORDER_ENCRYPTED_RAW_WIRE
                                                : SPDK_MLX5_ENCRYPTION_ORDER_ENCRYPTED_RAW_MEMORY,
        .bs_selector = crypto->unit == 512    ? SPDK_MLX5_BLOCK_SIZE_SELECTOR_512
                       : crypto->unit == 520  ? SPDK_MLX5_BLOCK_SIZE_SELECTOR_520
                       : crypto->unit == 4096 ? SPDK_MLX5_BLOCK_SIZE_SELECTOR_4096
                                              : SPDK_MLX5_BLOCK_SIZE_SELECTOR_4160,
        .tweak_mode = crypto->key->dek.tweak_mode,
        .dek_obj_id = crypto->key->dek.dek_obj_id,
        .xts_iv = crypto->number + from / crypto->unit,
        .keytag = crypto->key->keytag,
    };
    struct ibv_sge sge[PIECES];
    struct spdk_mlx5_umr_attr umr = { .sge = sge, .mkey = task_mkey(task, CRYPTO, number), .umr_len = length };

    umr.sge_count = task_slice(task, inwards ? &task->destination : &task->source, from, length, sge);
    task_posted(task, spdk_mlx5_umr_configure_crypto(task->device->qp, &umr, &attr, 0, 0), "UMR with crypto");
}

/* Moves the data that an mkey maps from the source to the destination. */
static void
move(struct task *task, enum way way, unsigned number, size_t from, size_t length, uint32_t flags)
{
    struct spdk_mlx5_qp *qp = task->device->qp;
    uint64_t id = flags & SPDK_MLX5_WQE_CTRL_CE_CQ_UPDATE ? (uintptr_t)task : 0;
    uint32_t mkey = task->mkeys[number]->mkey, lkey = task->device->lkey, count;
    struct ibv_sge sge[PIECES], whole = { .addr = 0, .length = length, .lkey = mkey };
    bool reads = way == READ_FROM_MKEY || way == READ_TO_MKEY;
    const struct layout *far = reads ? &task->source : &task->destination;
    int rc;

    if (way == READ_FROM_MKEY || way == WRITE_TO_MKEY) {
        count = task_slice(task, reads ? &task->destination : &task->source, from, length, sge);
        rc = reads ? spdk_mlx5_qp_rdma_read(qp, sge, count, 0, mkey, id, flags)
                   : spdk_mlx5_qp_rdma_write(qp, sge, count, 0, mkey, id, flags);
    } else {
        must(task_slice(task, far, from, length, sge) != 1, "one piece");
        rc = reads ? spdk_mlx5_qp_rdma_read(qp, &whole, 1, sge[0].addr, lkey, id, flags)
                   : spdk_mlx5_qp_rdma_write(qp, &whole, 1, sge[0].addr, lkey, id, flags);
    }
    task_posted(task, rc, "RDMA");
}

void
task_crypto(struct task *task, const struct crypto *crypto)
{
    size_t step = crypto->unit * crypto->units_in_mkey, from;
    uint32_t flags = SPDK_MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE;
    unsigned number = 0;

    for (from = 0; from < task->length; from += step) {
        configure_crypto(task, crypto, number++, from, spdk_min(step, task->length - from));
    }
    number = 0;
    for (from = 0; from < task->length; from += step) {
        if (from + step >= task->length) {
            flags |= SPDK_MLX5_WQE_CTRL_CE_CQ_UPDATE;
        }
        move(task, crypto->way, number++, from, spdk_min(step, task->length - from), flags);
        flags = 0;
    }
    expect(task, crypto, 0);
}

void
task_copy(struct task *task)
{
    struct ibv_sge sge[PIECES];
    size_t from = 0;
    unsigned i;

    for (i = 0; i < task->destination.count; i++) {
        const struct iovec *piece = &task->destination.pieces[i];
        bool last = i + 1 == task->destination.count;
        unsigned count = task_slice(task, &task->source, from, piece->iov_len, sge);

        task_posted(task,
                    spdk_mlx5_qp_rdma_write(task->device->qp, sge, count, (uintptr_t)piece->iov_base, task->device->lkey,
                                            last ? (uintptr_t)task : 0, last ? SPDK_MLX5_WQE_CTRL_CE_CQ_UPDATE : 0),
                    "RDMA WRITE");
        from += piece->iov_len;
    }
    expect(task, NULL, 0);
}

void
task_gather(struct task *task)
{
    struct ibv_sge sge[PIECES];
    struct spdk_mlx5_umr_attr umr = { .sge = sge, .mkey = task_mkey(task, PLAIN, 0), .umr_len = task->length };
    size_t middle = task->length / 3;
    unsigned count;

    /* The requests that use the mkey are posted after the completion of its configuration. */
    umr.sge_count = task_slice(task, &task->source, 0, task->length, sge);
    task_posted(task,
                spdk_mlx5_umr_configure(task->device->qp, &umr, (uintptr_t)task, SPDK_MLX5_WQE_CTRL_CE_CQ_UPDATE),
                "UMR");
    device_ring(task->device);
    task_wait(task);
    task->done = false;
    count = task_slice(task, &task->destination, 0, middle, sge);
    task_posted(task, spdk_mlx5_qp_rdma_read(task->device->qp, sge, count, 0, umr.mkey, 0, 0), "RDMA READ");
    count = task_slice(task, &task->destination, middle, task->length - middle, sge);
    task_posted(task,
                spdk_mlx5_qp_rdma_read(task->device->qp, sge, count, middle, umr.mkey, (uintptr_t)task,
                                       SPDK_MLX5_WQE_CTRL_CE_CQ_UPDATE),
                "RDMA READ");
    expect(task, NULL, 0);
}

void
task_cut_at_pieces(const struct task *task, struct crc *crc)
{
    size_t end = 0;
    unsigned i;

    crc->count = 0;
    for (i = 0; i < task->source.count; i++) {
        end += task->source.pieces[i].iov_len;
        if (i % PIECES == PIECES - 1 || i + 1 == task->source.count) {
            crc->cuts[crc->count++] = end;
        }
    }
}

static void
configure_crc(struct task *task, const struct crc *crc, unsigned number)
{
    size_t from = number ? crc->cuts[number - 1] : 0, length = crc->cuts[number] - from;
    struct ibv_sge sge[PIECES];
    struct spdk_mlx5_umr_attr umr = { .sge = sge, .mkey = task_mkey(task, SIGNATURE, number), .umr_len = length };
    struct spdk_mlx5_umr_sig_attr attr = {
        .seed = crc->seed,
        .psv_index = crc->psv->object->index,
        .domain = SPDK_MLX5_UMR_SIG_DOMAIN_WIRE,
        .sigerr_count = task->mkeys[number]->sig.sigerr_count,
        .raw_data_size = length,
        .init = number == 0,
        .check_gen = number + 1 == crc->count,
    };

    umr.sge_count = task_slice(task, &task->source, from, length, sge);
    task_posted(task, spdk_mlx5_umr_configure_sig(task->device->qp, &umr, &attr, 0, 0), "UMR with CRC");
}

/* Reads the data of an mkey. The CRC follows the last byte, in a request of its own if it does not fit. */
static void
read_crc(struct task *task, const struct crc *crc, unsigned number, uint32_t fence, bool signalled)
{
    size_t from = number ? crc->cuts[number - 1] : 0, length = crc->cuts[number] - from;
    bool last = number + 1 == crc->count;
    uint32_t mkey = task->mkeys[number]->mkey;
    struct ibv_sge sge[PIECES + 1], behind = {
        .addr = (uintptr_t)crc->psv->crc, .length = sizeof(*crc->psv->crc), .lkey = task->device->lkey,
    };
    unsigned count = task_slice(task, &task->destination, from, length, sge);
    uint64_t offset = 0;

    if (last && count == PIECES) {
        task_posted(task, spdk_mlx5_qp_rdma_read(task->device->qp, sge, count, 0, mkey, 0, fence), "RDMA READ");
        fence = SPDK_MLX5_WQE_CTRL_STRONG_ORDERING;
        offset = length;
        count = 0;
    }
    if (last) {
        sge[count++] = behind;
    }
    if (signalled) {
        fence |= SPDK_MLX5_WQE_CTRL_CE_CQ_UPDATE;
    }
    task_posted(task,
                spdk_mlx5_qp_rdma_read(task->device->qp, sge, count, offset, mkey, signalled ? (uintptr_t)task : 0,
                                       fence),
                "RDMA READ");
}

void
task_crc(struct task *task, const struct crc *crc)
{
    uint32_t fence = SPDK_MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE;
    unsigned number, split = crc->halves ? 1 : 0;

    task->psv = crc->psv;
    *crc->psv->crc = 0;
    record_write(crc->psv->crc, crc->psv->crc, sizeof(*crc->psv->crc));
    for (number = 0; number < split; number++) {
        configure_crc(task, crc, number);
        read_crc(task, crc, number, fence, true);
        device_ring(task->device);
        task_wait(task);
        task->done = false;
    }
    for (number = split; number < crc->count; number++) {
        configure_crc(task, crc, number);
    }
    if (crc->psv->error) {
        task_posted(task, spdk_mlx5_qp_set_psv(task->device->qp, crc->psv->object->index, *crc->psv->crc, 0, 0),
                    "SET_PSV");
        crc->psv->error = false;
    }
    if (crc->count == 1) {
        fence = SPDK_MLX5_WQE_CTRL_STRONG_ORDERING;
    }
    for (number = split; number < crc->count; number++) {
        read_crc(task, crc, number, fence, number + 1 == crc->count);
        fence = SPDK_MLX5_WQE_CTRL_STRONG_ORDERING;
    }
    task->crc = ~expect(task, NULL, crc->seed);
}

uint32_t
task_expect_copy(struct task *task, uint32_t seed)
{
    return expect(task, NULL, seed);
}

void
task_wait(struct task *task)
{
    struct spdk_mlx5_cq_completion completion;

    while (!task->done) {
        struct task *other;
        int rc = device_take(task->device, &completion);

        if (rc == -ENODEV) {
            task->signature_errors++;
            continue;
        }
        must(rc, "spdk_mlx5_cq_poll_completions");
        other = (struct task *)completion.wr_id;
        /* A failed unsignalled request belongs to no task. */
        if (other) {
            other->done = true;
            other->status = completion.status;
        }
    }
}

void
task_drop(struct task *task)
{
    if (task->mkey_count) {
        spdk_mlx5_mkey_pool_put_bulk(task->device->pools[task->kind], task->mkeys, task->mkey_count);
    }
    task->device->posted -= task->requests;
    free(task->expected);
    task->expected = NULL;
}

bool
task_end(struct task *task)
{
    bool good;

    task_wait(task);
    good = task->status == 0 && task->signature_errors == 0;
    good = good && memcmp(task->area, task->expected, task->area_length) == 0;
    record_result(task->area, task->expected, task->area_length);
    if (task->psv) {
        uint32_t crc = htole32(task->crc);

        good = good && *task->psv->crc == crc;
        record_result(task->psv->crc, &crc, sizeof(crc));
    }
    task_drop(task);
    return good;
}
