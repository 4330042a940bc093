/*
 * The functions of SPDK that lib/mlx5 calls, in their simplest form, without threads, huge pages and rdma_cm.
 */
#include <stdarg.h>

#include "spdk/stdinc.h"
#include "spdk/env.h"
#include "spdk/log.h"
#include "spdk/util.h"
#include "spdk_internal/rdma_cm.h"
#include "spdk_internal/rdma_utils.h"

/* Prints errors only. Warnings are expected: a failed request causes one. */
void
spdk_log(enum spdk_log_level level, const char *file, const int line, const char *func, const char *format, ...)
{
    va_list arguments;

    (void)file;
    if (level > SPDK_LOG_ERROR) {
        return;
    }
    fprintf(stderr, "%s, line %d: ", func, line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

void
spdk_log_register_flag(const char *name, struct spdk_log_flag *flag)
{
    (void)name;
    (void)flag;
}

uint32_t
spdk_u32log2(uint32_t x)
{
    return x == 0 ? 0 : 31 - __builtin_clz(x);
}

uint32_t
spdk_env_get_core_count(void)
{
    return 1;
}

/* A queue of free elements: each element is used before the first one is used again. */
struct spdk_mempool {
    size_t count, size, first, available;
    void **queue;
    uint8_t *elements;
};

struct spdk_mempool *
spdk_mempool_create_ctor(const char *name, size_t count, size_t ele_size, size_t cache_size, int numa_id,
                         spdk_mempool_obj_cb_t *obj_init, void *obj_init_arg)
{
    struct spdk_mempool *pool = calloc(1, sizeof(*pool));
    size_t i;

    (void)name;
    (void)cache_size;
    (void)numa_id;
    if (!pool) {
        return NULL;
    }
    pool->count = pool->available = count;
    pool->size = ele_size;
    pool->queue = calloc(count, sizeof(*pool->queue));
    pool->elements = calloc(count, ele_size);
    if (!pool->queue || !pool->elements) {
        spdk_mempool_free(pool);
        return NULL;
    }
    for (i = 0; i < count; i++) {
        pool->queue[i] = pool->elements + i * ele_size;
        obj_init(pool, obj_init_arg, pool->queue[i], i);
    }
    return pool;
}

void
spdk_mempool_free(struct spdk_mempool *pool)
{
    free(pool->queue);
    free(pool->elements);
    free(pool);
}

int
spdk_mempool_get_bulk(struct spdk_mempool *pool, void **elements, size_t count)
{
    size_t i;

    if (count > pool->available) {
        return -ENOMEM;
    }
    for (i = 0; i < count; i++) {
        elements[i] = pool->queue[pool->first];
        pool->first = (pool->first + 1) % pool->count;
    }
    pool->available -= count;
    return 0;
}

void
spdk_mempool_put_bulk(struct spdk_mempool *pool, void **elements, size_t count)
{
    size_t i;

    assert(count <= pool->count - pool->available);
    for (i = 0; i < count; i++) {
        pool->queue[(pool->first + pool->available++) % pool->count] = elements[i];
    }
}

/* The only device and the only protection domain. lib/mlx5 asks for both by name each time. */
static struct ibv_context *g_device;
static struct ibv_pd *g_pd;

struct ibv_context **
spdk_rdma_cm_get_devices(int *num_devices)
{
    struct ibv_context **devices = calloc(2, sizeof(*devices));
    struct ibv_device **list;
    int count = 0;

    if (!g_device) {
        list = ibv_get_device_list(&count);
        g_device = list && count ? ibv_open_device(list[0]) : NULL;
        ibv_free_device_list(list);
    }
    if (devices) {
        devices[0] = g_device;
    }
    *num_devices = devices && g_device ? 1 : 0;
    return devices;
}

void
spdk_rdma_cm_free_devices(struct ibv_context **devices)
{
    free(devices);
}

struct ibv_pd *
spdk_rdma_utils_get_pd(struct ibv_context *context)
{
    if (!g_pd) {
        g_pd = ibv_alloc_pd(context);
    }
    return g_pd;
}

/* The protection domain stays until the process ends. */
void
spdk_rdma_utils_put_pd(struct ibv_pd *pd)
{
    (void)pd;
}
