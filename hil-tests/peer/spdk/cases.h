/*
 * What is tried, in groups that count what passes.
 */
#ifndef CASES_H
#define CASES_H

#include "task.h"

/* Counts a check, and says what it was if it has failed. */
void check(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The number of times something is done: fewer if it is recorded. */
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
