/*
 * The test cases, in groups. Each group counts its passed checks.
 */
#ifndef CASES_H
#define CASES_H

#include "task.h"

/* Counts a check, and prints its text if it has failed. */
void check(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The number of repetitions: smaller for a recording. */
unsigned times(unsigned whole, unsigned recorded);

void cases_crypto(struct device *device);
void cases_copy(struct device *device);
void cases_crc(struct device *device);
void cases_signature_errors(struct device *device);
void cases_recovery(struct device *device);
void cases_completions(struct device *device);
void cases_laps(struct device *device);

/* Posts a task of a kind and form that a number chooses. */
void any_task(struct task *task, struct device *device, unsigned slot, uint64_t random);

#endif
