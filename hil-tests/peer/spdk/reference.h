/*
 * The expected results, computed independently of the device: AES-XTS by OpenSSL, the CRC bit by bit.
 */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The two keys of AES-XTS, one after the other. */
struct xts_key {
    uint8_t bytes[64];
    size_t length; /* 32 or 64 */
};

/* Encrypts or decrypts data units in place. The first data unit has this number. */
void reference_xts(const struct xts_key *key, bool encrypt, uint64_t number, size_t unit, uint8_t *data, size_t length);

/* Continues a CRC32C. The initial value is all ones or 0. The device writes the complement. */
uint32_t reference_crc32c(uint32_t crc, const uint8_t *data, size_t length);

/* Returns the next number of a sequence (splitmix64). All pseudorandom values come from a start value. */
uint64_t reference_random(uint64_t *state);

/* Fills memory from a start value, eight bytes of the sequence at a time, little endian. */
void reference_fill(uint8_t *data, size_t length, uint64_t seed);

/* A hash (FNV-1a, 64 bits) of memory, which takes the place of the memory in a recording. */
uint64_t reference_hash(const uint8_t *data, size_t length);

#endif
