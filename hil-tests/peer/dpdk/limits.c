/*
 * Replaces functions of DPDK's libraries for its test programs, where a program asks for more than a test needs
 * or refuses a value that the driver accepts. The driver itself runs unchanged.
 *
 * The structures begin as those of DPDK 22.11 (ABI 23).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>

/* The limits of queue pairs and requests. `dpdk-test` asks for 128 times 4096, and each case creates as many mkeys. */
enum { PAIRS = 2, REQUESTS = 64 };

/* Bytes of a wrapped AES-XTS key with keytag: the driver accepts this size, `dpdk-test-crypto-perf` does not know it. */
enum { WRAPPED_128 = 48, WRAPPED_256 = 80 };

struct rte_cryptodev_info {
	const char *driver_name;
	uint8_t driver_id;
	void *device;
	uint64_t feature_flags;
	const void *capabilities;
	unsigned int max_nb_queue_pairs;
};

struct rte_cryptodev_config {
	int socket_id;
	uint16_t nb_queue_pairs;
};

struct rte_cryptodev_qp_conf {
	uint32_t nb_descriptors;
	void *mp_session;
};

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void rte_cryptodev_info_get(uint8_t device, struct rte_cryptodev_info *info)
{
	NEXT(rte_cryptodev_info_get)(device, info);
	if (info->max_nb_queue_pairs > PAIRS)
		info->max_nb_queue_pairs = PAIRS;
}

int rte_cryptodev_configure(uint8_t device, struct rte_cryptodev_config *config)
{
	return config->nb_queue_pairs > PAIRS ? -EINVAL : NEXT(rte_cryptodev_configure)(device, config);
}

int rte_cryptodev_queue_pair_setup(uint8_t device, uint16_t pair, const struct rte_cryptodev_qp_conf *conf, int socket)
{
	struct rte_cryptodev_qp_conf small = *conf;

	if (small.nb_descriptors > REQUESTS)
		small.nb_descriptors = REQUESTS;
	return NEXT(rte_cryptodev_queue_pair_setup)(device, pair, &small, socket);
}

int rte_cryptodev_sym_capability_check_cipher(const void *capability, uint16_t key_size, uint16_t iv_size)
{
	if (key_size == WRAPPED_128 || key_size == WRAPPED_256)
		return 0;
	return NEXT(rte_cryptodev_sym_capability_check_cipher)(capability, key_size, iv_size);
}
