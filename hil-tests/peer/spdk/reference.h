/*
 * What comes out, by other means than the device's: AES-XTS is OpenSSL's, the CRC is computed bit by bit.
 */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Both keys of AES-XTS, one behind the other. */
struct xts_key {
    uint8_t bytes[64];
    size_t length; /* 32 or 64 */
};

/* Encrypts or decrypts data units in place; the first has this number. */
void reference_xts(const struct xts_key *key, bool encrypt, uint64_t number, size_t unit, uint8_t *data, size_t length);

/* Goes on with a CRC32C; begins with all ones, or with 0. The device writes the complement. */
uint32_t reference_crc32c(uint32_t crc, const uint8_t *data, size_t length);

/* The next number of a sequence (splitmix64): all that looks random here comes from a seed. */
uint64_t reference_random(uint64_t *state);

/* Fills memory from a seed, eight bytes of the sequence at a time, little endian. */
void reference_fill(uint8_t *data, size_t length, uint64_t seed);

/* A hash by which memory is compared that is not in the recording (FNV-1a, 64 bits). */
uint64_t reference_hash(const uint8_t *data, size_t length);

#endif
