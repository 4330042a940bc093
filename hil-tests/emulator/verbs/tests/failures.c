/* Produces each failure that mlx5_faults.h offers, and checks the status or the event that libibverbs
 * reports.
 *
 * With the argument `absent`, the program runs without an emulator, and checks that each function says it. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mlx5_faults.h"

#define CHECK(condition)                                                                                \
    do {                                                                                                \
        if (!(condition)) {                                                                             \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                   \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

#define BYTES 4096
#define DEPTH 16

/* The loopback interface gives the port link-local entries, then those of 127.0.0.1 and ::1. */
#define OWN_GID 0
#define ADDRESS_GID 2

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static union ibv_gid gid;
static char memory[BYTES] __attribute__((aligned(4096)));

static void start(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);

    CHECK(list && list[0]);
    context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    CHECK(fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK) == 0);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
    CHECK(pd && cq);
    mr = ibv_reg_mr(pd, memory, BYTES,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    CHECK(mr);
    CHECK(ibv_query_gid(context, 1, OWN_GID, &gid) == 0);
}

static void stop(void)
{
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(context) == 0);
}

static struct ibv_qp *create(enum ibv_qp_type type, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .srq = srq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = type,
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);

    CHECK(qp);
    return qp;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, uint8_t rnr_retry)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
                              .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
                              .ah_attr = {.is_global = 1, .port_num = 1,
                                          .grh = {.dgid = gid, .sgid_index = OWN_GID, .hop_limit = 1}}};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = rnr_retry,
                              .max_rd_atomic = 1};
    int is_ud = qp->qp_type == IBV_QPT_UD;
    int to_rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                 IBV_QP_MIN_RNR_TIMER;
    int to_rts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

    CHECK(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                        (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
    CHECK(ibv_modify_qp(qp, &rtr, IBV_QP_STATE | (is_ud ? 0 : to_rtr)) == 0);
    CHECK(ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | (is_ud ? 0 : to_rts)) == 0);
}

/* Makes a connected pair of queue pairs. */
static void pair(struct ibv_qp *qps[2], uint8_t rnr_retry)
{
    qps[0] = create(IBV_QPT_RC, NULL);
    qps[1] = create(IBV_QPT_RC, NULL);
    connect_to(qps[0], qps[1]->qp_num, rnr_retry);
    connect_to(qps[1], qps[0]->qp_num, rnr_retry);
}

static void end(struct ibv_qp *qps[2])
{
    struct ibv_wc wc;

    CHECK(mlx5_faults_clear() == 0);
    CHECK(ibv_destroy_qp(qps[0]) == 0);
    CHECK(ibv_destroy_qp(qps[1]) == 0);
    while (ibv_poll_cq(cq, 1, &wc) > 0)
        ;
}

static void post(struct ibv_qp *qp, uint64_t id, enum ibv_wr_opcode opcode)
{
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 64, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = (uintptr_t)memory + 1024, .rkey = mr->rkey}};
    struct ibv_send_wr *bad;

    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

static void receive(struct ibv_qp *qp, uint64_t id)
{
    struct ibv_sge sge = {.addr = (uintptr_t)memory + 2048, .length = 512, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad;

    CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/* Waits for the next completion, and returns its status. */
#define completed(id) completed_at(__LINE__, id)
static enum ibv_wc_status completed_at(int line, uint64_t id)
{
    struct ibv_wc wc;
    uint64_t limit = now() + 30 * 1000000;
    int count;

    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
        CHECK(now() < limit);
    CHECK(count == 1);
    if (wc.wr_id != id) {
        fprintf(stderr, "%s:%d: request %d is done, status %d\n", __FILE__, line, (int)wc.wr_id, wc.status);
        exit(1);
    }
    return wc.status;
}

/* Returns whether no completion comes while the device works for a while. */
static int nothing_comes(void)
{
    struct ibv_wc wc;
    int turn, count = 0;

    for (turn = 0; turn < 2000 && count == 0; turn++)
        count = ibv_poll_cq(cq, 1, &wc);
    return count == 0;
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
    return attr.qp_state;
}

/* Checks the next asynchronous event, which is already there. */
static struct ibv_async_event event_is(int type)
{
    struct ibv_async_event event;

    CHECK(ibv_get_async_event(context, &event) == 0);
    CHECK((int)event.event_type == type);
    ibv_ack_async_event(&event);
    return event;
}

static int no_event(void)
{
    struct ibv_async_event event;

    return ibv_get_async_event(context, &event) != 0 && errno == EAGAIN;
}

static void statuses(void)
{
    static const enum ibv_wc_status all[] = {
        IBV_WC_LOC_LEN_ERR,    IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_PROT_ERR,   IBV_WC_WR_FLUSH_ERR,
        IBV_WC_MW_BIND_ERR,    IBV_WC_BAD_RESP_ERR,  IBV_WC_LOC_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR,
        IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR,    IBV_WC_RETRY_EXC_ERR,  IBV_WC_RNR_RETRY_EXC_ERR,
        IBV_WC_REM_ABORT_ERR,  IBV_WC_GENERAL_ERR};
    struct ibv_qp *qps[2], *other[2];
    size_t at;

    for (at = 0; at < sizeof(all) / sizeof(*all); at++) {
        pair(qps, 7);
        pair(other, 7);
        CHECK(mlx5_faults_request_fails(qps[0], MLX5_FAULTS_NTH(2), all[at]) == 0);
        post(other[0], 1, IBV_WR_RDMA_WRITE);
        CHECK(completed(1) == IBV_WC_SUCCESS);
        post(qps[0], 2, IBV_WR_RDMA_WRITE);
        post(qps[0], 3, IBV_WR_RDMA_READ);
        post(qps[0], 4, IBV_WR_RDMA_WRITE);
        CHECK(completed(2) == IBV_WC_SUCCESS);
        CHECK(completed(3) == all[at]);
        CHECK(completed(4) == IBV_WC_WR_FLUSH_ERR);
        CHECK(state_of(qps[0]) == IBV_QPS_ERR);
        post(other[0], 5, IBV_WR_RDMA_WRITE);
        CHECK(completed(5) == IBV_WC_SUCCESS);
        end(other);
        end(qps);
    }
    CHECK(mlx5_faults_request_fails(NULL, MLX5_FAULTS_NTH(1), IBV_WC_SUCCESS) == EINVAL);
    CHECK(mlx5_faults_request_fails(NULL, MLX5_FAULTS_NTH(0), IBV_WC_REM_OP_ERR) == EINVAL);
}

static void requests(void)
{
    struct ibv_qp *qps[2];
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    uint64_t begun;
    int turn;

    pair(qps, 7);
    begun = now();
    CHECK(mlx5_faults_request_delayed(qps[0], MLX5_FAULTS_FROM(1), 20000) == 0);
    for (turn = 0; turn < 3; turn++)
        post(qps[0], turn, IBV_WR_RDMA_WRITE);
    for (turn = 0; turn < 3; turn++)
        CHECK(completed(turn) == IBV_WC_SUCCESS);
    CHECK(now() - begun >= 60000);
    end(qps);

    pair(qps, 7);
    CHECK(mlx5_faults_request_lost(NULL, MLX5_FAULTS_NTH(1)) == 0);
    post(qps[0], 1, IBV_WR_RDMA_WRITE);
    CHECK(completed(1) == IBV_WC_RETRY_EXC_ERR);
    end(qps);

    pair(qps, 7);
    receive(qps[1], 1);
    CHECK(mlx5_faults_peer_not_ready(qps[0], MLX5_FAULTS_NTH(1), 3) == 0);
    post(qps[0], 2, IBV_WR_SEND);
    /* Receive and send share the completion queue. The receive is done first. */
    CHECK(completed(1) == IBV_WC_SUCCESS);
    CHECK(completed(2) == IBV_WC_SUCCESS);
    end(qps);

    pair(qps, 2);
    receive(qps[1], 1);
    CHECK(mlx5_faults_peer_not_ready(qps[0], MLX5_FAULTS_NTH(1), 3) == 0);
    post(qps[0], 2, IBV_WR_SEND);
    CHECK(completed(2) == IBV_WC_RNR_RETRY_EXC_ERR);
    end(qps);

    pair(qps, 7);
    CHECK(mlx5_faults_request_hangs(qps[0], MLX5_FAULTS_NTH(2)) == 0);
    post(qps[0], 1, IBV_WR_RDMA_WRITE);
    post(qps[0], 2, IBV_WR_RDMA_WRITE);
    CHECK(completed(1) == IBV_WC_SUCCESS);
    CHECK(nothing_comes());
    CHECK(ibv_modify_qp(qps[0], &error, IBV_QP_STATE) == 0);
    CHECK(completed(2) == IBV_WC_WR_FLUSH_ERR);
    end(qps);
}

static void datagrams(void)
{
    struct ibv_qp *qps[2] = {create(IBV_QPT_UD, NULL), create(IBV_QPT_UD, NULL)};
    struct ibv_ah_attr address = {.is_global = 1, .port_num = 1,
                                  .grh = {.dgid = gid, .sgid_index = OWN_GID, .hop_limit = 1}};
    struct ibv_ah *ah = ibv_create_ah(pd, &address);
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 64, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.ud = {.ah = ah, .remote_qpn = qps[1]->qp_num, .remote_qkey = 0x11}};
    struct ibv_send_wr *bad;

    CHECK(ah);
    connect_to(qps[0], 0, 0);
    connect_to(qps[1], 0, 0);
    receive(qps[1], 9);
    CHECK(mlx5_faults_request_lost(qps[0], MLX5_FAULTS_NTH(1)) == 0);
    CHECK(ibv_post_send(qps[0], &wr, &bad) == 0);
    CHECK(completed(0) == IBV_WC_SUCCESS);
    CHECK(nothing_comes());
    CHECK(ibv_post_send(qps[0], &wr, &bad) == 0);
    CHECK(completed(0) == IBV_WC_SUCCESS);
    CHECK(completed(9) == IBV_WC_SUCCESS);
    CHECK(ibv_destroy_ah(ah) == 0);
    end(qps);
}

static void receives(void)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM};
    struct ibv_qp *qps[2];
    int at;

    for (at = 0; at < 2; at++) {
        pair(qps, 7);
        receive(qps[1], 1);
        receive(qps[1], 2);
        CHECK(mlx5_faults_receive_fails(qps[1], MLX5_FAULTS_NTH(1), IBV_WC_LOC_LEN_ERR) == 0);
        post(qps[0], 3, opcodes[at]);
        CHECK(completed(1) == IBV_WC_LOC_LEN_ERR);
        CHECK(completed(3) == IBV_WC_REM_OP_ERR);
        CHECK(completed(2) == IBV_WC_WR_FLUSH_ERR);
        end(qps);
    }
}

static void completions(void)
{
    struct ibv_qp *qps[2];

    pair(qps, 7);
    CHECK(mlx5_faults_completion(qps[0], MLX5_FAULTS_NTH(1), MLX5_FAULTS_DROPPED) == 0);
    CHECK(mlx5_faults_completion(qps[0], MLX5_FAULTS_NTH(2), MLX5_FAULTS_LATE) == 0);
    post(qps[0], 1, IBV_WR_RDMA_WRITE);
    CHECK(nothing_comes());
    post(qps[0], 2, IBV_WR_RDMA_WRITE);
    CHECK(completed(2) == IBV_WC_SUCCESS);
    end(qps);

    pair(qps, 7);
    CHECK(mlx5_faults_completion(qps[0], MLX5_FAULTS_NTH(1), MLX5_FAULTS_TWICE) == 0);
    post(qps[0], 1, IBV_WR_RDMA_WRITE);
    CHECK(completed(1) == IBV_WC_SUCCESS);
    CHECK(completed(1) == IBV_WC_SUCCESS);
    end(qps);

    pair(qps, 7);
    CHECK(mlx5_faults_completion(qps[0], MLX5_FAULTS_NTH(1), MLX5_FAULTS_OVERRUN) == 0);
    post(qps[0], 1, IBV_WR_RDMA_WRITE);
    CHECK(nothing_comes());
    CHECK(event_is(IBV_EVENT_CQ_ERR).element.cq == cq);
    CHECK(state_of(qps[1]) == IBV_QPS_ERR);
    end(qps);
    CHECK(ibv_destroy_cq(cq) == 0);
    cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
    CHECK(cq);
}

/* Checks that the expression fails with ENOSPC, which only the failure on demand produces, and then
 * succeeds. */
#define FAILS_ONCE(call, type, expression, release)                                                     \
    do {                                                                                                \
        type *made;                                                                                     \
        CHECK(mlx5_faults_call_fails(call, MLX5_FAULTS_NTH(1), ENOSPC) == 0);                           \
        errno = 0;                                                                                      \
        CHECK(!(expression) && errno == ENOSPC);                                                        \
        made = expression;                                                                              \
        CHECK(made && release(made) == 0);                                                              \
        CHECK(mlx5_faults_clear() == 0);                                                                \
    } while (0)

static struct ibv_srq *create_srq(void)
{
    struct ibv_srq_init_attr init = {.attr = {.max_wr = DEPTH, .max_sge = 1}};

    return ibv_create_srq(pd, &init);
}

static struct ibv_qp *create_qp(void)
{
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1,
                                            .max_recv_sge = 1}};

    return ibv_create_qp(pd, &init);
}

static struct ibv_ah *create_ah(void)
{
    struct ibv_ah_attr address = {.is_global = 1, .port_num = 1,
                                  .grh = {.dgid = gid, .sgid_index = OWN_GID, .hop_limit = 1}};

    return ibv_create_ah(pd, &address);
}

static void calls(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_qp_init_attr init;
    struct ibv_gid_entry entry;
    struct ibv_qp *qp = create(IBV_QPT_RC, NULL);

    /* libibverbs looks for another file when the device's file cannot be opened, and reports that errno. */
    CHECK(mlx5_faults_call_fails(MLX5_FAULTS_OPEN, MLX5_FAULTS_NTH(1), ENOSPC) == 0);
    CHECK(!ibv_open_device(list[0]));
    CHECK(mlx5_faults_clear() == 0);
    /* libmlx5 repeats the call in the form of older kernels. */
    CHECK(mlx5_faults_call_fails(MLX5_FAULTS_GET_CONTEXT, MLX5_FAULTS_FROM(1), ENOSPC) == 0);
    CHECK(!ibv_open_device(list[0]));
    CHECK(mlx5_faults_clear() == 0);
    FAILS_ONCE(MLX5_FAULTS_ALLOC_PD, struct ibv_pd, ibv_alloc_pd(context), ibv_dealloc_pd);
    FAILS_ONCE(MLX5_FAULTS_REG_MR, struct ibv_mr, ibv_reg_mr(pd, memory, BYTES, 0), ibv_dereg_mr);
    FAILS_ONCE(MLX5_FAULTS_ALLOC_MW, struct ibv_mw, ibv_alloc_mw(pd, IBV_MW_TYPE_2), ibv_dealloc_mw);
    FAILS_ONCE(MLX5_FAULTS_CREATE_COMP_CHANNEL, struct ibv_comp_channel, ibv_create_comp_channel(context),
               ibv_destroy_comp_channel);
    FAILS_ONCE(MLX5_FAULTS_CREATE_CQ, struct ibv_cq, ibv_create_cq(context, 1, NULL, NULL, 0),
               ibv_destroy_cq);
    FAILS_ONCE(MLX5_FAULTS_CREATE_QP, struct ibv_qp, create_qp(), ibv_destroy_qp);
    FAILS_ONCE(MLX5_FAULTS_CREATE_SRQ, struct ibv_srq, create_srq(), ibv_destroy_srq);
    FAILS_ONCE(MLX5_FAULTS_CREATE_AH, struct ibv_ah, create_ah(), ibv_destroy_ah);
    ibv_free_device_list(list);

    CHECK(mlx5_faults_call_fails(MLX5_FAULTS_QUERY_DEVICE, MLX5_FAULTS_NTH(1), ENOSPC) == 0);
    CHECK(ibv_query_device(context, &device) == ENOSPC);
    CHECK(ibv_query_device(context, &device) == 0);
    CHECK(mlx5_faults_call_fails(MLX5_FAULTS_QUERY_PORT, MLX5_FAULTS_NTH(2), ENOSPC) == 0);
    CHECK(ibv_query_port(context, 1, &port) == 0);
    CHECK(ibv_query_port(context, 1, &port) == ENOSPC);
    CHECK(mlx5_faults_call_fails(MLX5_FAULTS_QUERY_GID, MLX5_FAULTS_FROM(1), ENOSPC) == 0);
    CHECK(ibv_query_gid_ex(context, 1, OWN_GID, &entry, 0) == ENOSPC);
    CHECK(ibv_query_gid_ex(context, 1, OWN_GID, &entry, 0) == ENOSPC);
    CHECK(mlx5_faults_clear() == 0);
    CHECK(mlx5_faults_call_fails(MLX5_FAULTS_MODIFY_QP, MLX5_FAULTS_NTH(1), ENOSPC) == 0);
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
          ENOSPC);
    CHECK(state_of(qp) == IBV_QPS_RESET);
    CHECK(mlx5_faults_call_fails(MLX5_FAULTS_QUERY_QP, MLX5_FAULTS_NTH(1), ENOSPC) == 0);
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == ENOSPC);
    CHECK(mlx5_faults_destroy_fails(MLX5_FAULTS_NTH(1), EBUSY) == 0);
    CHECK(ibv_destroy_qp(qp) == EBUSY);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(mlx5_faults_call_fails(MLX5_FAULTS_ANY_CALL, MLX5_FAULTS_NTH(1), 0) == EINVAL);
    CHECK(mlx5_faults_clear() == 0);
}

static void queue_events(void)
{
    static const struct {
        enum ibv_event_type type;
        int fails;
    } rows[] = {
        {IBV_EVENT_QP_FATAL, 1},   {IBV_EVENT_QP_REQ_ERR, 1},   {IBV_EVENT_QP_ACCESS_ERR, 1},
        {IBV_EVENT_COMM_EST, 0},   {IBV_EVENT_SQ_DRAINED, 0},   {IBV_EVENT_PATH_MIG, 0},
        {IBV_EVENT_PATH_MIG_ERR, 0}, {IBV_EVENT_QP_LAST_WQE_REACHED, 0}};
    struct ibv_qp *qps[2];
    struct ibv_srq *srq;
    size_t at;

    for (at = 0; at < sizeof(rows) / sizeof(*rows); at++) {
        pair(qps, 7);
        CHECK(mlx5_faults_queue_event(qps[0], rows[at].type) == 0);
        CHECK(event_is(rows[at].type).element.qp == qps[0]);
        CHECK(no_event());
        CHECK(state_of(qps[0]) == (rows[at].fails ? IBV_QPS_ERR : IBV_QPS_RTS));
        CHECK(state_of(qps[1]) == IBV_QPS_RTS);
        end(qps);
    }
    srq = create_srq();
    CHECK(srq);
    qps[0] = create(IBV_QPT_RC, srq);
    qps[1] = create(IBV_QPT_RC, NULL);
    CHECK(mlx5_faults_queue_event(qps[0], IBV_EVENT_SRQ_LIMIT_REACHED) == 0);
    CHECK(event_is(IBV_EVENT_SRQ_LIMIT_REACHED).element.srq == srq);
    CHECK(mlx5_faults_queue_event(qps[0], IBV_EVENT_SRQ_ERR) == 0);
    CHECK(event_is(IBV_EVENT_SRQ_ERR).element.srq == srq);
    /* The other queue pair has no shared receive queue. */
    CHECK(mlx5_faults_queue_event(qps[1], IBV_EVENT_SRQ_ERR) == 0);
    CHECK(no_event());
    end(qps);
    CHECK(ibv_destroy_srq(srq) == 0);

    pair(qps, 7);
    CHECK(mlx5_faults_queue_event(qps[0], IBV_EVENT_CQ_ERR) == 0);
    CHECK(event_is(IBV_EVENT_CQ_ERR).element.cq == cq);
    CHECK(state_of(qps[0]) == IBV_QPS_ERR && state_of(qps[1]) == IBV_QPS_ERR);
    end(qps);
    CHECK(ibv_destroy_cq(cq) == 0);
    cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
    CHECK(cq);
    CHECK(mlx5_faults_add("now=QP_FATAL:0xffffff") == 0);
    CHECK(no_event());
}

static void device_events(void)
{
    static const int types[] = {IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_CLIENT_REREGISTER,
                                IBV_EVENT_GID_CHANGE, 20};
    size_t at;

    for (at = 0; at < sizeof(types) / sizeof(*types); at++) {
        CHECK(mlx5_faults_device_event(types[at]) == 0);
        CHECK(event_is(types[at]).element.port_num == 1);
    }
    CHECK(mlx5_faults_device_event(IBV_EVENT_PORT_ERR) == EINVAL);
    CHECK(no_event());
}

static enum ibv_port_state port_state(void)
{
    struct ibv_port_attr port;

    CHECK(ibv_query_port(context, 1, &port) == 0);
    return port.state;
}

static void port(void)
{
    struct ibv_qp *qps[2];
    struct ibv_gid_entry entry;

    pair(qps, 7);
    CHECK(mlx5_faults_port_down() == 0);
    CHECK(event_is(IBV_EVENT_PORT_ERR).element.port_num == 1);
    CHECK(port_state() == IBV_PORT_DOWN);
    post(qps[0], 1, IBV_WR_RDMA_WRITE);
    CHECK(completed(1) == IBV_WC_RETRY_EXC_ERR);
    CHECK(mlx5_faults_port_up() == 0);
    CHECK(event_is(IBV_EVENT_PORT_ACTIVE).element.port_num == 1);
    CHECK(port_state() == IBV_PORT_ACTIVE);
    end(qps);
    pair(qps, 7);
    post(qps[0], 2, IBV_WR_RDMA_WRITE);
    CHECK(completed(2) == IBV_WC_SUCCESS);
    CHECK(mlx5_faults_port_down() == 0);
    event_is(IBV_EVENT_PORT_ERR);
    CHECK(mlx5_faults_clear() == 0);
    event_is(IBV_EVENT_PORT_ACTIVE);
    end(qps);

    CHECK(ibv_query_gid_ex(context, 1, ADDRESS_GID, &entry, 0) == 0);
    CHECK(mlx5_faults_gids_gone() == 0);
    event_is(IBV_EVENT_GID_CHANGE);
    CHECK(ibv_query_gid_ex(context, 1, ADDRESS_GID, &entry, 0) == ENODATA);
    CHECK(ibv_query_gid_ex(context, 1, OWN_GID, &entry, 0) == 0);
    CHECK(mlx5_faults_gids_back() == 0);
    event_is(IBV_EVENT_GID_CHANGE);
    CHECK(ibv_query_gid_ex(context, 1, ADDRESS_GID, &entry, 0) == 0);
    CHECK(no_event());
    CHECK(mlx5_faults_clear() == 0);
}

static void endings(void)
{
    struct ibv_qp *qps[2];
    struct ibv_port_attr attr;
    char text[64];
    size_t length;

    pair(qps, 7);
    CHECK(mlx5_faults_request_hangs(qps[0], MLX5_FAULTS_NTH(1)) == 0);
    post(qps[0], 1, IBV_WR_RDMA_WRITE);
    CHECK(nothing_comes());
    CHECK(mlx5_faults_device_fatal() == 0);
    event_is(IBV_EVENT_DEVICE_FATAL);
    CHECK(completed(1) == IBV_WC_WR_FLUSH_ERR);
    CHECK(ibv_query_port(context, 1, &attr) == EIO);
    CHECK(mlx5_faults_past(NULL, 0, &length) == 0 && length == strlen("request@1=hangs,now=fatal"));
    CHECK(mlx5_faults_past(text, sizeof(text), NULL) == 0);
    CHECK(strcmp(text, "request@1=hangs,now=fatal") == 0);
    end(qps);
    stop();

    start();
    pair(qps, 7);
    CHECK(mlx5_faults_add("# The device goes with the second request.\nrequest@2=removed\n") == 0);
    post(qps[0], 1, IBV_WR_RDMA_WRITE);
    CHECK(completed(1) == IBV_WC_SUCCESS);
    CHECK(no_event());
    post(qps[0], 2, IBV_WR_RDMA_WRITE);
    completed(2);
    CHECK(ibv_query_port(context, 1, &attr) == EIO);
    event_is(IBV_EVENT_DEVICE_FATAL);
    end(qps);
    stop();
    start();
    CHECK(port_state() == IBV_PORT_ACTIVE);
    stop();
}

static void absent(void)
{
    struct mlx5_faults_visits first = MLX5_FAULTS_NTH(1);
    struct ibv_qp qp;
    char text[1];

    memset(&qp, 0, sizeof(qp));
    CHECK(!mlx5_faults_is_emulated());
    CHECK(mlx5_faults_add("now=removed") == ENOSYS);
    CHECK(mlx5_faults_clear() == ENOSYS);
    CHECK(mlx5_faults_past(text, sizeof(text), NULL) == ENOSYS);
    CHECK(mlx5_faults_request_fails(&qp, first, IBV_WC_REM_OP_ERR) == ENOSYS);
    CHECK(mlx5_faults_request_delayed(&qp, first, 1) == ENOSYS);
    CHECK(mlx5_faults_request_lost(&qp, first) == ENOSYS);
    CHECK(mlx5_faults_peer_not_ready(&qp, first, 1) == ENOSYS);
    CHECK(mlx5_faults_request_hangs(&qp, first) == ENOSYS);
    CHECK(mlx5_faults_receive_fails(&qp, first, IBV_WC_LOC_LEN_ERR) == ENOSYS);
    CHECK(mlx5_faults_completion(&qp, first, MLX5_FAULTS_LATE) == ENOSYS);
    CHECK(mlx5_faults_call_fails(MLX5_FAULTS_ALLOC_PD, first, ENOMEM) == ENOSYS);
    CHECK(mlx5_faults_destroy_fails(first, EBUSY) == ENOSYS);
    CHECK(mlx5_faults_queue_event(&qp, IBV_EVENT_QP_FATAL) == ENOSYS);
    CHECK(mlx5_faults_device_event(IBV_EVENT_LID_CHANGE) == ENOSYS);
    CHECK(mlx5_faults_port_down() == ENOSYS && mlx5_faults_port_up() == ENOSYS);
    CHECK(mlx5_faults_gids_gone() == ENOSYS && mlx5_faults_gids_back() == ENOSYS);
    CHECK(mlx5_faults_device_removed() == ENOSYS && mlx5_faults_device_fatal() == ENOSYS);
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "absent") == 0) {
        absent();
        return 0;
    }
    CHECK(mlx5_faults_is_emulated());
    start();
    statuses();
    requests();
    datagrams();
    receives();
    completions();
    calls();
    queue_events();
    device_events();
    port();
    endings();
    puts("all failures were seen");
    return 0;
}
