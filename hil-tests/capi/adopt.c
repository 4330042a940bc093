/*
 * A program of libibverbs opens a device and connects a queue pair to itself. The library for C then takes both
 * over and writes through an mkey. `cargo xtask capi --test` runs it on the software device, under valgrind.
 */

#define _POSIX_C_SOURCE 200112L

#include "check.h"

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
    CHECK(mlx5mk_mr_keys(from, &lkey, NULL) == 0 && mlx5mk_mr_keys(to, NULL, &rkey) == 0);
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
    CHECK(their_qp != NULL);

    mlx5mk_device *device = NULL;
    mlx5mk_pd *pd = NULL;
    mlx5mk_cq *cq = NULL;
    mlx5mk_qp *qp = NULL;
    mlx5mk_qp_spec spec = {.max_requests = 64};
    CHECK(mlx5mk_device_adopt(context, &device, &error) == 0);
    CHECK(mlx5mk_pd_adopt(device, their_pd, &pd, &error) == 0);
    CHECK(mlx5mk_cq_adopt(device, their_cq, &cq, &error) == 0);
    CHECK(mlx5mk_qp_adopt(pd, cq, cq, their_qp, &spec, &qp, &error) == MLX5MK_ADOPT);
    CHECK(strstr(error.message, "not connected") != NULL);
    connect_to_itself(context, their_qp);
    CHECK(mlx5mk_qp_adopt(pd, cq, cq, their_qp, &spec, &qp, &error) == 0);
    CHECK(mlx5mk_qp_number(qp) == their_qp->qp_num);
    CHECK(!mlx5mk_qp_has_blue_flame(qp));
    CHECK(mlx5mk_cq_fd(cq, &error) == MLX5MK_ADOPT);
    write_through_an_mkey(pd, cq, qp);

    mlx5mk_qp_destroy(qp);
    CHECK(mlx5mk_cq_destroy(cq, &error) == 0);
    mlx5mk_pd_free(pd);
    mlx5mk_device_close(device);
    CHECK(ibv_destroy_qp(their_qp) == 0 && ibv_destroy_cq(their_cq) == 0 && ibv_dealloc_pd(their_pd) == 0);
    CHECK(ibv_close_device(context) == 0);
    printf("what libibverbs had made was taken over, and given back\n");
    return EXIT_SUCCESS;
}
