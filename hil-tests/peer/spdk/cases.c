#include "cases.h"

static const size_t UNITS[] = { 512, 520, 4096, 4160 };

/* The state of the pseudorandom numbers. */
static uint64_t g_random = 7;

/* Rings the doorbell for a posted task alone. Returns whether the task passed. */
static bool
alone(struct task *task)
{
    device_ring(task->device);
    return task_end(task);
}

static struct crypto
some_crypto(struct device *device, uint64_t random)
{
    return (struct crypto) {
        .key = &device->keys[random % KEYS],
        .encrypt = random >> 2 & 1,
        .unit = UNITS[random >> 3 & 3],
        .number = random >> (random >> 57 & 31),
        /* An engine of single data units takes one data unit per request. Other tasks are split in some cases, as in SPDK. */
        .units_in_mkey = device->multi_block ? (random >> 5 & 3 ? MKEYS_IN_TASK : 2) : 1,
        .way = READ_FROM_MKEY,
    };
}

static void
crypto_by_reading(struct device *device, size_t unit, unsigned pieces, unsigned form)
{
    struct crypto crypto = some_crypto(device, reference_random(&g_random));
    size_t units = 1 + reference_random(&g_random) % (unit < 1024 ? 9 : 4);
    unsigned elsewhere = 1 + reference_random(&g_random) % PIECES;
    struct task task;

    crypto.unit = unit;
    crypto.encrypt = form & 1;
    task_begin(&task, device, 0, units * unit, pieces, form & 2 ? elsewhere : 0);
    task_crypto(&task, &crypto);
    check(alone(&task), "%s %zu units of %zu in %u pieces%s", crypto.encrypt ? "encrypt" : "decrypt", units, unit, pieces,
          form & 2 ? ", copied" : "");
}

static void
crypto_by_another_way(struct device *device, enum way way, size_t unit, unsigned pieces, bool encrypt)
{
    struct crypto crypto = some_crypto(device, reference_random(&g_random));
    size_t units = device->multi_block ? 3 : 1;
    bool one_source = way == READ_TO_MKEY, one_destination = way == WRITE_FROM_MKEY;
    struct task task;

    crypto.unit = unit;
    crypto.encrypt = encrypt;
    crypto.way = way;
    crypto.units_in_mkey = units;
    task_begin(&task, device, 1, units * unit, one_source ? 1 : pieces, one_destination ? 1 : pieces);
    task_crypto(&task, &crypto);
    check(alone(&task), "%s %zu units of %zu in %u pieces, way %d", encrypt ? "encrypt" : "decrypt", units, unit, pieces,
          way);
}

void
cases_crypto(struct device *device)
{
    unsigned unit, pieces, form, way;

    for (unit = 0; unit < SPDK_COUNTOF(UNITS); unit++) {
        for (pieces = 1; pieces <= PIECES; pieces += times(1, 5)) {
            for (form = 0; form < 4; form++) {
                crypto_by_reading(device, UNITS[unit], pieces, form);
            }
        }
        for (way = WRITE_FROM_MKEY; way < WAYS; way++) {
            for (pieces = 1; pieces <= PIECES; pieces += times(1, 15)) {
                crypto_by_another_way(device, way, UNITS[unit], pieces, false);
                crypto_by_another_way(device, way, UNITS[unit], pieces, true);
            }
        }
    }
}

void
cases_copy(struct device *device)
{
    unsigned pieces, destination;
    struct task task;

    for (pieces = 1; pieces <= PIECES; pieces += times(1, 3)) {
        for (destination = 1; destination <= PIECES; destination += times(1, 7)) {
            task_begin(&task, device, pieces, 1000 + pieces, pieces, destination);
            task_copy(&task);
            check(alone(&task), "copy from %u to %u pieces", pieces, destination);
        }
        task_begin(&task, device, pieces, 2000 + pieces, pieces, 1 + PIECES - pieces);
        task_gather(&task);
        check(alone(&task), "copy %u pieces past an mkey", pieces);
    }
}

static void
crc_in_place(struct device *device, unsigned pieces, uint32_t seed, bool halves)
{
    struct crc crc = { .psv = &device->psvs[pieces % PSVS], .seed = seed };
    size_t length = pieces + reference_random(&g_random) % 6000;
    struct task task;

    task_begin(&task, device, pieces, length, pieces, 0);
    task_cut_at_pieces(&task, &crc);
    crc.halves = halves && crc.count > 1;
    task_crc(&task, &crc);
    check(alone(&task), "CRC32C of %zu bytes in %u pieces, seed %x, halves %d", length, pieces, seed, crc.halves);
}

static void
crc_of_a_copy(struct device *device, unsigned pieces, unsigned mkeys, uint32_t seed)
{
    struct crc crc = { .psv = &device->psvs[mkeys], .seed = seed, .count = mkeys };
    size_t length = 100 + reference_random(&g_random) % 6000;
    struct task task;
    unsigned i;

    task_begin(&task, device, pieces, length, pieces, 1 + PIECES - pieces);
    for (i = 0; i < mkeys; i++) {
        crc.cuts[i] = length * (i + 1) / mkeys;
    }
    task_crc(&task, &crc);
    check(alone(&task), "CRC32C of a copy of %zu bytes in %u pieces past %u mkeys, seed %x", length, pieces, mkeys, seed);
}

void
cases_crc(struct device *device)
{
    unsigned pieces, mkeys, ones;

    for (ones = 0; ones < 2; ones++) {
        for (pieces = 1; pieces <= PIECES_IN_TASK; pieces += times(1, 3)) {
            crc_in_place(device, pieces, -ones, false);
            crc_in_place(device, pieces, -ones, true);
        }
        for (pieces = 1; pieces <= PIECES; pieces += times(1, 5)) {
            for (mkeys = 1; mkeys <= 4; mkeys++) {
                crc_of_a_copy(device, pieces, mkeys, -ones);
            }
        }
    }
}

void
any_task(struct task *task, struct device *device, unsigned slot, uint64_t random)
{
    unsigned pieces = 1 + (random >> 8 & 15), elsewhere = 1 + (random >> 12 & 15);
    unsigned destination = random >> 16 & 1 ? elsewhere : 0;
    struct crypto crypto = some_crypto(device, random);
    struct crc crc = { .psv = &device->psvs[slot % PSVS], .seed = random >> 17 & 1 ? UINT32_MAX : 0 };
    size_t units = 1 + (random >> 18 & 3);

    switch (random >> 60 & 7) {
    case 0:
        task_begin(task, device, slot, 64 + (random >> 18) % 512, pieces, elsewhere);
        task_copy(task);
        break;
    case 1:
    case 2:
        task_begin(task, device, slot, 64 + (random >> 18) % 2000, pieces, 0);
        task_cut_at_pieces(task, &crc);
        task_crc(task, &crc);
        break;
    default:
        task_begin(task, device, slot, crypto.unit * units, pieces, destination);
        task_crypto(task, &crypto);
        break;
    }
}
