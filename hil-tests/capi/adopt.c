/*
 * A program of libibverbs opens a device and connects queue pairs to themselves. The library for C then takes
 * them over and writes through mkeys. The second queue pair stops at a signature error, and goes on. `cargo
 * xtask capi --test` runs it on the software device, under valgrind.
 */

#define _POSIX_C_SOURCE 200112L

#include "check.h"

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdint.h>

/* Connects a queue pair of libibverbs to itself. */
static void connect_to_itself(struct ibv_context *context, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);

    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num};
    attr.max_dest_rd_atomic = 1, attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1, attr.ah_attr.port_num = 1, attr.ah_attr.grh.hop_limit = 1;
    CHECK(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);

    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
    attr.max_rd_atomic = 1;
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* Writes 16 bytes, in two pieces, through an mkey. */
static void write_through_an_mkey(mlx5mk_pd *pd, mlx5mk_cq *cq, mlx5mk_qp *qp)
{
    static uint8_t source[] = "two pieces that ...become one", target[16];
    mlx5mk_mr *from = NULL, *to = NULL;
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_mkey mkey;
    uint32_t lkey = 0, rkey = 0;
    mlx5mk_completion done;

    CHECK(mlx5mk_mr_register(pd, source, sizeof(source), MLX5MK_LOCAL_WRITE, &from, &error) == 0);
    CHECK(mlx5mk_mr_register(pd, target, 16, MLX5MK_LOCAL_WRITE | MLX5MK_REMOTE_WRITE, &to, &error) == 0);
    lkey = mlx5mk_mr_lkey(from), rkey = mlx5mk_mr_rkey(to);
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 4};
    CHECK(mlx5mk_pool_create(pd, NULL, &spec, &pool, &error) == 0);
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS, .access = MLX5MK_LOCAL_WRITE};
    CHECK(mlx5mk_prepared_create(pool, &config, &prepared, &error) == 0);

    mlx5mk_range entries[] = {{(uintptr_t)source, 4, lkey}, {(uintptr_t)source + 17, 12, lkey}};
    mlx5mk_range all = {.length = 16};
    CHECK(mlx5mk_pool_take(pool, &mkey, &error) == 0 && mlx5mk_mkey_key(pool, mkey, &all.key, &error) == 0);
    mlx5mk_request write = {.id = 2,
                            .operation = MLX5MK_OP_RDMA_WRITE,
                            .flags = MLX5MK_SIGNALED,
                            .remote_address = (uintptr_t)target,
                            .rkey = rkey,
                            .sges = &all,
                            .sge_count = 1};
    CHECK(mlx5mk_post_configure(qp, 1, 0, pool, mkey, prepared, entries, 2, &error) == 0);
    CHECK(mlx5mk_post(qp, &write, &error) == 0);
    mlx5mk_doorbell(qp);
    int32_t taken = 0;
    while (taken == 0)
        taken = mlx5mk_cq_poll(cq, &done, 1, &error);
    CHECK(taken == 1 && done.kind == MLX5MK_SENT && done.id == 2);
    CHECK(memcmp(target, "two ..become one", 16) == 0);

    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
    CHECK(mlx5mk_mr_deregister(from, &error) == 0 && mlx5mk_mr_deregister(to, &error) == 0);
}

/* Takes the next completion of a request. Signature errors before it are counted. */
static mlx5mk_completion next(mlx5mk_cq *cq, int *wrong)
{
    mlx5mk_completion done;
    for (;;) {
        int32_t taken = mlx5mk_cq_poll(cq, &done, 1, &error);
        CHECK(taken >= 0);
        if (taken == 1 && done.kind != MLX5MK_BAD_SIGNATURE)
            return done;
        *wrong += taken == 1;
    }
}

/* Makes a queue pair that stops at signature errors. */
static struct ibv_qp *draining(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd};
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.cap = (struct ibv_qp_cap){.max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
    init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    struct mlx5dv_qp_init_attr own = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS |
                                                   MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
                                      .create_flags = MLX5DV_QP_CREATE_SIG_PIPELINING,
                                      .send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE};
    return mlx5dv_create_qp(context, &init, &own);
}

/*
 * Sends data whose T10-DIF is wrong. The queue stops before the fenced request behind it; of the requests
 * that wait there, one is cancelled. The others are executed when the queue goes on.
 */
static void a_drained_queue_goes_on(mlx5mk_pd *pd, mlx5mk_cq *cq, mlx5mk_qp *qp)
{
    static uint8_t memory[2048];
    mlx5mk_mr *mr = NULL;
    mlx5mk_pool *pool = NULL;
    mlx5mk_prepared *prepared = NULL;
    mlx5mk_mkey mkey;
    mlx5mk_qp_info info;
    int wrong = 0;
    uint32_t rights = MLX5MK_LOCAL_WRITE | MLX5MK_REMOTE_WRITE;
    CHECK(mlx5mk_mr_register(pd, memory, sizeof(memory), rights, &mr, &error) == 0);
    mlx5mk_pool_spec spec = {.count = 1, .max_entries = 4};
    CHECK(mlx5mk_pool_create(pd, cq, &spec, &pool, &error) == 0);
    mlx5mk_config config = {.parts = MLX5MK_SET_ACCESS | MLX5MK_SET_SIGNATURE,
                            .access = MLX5MK_LOCAL_WRITE,
                            .memory = {.kind = MLX5MK_T10DIF, .block_size = 512, .app_tag = 1}};
    CHECK(mlx5mk_prepared_create(pool, &config, &prepared, &error) == 0);
    memset(memory, 0x5a, 1024);
    mlx5mk_range entry = {(uintptr_t)memory, 520, mlx5mk_mr_lkey(mr)}, all = {.length = 512};
    CHECK(mlx5mk_pool_take(pool, &mkey, &error) == 0 && mlx5mk_mkey_key(pool, mkey, &all.key, &error) == 0);
    mlx5mk_request write = {.id = 2,
                            .operation = MLX5MK_OP_RDMA_WRITE,
                            .flags = MLX5MK_SIGNALED,
                            .remote_address = (uintptr_t)(memory + 1024),
                            .rkey = mlx5mk_mr_rkey(mr),
                            .sges = &all,
                            .sge_count = 1};
    mlx5mk_range piece = {(uintptr_t)memory, 8, mlx5mk_mr_lkey(mr)};
    mlx5mk_request waits = write, cancelled = write;
    waits.id = 3, waits.operation = MLX5MK_OP_NOP, waits.flags |= MLX5MK_FENCED;
    cancelled.id = 4, cancelled.remote_address += 512, cancelled.sges = &piece;
    CHECK(mlx5mk_post_configure(qp, 1, 0, pool, mkey, prepared, &entry, 1, &error) == 0);
    CHECK(mlx5mk_post(qp, &write, &error) == 0 && mlx5mk_post(qp, &waits, &error) == 0);
    CHECK(mlx5mk_post(qp, &cancelled, &error) == 0);
    mlx5mk_doorbell(qp);
    CHECK(next(cq, &wrong).id == 2);
    do {
        CHECK(mlx5mk_qp_query(qp, &info, &error) == 0);
    } while (info.state != MLX5MK_QP_SQ_DRAINED);
    CHECK(mlx5mk_qp_cancel(qp, 9, &error) == 0);
    CHECK(mlx5mk_qp_cancel(qp, 4, &error) == 1);
    CHECK(mlx5mk_qp_resume(qp, &error) == 0);
    CHECK(next(cq, &wrong).id == 3 && next(cq, &wrong).id == 4);
    CHECK(wrong == 1 && mlx5mk_mkey_check(pool, mkey, NULL, &error) == MLX5MK_SIGNATURE);
    CHECK(memory[1536] == 0);
    CHECK(mlx5mk_pool_put(pool, mkey, NULL, &error) == 0);
    mlx5mk_prepared_destroy(prepared);
    mlx5mk_pool_destroy(pool);
    CHECK(mlx5mk_mr_deregister(mr, &error) == 0);
}

int main(void)
{
    int devices = 0;
    /*
     * Must be set before the queue pair exists. Completion entries then never hold received data, as the
     * library requires.
     */
    CHECK(setenv("MLX5_SCATTER_TO_CQE", "0", 1) == 0);
    struct ibv_device **list = ibv_get_device_list(&devices);
    CHECK(list != NULL && devices > 0);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context != NULL);
    ibv_free_device_list(list);
    struct ibv_pd *their_pd = ibv_alloc_pd(context);
    struct ibv_cq *their_cq = ibv_create_cq(context, 255, NULL, NULL, 0);
    CHECK(their_pd != NULL && their_cq != NULL);
    struct ibv_qp_init_attr init = {.send_cq = their_cq, .recv_cq = their_cq, .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){.max_send_wr = 64, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1};
    struct ibv_qp *their_qp = ibv_create_qp(their_pd, &init);
    struct ibv_qp *their_draining_qp = draining(context, their_pd, their_cq);
    CHECK(their_qp != NULL && their_draining_qp != NULL);

    mlx5mk_device *device = NULL;
    mlx5mk_pd *pd = NULL;
    mlx5mk_cq *cq = NULL;
    mlx5mk_qp *qp = NULL, *stops = NULL;
    mlx5mk_qp_spec spec = {.max_requests = 64};
    CHECK(mlx5mk_device_adopt(context, &device, &error) == 0);
    CHECK(mlx5mk_pd_adopt(device, their_pd, &pd, &error) == 0);
    CHECK(mlx5mk_cq_adopt(device, their_cq, &cq, &error) == 0);
    CHECK(mlx5mk_qp_adopt(pd, cq, cq, their_qp, &spec, &qp, &error) == MLX5MK_ADOPT);
    CHECK(strstr(error.message, "not connected") != NULL);
    connect_to_itself(context, their_qp);
    // The other flags were decided when the queue pair was created.
    spec.flags = MLX5MK_QP_DRAIN_ON_SIGNATURE_ERROR;
    CHECK(mlx5mk_qp_adopt(pd, cq, cq, their_qp, &spec, &qp, &error) == MLX5MK_ARGUMENT);
    spec.flags = 0;
    CHECK(mlx5mk_qp_adopt(pd, cq, cq, their_qp, &spec, &qp, &error) == 0);
    CHECK(mlx5mk_qp_number(qp) == their_qp->qp_num);
    CHECK(!mlx5mk_qp_has_blue_flame(qp));
    CHECK(mlx5mk_cq_fd(cq, &error) == MLX5MK_ADOPT);
    write_through_an_mkey(pd, cq, qp);
    connect_to_itself(context, their_draining_qp);
    CHECK(mlx5mk_qp_adopt(pd, cq, cq, their_draining_qp, &spec, &stops, &error) == 0);
    a_drained_queue_goes_on(pd, cq, stops);
    mlx5mk_qp_destroy(stops);

    mlx5mk_qp_destroy(qp);
    CHECK(mlx5mk_cq_destroy(cq, &error) == 0);
    mlx5mk_pd_free(pd);
    mlx5mk_device_close(device);
    CHECK(ibv_destroy_qp(their_draining_qp) == 0 && ibv_destroy_qp(their_qp) == 0);
    CHECK(ibv_destroy_cq(their_cq) == 0 && ibv_dealloc_pd(their_pd) == 0);
    CHECK(ibv_close_device(context) == 0);
    printf("what libibverbs had made was taken over, and given back\n");
    return EXIT_SUCCESS;
}
