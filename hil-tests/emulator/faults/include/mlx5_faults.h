/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Failures on demand, for C and C++ programs that run on the emulated mlx5 device (mlx5-emulate).
 *
 * The functions look the emulator up by name when they are called. A program that includes this file links no
 * further library (before glibc 2.34: -ldl), and runs on hardware too: there, each function returns ENOSYS.
 *
 * Each function that arms a failure forms one word of the language of `mlx5-emulate --faults`, and hands the
 * word to the emulator. mlx5_faults_add() takes such words as text. EMULATOR.md lists all words.
 *
 * Return values: 0; ENOSYS if no emulator serves this process; EINVAL for a word or a value that the emulator
 * does not know. A failed call arms nothing.
 *
 * Visits are counted from 1, from the call of the function on: MLX5_FAULTS_NTH(3) is the third request,
 * receive, completion or call after it. MLX5_FAULTS_FROM(3) is the third and all later ones. A null queue
 * pair stands for all queue pairs.
 *
 *     // The next request of the queue pair reports that the peer has refused the access.
 *     mlx5_faults_request_fails(qp, MLX5_FAULTS_NTH(1), IBV_WC_REM_ACCESS_ERR);
 *     // The port goes down now. IBV_EVENT_PORT_ERR can be read when the function returns.
 *     mlx5_faults_port_down();
 */
#ifndef MLX5_FAULTS_H
#define MLX5_FAULTS_H

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The visits at which a failure happens. */
struct mlx5_faults_visits {
    uint64_t nth;
    int and_later;
};

static inline struct mlx5_faults_visits MLX5_FAULTS_NTH(uint64_t nth)
{
    struct mlx5_faults_visits visits = {nth, 0};
    return visits;
}

static inline struct mlx5_faults_visits MLX5_FAULTS_FROM(uint64_t nth)
{
    struct mlx5_faults_visits visits = {nth, 1};
    return visits;
}

/* Kinds of calls to the device, by the functions of libibverbs that make them. */
enum mlx5_faults_call {
    MLX5_FAULTS_ANY_CALL,
    MLX5_FAULTS_OPEN,
    MLX5_FAULTS_GET_CONTEXT,
    MLX5_FAULTS_QUERY_DEVICE,
    MLX5_FAULTS_QUERY_PORT,
    MLX5_FAULTS_QUERY_GID,
    MLX5_FAULTS_ALLOC_PD,
    MLX5_FAULTS_CREATE_AH,
    MLX5_FAULTS_REG_MR,
    MLX5_FAULTS_ALLOC_MW,
    MLX5_FAULTS_CREATE_COMP_CHANNEL,
    MLX5_FAULTS_CREATE_CQ,
    MLX5_FAULTS_CREATE_QP,
    MLX5_FAULTS_MODIFY_QP,
    MLX5_FAULTS_QUERY_QP,
    MLX5_FAULTS_CREATE_SRQ
};

/* Failures of completion entries. */
enum mlx5_faults_entry {
    MLX5_FAULTS_LATE,     /* The entry is written late. */
    MLX5_FAULTS_TWICE,    /* The entry is written twice. */
    MLX5_FAULTS_DROPPED,  /* The entry is not written. */
    MLX5_FAULTS_STRANGER, /* An entry about something unknown is written first. */
    MLX5_FAULTS_OVERRUN   /* The completion queue overruns. */
};

/* Looks up a function of the emulator, and calls it. The union keeps to ISO C, which has no conversion from
 * an object pointer to a function pointer. */
static inline int mlx5_faults_take_(const char *name, const char *words)
{
    union {
        void *found;
        int (*take)(const char *);
    } function;

    function.found = dlsym(RTLD_DEFAULT, name);
    if (!function.found)
        return ENOSYS;
    return function.take(words) == 0 ? 0 : EINVAL;
}

/* Returns whether an emulator serves this process. */
static inline int mlx5_faults_is_emulated(void)
{
    return dlsym(RTLD_DEFAULT, "mlx5_uverbs_add_faults") != NULL;
}

/* Adds words, separated by commas or white space. A line that begins with # is a comment. */
static inline int mlx5_faults_add(const char *words)
{
    return mlx5_faults_take_("mlx5_uverbs_add_faults", words);
}

/* Disarms all failures. The port gets its real state and its GIDs again. A device that has ended stays so
 * until it is opened anew. */
static inline int mlx5_faults_clear(void)
{
    return mlx5_faults_take_("mlx5_uverbs_faults", "");
}

/* Writes the failures that have happened, oldest first, as words with commas between them: the place, the
 * number of the visit among all visits to the place, and the failure. The text ends with a zero, and is cut
 * off if it does not fit. `length`, unless it is null, gets the length of the whole text. */
static inline int mlx5_faults_past(char *text, size_t room, size_t *length)
{
    union {
        void *found;
        size_t (*tell)(char *, size_t);
    } function;
    size_t whole;

    function.found = dlsym(RTLD_DEFAULT, "mlx5_uverbs_trace");
    if (!function.found)
        return ENOSYS;
    whole = function.tell(text, room);
    if (length)
        *length = whole;
    return 0;
}

/* Adds the word PLACE:SUBJECT@N=FAULT. */
static inline int mlx5_faults_at_(const char *place, const char *subject, struct mlx5_faults_visits visits,
                                  const char *fault)
{
    char word[160];
    int length = snprintf(word, sizeof(word), "%s%s%s@%" PRIu64 "%s=%s", place, *subject ? ":" : "", subject,
                          visits.nth, visits.and_later ? "+" : "", fault);

    if (length < 0 || (size_t)length >= sizeof(word))
        return EINVAL;
    return mlx5_faults_add(word);
}

static inline int mlx5_faults_of_(const char *place, const struct ibv_qp *qp,
                                  struct mlx5_faults_visits visits, const char *fault)
{
    char number[16] = "";

    if (qp)
        snprintf(number, sizeof(number), "%" PRIu32, qp->qp_num);
    return mlx5_faults_at_(place, number, visits, fault);
}

/* Returns the word of a status, or an empty text for a status that no request of an mlx5 device reports. */
static inline const char *mlx5_faults_status_(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_LOC_LEN_ERR: return "LOC_LEN_ERR";
    case IBV_WC_LOC_QP_OP_ERR: return "LOC_QP_OP_ERR";
    case IBV_WC_LOC_PROT_ERR: return "LOC_PROT_ERR";
    case IBV_WC_WR_FLUSH_ERR: return "WR_FLUSH_ERR";
    case IBV_WC_MW_BIND_ERR: return "MW_BIND_ERR";
    case IBV_WC_BAD_RESP_ERR: return "BAD_RESP_ERR";
    case IBV_WC_LOC_ACCESS_ERR: return "LOC_ACCESS_ERR";
    case IBV_WC_REM_INV_REQ_ERR: return "REM_INV_REQ_ERR";
    case IBV_WC_REM_ACCESS_ERR: return "REM_ACCESS_ERR";
    case IBV_WC_REM_OP_ERR: return "REM_OP_ERR";
    case IBV_WC_RETRY_EXC_ERR: return "RETRY_EXC_ERR";
    case IBV_WC_RNR_RETRY_EXC_ERR: return "RNR_RETRY_EXC_ERR";
    case IBV_WC_REM_ABORT_ERR: return "REM_ABORT_ERR";
    case IBV_WC_GENERAL_ERR: return "GENERAL_ERR";
    default: return "";
    }
}

/* A request of the send queue completes with this status instead of being executed. The queue pair goes to
 * the error state. */
static inline int mlx5_faults_request_fails(const struct ibv_qp *qp, struct mlx5_faults_visits visits,
                                            enum ibv_wc_status status)
{
    return mlx5_faults_of_("request", qp, visits, mlx5_faults_status_(status));
}

/* A request, and all later ones of its queue pair, wait for this time. The device looks once in a
 * millisecond. */
static inline int mlx5_faults_request_delayed(const struct ibv_qp *qp, struct mlx5_faults_visits visits,
                                              uint64_t microseconds)
{
    char fault[32];

    snprintf(fault, sizeof(fault), "delay:%" PRIu64, microseconds);
    return mlx5_faults_of_("request", qp, visits, fault);
}

/* The message of a request does not arrive. On a reliable connection, the request fails with
 * IBV_WC_RETRY_EXC_ERR. Otherwise it completes without an error. */
static inline int mlx5_faults_request_lost(const struct ibv_qp *qp, struct mlx5_faults_visits visits)
{
    return mlx5_faults_of_("request", qp, visits, "lost");
}

/* The peer has no receive for this number of attempts, at least 1. A queue pair with fewer repetitions
 * (rnr_retry) fails with IBV_WC_RNR_RETRY_EXC_ERR. */
static inline int mlx5_faults_peer_not_ready(const struct ibv_qp *qp, struct mlx5_faults_visits visits,
                                             uint32_t attempts)
{
    char fault[32];

    snprintf(fault, sizeof(fault), "rnr:%" PRIu32, attempts);
    return mlx5_faults_of_("request", qp, visits, fault);
}

/* A request, and all later ones of its queue pair, wait until the queue pair goes to the error state or to
 * RESET. */
static inline int mlx5_faults_request_hangs(const struct ibv_qp *qp, struct mlx5_faults_visits visits)
{
    return mlx5_faults_of_("request", qp, visits, "hangs");
}

/* A receive completes with this status when a message takes it. The request of the peer fails with
 * IBV_WC_REM_OP_ERR. */
static inline int mlx5_faults_receive_fails(const struct ibv_qp *qp, struct mlx5_faults_visits visits,
                                            enum ibv_wc_status status)
{
    return mlx5_faults_of_("receive", qp, visits, mlx5_faults_status_(status));
}

/* A completion entry is lost, late, repeated, or overruns its queue. */
static inline int mlx5_faults_completion(const struct ibv_qp *qp, struct mlx5_faults_visits visits,
                                         enum mlx5_faults_entry entry)
{
    static const char *const words[] = {"late", "twice", "dropped", "stranger", "overrun"};

    if ((size_t)entry >= sizeof(words) / sizeof(*words))
        return EINVAL;
    return mlx5_faults_of_("completion", qp, visits, words[entry]);
}

/* A call to the device fails with this errno, above 0. Calls that destroy objects do not count. FROM means
 * all later calls of the kind that has failed. */
static inline int mlx5_faults_call_fails(enum mlx5_faults_call call, struct mlx5_faults_visits visits,
                                         int error)
{
    static const char *const words[] = {
        "",          "OPEN",   "GET_CONTEXT", "QUERY_DEVICE",        "QUERY_PORT", "QUERY_GID", "ALLOC_PD",
        "CREATE_AH", "REG_MR", "ALLOC_MW",    "CREATE_COMP_CHANNEL", "CREATE_CQ",  "CREATE_QP", "MODIFY_QP",
        "QUERY_QP",  "CREATE_SRQ"};
    char fault[32];

    if ((size_t)call >= sizeof(words) / sizeof(*words))
        return EINVAL;
    snprintf(fault, sizeof(fault), "errno:%d", error);
    return mlx5_faults_at_("call", words[call], visits, fault);
}

/* The destruction of an object fails with this errno, above 0. The object stays. */
static inline int mlx5_faults_destroy_fails(struct mlx5_faults_visits visits, int error)
{
    char fault[32];

    snprintf(fault, sizeof(fault), "errno:%d", error);
    return mlx5_faults_at_("end", "", visits, fault);
}

/* An asynchronous event of the queue pair, of the completion queue of its send queue (IBV_EVENT_CQ_ERR), or
 * of its shared receive queue. A queue whose event reports an error fails. */
static inline int mlx5_faults_queue_event(const struct ibv_qp *qp, enum ibv_event_type event)
{
    static const char *const words[] = {
        "CQ_ERR",   "QP_FATAL",     "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED",
        "PATH_MIG", "PATH_MIG_ERR", "",           "",              "",         "",
        "",         "",             "SRQ_ERR",    "SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED"};
    char word[64];

    if ((size_t)event >= sizeof(words) / sizeof(*words) || !*words[event])
        return EINVAL;
    snprintf(word, sizeof(word), "now=%s:%" PRIu32, words[event], qp->qp_num);
    return mlx5_faults_add(word);
}

/* An asynchronous event of the device that has no further effect: IBV_EVENT_LID_CHANGE, PKEY_CHANGE,
 * CLIENT_REREGISTER, GID_CHANGE, or 20, the number of IBV_EVENT_DEVICE_SPEED_CHANGE, which older headers
 * lack. */
static inline int mlx5_faults_device_event(int event)
{
    switch (event) {
    case IBV_EVENT_LID_CHANGE: return mlx5_faults_add("now=LID_CHANGE");
    case IBV_EVENT_PKEY_CHANGE: return mlx5_faults_add("now=PKEY_CHANGE");
    case IBV_EVENT_CLIENT_REREGISTER: return mlx5_faults_add("now=CLIENT_REREGISTER");
    case IBV_EVENT_GID_CHANGE: return mlx5_faults_add("now=GID_CHANGE");
    case 20: return mlx5_faults_add("now=DEVICE_SPEED_CHANGE");
    default: return EINVAL;
    }
}

/* The port goes down (IBV_EVENT_PORT_ERR) and loses all messages, or comes up again
 * (IBV_EVENT_PORT_ACTIVE). */
static inline int mlx5_faults_port_down(void)
{
    return mlx5_faults_add("now=port-down");
}

static inline int mlx5_faults_port_up(void)
{
    return mlx5_faults_add("now=port-up");
}

/* The table of GIDs loses all entries but the link-local ones, or is complete again (IBV_EVENT_GID_CHANGE).
 * */
static inline int mlx5_faults_gids_gone(void)
{
    return mlx5_faults_add("now=gids-gone");
}

static inline int mlx5_faults_gids_back(void)
{
    return mlx5_faults_add("now=gids-back");
}

/* The device is gone, or fails and flushes all requests (IBV_EVENT_DEVICE_FATAL). A program that opens the
 * device anew gets a working one. */
static inline int mlx5_faults_device_removed(void)
{
    return mlx5_faults_add("now=removed");
}

static inline int mlx5_faults_device_fatal(void)
{
    return mlx5_faults_add("now=fatal");
}

#ifdef __cplusplus
}
#endif

#endif
