#include "reference.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

static void
unit_xts(EVP_CIPHER_CTX *context, const EVP_CIPHER *cipher, const struct xts_key *key, bool encrypt, uint64_t number,
         uint8_t *data, size_t length)
{
    uint8_t tweak[16] = { 0 };
    int written = 0;
    size_t i;

    for (i = 0; i < 8; i++) {
        tweak[i] = (uint8_t)(number >> 8 * i);
    }
    if (EVP_CipherInit_ex(context, cipher, NULL, key->bytes, tweak, encrypt) != 1 ||
        EVP_CipherUpdate(context, data, &written, data, (int)length) != 1 || (size_t)written != length) {
        fprintf(stderr, "OpenSSL refuses a data unit of %zu bytes\n", length);
        exit(EXIT_FAILURE);
    }
}

void
reference_xts(const struct xts_key *key, bool encrypt, uint64_t number, size_t unit, uint8_t *data, size_t length)
{
    const EVP_CIPHER *cipher = key->length == 64 ? EVP_aes_256_xts() : EVP_aes_128_xts();
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    size_t at;

    for (at = 0; context && at < length; at += unit) {
        unit_xts(context, cipher, key, encrypt, number++, data + at, unit);
    }
    EVP_CIPHER_CTX_free(context);
}

uint32_t
reference_crc32c(uint32_t crc, const uint8_t *data, size_t length)
{
    size_t i;
    int bit;

    for (i = 0; i < length; i++) {
        crc ^= data[i];
        for (bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
        }
    }
    return crc;
}

uint64_t
reference_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

void
reference_fill(uint8_t *data, size_t length, uint64_t seed)
{
    uint64_t word = 0;
    size_t i;

    for (i = 0; i < length; i++) {
        if (i % 8 == 0) {
            word = reference_random(&seed);
        }
        data[i] = (uint8_t)(word >> 8 * (i % 8));
    }
}

uint64_t
reference_hash(const uint8_t *data, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325;
    size_t i;

    for (i = 0; i < length; i++) {
        hash = (hash ^ data[i]) * 0x100000001b3;
    }
    return hash;
}
