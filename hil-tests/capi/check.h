/* Macros and variables by which the test programs of this folder check calls. */

#ifndef CHECK_H
#define CHECK_H

#include <mlx5_mkey.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mlx5mk_error error;

/* Ends the program if a condition is false, and prints the last error of the library. */
#define CHECK(holds)                                                                                          \
    do {                                                                                                      \
        if (!(holds)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s does not hold; the last error: %s\n", __FILE__, __LINE__, #holds,     \
                    error.message);                                                                           \
            exit(EXIT_FAILURE);                                                                               \
        }                                                                                                     \
    } while (0)

/* Checks that a call is refused with this code, and that its error has the code and contains these words. */
#define REFUSED(wanted, words, call)                                                                          \
    do {                                                                                                      \
        memset(&error, 0x55, sizeof(error));                                                                  \
        CHECK((call) == (wanted));                                                                            \
        CHECK(error.code == (wanted) && strstr(error.message, words) != NULL);                               \
    } while (0)

/* Checks that a call succeeds. */
#define DONE(call) CHECK((call) == MLX5MK_OK)

#endif
