/*
 * Calls SPDK's lib/mlx5 as SPDK's accel module does, and compares memory with OpenSSL's AES-XTS and an own
 * computation of the CRC. Arguments: none, or the file for a recording and SPDK's commit.
 */
#include "cases.h"
#include "record.h"

#include <stdarg.h>

static unsigned g_passed, g_failed;

void
check(bool good, const char *format, ...)
{
    va_list arguments;

    if (good) {
        g_passed++;
        return;
    }
    g_failed++;
    printf("FAILED  ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

unsigned
times(unsigned whole, unsigned recorded)
{
    return record_is_on() ? recorded : whole;
}

/* Checks the reference itself against published values (RFC 3720; IEEE 1619, vector 2). */
static void
cases_reference(struct device *device)
{
    static const uint8_t cipher[8] = { 0xc4, 0x54, 0x18, 0x5e, 0x6a, 0x16, 0x93, 0x6e };
    struct xts_key key = { .length = 32 };
    uint8_t data[32];

    (void)device;
    memset(key.bytes, 0x11, 16);
    memset(key.bytes + 16, 0x22, 16);
    memset(data, 0x44, sizeof(data));
    reference_xts(&key, true, 0x3333333333, sizeof(data), data, sizeof(data));
    check(memcmp(data, cipher, sizeof(cipher)) == 0, "the reference's AES-XTS");
    check(~reference_crc32c(UINT32_MAX, (const uint8_t *)"123456789", 9) == 0xe3069283, "the reference's CRC32C");
}

static const struct {
    const char *name;
    void (*run)(struct device *device);
} GROUPS[] = {
    { "reference", cases_reference },
    { "AES-XTS", cases_crypto },
    { "copies", cases_copy },
    { "CRC32C", cases_crc },
    { "signature errors", cases_signature_errors },
    { "errors and recovery", cases_recovery },
    { "completions", cases_completions },
    { "laps", cases_laps },
};

int
main(int argc, char **argv)
{
    static struct device device;
    size_t i;

    device_open(&device, argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : "unknown");
    printf("AES-XTS engine: %s\n", device.engine);
    for (i = 0; i < SPDK_COUNTOF(GROUPS); i++) {
        unsigned before = g_passed;

        GROUPS[i].run(&device);
        printf("%s: %u passed\n", GROUPS[i].name, g_passed - before);
    }
    device_close(&device);
    printf("%u completions\n%u passed, %u failed\n", device.completions, g_passed, g_failed);
    return g_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
