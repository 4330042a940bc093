/*
 * What the programs here check calls with.
 */

#ifndef CHECK_H
#define CHECK_H

#include <mlx5_mkey.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mlx5mk_error error;

/* Ends the program where something does not hold, and says what the library said last. */
#define CHECK(holds)                                                                                          \
    do {                                                                                                      \
        if (!(holds)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s does not hold; the last error: %s\n", __FILE__, __LINE__, #holds,     \
                    error.message);                                                                           \
            exit(EXIT_FAILURE);                                                                               \
        }                                                                                                     \
    } while (0)

/* A call that is refused with a code, which the error has too, with words. */
#define REFUSED(wanted, words, call)                                                                          \
    do {                                                                                                      \
        memset(&error, 0x55, sizeof(error));                                                                  \
        CHECK((call) == (wanted));                                                                            \
        CHECK(error.code == (wanted) && strstr(error.message, words) != NULL);                               \
    } while (0)

/* A call that works. */
#define DONE(call) CHECK((call) == MLX5MK_OK)

#endif
