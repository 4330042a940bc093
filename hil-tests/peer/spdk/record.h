/*
 * A recording: objects, memory, rings, completions and results in order, one JSON object per line
 * (hil-tests/vectors/FORMAT.md). Without an open file nothing is written.
 */
#ifndef RECORD_H
#define RECORD_H

#include <infiniband/mlx5dv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Begins a recording. The file's first line holds the device's engine and SPDK's commit. */
void record_open(const char *path, const char *engine, const char *commit);
bool record_is_on(void);
void record_close(void);

void record_region(const struct ibv_mr *region);
void record_fill(const void *address, size_t length, uint64_t seed);
void record_write(const void *address, const void *bytes, size_t length);

/* Records the hash of bytes that memory must hold now. */
void record_result(const void *address, const void *expected, size_t length);

void record_qp(const struct ibv_qp *qp, const struct mlx5dv_qp *queue);
void record_qp_error(const struct ibv_qp *qp);

/* Records the blocks of a send ring between two producer indexes. */
void record_ring(const struct ibv_qp *qp, const struct mlx5dv_qp *queue, uint16_t from, uint16_t to);
void record_completion(const struct mlx5_cqe64 *cqe);

#endif
