// SPDX-License-Identifier: MIT OR Apache-2.0
// Made by `cargo xtask capi`.
//
// The library for C and C++ (feature `capi`). `cargo xtask capi` generates the header `mlx5_mkey.h` from
// these sources, and builds a static library, a shared library and a file for pkg-config.
// `crate::guide::c` is the page of the guide for C; `hil-tests/examples/c/protected_write.c` is a whole
// program.
//
// These rules hold for every function:
//
// - **Handles** are opaque. The program destroys each handle that it has created, once. Objects that were
//   made from a device, a protection domain or a key keep it alive, so these handles are destroyed in any
//   order. A completion queue cannot be destroyed while queue pairs or pools use it. A handle may not be
//   used after its destroy function has returned, unless that function returned MLX5MK_IN_USE.
// - **Results** are 0 or a count; a negative result is one of the codes `MLX5MK_…`. After an error, the last
//   argument receives the same code with a message, if it is not NULL. After a success nothing is written to
//   it (except by mlx5mk_cq_poll, mlx5mk_cq_poll_stamped and mlx5mk_cq_wait, for malformed entries). A
//   function that failed has changed nothing, unless its description says so, and has written to no other
//   argument.
// - **Arguments** may be NULL only where a function says so. Otherwise the code is `MLX5MK_ARGUMENT`, as
//   for an invalid number. Any other pointer is not checked: it must lead to an object of its type. The
//   library accesses this object during the call only, except registered memory, also that of lists, and
//   adopted objects of libibverbs.
// - **Threads**: a completion queue, the queue pairs that complete to it, and the pools that report
//   signature errors to it form a group. The two completion queues of a queue pair belong to one group. The
//   program makes all calls with handles of one group one after the other, by any thread. Calls with handles
//   of different groups may run at the same time. The program ensures that only one thread at a time uses a
//   pool without signatures, a prepared configuration, a list or windows. Devices, protection domains,
//   logins, memory regions, keys, mkeys that were created with their lists, objects of commands and their
//   channels may be used by several threads at once. The program calls a destroy function only when no other
//   call uses the handle. The only global state is the function of mlx5mk_on_drop_error.
// - **Destroying**: if the kernel refuses to destroy an object, the library keeps the memory of that object,
//   since the device may still write to it.
// - **No panic unwinds** into C: an `extern "C"` function of Rust ends the process instead (since Rust
//   1.81). The core of the library (encoding and queues) contains no code that panics; the builds for bare
//   metal check this. Functions that create objects allocate memory, and end the process if memory is used
//   up.
// - **Lengths** are in bytes, unless a function says otherwise.
//
// A caller that breaks these rules may corrupt memory, so all functions with pointers are unsafe in Rust.
//
// Before version 1.0, a new version of the library may break compiled programs. `hil-tests/capi/abi.txt`
// lists the symbols and layouts that compiled programs rely on.

#ifndef MLX5_MKEY_H
#define MLX5_MKEY_H

#include <stddef.h>
#include <stdint.h>

/// Behind a field: what a designated initialiser leaves out is 0, in C++ as in C.
#if defined(__cplusplus) && __cplusplus >= 201402L
#define MLX5MK_ZERO {}
#else
#define MLX5MK_ZERO
#endif

// The first of the three numbers of the header's version. A program can compare the numbers at compile time.
#define MLX5MK_VERSION_MAJOR 0

// The second number of the version.
#define MLX5MK_VERSION_MINOR 1

// The third number of the version.
#define MLX5MK_VERSION_PATCH 0

// Success.
#define MLX5MK_OK 0

// An argument is NULL or has an invalid value: a fault of the program.
#define MLX5MK_ARGUMENT -1

// A library of rdma-core is missing or too old.
#define MLX5MK_LIBRARY -2

// The device does not exist, or cannot be opened.
#define MLX5MK_DEVICE -3

// The operating system refused. The field `system` of the error has the errno, or 0 if the system gave none.
#define MLX5MK_SYSTEM -4

// The device refused a command, or lacks a capability that the call needs.
#define MLX5MK_COMMAND -5

// The mkey or the queue cannot hold the configuration.
#define MLX5MK_CONFIG -6

// A queue or a pool has nothing free: take completions, or put mkeys back, then try again.
#define MLX5MK_FULL -7

// The request can never be posted: a data segment is empty or too long, or there are too many segments or
// too many inline bytes.
#define MLX5MK_REQUEST -8

// An object of libibverbs cannot be taken over.
#define MLX5MK_ADOPT -9

// Other objects use this object: destroy them first.
#define MLX5MK_IN_USE -10

// The completion queue has too few free entries for all possible completions.
#define MLX5MK_CQ_TOO_SMALL -11

// A completion entry is malformed.
#define MLX5MK_COMPLETION -12

// Data that passed through the mkey had a wrong signature.
#define MLX5MK_SIGNATURE -13

// The key of an mkey or a memory window is in service, or may be: a peer could still use it. So the mkey or
// the window cannot be put back.
#define MLX5MK_IN_SERVICE -14

// The owner may write: needed to receive into memory and to RDMA READ into it (IBV_ACCESS_LOCAL_WRITE).
#define MLX5MK_LOCAL_WRITE 1

// The peer may RDMA WRITE (IBV_ACCESS_REMOTE_WRITE).
#define MLX5MK_REMOTE_WRITE 2

// The peer may RDMA READ (IBV_ACCESS_REMOTE_READ).
#define MLX5MK_REMOTE_READ 4

// The peer may use atomics (IBV_ACCESS_REMOTE_ATOMIC).
#define MLX5MK_REMOTE_ATOMIC 8

// The memory domain of an mkey: data as they are in memory.
#define MLX5MK_MEMORY 0

// The wire domain of an mkey: data as they are sent to the peer and received from it.
#define MLX5MK_WIRE 1

// State of a login: it is valid.
#define MLX5MK_LOGIN_VALID 0

// State of a login: its credential or its import key was revoked. Destroy the login and begin another.
#define MLX5MK_LOGIN_INVALID 1

// State of a data encryption key: the device has loaded it, and mkeys can use it.
#define MLX5MK_DEK_READY 0

// State of a data encryption key: the device could not load it.
#define MLX5MK_DEK_ERROR 1

// Flag of a key: it is wrapped with the import key of the login (AES key wrap, RFC 3394). See
// mlx5mk_login_create.
#define MLX5MK_KEY_WRAPPED 1

// Flag of a key: it has a tag, which configurations of mkeys must state. A wrapped key has the tag inside
// the wrapping; the tag of a plain key is `keytag`.
#define MLX5MK_KEY_TAGGED 2

// Flag of a request: it has a completion even if it succeeds.
#define MLX5MK_SIGNALED 1

// Flag of a request: the device executes it after the earlier reads and atomics are done.
#define MLX5MK_FENCED 2

// Flag of a request: it raises a solicited event at the receiver.
#define MLX5MK_SOLICITED 4

// A send request has completed without an error.
#define MLX5MK_SENT 1

// A receive request has completed without an error.
#define MLX5MK_RECEIVED 2

// A request failed. The queue pair is in the error state, and all later requests fail as well.
#define MLX5MK_FAILED 3

// The signature of a block, or a digest, was wrong. This completion belongs to no request: the request that
// moved the data completes later, as a success.
#define MLX5MK_BAD_SIGNATURE 4

// A completion entry is malformed, or its queue pair or mkey is unknown. The `error` of the call that took
// the completion describes the last malformed entry in words.
#define MLX5MK_BAD_ENTRY 5

// Flag of mlx5mk_cq_create: entries of the completion queue have 128 bytes instead of 64. On hosts with
// cache lines of 128 bytes, each entry then has a cache line of its own.
#define MLX5MK_CQ_LONG_ENTRIES 1

// Value of `domains` of mlx5mk_configure_size: the pool of the mkey was created without a completion queue,
// so its mkeys have no signatures.
#define MLX5MK_NO_SIGNATURES UINT32_MAX

// Flag of a queue pair: every send request has a completion.
#define MLX5MK_QP_SIGNAL_ALL 1

// Flag of a queue pair: a signature error stops the send queue before the next request.
#define MLX5MK_QP_DRAIN_ON_SIGNATURE_ERROR 2

// Flag of a queue pair: requests may copy local memory (MLX5MK_OP_MEMCPY). Not every device supports this.
#define MLX5MK_QP_MEMCPY 4

// Flag of a queue pair: the library asks for a BlueFlame register, a doorbell that takes a whole request. If
// a doorbell publishes a single request that fits, the library writes the request to the register, so the
// device need not read it from memory. mlx5mk_qp_has_blue_flame tells whether the queue pair got the
// register.
#define MLX5MK_QP_BLUE_FLAME 8

// Flag of a queue pair: the peer may use masked atomics (MLX5MK_OP_MASKED_COMPARE_SWAP,
// MLX5MK_OP_MASKED_FETCH_ADD). Not every device supports this.
#define MLX5MK_QP_MASKED_ATOMICS 16

// Format of time stamps: ticks of the device's free-running clock.
#define MLX5MK_TIMESTAMPS_FREE_RUNNING 1

// Format of time stamps: the one that the device prefers.
#define MLX5MK_TIMESTAMPS_DEVICE_DEFAULT 2

// Format of time stamps: seconds and nanoseconds of the device's real-time clock.
#define MLX5MK_TIMESTAMPS_REAL_TIME 3

// A value of `retries` and `rnr_retries`: no retries.
#define MLX5MK_NO_RETRIES 255

// State of a queue pair: RESET.
#define MLX5MK_QP_RESET 0

// State of a queue pair: INIT. It can be connected.
#define MLX5MK_QP_INIT 1

// State of a queue pair: RTR, ready to receive.
#define MLX5MK_QP_RTR 2

// State of a queue pair: RTS, ready to receive and to send.
#define MLX5MK_QP_RTS 3

// State of a queue pair: its send queue has failed.
#define MLX5MK_QP_SQ_ERROR 4

// State of a queue pair: its send queue has stopped before a request. Requests can be cancelled
// (mlx5mk_qp_cancel), and mlx5mk_qp_resume continues the queue.
#define MLX5MK_QP_SQ_DRAINED 5

// State of a queue pair: it has failed.
#define MLX5MK_QP_ERROR 6

// State of a queue pair: the device reports a state that this library does not know.
#define MLX5MK_QP_UNKNOWN 7

// Kind of event: a send queue has stopped before its next request (state MLX5MK_QP_SQ_DRAINED).
#define MLX5MK_EVENT_SQ_DRAINED 3

// Kind of event: a completion queue was full, or the device cannot write to the queue's memory. The device
// writes no more entries to the queue.
#define MLX5MK_EVENT_CQ_ERROR 4

// Kind of event: a queue pair is in the error state because of a fault in its own queues.
#define MLX5MK_EVENT_QP_CATASTROPHIC 5

// Kind of event: a queue pair is in the error state because of an invalid request of the peer.
#define MLX5MK_EVENT_QP_INVALID_REQUEST 16

// Kind of event: a queue pair is in the error state because the peer sent a request without the right to it.
#define MLX5MK_EVENT_QP_ACCESS 17

// Flag of a pool: the mkeys encrypt and decrypt (AES-XTS). Transfers through an mkey fail until a
// configuration gives it crypto properties.
#define MLX5MK_POOL_CRYPTO 1

// Flag of a pool: the tags of the mkeys change with each use, so that a peer cannot use an old key.
#define MLX5MK_POOL_UPDATE_TAG 2

// Flag of a pool: the peer may invalidate the mkeys.
#define MLX5MK_POOL_REMOTE_INVALIDATE 4

// Flag of a pool: PCIe writes through the mkeys may pass one another, and reads may pass writes where the
// device supports that.
#define MLX5MK_POOL_RELAXED_ORDERING 8

// Flag of a pool: configurations write only the properties that change, and post the same bytes as SPDK's
// `lib/mlx5`. The tag of an mkey never changes, even with MLX5MK_POOL_UPDATE_TAG. Rights are written only if
// a configuration gives them; the field `access` of the pool gives the first rights.
#define MLX5MK_POOL_MINIMAL 16

// The guard of a T10-DIF, or the CRC, was wrong.
#define MLX5MK_BAD_GUARD 0

// The application tag of a T10-DIF was wrong.
#define MLX5MK_BAD_APP_TAG 1

// The reference tag of a T10-DIF was wrong.
#define MLX5MK_BAD_REF_TAG 2

// The digest behind all data was wrong.
#define MLX5MK_BAD_DIGEST 3

// Flag of the field `parts` of a configuration (mlx5mk_config): the configuration gives access rights.
#define MLX5MK_SET_ACCESS 1

// Flag of `parts`: the configuration gives signatures. If the kind of both domains is MLX5MK_NO_SIGNATURE,
// the mkey's signatures are removed.
#define MLX5MK_SET_SIGNATURE 2

// Flag of `parts`: the configuration gives crypto properties.
#define MLX5MK_SET_CRYPTO 4

// Flag of `parts`: the field `check_mask` gives the bytes of a signature that are checked. Without this
// flag, all bytes are checked.
#define MLX5MK_SET_CHECK_MASK 8

// Flag of `parts`: the field `copy_mask` gives the bytes of a signature that are copied from domain to
// domain. Without this flag, the library chooses the bytes.
#define MLX5MK_SET_COPY_MASK 16

// Flag of `parts`: the configuration gives a digest instead of block signatures.
#define MLX5MK_SET_DIGEST 32

// Flag of `parts`: where data are encrypted together with their signatures, the length of a data unit may
// differ from the length of a block with its signature. A transfer of such data must begin at their first
// byte.
#define MLX5MK_ANY_DATA_UNIT 64

// Bit of `which` of mlx5mk_prepared_set_ordering: the order of writes through an mkey. Relaxed writes may
// pass one another.
#define MLX5MK_ORDER_WRITES 1

// Bit of `which` of mlx5mk_prepared_set_ordering: the order of reads through an mkey. Relaxed reads may pass
// writes.
#define MLX5MK_ORDER_READS 2

// Value of `part` of a digest: the digest covers the data of this mkey.
#define MLX5MK_DIGEST_MKEY 0

// Value of `part` of a digest: the digest covers data that pass through several mkeys. This mkey is the
// first of them.
#define MLX5MK_DIGEST_FIRST 1

// Value of `part` of a digest: the digest covers data that pass through several mkeys. This mkey is between
// the first and the last.
#define MLX5MK_DIGEST_MIDDLE 2

// Value of `part` of a digest: the digest covers data that pass through several mkeys. This mkey is the
// last, and the digest follows its data.
#define MLX5MK_DIGEST_LAST 3

// Value of `part` of a digest: the digest covers data that pass through this mkey only, but the running CRC
// is in the PSV `psv`, as for several mkeys.
#define MLX5MK_DIGEST_WHOLE 4

// The domain has no signature.
#define MLX5MK_NO_SIGNATURE 0

// The signature is a T10-DIF, of 8 bytes.
#define MLX5MK_T10DIF 1

// The signature is a CRC-32 as in Fibre Channel, of 4 bytes.
#define MLX5MK_CRC32 2

// The signature is a CRC-32C as in iSCSI, of 4 bytes.
#define MLX5MK_CRC32C 3

// The signature is a CRC-64 as in Microsoft XP10 and NVMe, of 8 bytes.
#define MLX5MK_CRC64_XP10 4

// A guard or CRC starts with all bits 0.
#define MLX5MK_SEED_ZEROS 0

// A guard or CRC starts with all bits 1.
#define MLX5MK_SEED_ONES 1

// The guard of a T10-DIF is a CRC-16.
#define MLX5MK_GUARD_CRC 0

// The guard of a T10-DIF is the Internet checksum.
#define MLX5MK_GUARD_IP_CHECKSUM 1

// Flag of a T10-DIF: the reference tag grows by one for each block.
#define MLX5MK_REF_REMAP 1

// Flag of a T10-DIF: blocks with the application tag FFFF pass unchecked.
#define MLX5MK_ESCAPE_APP_TAG 2

// Flag of a T10-DIF: blocks with the application tag FFFF and the reference tag FFFFFFFF pass unchecked.
#define MLX5MK_ESCAPE_APP_AND_REF_TAG 4

// Value of `direction`: memory holds plaintext, the wire ciphertext.
#define MLX5MK_ENCRYPT_ON_TX 0

// Value of `direction`: memory holds ciphertext, the wire plaintext.
#define MLX5MK_DECRYPT_ON_TX 1

// Value of `order`: when sending, signatures are made before encryption or decryption, so the cipher covers
// them.
#define MLX5MK_SIGNATURE_BEFORE_CRYPTO 0

// Value of `order`: when sending, signatures are made after encryption or decryption.
#define MLX5MK_SIGNATURE_AFTER_CRYPTO 1

// Operation in completions only: the completion belongs to no request, or to an operation that has no
// MLX5MK_OP constant.
#define MLX5MK_OP_OTHER 0

// The request does nothing.
#define MLX5MK_OP_NOP 1

// Sends a message.
#define MLX5MK_OP_SEND 2

// Sends a message with immediate data: 32 bits, which the receiver's completion contains.
#define MLX5MK_OP_SEND_IMM 3

// Sends a message, and the receiver's device takes one of the receiver's keys out of service.
#define MLX5MK_OP_SEND_INVALIDATE 4

// Writes to the peer's memory.
#define MLX5MK_OP_RDMA_WRITE 5

// Writes to the peer's memory, and completes one of the peer's receive requests. The completion of that
// receive request contains 32 bits of immediate data.
#define MLX5MK_OP_RDMA_WRITE_IMM 6

// Reads from the peer's memory.
#define MLX5MK_OP_RDMA_READ 7

// Writes `swap_add` to 8 bytes of the peer's memory if they hold `compare`. The device writes the old value
// to the request's only data segment, of 8 bytes.
#define MLX5MK_OP_COMPARE_SWAP 8

// Adds `swap_add` to 8 bytes of the peer's memory. The device writes the old value to the request's only
// data segment, of 8 bytes.
#define MLX5MK_OP_FETCH_ADD 9

// Operation in completions only: the configuration of an mkey (mlx5mk_post_configure).
#define MLX5MK_OP_CONFIGURE 10

// Operation in completions, and for mlx5mk_request_size: a key is taken out of service
// (mlx5mk_post_invalidate).
#define MLX5MK_OP_INVALIDATE 11

// Copies the bytes of the request's only data segment to another place in local memory, without the peer.
// `remote_address` and `rkey` name this place. The queue pair needs MLX5MK_QP_MEMCPY. Copies are not ordered
// against other requests, not even those with MLX5MK_FENCED. So post a request that needs the copied bytes
// after the copy has completed.
#define MLX5MK_OP_MEMCPY 12

// Operation in completions only: a work request that the program built (mlx5mk_post_raw).
#define MLX5MK_OP_RAW 13

// Operation in completions only: a memory window that was bound (mlx5mk_post_bind).
#define MLX5MK_OP_BIND 14

// If 4 or 8 bytes of the peer's memory equal `compare` in the bits of `compare_mask`, their bits of
// `swap_mask` become those of `swap_add`. The device writes the old value to the request's only data
// segment, whose length, 4 or 8, is also the number of bytes that are compared. An old value of 4 bytes is
// in big endian. The peer's queue pair needs MLX5MK_QP_MASKED_ATOMICS. The completion has the operation
// MLX5MK_OP_COMPARE_SWAP.
#define MLX5MK_OP_MASKED_COMPARE_SWAP 15

// Adds `swap_add` to 4 or 8 bytes of the peer's memory, field by field: a bit of `compare_mask` marks the
// highest bit of a field, and no carry leaves this bit. All else is as for MLX5MK_OP_MASKED_COMPARE_SWAP.
// The completion has the operation MLX5MK_OP_FETCH_ADD.
#define MLX5MK_OP_MASKED_FETCH_ADD 16

// The bytes are consecutive blocks of a send queue of unknown kind, beginning with the first block of a
// request. Requests are read as those of a connected queue pair, unless their bytes show another kind.
#define MLX5MK_INSPECT_SENDS 0

// The bytes are entries of a completion queue, of 64 bytes each.
#define MLX5MK_INSPECT_COMPLETIONS 1

// The bytes are entries of a completion queue, of 128 bytes each.
#define MLX5MK_INSPECT_COMPLETIONS_128 2

// As MLX5MK_INSPECT_SENDS, for a reliable or unreliable connection (RC, UC).
#define MLX5MK_INSPECT_SENDS_CONNECTED 3

// As MLX5MK_INSPECT_SENDS, for an unreliable datagram queue pair (UD).
#define MLX5MK_INSPECT_SENDS_DATAGRAM 4

// As MLX5MK_INSPECT_SENDS, for an initiator of dynamic connections (DC).
#define MLX5MK_INSPECT_SENDS_DC 5

// As MLX5MK_INSPECT_SENDS, for an extended reliable connection (XRC).
#define MLX5MK_INSPECT_SENDS_XRC 6

// As MLX5MK_INSPECT_SENDS, for a queue of Ethernet packets.
#define MLX5MK_INSPECT_SENDS_ETHERNET 7

// Result of mlx5mk_inspect: there is no finding.
#define MLX5MK_NOTHING 0

// Result of mlx5mk_inspect: the worst finding is a note, which is information only.
#define MLX5MK_NOTE 1

// Result of mlx5mk_inspect: the worst finding is suspicious: neither this library nor libmlx5, DPDK or SPDK
// writes such bytes.
#define MLX5MK_SUSPICIOUS 2

// Result of mlx5mk_inspect: the worst finding is an error: the device, or already libmlx5, refuses such
// bytes.
#define MLX5MK_REFUSED 3

// A completion queue, with the queue pairs that complete to it and the pools that report signature errors to
// it.
typedef struct mlx5mk_cq mlx5mk_cq;

// A data encryption key on the device.
typedef struct mlx5mk_dek mlx5mk_dek;

// A cache of data encryption keys on the device, one for each identity, for example of a volume or a tenant.
// The caller ensures that only one thread at a time uses the cache.
typedef struct mlx5mk_dek_cache mlx5mk_dek_cache;

// An open mlx5 device.
typedef struct mlx5mk_device mlx5mk_device;

// A channel for events. Several threads may wait on it at the same time; each event goes to one of them.
typedef struct mlx5mk_events mlx5mk_events;

// A list of entries in registered memory, for layouts that do not fit into a request.
typedef struct mlx5mk_list mlx5mk_list;

// An mkey that was created together with its list of entries. Requests cannot change it.
typedef struct mlx5mk_list_mkey mlx5mk_list_mkey;

// A crypto login. While it is valid, the program can load wrapped data encryption keys.
typedef struct mlx5mk_login mlx5mk_login;

// Registered memory.
typedef struct mlx5mk_mr mlx5mk_mr;

// An object that a command of the program has created.
typedef struct mlx5mk_object mlx5mk_object;

// A protection domain. The keys of its memory regions and mkeys work only with queue pairs of the same
// domain.
typedef struct mlx5mk_pd mlx5mk_pd;

// Mkeys with the same properties. Some are in use, the others are free.
typedef struct mlx5mk_pool mlx5mk_pool;

// A configuration that was checked and encoded. It fits any mkey of the pool for which it was made, and of
// pools with the same properties.
typedef struct mlx5mk_prepared mlx5mk_prepared;

// A pair of PSVs, for the memory and the wire domain. Mkeys that share PSVs are used one after another: the
// caller configures the next mkey only after the transfer through the previous one has completed, and sets a
// signature in each configuration. The library does not check this.
typedef struct mlx5mk_psvs mlx5mk_psvs;

// A reliable queue pair.
typedef struct mlx5mk_qp mlx5mk_qp;

// A channel for answers to queries: the program sends a query, does not wait, and takes the answer later.
typedef struct mlx5mk_queries mlx5mk_queries;

// A store of mkeys with the same properties. Pools take mkeys from it and return them, several at a time.
typedef struct mlx5mk_store mlx5mk_store;

// A page of doorbell registers (UAR page).
typedef struct mlx5mk_uar mlx5mk_uar;

// Memory that is registered for commands (a umem of DEVX). Commands name it by a number.
typedef struct mlx5mk_umem mlx5mk_umem;

// A set of memory windows of type 2. Each window is in use or free. The caller ensures that only one thread
// at a time uses them.
typedef struct mlx5mk_windows mlx5mk_windows;

// The description of an error. The caller provides the memory, and a function that fails writes it.
typedef struct mlx5mk_error {
  // One of the negative codes. The function that failed returns the same code.
  int32_t code MLX5MK_ZERO;
  // The system's errno for MLX5MK_SYSTEM and MLX5MK_DEVICE; otherwise 0.
  int32_t system MLX5MK_ZERO;
  // The reason in words, with the values and limits concerned, and advice. The text ends with a NUL, and
  // is cut off if it is longer than the field.
  char message[504] MLX5MK_ZERO;
} mlx5mk_error;

// The credential with which a program logs in (struct mlx5dv_crypto_login_attr_ex).
typedef struct mlx5mk_login_spec {
  // The credential, plain or wrapped, as the device demands. A wrapped credential has 48 bytes.
  const void *credential MLX5MK_ZERO;
  // Length of `credential` in bytes, at most 48.
  uint32_t bytes MLX5MK_ZERO;
  // Number of the credential on the device, below 2^24.
  uint32_t credential_id MLX5MK_ZERO;
  // Number of the import key on the device, below 2^24. Keys are wrapped with this key.
  uint32_t import_kek_id MLX5MK_ZERO;
} mlx5mk_login_spec;

// A key of AES-XTS, in one of the forms that the device takes (man page mlx5dv_dek_create).
typedef struct mlx5mk_key_spec {
  // The two halves of the key, one after the other; with MLX5MK_KEY_WRAPPED, the wrapped key.
  const void *key MLX5MK_ZERO;
  // Length of `key` in bytes: 32 or 64 for halves of 128 or 256 bits. A wrapped key has 40 or 72 bytes,
  // and 48 or 80 if it contains a tag.
  uint32_t bytes MLX5MK_ZERO;
  // A sum of the flags MLX5MK_KEY_WRAPPED and MLX5MK_KEY_TAGGED, or 0.
  uint32_t flags MLX5MK_ZERO;
  // The tag of a key that is not wrapped.
  uint8_t keytag[8] MLX5MK_ZERO;
  // Bytes that the device keeps with the key, for the caller's use.
  uint8_t opaque[8] MLX5MK_ZERO;
} mlx5mk_key_spec;

// The name of an mkey of a pool while it is in use. The name includes the pool and the use: other pools
// refuse it, and its own pool refuses it after the mkey was put back. A program may copy the name, but its
// content has no meaning for the program. Zeros name no mkey.
typedef struct mlx5mk_mkey {
  // Private to the library.
  uint64_t opaque[3] MLX5MK_ZERO;
} mlx5mk_mkey;

// A completion, as it was taken from a completion queue.
typedef struct mlx5mk_completion {
  // The name that the program gave the request.
  uint64_t id MLX5MK_ZERO;
  // Private to the library: a number of the request. With this number, mlx5mk_pool_put and
  // mlx5mk_windows_put distinguish requests with the same `id`.
  uint64_t number MLX5MK_ZERO;
  // For MLX5MK_BAD_SIGNATURE: the pool of the mkey; otherwise NULL.
  struct mlx5mk_pool *pool MLX5MK_ZERO;
  // For MLX5MK_BAD_SIGNATURE: the mkey, for mlx5mk_mkey_check; zeros if the mkey was put back to its pool.
  // For other kinds of completion: zeros.
  struct mlx5mk_mkey mkey MLX5MK_ZERO;
  // The kind of completion: MLX5MK_SENT, MLX5MK_RECEIVED, MLX5MK_FAILED, MLX5MK_BAD_SIGNATURE or
  // MLX5MK_BAD_ENTRY.
  uint32_t kind MLX5MK_ZERO;
  // Number of the queue pair; 0 for MLX5MK_BAD_SIGNATURE and MLX5MK_BAD_ENTRY.
  uint32_t qpn MLX5MK_ZERO;
  // The operation of the request, MLX5MK_OP_SEND or another. For MLX5MK_RECEIVED: the operation by which
  // the message arrived. The completion of a send request does not tell whether the request had immediate
  // data: it has MLX5MK_OP_SEND also for MLX5MK_OP_SEND_IMM.
  uint32_t operation MLX5MK_ZERO;
  // Number of bytes that were received, or that an RDMA READ or an atomic has delivered; otherwise 0.
  uint32_t bytes MLX5MK_ZERO;
  // For MLX5MK_RECEIVED: the 32 bits of immediate data, in the processor's byte order, or the key that the
  // message invalidated.
  uint32_t immediate MLX5MK_ZERO;
  // For MLX5MK_FAILED: the cause (PRM syndrome). The next three fields are details for the vendor's
  // support.
  uint8_t syndrome MLX5MK_ZERO;
  // Vendor syndrome.
  uint8_t vendor MLX5MK_ZERO;
  // Hardware error syndrome.
  uint8_t hardware MLX5MK_ZERO;
  // Hardware syndrome type.
  uint8_t hardware_type MLX5MK_ZERO;
} mlx5mk_completion;

// The kernel's data for converting the device's ticks into nanoseconds (struct mlx5dv_clock_info).
typedef struct mlx5mk_clock {
  // The kernel's time in nanoseconds at which the device's clock showed `cycles`.
  uint64_t base MLX5MK_ZERO;
  // The value of the device's clock, in ticks, at time `base`.
  uint64_t cycles MLX5MK_ZERO;
  // A fraction of a nanosecond to add to `base`, in units of 2^-`shift` nanoseconds.
  uint64_t fraction MLX5MK_ZERO;
  // The largest value of the device's clock, for example 2^48 - 1. After this value the clock starts again
  // at 0.
  uint64_t mask MLX5MK_ZERO;
  // The length of a tick, in units of 2^-`shift` nanoseconds.
  uint32_t multiplier MLX5MK_ZERO;
  // The number of bits by which the product of ticks and `multiplier` is shifted right, to get
  // nanoseconds.
  uint32_t shift MLX5MK_ZERO;
} mlx5mk_clock;

// The size of a request. A program adds up the sizes of the requests that may be outstanding at a time.
typedef struct mlx5mk_size {
  // Number of blocks of 64 bytes, for the field `send_blocks` of a queue pair, which is rounded up to a
  // power of two.
  uint32_t blocks MLX5MK_ZERO;
  // Number of work requests, for the field `max_requests` of a queue pair. The queue pair sets aside an
  // entry of the completion queue for each work request.
  uint32_t requests MLX5MK_ZERO;
} mlx5mk_size;

// The properties of a pool or a store.
typedef struct mlx5mk_pool_spec {
  // Number of mkeys: 1 to 65536.
  uint32_t count MLX5MK_ZERO;
  // The largest number of entries that a layout of an mkey can have. More than 2^30 are refused with
  // MLX5MK_ARGUMENT, more than the device supports with MLX5MK_COMMAND.
  uint32_t max_entries MLX5MK_ZERO;
  // MLX5MK_POOL_CRYPTO and other MLX5MK_POOL flags.
  uint32_t flags MLX5MK_ZERO;
  // The length of every entry of a layout, a power of two from 4096 to 2^31, or 0 for entries of different
  // lengths. With equal lengths the device finds the entry of an address without a search, however long
  // the layout is. Entries of equal length come from lists (mlx5mk_list_write_equal), and mkeys with such
  // entries have neither signatures nor crypto.
  uint32_t entry_size MLX5MK_ZERO;
  // PSVs that all mkeys of the pool share. The mkeys are created in the protection domain of the PSVs.
  // With NULL each mkey has its own PSVs, as in a store.
  const struct mlx5mk_psvs *psvs MLX5MK_ZERO;
  // Rights that the mkeys have from the start, MLX5MK_LOCAL_WRITE and others; the owner may always read.
  // The field is meant for MLX5MK_POOL_MINIMAL, whose configurations may omit the rights, except after
  // mlx5mk_mkey_forget.
  uint32_t access MLX5MK_ZERO;
} mlx5mk_pool_spec;

// A range of memory under a key: an entry of an mkey's layout, or a data segment of a request. It has the
// layout of `struct ibv_sge`.
typedef struct mlx5mk_range {
  // Address of the range's first byte. If `key` is that of an mkey, this is an offset in the mkey's space,
  // in bytes of the wire domain.
  uint64_t address MLX5MK_ZERO;
  // Length in bytes: 1 to 2^31 - 1 in a request, 1 to 2^31 in a layout.
  uint32_t length MLX5MK_ZERO;
  // Local key of the memory region, or key of the mkey.
  uint32_t key MLX5MK_ZERO;
} mlx5mk_range;

// A request that moves data. Fields that its operation does not need are ignored.
typedef struct mlx5mk_request {
  // The name that the program gives the request. The completion contains it.
  uint64_t id MLX5MK_ZERO;
  // The operation: one of the MLX5MK_OP constants, except those that are only for completions and for
  // mlx5mk_request_size.
  uint32_t operation MLX5MK_ZERO;
  // A sum of the flags MLX5MK_SIGNALED, MLX5MK_FENCED and MLX5MK_SOLICITED, or 0.
  uint32_t flags MLX5MK_ZERO;
  // Address in the peer's memory; for MLX5MK_OP_MEMCPY, in local memory. If `rkey` is the key of an mkey,
  // the address is an offset in the mkey's space.
  uint64_t remote_address MLX5MK_ZERO;
  // The key of the memory at `remote_address`.
  uint32_t rkey MLX5MK_ZERO;
  // The 32 bits for the receiver's completion, in the processor's byte order, or the key that
  // MLX5MK_OP_SEND_INVALIDATE takes out of service.
  uint32_t immediate MLX5MK_ZERO;
  // The data segments: local memory, which the device reads or writes until the request has completed.
  const struct mlx5mk_range *sges MLX5MK_ZERO;
  // Bytes that are copied into the request instead of segments, or NULL. Only for sends and RDMA WRITEs.
  const void *inline_data MLX5MK_ZERO;
  // Number of segments at `sges`.
  uint32_t sge_count MLX5MK_ZERO;
  // Number of bytes at `inline_data`.
  uint32_t inline_bytes MLX5MK_ZERO;
  // For MLX5MK_OP_COMPARE_SWAP and MLX5MK_OP_MASKED_COMPARE_SWAP: the value that the peer's memory is
  // compared with.
  uint64_t compare MLX5MK_ZERO;
  // The value that a compare-and-swap writes to the peer's memory, or that a fetch-and-add adds to it,
  // with or without masks.
  uint64_t swap_add MLX5MK_ZERO;
  // For MLX5MK_OP_MASKED_COMPARE_SWAP: the bits that are compared. For MLX5MK_OP_MASKED_FETCH_ADD: the
  // highest bit of each field, which no carry leaves.
  uint64_t compare_mask MLX5MK_ZERO;
  // For MLX5MK_OP_MASKED_COMPARE_SWAP: the bits that the new value replaces.
  uint64_t swap_mask MLX5MK_ZERO;
} mlx5mk_request;

// The properties of a queue pair. A field that is 0 stands for its default.
typedef struct mlx5mk_qp_spec {
  // Size of the send ring in blocks of 64 bytes, rounded up to a power of two, at most 32768. Default 256.
  // An RDMA WRITE of one segment takes one block. A configuration of an mkey with four entries takes two
  // blocks, and one more block each for a signature, for crypto, and for each domain that has a signature.
  uint32_t send_blocks MLX5MK_ZERO;
  // The number of receive requests that the receive queue holds, rounded up to a power of two, at most
  // 32768. Default 16.
  uint32_t receive_slots MLX5MK_ZERO;
  // The largest number of buffers of a receive request, a power of two. Default 4.
  uint32_t receive_sges MLX5MK_ZERO;
  // The largest number of send work requests that may be outstanding. A configuration of an mkey may
  // consist of several work requests. The queue pair sets aside an entry of the completion queue for each
  // work request. Default: the number of blocks of the send ring.
  uint32_t max_requests MLX5MK_ZERO;
  // A sum of the flags MLX5MK_QP_SIGNAL_ALL, MLX5MK_QP_DRAIN_ON_SIGNATURE_ERROR, MLX5MK_QP_MEMCPY,
  // MLX5MK_QP_BLUE_FLAME and MLX5MK_QP_MASKED_ATOMICS, or 0.
  uint32_t flags MLX5MK_ZERO;
  // Number of the device's port. Default 1.
  uint32_t port MLX5MK_ZERO;
  // Format of the time stamps in completion entries, MLX5MK_TIMESTAMPS_FREE_RUNNING or another
  // MLX5MK_TIMESTAMPS constant. Default: ticks of the free-running clock, or the device's preferred format
  // if it has no such clock.
  uint32_t timestamps MLX5MK_ZERO;
} mlx5mk_qp_spec;

// The options of a connection. A field that is 0 stands for its default. The defaults are those of
// rdma-core's tools. Both sides use the same options.
typedef struct mlx5mk_connect_spec {
  // Entry of the own GID table, which also decides the version of RoCE (`ibv_devinfo -v` lists the table).
  // Default 0.
  uint8_t gid_index MLX5MK_ZERO;
  // Traffic class of RoCE; its upper 6 bits are the DSCP. Default 0.
  uint8_t traffic_class MLX5MK_ZERO;
  // InfiniBand service level or Ethernet priority, 0 to 7. Default 0.
  uint8_t service_level MLX5MK_ZERO;
  // The time for which the device waits for an acknowledgement: n from 1 to 31 stands for 4.096 us * 2^n.
  // Default 14: 67 ms.
  uint8_t ack_timeout MLX5MK_ZERO;
  // Number of the first packet that this side sends, below 2^24. Use a random number, so that late packets
  // of an earlier connection are not taken for packets of this one. Default 0.
  uint32_t first_psn MLX5MK_ZERO;
  // The number of packets after which a request asks for an acknowledgement, a power of two up to 256.
  // Default 256. With a smaller number a lost packet is found sooner, at a higher cost for the wire and
  // both devices.
  uint32_t ack_packets MLX5MK_ZERO;
  // Largest packet: 256, 512, 1024, 2048 or 4096 bytes. The default is the smaller active MTU of the two
  // ports.
  uint32_t mtu MLX5MK_ZERO;
  // Retries after an acknowledgement timed out: 1 to 7, or MLX5MK_NO_RETRIES. Default 7.
  uint8_t retries MLX5MK_ZERO;
  // Retries when the peer has no receive request: 1 to 6, MLX5MK_NO_RETRIES, or 7, which is no limit and
  // the default.
  uint8_t rnr_retries MLX5MK_ZERO;
  // The time for which the peer waits before a retry when this side has no receive request: the code of
  // `ibv_modify_qp` (`min_rnr_timer`), 1 to 31. Default 12: 0.64 ms.
  uint8_t rnr_timer MLX5MK_ZERO;
  // Hop limit of RoCE. Default 255.
  uint8_t hop_limit MLX5MK_ZERO;
  // Flow label of RoCE, below 2^20. Default 0.
  uint32_t flow_label MLX5MK_ZERO;
} mlx5mk_connect_spec;

// The address of a queue pair, which its peer needs to connect. The two sides exchange the bytes unchanged,
// by any means.
typedef struct mlx5mk_address {
  // The bytes of the Rust library's QpAddress: programs in C and in Rust can connect to each other.
  uint8_t bytes[28] MLX5MK_ZERO;
} mlx5mk_address;

// The device's description of a queue pair.
typedef struct mlx5mk_qp_info {
  // State of the queue pair: MLX5MK_QP_RTS or another.
  uint32_t state MLX5MK_ZERO;
  // Number of the send queue's block that the device executes next, modulo 2^16.
  uint32_t next_send_block MLX5MK_ZERO;
  // Number of the block behind the last send request that was published with a doorbell, modulo 2^16.
  uint32_t announced_send_block MLX5MK_ZERO;
  // Number of receive requests that messages have consumed so far.
  uint32_t receives_taken MLX5MK_ZERO;
  // Number of the peer's queue pair.
  uint32_t remote_qpn MLX5MK_ZERO;
  // Number of the next packet to send.
  uint32_t next_send_psn MLX5MK_ZERO;
  // Number of the next packet to receive.
  uint32_t next_receive_psn MLX5MK_ZERO;
} mlx5mk_qp_info;

// An array of the caller for names of requests (`id`), and the number of requests.
typedef struct mlx5mk_names {
  // Memory for `room` names. May be NULL if `room` is 0.
  uint64_t *ids MLX5MK_ZERO;
  // The size of `ids`, in names.
  uint32_t room MLX5MK_ZERO;
  // Written by mlx5mk_qp_reset: the number of outstanding requests. If it exceeds `room`, only `room`
  // names are written.
  uint32_t count MLX5MK_ZERO;
} mlx5mk_names;

// The outstanding requests of a queue pair.
typedef struct mlx5mk_outstanding {
  // The names of the send requests, each once and oldest first.
  struct mlx5mk_names sends MLX5MK_ZERO;
  // The names of the receive requests.
  struct mlx5mk_names receives MLX5MK_ZERO;
} mlx5mk_outstanding;

// An event of a queue pair or a completion queue.
typedef struct mlx5mk_event {
  // The number that the program gave as `cookie` when it subscribed to the event.
  uint64_t cookie MLX5MK_ZERO;
  // The kind of event: MLX5MK_EVENT_QP_ACCESS or another (PRM event types).
  uint32_t kind MLX5MK_ZERO;
} mlx5mk_event;

// A signature that did not match its block.
typedef struct mlx5mk_bad_block {
  // The part that was wrong: MLX5MK_BAD_GUARD or another MLX5MK_BAD constant.
  uint32_t part MLX5MK_ZERO;
  // The domain from which the data came: MLX5MK_MEMORY or MLX5MK_WIRE.
  uint32_t domain MLX5MK_ZERO;
  // The number of the block, counted from 0 at the first byte of the mkey's space; 0 for a digest.
  uint64_t block MLX5MK_ZERO;
  // The wrong signature, as it was in the data.
  uint64_t found MLX5MK_ZERO;
  // The signature that the device computed for the data.
  uint64_t computed MLX5MK_ZERO;
  // Offset in bytes of the last byte of the block with its signature; for a digest, the offset that the
  // device reported.
  uint64_t offset MLX5MK_ZERO;
} mlx5mk_bad_block;

// The signature of one domain (struct mlx5dv_sig_block_domain).
typedef struct mlx5mk_signature_spec {
  // MLX5MK_T10DIF, MLX5MK_CRC32, MLX5MK_CRC32C, MLX5MK_CRC64_XP10 or MLX5MK_NO_SIGNATURE. With
  // MLX5MK_NO_SIGNATURE, all other fields are ignored.
  uint32_t kind MLX5MK_ZERO;
  // Data bytes of a block, without the signature: 512, 520, 4048, 4096 or 4160.
  uint32_t block_size MLX5MK_ZERO;
  // Start value of the guard or CRC: MLX5MK_SEED_ZEROS or MLX5MK_SEED_ONES.
  uint32_t seed MLX5MK_ZERO;
  // The guard of a T10-DIF: MLX5MK_GUARD_CRC or MLX5MK_GUARD_IP_CHECKSUM.
  uint32_t guard MLX5MK_ZERO;
  // The reference tag of the first block, for T10-DIF.
  uint32_t ref_tag MLX5MK_ZERO;
  // The application tag, for T10-DIF.
  uint16_t app_tag MLX5MK_ZERO;
  // Flags, for T10-DIF: MLX5MK_REF_REMAP, and one of MLX5MK_ESCAPE_APP_TAG and
  // MLX5MK_ESCAPE_APP_AND_REF_TAG.
  uint16_t flags MLX5MK_ZERO;
} mlx5mk_signature_spec;

// Crypto properties (struct mlx5dv_crypto_attr): AES-XTS.
typedef struct mlx5mk_crypto_spec {
  // The data encryption key. It must not be destroyed while mkeys use it.
  const struct mlx5mk_dek *dek MLX5MK_ZERO;
  // The low half of the first data unit's tweak: a number of 128 bits, normally the LBA.
  uint64_t tweak_low MLX5MK_ZERO;
  // The high half of the tweak.
  uint64_t tweak_high MLX5MK_ZERO;
  // The tag of the key; zeros for a key without a tag.
  uint8_t keytag[8] MLX5MK_ZERO;
  // MLX5MK_ENCRYPT_ON_TX or MLX5MK_DECRYPT_ON_TX.
  uint32_t direction MLX5MK_ZERO;
  // MLX5MK_SIGNATURE_BEFORE_CRYPTO or MLX5MK_SIGNATURE_AFTER_CRYPTO.
  uint32_t order MLX5MK_ZERO;
  // Bytes that are encrypted under one tweak: 512, 520, 4048, 4096, 4160 or 2^20. If the cipher covers a
  // signature, these are the bytes of block and signature together.
  uint32_t data_unit MLX5MK_ZERO;
} mlx5mk_crypto_spec;

// A digest of iSCSI or NVMe/TCP: a CRC32C over all data, stored behind the data in 4 bytes, little endian
// (SPDK: spdk_mlx5_umr_configure_sig). One domain, memory or wire, holds the digest. When data comes from
// this domain, the device checks and strips the digest. When data goes to this domain, the device generates
// the digest. The CRC is over the bytes as this domain holds them, which may be ciphertext.
//
// If the digest is on the wire, either one request moves all data and the digest behind it, or one request
// moves the data and the next request moves the digest.
typedef struct mlx5mk_digest_spec {
  // The domain that holds the digest: MLX5MK_MEMORY or MLX5MK_WIRE.
  uint32_t domain MLX5MK_ZERO;
  // Start value of the CRC: MLX5MK_SEED_ZEROS, or MLX5MK_SEED_ONES as in iSCSI and NVMe/TCP.
  uint32_t seed MLX5MK_ZERO;
  // The position of this mkey among the mkeys through which the data pass: MLX5MK_DIGEST_MKEY or another
  // MLX5MK_DIGEST constant.
  uint32_t part MLX5MK_ZERO;
  // For all parts except MLX5MK_DIGEST_MKEY: the PSV that holds the running CRC (mlx5mk_psvs_index). The
  // caller ensures that no other transaction uses this PSV meanwhile.
  uint32_t psv MLX5MK_ZERO;
} mlx5mk_digest_spec;

// The properties that a configuration sets for an mkey. Properties that the configuration does not set stay
// as they are. The layout is not among these properties: the functions that post a configuration take the
// layout.
typedef struct mlx5mk_config {
  // The parts that the configuration gives: MLX5MK_SET_ACCESS and other MLX5MK_SET flags.
  uint32_t parts MLX5MK_ZERO;
  // Access rights, MLX5MK_LOCAL_WRITE and others. The owner of the mkey may always read.
  uint32_t access MLX5MK_ZERO;
  // The signature behind each block in memory.
  struct mlx5mk_signature_spec memory MLX5MK_ZERO;
  // The signature behind each block on the wire.
  struct mlx5mk_signature_spec wire MLX5MK_ZERO;
  // The bytes of a signature that are checked: a bit for each, bit 7 for the first byte. Used with
  // MLX5MK_SET_CHECK_MASK.
  uint8_t check_mask MLX5MK_ZERO;
  // The bytes of a signature that are copied from domain to domain: a bit for each, bit 7 for the first
  // byte. Used with MLX5MK_SET_COPY_MASK.
  uint8_t copy_mask MLX5MK_ZERO;
  // The crypto properties: AES-XTS with a key.
  struct mlx5mk_crypto_spec crypto MLX5MK_ZERO;
  // The digest behind all data.
  struct mlx5mk_digest_spec digest MLX5MK_ZERO;
} mlx5mk_config;

// One stream of an interleaved layout (struct mlx5dv_mr_interleaved): each cycle maps its next `bytes`
// bytes.
typedef struct mlx5mk_stream {
  // Address of the stream's first byte, as in a range.
  uint64_t address MLX5MK_ZERO;
  // Bytes that each cycle maps.
  uint16_t bytes MLX5MK_ZERO;
  // Bytes that are skipped between the bytes of one cycle and those of the next. The sum of `skip` and
  // `bytes` is at most 65535.
  uint16_t skip MLX5MK_ZERO;
  // Local key of the memory region.
  uint32_t key MLX5MK_ZERO;
} mlx5mk_stream;

// An entry of a list whose entries all have the same length. The length is given once for the list.
typedef struct mlx5mk_place {
  // Address of the entry's first byte, as in a range. It need not be a multiple of the length.
  uint64_t address MLX5MK_ZERO;
  // Local key of the memory region.
  uint32_t key MLX5MK_ZERO;
} mlx5mk_place;

// The name of a window while it is in use. The name includes the set of windows and the use: other sets
// refuse it, and its own set refuses it after the window was put back. A program may copy the name, but its
// content has no meaning for the program. Zeros name no window.
typedef struct mlx5mk_window {
  // Private to the library.
  uint64_t opaque[3] MLX5MK_ZERO;
} mlx5mk_window;

// The answer to a query for which the program does not wait.
typedef struct mlx5mk_answer {
  // The `id` that was given with the query.
  uint64_t id MLX5MK_ZERO;
  // Memory of the caller for the reply, which is a structure of the PRM.
  void *reply MLX5MK_ZERO;
  // The size of the memory at `reply` in bytes.
  uint32_t room MLX5MK_ZERO;
  // Written by mlx5mk_queries_next: the length of the whole reply in bytes. If it exceeds `room`, only the
  // first `room` bytes are at `reply`.
  uint32_t bytes MLX5MK_ZERO;
} mlx5mk_answer;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of the library that the program is linked with at run time: major * 10000 + minor *
// 100 + patch. A shared library may be newer than the header (MLX5MK_VERSION_MAJOR and others).
uint32_t mlx5mk_version(void);

// Returns a short description of a code: a string that is never freed. Any number is allowed.
const char *mlx5mk_code_words(int32_t code);

// Sets the function that receives errors of destroy functions that cannot return them: the kernel could not
// destroy an object, or end a registration. The function may be called by any thread that destroys a handle;
// `error` is valid during the call. With NULL, the default, these errors are ignored.
void mlx5mk_on_drop_error(void (*hook)(const struct mlx5mk_error *error));

// Opens the device with this name (for example `mlx5_0`), or the first mlx5 device if `name` is NULL.
//
// Errors: MLX5MK_LIBRARY, MLX5MK_DEVICE, MLX5MK_SYSTEM, MLX5MK_COMMAND; the message says what to install, to
// enable, or to ask an administrator for.
int32_t mlx5mk_device_open(const char *name,
                           struct mlx5mk_device **device,
                           struct mlx5mk_error *error);

// Takes over a device that the program has opened: `context` is a `struct ibv_context` of libmlx5 with DEVX.
// The caller keeps the context open as long as the device or an object made from it exists. (libmlx5 enables
// DEVX by itself if the kernel allows it.)
//
// Errors: MLX5MK_LIBRARY, MLX5MK_SYSTEM, MLX5MK_COMMAND.
int32_t mlx5mk_device_adopt(void *context,
                            struct mlx5mk_device **device,
                            struct mlx5mk_error *error);

// Writes a description of the device's capabilities to `words`: signatures, AES-XTS, and the forms in which
// it takes keys. The text ends with a NUL, and is cut off if `size` bytes are too few. `words` may be NULL
// if `size` is 0. Returns the length of the whole text in bytes, without the NUL.
size_t mlx5mk_device_describe(const struct mlx5mk_device *device,
                              char *words,
                              size_t size);

// Gives the device up. It is closed when all objects made from it are gone. NULL is ignored.
void mlx5mk_device_close(struct mlx5mk_device *device);

// Creates a protection domain.
//
// Errors: MLX5MK_SYSTEM.
int32_t mlx5mk_pd_alloc(const struct mlx5mk_device *device,
                        struct mlx5mk_pd **pd,
                        struct mlx5mk_error *error);

// Takes over a protection domain of the program: `ibv_pd` is a `struct ibv_pd` of libmlx5, in the device's
// context. The caller keeps it allocated as long as the handle or an object made in the domain exists.
//
// Errors: MLX5MK_ADOPT where the domain belongs to another context, MLX5MK_SYSTEM.
int32_t mlx5mk_pd_adopt(const struct mlx5mk_device *device,
                        void *ibv_pd,
                        struct mlx5mk_pd **pd,
                        struct mlx5mk_error *error);

// Writes to `number` the number by which device commands name the protection domain.
//
// Errors: MLX5MK_SYSTEM.
int32_t mlx5mk_pd_number(const struct mlx5mk_pd *pd, uint32_t *number, struct mlx5mk_error *error);

// Gives the protection domain up. It is freed when all objects made in it are gone. NULL is ignored.
void mlx5mk_pd_free(struct mlx5mk_pd *pd);

// Begins a login (`mlx5dv_crypto_login_create`). While it is valid, the program can load wrapped keys. A
// device handle has at most one login at a time. Keys that were loaded under the login stay valid after it.
// The library wipes all of its copies of the credential; the caller wipes its own copy.
//
// Errors: MLX5MK_ARGUMENT; MLX5MK_SYSTEM while the device handle already has a login; MLX5MK_COMMAND where
// the device does not support logins, or refuses.
int32_t mlx5mk_login_create(const struct mlx5mk_device *device,
                            const struct mlx5mk_login_spec *spec,
                            struct mlx5mk_login **login,
                            struct mlx5mk_error *error);

// Asks the device for the state of the login. Returns MLX5MK_LOGIN_VALID or MLX5MK_LOGIN_INVALID.
//
// Errors: MLX5MK_COMMAND.
int32_t mlx5mk_login_query(const struct mlx5mk_login *login, struct mlx5mk_error *error);

// Ends the login. The handle is destroyed even after an error. NULL is ignored.
//
// Errors: MLX5MK_SYSTEM. After this error the login lasts until the device is closed.
int32_t mlx5mk_login_destroy(struct mlx5mk_login *login, struct mlx5mk_error *error);

// Registers `length` bytes at `address` with these rights (MLX5MK_LOCAL_WRITE and others). The caller keeps
// the memory mapped until mlx5mk_mr_deregister has returned 0.
//
// Errors: MLX5MK_SYSTEM.
int32_t mlx5mk_mr_register(const struct mlx5mk_pd *pd,
                           void *address,
                           size_t length,
                           uint32_t access,
                           struct mlx5mk_mr **mr,
                           struct mlx5mk_error *error);

// Registers `length` bytes of a dma-buf, from `offset` on. A dma-buf is memory that another driver, for
// example of a GPU, shares by the descriptor `fd`. Requests and layouts name its bytes by addresses from
// `iova` on; `iova` may be any address with the same offset in a page as `offset`. The program may close the
// descriptor after the call: the dma-buf exists until mlx5mk_mr_deregister has returned 0.
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_LIBRARY where rdma-core is older than version 34, MLX5MK_SYSTEM.
int32_t mlx5mk_mr_register_dmabuf(const struct mlx5mk_pd *pd,
                                  int32_t fd,
                                  size_t offset,
                                  size_t length,
                                  uint64_t iova,
                                  uint32_t access,
                                  struct mlx5mk_mr **mr,
                                  struct mlx5mk_error *error);

// Returns the local key of the memory, for entries of layouts and data segments; 0 for NULL.
uint32_t mlx5mk_mr_lkey(const struct mlx5mk_mr *mr);

// Returns the remote key of the memory, for the peer; 0 for NULL.
uint32_t mlx5mk_mr_rkey(const struct mlx5mk_mr *mr);

// Ends the registration. The handle is destroyed even after an error. NULL is ignored.
//
// Errors: MLX5MK_SYSTEM. After this error the device may still access the memory, so the memory must stay
// mapped.
int32_t mlx5mk_mr_deregister(struct mlx5mk_mr *mr,
                             struct mlx5mk_error *error);

// Loads a data encryption key. The library wipes all of its copies of the key's bytes; the caller wipes its
// own copy.
//
// Errors: MLX5MK_ARGUMENT for a length that no form of a key has and for equal halves, MLX5MK_COMMAND where
// the device does not take keys in this form, or refuses.
int32_t mlx5mk_dek_create(const struct mlx5mk_pd *pd,
                          const struct mlx5mk_key_spec *spec,
                          struct mlx5mk_dek **dek,
                          struct mlx5mk_error *error);

// Asks the device for the key's state (`mlx5dv_dek_query`), and returns MLX5MK_DEK_READY or
// MLX5MK_DEK_ERROR. Writes to `opaque` the 8 bytes that the program gave as `opaque` when it loaded the key.
//
// Errors: MLX5MK_COMMAND, for example for a wrapped key without a login; MLX5MK_ARGUMENT for a key that a
// cache has lent.
int32_t mlx5mk_dek_query(const struct mlx5mk_dek *dek,
                         uint8_t (*opaque)[8],
                         struct mlx5mk_error *error);

// Gives the key another value; `opaque` of `spec` is ignored. The key keeps its number, and mkeys that were
// configured with the key use the new value. If the key was used, take the completions of all requests that
// use the old value, then call mlx5mk_sync_crypto, then this function.
//
// Errors: MLX5MK_COMMAND where the device cannot replace keys, or refuses; MLX5MK_ARGUMENT, also for a key
// that a cache has lent. After an error the key keeps its value.
int32_t mlx5mk_dek_replace(struct mlx5mk_dek *dek,
                           const struct mlx5mk_key_spec *spec,
                           struct mlx5mk_error *error);

// Makes the device forget its cached values of keys (SYNC_CRYPTO). Call it before mlx5mk_dek_replace gives
// another value to a key that was used.
//
// Errors: MLX5MK_COMMAND where the device has no such command, or refuses.
int32_t mlx5mk_sync_crypto(const struct mlx5mk_device *device,
                           struct mlx5mk_error *error);

// Destroys the key, or gives it back if a cache has lent it. The caller ensures that no request uses the key
// any more. NULL is ignored.
//
// The device may give the number of a destroyed key to the next key. An mkey whose configuration still names
// the number then encrypts and decrypts with the other key, without any error. Before this call, configure
// such mkeys anew.
void mlx5mk_dek_destroy(struct mlx5mk_dek *dek);

// Creates a cache without keys.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_dek_cache_create(const struct mlx5mk_pd *pd,
                                struct mlx5mk_dek_cache **cache,
                                struct mlx5mk_error *error);

// Lends the key of an identity. The identity consists of `bytes` bytes, which may have any values. If the
// cache lacks the key, the function loads the key that `spec` describes. If `spec` is NULL, it loads no key
// and fails. Give the handle back by mlx5mk_dek_destroy, after the last mkey has stopped using the key.
//
// Errors: MLX5MK_ARGUMENT, also where the cache lacks the key and `spec` is NULL; those of
// mlx5mk_dek_create. After an error the cache is as before.
int32_t mlx5mk_dek_cache_lease(struct mlx5mk_dek_cache *cache,
                               const void *identity,
                               size_t bytes,
                               const struct mlx5mk_key_spec *spec,
                               struct mlx5mk_dek **dek,
                               struct mlx5mk_error *error);

// Destroys the key of an identity at once, even if it is lent. Returns 1, or 0 where the cache has no such
// key. Do not use handles of the destroyed key any more, except to destroy them. The device may give the
// number of the destroyed key to the next key. So before you load another key, configure anew the mkeys that
// use the destroyed key, or invalidate them.
//
// Errors: MLX5MK_SYSTEM where the device refuses. After this error the key still exists.
int32_t mlx5mk_dek_cache_erase(struct mlx5mk_dek_cache *cache,
                               const void *identity,
                               size_t bytes,
                               struct mlx5mk_error *error);

// Destroys the keys that are not lent, and returns their number.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_dek_cache_remove_unused(struct mlx5mk_dek_cache *cache, struct mlx5mk_error *error);

// Destroys the cache and its keys. The caller ensures that no request uses the keys any more. NULL is
// ignored.
void mlx5mk_dek_cache_destroy(struct mlx5mk_dek_cache *cache);

// Creates a completion queue of `entries` entries, a power of two. `flags` is MLX5MK_CQ_LONG_ENTRIES or 0.
//
// Queue pairs and mkeys set entries aside, so that the queue cannot overrun. A queue pair sets aside one
// entry for each request that may be outstanding (`max_requests`, or `send_blocks`) and one for each receive
// request (`receive_slots`). An mkey with signatures sets aside one entry, for a signature error.
// mlx5mk_cq_entries computes the sum.
//
// Errors: MLX5MK_ARGUMENT for a number that is no power of two, MLX5MK_SYSTEM, MLX5MK_COMMAND.
int32_t mlx5mk_cq_create(const struct mlx5mk_device *device,
                         uint32_t entries,
                         uint32_t flags,
                         struct mlx5mk_cq **cq,
                         struct mlx5mk_error *error);

// Takes over an idle completion queue of the program: `ibv_cq` is a `struct ibv_cq` of libmlx5, in the
// device's context, with entries of 64 or 128 bytes that are not compressed. The caller ensures: the program
// does not destroy or resize the queue as long as the handle exists, and from this call on it never polls or
// arms the queue through libibverbs, even after the handle is destroyed.
//
// Errors: MLX5MK_ADOPT for a queue that the library cannot use or that is not empty, MLX5MK_SYSTEM.
int32_t mlx5mk_cq_adopt(const struct mlx5mk_device *device,
                        void *ibv_cq,
                        struct mlx5mk_cq **cq,
                        struct mlx5mk_error *error);

// Takes up to `max` completions into `completions`, oldest first, and returns their number. The function
// does not wait.
//
// For an mkey with signatures, take the completion of the request that moves the data, then call
// mlx5mk_mkey_check: a signature error arrives before that completion.
//
// Errors: MLX5MK_ARGUMENT. A malformed entry is returned as a completion, MLX5MK_BAD_ENTRY. In this case
// `error` describes the last malformed entry, although the call returns a count.
int32_t mlx5mk_cq_poll(struct mlx5mk_cq *cq,
                       struct mlx5mk_completion *completions,
                       uint32_t max,
                       struct mlx5mk_error *error);

// Ends the state in which mlx5mk_mkey_check reports lost errors for each mkey of the device. Signature
// errors are lost if too many of them arrive for mkeys of pools that belong to other completion queues.
// Before you call this function, treat all data that moved until now as wrong: for example, move them again.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_cq_forget_lost_errors(struct mlx5mk_cq *cq,
                                     struct mlx5mk_error *error);

// As mlx5mk_cq_poll. Also writes the time stamp of each completion's entry to `timestamps`, which has room
// for `max` numbers. The property `timestamps` of a queue pair (mlx5mk_qp_spec) decides their format.
// mlx5mk_clock_nanoseconds converts ticks of the free-running clock, mlx5mk_real_time_nanoseconds converts
// time stamps in real time.
//
// Errors: as mlx5mk_cq_poll.
int32_t mlx5mk_cq_poll_stamped(struct mlx5mk_cq *cq,
                               struct mlx5mk_completion *completions,
                               uint64_t *timestamps,
                               uint32_t max,
                               struct mlx5mk_error *error);

// As mlx5mk_cq_poll, but if there is no completion, sleeps until one arrives: up to `milliseconds`, or
// without limit if `milliseconds` is negative. Returns 0 when the time is over. With 0 milliseconds the
// function does not sleep: if there is no completion, it arms the queue, and the descriptor of mlx5mk_cq_fd
// becomes readable with the next completion.
//
// Errors: as mlx5mk_cq_poll; MLX5MK_SYSTEM; MLX5MK_ADOPT for a queue that was adopted: its events arrive at
// the channel with which the program has created it.
int32_t mlx5mk_cq_wait(struct mlx5mk_cq *cq,
                       struct mlx5mk_completion *completions,
                       uint32_t max,
                       int32_t milliseconds,
                       struct mlx5mk_error *error);

// Returns a file descriptor for poll or epoll, which becomes readable when an armed queue has completions.
// To arm the queue, call mlx5mk_cq_wait with 0 milliseconds until it returns 0, so that no completion is
// left. Then wait for the descriptor. The descriptor belongs to the queue: do not read from it or close it.
//
// Errors: as mlx5mk_cq_wait.
int32_t mlx5mk_cq_fd(struct mlx5mk_cq *cq,
                     struct mlx5mk_error *error);

// Writes a description of a completion to `words`. See mlx5mk_device_describe for `words`, `size` and the
// returned value.
size_t mlx5mk_completion_words(const struct mlx5mk_completion *completion,
                               char *words,
                               size_t size);

// Destroys the completion queue. NULL is ignored.
//
// Errors: MLX5MK_IN_USE while queue pairs complete to it, or pools or stores report signature errors to it.
// After this error the completion queue still exists, and its handle is valid.
int32_t mlx5mk_cq_destroy(struct mlx5mk_cq *cq,
                          struct mlx5mk_error *error);

// Writes the current value of the device's clock, in ticks, to `ticks`. The function makes no system call:
// the kernel has mapped the clock's register into the process.
//
// Errors: MLX5MK_COMMAND where the kernel has not mapped the clock, MLX5MK_SYSTEM.
int32_t mlx5mk_device_ticks(const struct mlx5mk_device *device,
                            uint64_t *ticks,
                            struct mlx5mk_error *error);

// Writes the kernel's data for converting ticks into nanoseconds (`mlx5dv_get_clock_info`). The device's
// clock and the kernel's clock drift apart, so a conversion with old data is inexact: call this function
// about once a second.
//
// Errors: MLX5MK_SYSTEM where the kernel has no such data.
int32_t mlx5mk_device_clock(const struct mlx5mk_device *device,
                            struct mlx5mk_clock *clock,
                            struct mlx5mk_error *error);

// Converts a time stamp in ticks of the free-running clock into nanoseconds (`mlx5dv_ts_to_ns`). Returns 0
// if `clock` is NULL.
uint64_t mlx5mk_clock_nanoseconds(const struct mlx5mk_clock *clock,
                                  uint64_t timestamp);

// Converts a time stamp of a queue pair with MLX5MK_TIMESTAMPS_REAL_TIME into nanoseconds since the epoch of
// the device's clock.
uint64_t mlx5mk_real_time_nanoseconds(uint64_t timestamp);

// Returns the largest size of a configuration (mlx5mk_post_configure) of an mkey of a pool: `entries` is the
// largest number of entries of its layout, plus one for an interleaved layout, or 0 if the mkey keeps its
// layout. `domains` is the largest number of domains with a signature, 0 to 2; for a digest 1;
// MLX5MK_NO_SIGNATURES for a pool without signatures. If `pool` is NULL, all numbers of the size are 0.
struct mlx5mk_size mlx5mk_configure_size(const struct mlx5mk_pool_spec *pool,
                                         uint32_t entries,
                                         uint32_t domains);

// Returns the size of a request that moves data (mlx5mk_post), of an invalidation (MLX5MK_OP_INVALIDATE), or
// of the binding of a memory window (MLX5MK_OP_BIND). Only `operation`, `sge_count`, `inline_data` and
// `inline_bytes` of the request matter, and the function does not follow pointers. If `request` is NULL or
// has another operation, all numbers of the size are 0.
struct mlx5mk_size mlx5mk_request_size(const struct mlx5mk_request *request);

// Returns the number of entries of a completion queue for `queue_pairs` queue pairs, each with up to `sends`
// outstanding send work requests and `receives` receive requests, and for `mkeys` mkeys with signatures. The
// result is a power of two.
uint32_t mlx5mk_cq_entries(uint32_t queue_pairs,
                           uint32_t sends,
                           uint32_t receives,
                           uint32_t mkeys);

// Creates a queue pair in the state INIT. Its completions arrive at `send_cq` and `receive_cq`, which may be
// the same. NULL as `spec` stands for the defaults. Next, connect the queue pair; receive requests may be
// posted before that.
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_CQ_TOO_SMALL, MLX5MK_SYSTEM, MLX5MK_COMMAND (also where the device does
// not support a flag or the time stamps of `spec`).
int32_t mlx5mk_qp_create(const struct mlx5mk_pd *pd,
                         struct mlx5mk_cq *send_cq,
                         struct mlx5mk_cq *receive_cq,
                         const struct mlx5mk_qp_spec *spec,
                         struct mlx5mk_qp **qp,
                         struct mlx5mk_error *error);

// Takes over an idle queue pair that the program has created and connected, for example through librdmacm:
// `ibv_qp` is a `struct ibv_qp` of libmlx5. `pd`, `send_cq` and `receive_cq` are the handles of its
// protection domain and its completion queues, which the program has adopted before.
//
// The function reads only two fields of `spec`: `max_requests`, to which the caller sets the `max_send_wr`
// of the queue pair, and `flags`, which is MLX5MK_QP_SIGNAL_ALL if the queue pair was created with
// `sq_sig_all`, otherwise 0. NULL stands for the defaults.
//
// The caller ensures:
//
// - All requests posted to the queue pair have completed, and their completions were taken before its
//   completion queues were adopted.
// - The program does not destroy the queue pair as long as the handle exists.
// - From this call on, the program never posts to the queue pair through libibverbs, even after the handle
//   is destroyed.
// - While this library posts to the queue pair, libmlx5 posts to no other queue pair of the context with the
//   same doorbell register. The reason: libmlx5 writes whole requests to the register, and a doorbell of
//   this library must not come between those writes. With MLX5_SHUT_UP_BF=1, set before the context was
//   opened, libmlx5 writes only doorbells, and may post.
//
// By default libmlx5 creates queue pairs that receive short messages into completion entries, and this
// function refuses them. To avoid that, set MLX5_SCATTER_TO_CQE=0 in the environment before the queue pair
// is created, or create it with MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE.
//
// Errors: MLX5MK_ADOPT for a queue pair that the library cannot use or that still has outstanding requests,
// MLX5MK_ARGUMENT, MLX5MK_CQ_TOO_SMALL, MLX5MK_SYSTEM, MLX5MK_COMMAND.
int32_t mlx5mk_qp_adopt(const struct mlx5mk_pd *pd,
                        struct mlx5mk_cq *send_cq,
                        struct mlx5mk_cq *receive_cq,
                        void *ibv_qp,
                        const struct mlx5mk_qp_spec *spec,
                        struct mlx5mk_qp **qp,
                        struct mlx5mk_error *error);

// Returns the number of the queue pair, below 2^24; 0 for NULL.
uint32_t mlx5mk_qp_number(const struct mlx5mk_qp *qp);

// Returns 1 if the queue pair has a BlueFlame register, otherwise 0, also for NULL. MLX5MK_QP_BLUE_FLAME
// asks for such a register; devices and kernels without one give a plain doorbell.
uint32_t mlx5mk_qp_has_blue_flame(const struct mlx5mk_qp *qp);

// Connects the queue pair to a queue pair of the same device, or to itself. `peer` is the number of that
// queue pair. The packets do not leave the device.
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_COMMAND.
int32_t mlx5mk_qp_connect_local(const struct mlx5mk_qp *qp,
                                uint32_t peer,
                                struct mlx5mk_error *error);

// Writes the address that the peer needs to connect. NULL as `spec` stands for the defaults.
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM where the port or the entry of its GID table does not exist.
int32_t mlx5mk_qp_address(const struct mlx5mk_qp *qp,
                          const struct mlx5mk_connect_spec *spec,
                          struct mlx5mk_address *address,
                          struct mlx5mk_error *error);

// Connects to a peer by the peer's address. Pass the same `spec` as to mlx5mk_qp_address. Post send requests
// only after the peer has connected as well. The two programs have to tell each other that they have
// connected, for example over TCP.
//
// Errors: MLX5MK_ARGUMENT for bytes that are no address, MLX5MK_SYSTEM where the kernel finds no route to
// the peer's GID, MLX5MK_COMMAND where the device refuses. After MLX5MK_COMMAND, call mlx5mk_qp_reset: it
// takes the queue pair back to INIT.
int32_t mlx5mk_qp_connect(const struct mlx5mk_qp *qp,
                          const struct mlx5mk_address *peer,
                          const struct mlx5mk_connect_spec *spec,
                          struct mlx5mk_error *error);

// Asks the device for the state and the counters of a queue pair.
//
// Errors: MLX5MK_COMMAND, MLX5MK_ARGUMENT.
int32_t mlx5mk_qp_query(const struct mlx5mk_qp *qp,
                        struct mlx5mk_qp_info *info,
                        struct mlx5mk_error *error);

// Turns every send request named `id` that was not executed into a NOP, and returns the number of these
// requests (`mlx5dv_qp_cancel_posted_send_wrs`). The send queue must be drained (MLX5MK_QP_SQ_DRAINED).
// After the call, continue the queue with mlx5mk_qp_resume. The NOP has a completion if the request would
// have had one. A configuration counts as several requests if it consists of several work requests. If a
// configuration was cancelled, call mlx5mk_mkey_forget for its mkey. If an invalidation was cancelled, pools
// accept no completion for the invalidations posted before this call: post them again.
//
// Errors: MLX5MK_ARGUMENT for a queue that is not drained, MLX5MK_COMMAND, MLX5MK_REQUEST where the device
// reports a next block (`next_send_block`) at which no request begins.
int32_t mlx5mk_qp_cancel(struct mlx5mk_qp *qp,
                         uint64_t id,
                         struct mlx5mk_error *error);

// Resumes a drained send queue. Linux allows this only for queue pairs that libibverbs created
// (mlx5mk_qp_adopt). On Linux, mlx5mk_qp_create therefore refuses MLX5MK_QP_DRAIN_ON_SIGNATURE_ERROR.
// Cancelled requests count as executed.
//
// Errors: MLX5MK_COMMAND, MLX5MK_SYSTEM, also for a queue that is not drained. After an error the queue is
// as before.
int32_t mlx5mk_qp_resume(const struct mlx5mk_qp *qp,
                         struct mlx5mk_error *error);

// Puts the queue pair into the error state: the device flushes all outstanding requests, which complete as
// MLX5MK_FAILED.
//
// Errors: MLX5MK_COMMAND.
int32_t mlx5mk_qp_fail(const struct mlx5mk_qp *qp,
                       struct mlx5mk_error *error);

// Takes a queue pair from any state back to INIT, with empty queues, so that it can be connected anew. Use
// this after a request has failed, for example.
//
// Writes the names of the outstanding requests to `outstanding`; NULL drops them. The device may have
// executed some of these requests. There are at most `send_blocks` send requests and `receive_slots` receive
// requests. If one of them is a configuration, the state of its mkey is unknown: call mlx5mk_mkey_forget.
// Signature errors stay in the completion queue: poll it, and check each mkey, before you configure mkeys
// anew.
//
// Errors: MLX5MK_ARGUMENT: nothing has changed. MLX5MK_COMMAND, MLX5MK_SYSTEM: call the function again; the
// names of the outstanding requests are not lost.
int32_t mlx5mk_qp_reset(struct mlx5mk_qp *qp,
                        struct mlx5mk_outstanding *outstanding,
                        struct mlx5mk_error *error);

// Destroys the queue pair, or gives it back if it was adopted. Its outstanding requests will have no
// completions. NULL is ignored.
void mlx5mk_qp_destroy(struct mlx5mk_qp *qp);

// Creates a channel for events.
//
// Errors: MLX5MK_SYSTEM.
int32_t mlx5mk_events_create(const struct mlx5mk_device *device,
                             struct mlx5mk_events **events,
                             struct mlx5mk_error *error);

// Subscribes a channel to events of a queue pair, to the `count` kinds at `kinds`. If `count` is 0,
// subscribes to all kinds that report the error state. Each event carries `cookie`.
//
// Errors: MLX5MK_ARGUMENT; MLX5MK_SYSTEM with EINVAL for a kind that the device does not report;
// MLX5MK_ADOPT for a queue pair that was adopted.
int32_t mlx5mk_qp_notify(const struct mlx5mk_qp *qp,
                         const struct mlx5mk_events *events,
                         const uint32_t *kinds,
                         uint32_t count,
                         uint64_t cookie,
                         struct mlx5mk_error *error);

// Subscribes a channel to the failure of a completion queue (MLX5MK_EVENT_CQ_ERROR).
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM, MLX5MK_ADOPT for a queue that was adopted.
int32_t mlx5mk_cq_notify_error(const struct mlx5mk_cq *cq,
                               const struct mlx5mk_events *events,
                               uint64_t cookie,
                               struct mlx5mk_error *error);

// Takes the next event and returns 1. Waits up to `milliseconds`, or without limit if `milliseconds` is
// negative. Returns 0 when the time is over.
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM.
int32_t mlx5mk_events_wait(const struct mlx5mk_events *events,
                           struct mlx5mk_event *event,
                           int32_t milliseconds,
                           struct mlx5mk_error *error);

// Returns a file descriptor for poll or epoll, which is readable while there are events. The descriptor
// belongs to the channel: do not read from it or close it.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_events_fd(const struct mlx5mk_events *events,
                         struct mlx5mk_error *error);

// Destroys the channel. The caller ensures that no thread waits on it any more. NULL is ignored.
void mlx5mk_events_destroy(struct mlx5mk_events *events);

// Creates a pair of PSVs.
//
// Errors: MLX5MK_COMMAND, MLX5MK_SYSTEM.
int32_t mlx5mk_psvs_create(const struct mlx5mk_pd *pd,
                           struct mlx5mk_psvs **psvs,
                           struct mlx5mk_error *error);

// Returns the number of the PSV of a domain, MLX5MK_MEMORY or MLX5MK_WIRE. The field `psv` of a digest over
// several mkeys takes this number. It is below 2^24.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_psvs_index(const struct mlx5mk_psvs *psvs,
                          uint32_t domain,
                          struct mlx5mk_error *error);

// Destroys the handle. The PSVs stay on the device until the pools that share them are destroyed. NULL is
// ignored.
void mlx5mk_psvs_destroy(struct mlx5mk_psvs *psvs);

// Creates a pool of mkeys, none of them in use. With `cq` the mkeys have block signatures: signature errors
// arrive at `cq`, and each mkey sets aside one entry of `cq`. `cq` must be a completion queue of the queue
// pairs that use the mkeys. If a queue pair has two completion queues, errors in sent data arrive at the one
// of the send queue, errors in received data at the other. At a queue other than `cq`, polling returns such
// an error as MLX5MK_BAD_ENTRY, but mlx5mk_mkey_check still finds it. With NULL as `cq` the mkeys have no
// signatures.
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_CQ_TOO_SMALL, MLX5MK_SYSTEM, MLX5MK_COMMAND where the device lacks a
// property of `spec`, or refuses. After an error no mkey is left on the device.
int32_t mlx5mk_pool_create(const struct mlx5mk_pd *pd,
                           struct mlx5mk_cq *cq,
                           const struct mlx5mk_pool_spec *spec,
                           struct mlx5mk_pool **pool,
                           struct mlx5mk_error *error);

// Takes a free mkey from the pool, to be configured, and writes its name to `mkey`. With
// MLX5MK_POOL_UPDATE_TAG its key has another tag than in its last use. Signature errors of an earlier use
// are cleared.
//
// Errors: MLX5MK_FULL while all mkeys are in use.
int32_t mlx5mk_pool_take(struct mlx5mk_pool *pool,
                         struct mlx5mk_mkey *mkey,
                         struct mlx5mk_error *error);

// Takes the key of an mkey in use out of service. This is needed only if a peer may know the key. The
// function posts a request (IBV_WR_LOCAL_INV) with the name `id` and with `flags`. Use MLX5MK_FENCED if
// earlier requests still use the key. The mkey stays in use until mlx5mk_pool_put gets a completion of this
// request, which has one if `flags` contains MLX5MK_SIGNALED, or of a later request on the same queue pair.
// The names of the two requests do not matter. If the request fails, or its queue pair is reset before it
// completes, the key may still be in service: call this function again, with any queue pair.
//
// Errors: MLX5MK_ARGUMENT for an mkey that is not in use in this pool, MLX5MK_FULL. After an error nothing
// is posted.
int32_t mlx5mk_post_invalidate(struct mlx5mk_qp *qp,
                               uint64_t id,
                               uint32_t flags,
                               struct mlx5mk_pool *pool,
                               struct mlx5mk_mkey mkey,
                               struct mlx5mk_error *error);

// Puts an mkey back. `completion` proves that the mkey's key is out of service. It is the success of the
// request of mlx5mk_post_invalidate or of a later request on the same queue pair, or the receipt of a
// message with which the peer has invalidated the key (MLX5MK_OP_SEND_INVALIDATE). Pass NULL for an mkey
// whose key no peer can use: an mkey that was not configured, or whose configurations gave no remote rights.
//
// Errors: MLX5MK_IN_SERVICE where the completion is no such proof, for example because the request has
// failed, and with NULL for an mkey that is being invalidated; MLX5MK_ARGUMENT for an mkey that is not in
// use. After an error the mkey is as before.
int32_t mlx5mk_pool_put(struct mlx5mk_pool *pool,
                        struct mlx5mk_mkey mkey,
                        const struct mlx5mk_completion *completion,
                        struct mlx5mk_error *error);

// Destroys the pool and its mkeys. The caller ensures that no request uses the mkeys any more. NULL is
// ignored.
void mlx5mk_pool_destroy(struct mlx5mk_pool *pool);

// Writes the key of an mkey in use. The key is both local and remote.
//
// Errors: MLX5MK_ARGUMENT for an mkey that is not in use.
int32_t mlx5mk_mkey_key(struct mlx5mk_pool *pool,
                        struct mlx5mk_mkey mkey,
                        uint32_t *key,
                        struct mlx5mk_error *error);

// Asks an mkey for the first signature error since the last call (mlx5dv_mkey_check). Call it after you have
// taken the completion of the request that moves the data, or the peer's message that the data have arrived.
// The function also finds errors that arrived at other completion queues of the device. Returns 0 if all
// signatures were right. Otherwise returns MLX5MK_SIGNATURE, and describes the error in words in `error` and
// in numbers in `bad`; either may be NULL.
//
// Errors: MLX5MK_SIGNATURE also for an mkey without signatures, and for a reported error that does not fit
// the mkey's configuration. In these cases `bad` is not written; MLX5MK_ARGUMENT for an mkey that is not in
// use in this pool.
int32_t mlx5mk_mkey_check(struct mlx5mk_pool *pool,
                          struct mlx5mk_mkey mkey,
                          struct mlx5mk_bad_block *bad,
                          struct mlx5mk_error *error);

// Marks the state of an mkey on the device as unknown. Call this function when the queue pair failed or was
// reset, since the device may not have executed all posted configurations of the mkey. The next
// configuration has to be complete: access rights, a layout, and signature and crypto where the mkey can
// have them.
//
// Errors: MLX5MK_ARGUMENT for an mkey that is not in use in this pool.
int32_t mlx5mk_mkey_forget(struct mlx5mk_pool *pool,
                           struct mlx5mk_mkey mkey,
                           struct mlx5mk_error *error);

// Creates a store of `spec.count` mkeys. The arguments are those of mlx5mk_pool_create, without shared PSVs.
// A store with signatures, and its pools, belong to the group of `cq`. A store without signatures may be
// used by several threads at once.
//
// Errors: those of mlx5mk_pool_create.
int32_t mlx5mk_store_create(const struct mlx5mk_pd *pd,
                            struct mlx5mk_cq *cq,
                            const struct mlx5mk_pool_spec *spec,
                            struct mlx5mk_store **store,
                            struct mlx5mk_error *error);

// Creates a pool that takes mkeys from a store when it needs them, and gives back surplus mkeys. At most
// `most` mkeys of the pool, 1 to 65536, are in use at a time. Taking and putting back an mkey needs a lock
// only when the pool exchanges mkeys with the store, several at a time. An mkey that was put back
// (mlx5mk_pool_put) may next be taken by another thread.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_pool_of_store(const struct mlx5mk_store *store,
                             uint32_t most,
                             struct mlx5mk_pool **pool,
                             struct mlx5mk_error *error);

// Gives the store up. Its mkeys exist until its pools are destroyed. NULL is ignored.
void mlx5mk_store_destroy(struct mlx5mk_store *store);

// Checks and encodes a configuration for the mkeys of a pool, once for any number of requests. The
// configuration may outlive the pool.
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_CONFIG for properties that no mkey of the pool can hold.
int32_t mlx5mk_prepared_create(const struct mlx5mk_pool *pool,
                               const struct mlx5mk_config *config,
                               struct mlx5mk_prepared **prepared,
                               struct mlx5mk_error *error);

// Replaces the tweak of the first data unit, given as the low and the high half of a number of 128 bits.
//
// Errors: MLX5MK_CONFIG where the configuration sets no crypto properties.
int32_t mlx5mk_prepared_set_tweak(struct mlx5mk_prepared *prepared,
                                  uint64_t low,
                                  uint64_t high,
                                  struct mlx5mk_error *error);

// Replaces the tags of a domain's T10-DIF (MLX5MK_MEMORY or MLX5MK_WIRE): the application tag, and the
// reference tag of the first block.
//
// Errors: MLX5MK_CONFIG where the configuration sets no T10-DIF in this domain.
int32_t mlx5mk_prepared_set_tags(struct mlx5mk_prepared *prepared,
                                 uint32_t domain,
                                 uint16_t app_tag,
                                 uint32_t ref_tag,
                                 struct mlx5mk_error *error);

// Replaces two fields of the configuration's digest: `part`, the position of the mkey among the mkeys
// through which the data pass (MLX5MK_DIGEST_FIRST and others), and `psv`, the PSV of the transaction. Call
// this function before the configuration is posted for the next mkey.
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_CONFIG where the configuration sets no digest.
int32_t mlx5mk_prepared_set_digest(struct mlx5mk_prepared *prepared,
                                   uint32_t part,
                                   uint32_t psv,
                                   struct mlx5mk_error *error);

// Replaces the data encryption key, and the 8 bytes of the key's tag (NULL means zeros, for a key without a
// tag).
//
// Errors: MLX5MK_CONFIG where the configuration sets no crypto properties.
int32_t mlx5mk_prepared_set_dek(struct mlx5mk_prepared *prepared,
                                const struct mlx5mk_dek *dek,
                                const uint8_t *keytag,
                                struct mlx5mk_error *error);

// Makes the configuration also change the PCIe ordering of the mkey's transfers: the orderings that `which`
// selects (MLX5MK_ORDER_WRITES, MLX5MK_ORDER_READS or their sum) become relaxed if `relaxed` is 1, strict if
// it is 0. The device must have the capability `relaxed_ordering_umr`.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_prepared_set_ordering(struct mlx5mk_prepared *prepared,
                                     uint32_t which,
                                     uint32_t relaxed,
                                     struct mlx5mk_error *error);

// Makes the configuration also set whether the peer may invalidate the mkey's key: `allowed` is 1 for yes, 0
// for no.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_prepared_set_remote_invalidate(struct mlx5mk_prepared *prepared,
                                              uint32_t allowed,
                                              struct mlx5mk_error *error);

// Makes the configuration also set the address at which the mkey's space begins. Requests then name the
// first byte by this address. The mkey keeps this start until another configuration sets one.
//
// Errors: MLX5MK_CONFIG for mkeys with signatures or crypto.
int32_t mlx5mk_prepared_set_start(struct mlx5mk_prepared *prepared,
                                  uint64_t start,
                                  struct mlx5mk_error *error);

// Destroys the prepared configuration. Mkeys that were configured with it keep their properties. NULL is
// ignored.
void mlx5mk_prepared_destroy(struct mlx5mk_prepared *prepared);

// Posts a configuration of an mkey in use. `count` ranges of memory, one after the other, become the mkey's
// space, and the prepared properties become its properties. If `count` is 0, the mkey keeps its layout. The
// array is read during the call only.
//
// Requests that are posted later to the same queue pair may use the mkey. The device does not see the
// request before mlx5mk_doorbell.
//
// Errors: MLX5MK_CONFIG, MLX5MK_FULL, MLX5MK_ARGUMENT. After an error queue pair and mkey are as before.
int32_t mlx5mk_post_configure(struct mlx5mk_qp *qp,
                              uint64_t id,
                              uint32_t flags,
                              struct mlx5mk_pool *pool,
                              struct mlx5mk_mkey mkey,
                              const struct mlx5mk_prepared *prepared,
                              const struct mlx5mk_range *entries,
                              uint32_t count,
                              struct mlx5mk_error *error);

// As mlx5mk_post_configure, with an interleaved layout. The mkey's space consists of `cycles` cycles. Each
// cycle takes the next bytes of each of the `count` streams, in turn. The layout needs room for `count` + 1
// entries in the mkey.
//
// Errors: as mlx5mk_post_configure; MLX5MK_ARGUMENT where there are no streams.
int32_t mlx5mk_post_configure_interleaved(struct mlx5mk_qp *qp,
                                          uint64_t id,
                                          uint32_t flags,
                                          struct mlx5mk_pool *pool,
                                          struct mlx5mk_mkey mkey,
                                          const struct mlx5mk_prepared *prepared,
                                          uint32_t cycles,
                                          const struct mlx5mk_stream *streams,
                                          uint32_t count,
                                          struct mlx5mk_error *error);

// Posts a request that moves data. The device does not see the request before mlx5mk_doorbell.
//
// Errors: MLX5MK_REQUEST, MLX5MK_FULL, MLX5MK_ARGUMENT. After an error the queue pair is as before.
int32_t mlx5mk_post(struct mlx5mk_qp *qp,
                    const struct mlx5mk_request *request,
                    struct mlx5mk_error *error);

// Posts a work request that the program built. `wqe` leads to `bytes` bytes, which begin with a control
// segment. This segment gives the length of the request, which may be less than `bytes`. In the control
// segment, the library sets the index of the WQE and the number of the queue pair, and adds `flags` to the
// flags that the program has set. The device does not see the request before mlx5mk_doorbell. The library
// does not know how the request changes mkeys, so the request must not change an mkey of a pool.
//
// Errors: MLX5MK_REQUEST, MLX5MK_FULL, MLX5MK_ARGUMENT. After an error the queue pair is as before.
int32_t mlx5mk_post_raw(struct mlx5mk_qp *qp,
                        uint64_t id,
                        uint32_t flags,
                        const void *wqe,
                        uint32_t bytes,
                        struct mlx5mk_error *error);

// Posts a request that gives the PSV of a transaction (data with a digest over several mkeys) its start
// value again. This is needed after a wrong digest. Call the function after the configurations of the next
// transaction and before the requests that move its data. `seed` is MLX5MK_SEED_ZEROS or MLX5MK_SEED_ONES.
// Digests of a single mkey do not need this. The device does not see the request before mlx5mk_doorbell.
//
// Errors: MLX5MK_FULL, MLX5MK_ARGUMENT. After an error the queue pair is as before.
int32_t mlx5mk_post_set_psv(struct mlx5mk_qp *qp,
                            uint64_t id,
                            uint32_t flags,
                            uint32_t psv,
                            uint32_t seed,
                            struct mlx5mk_error *error);

// Posts a receive request: `count` buffers for one message. The device does not see the request before
// mlx5mk_doorbell.
//
// Errors: MLX5MK_REQUEST, MLX5MK_FULL. After an error the queue pair is as before.
int32_t mlx5mk_post_receive(struct mlx5mk_qp *qp,
                            uint64_t id,
                            const struct mlx5mk_range *sges,
                            uint32_t count,
                            struct mlx5mk_error *error);

// Publishes all posted requests of the queue pair, with one doorbell. Does nothing if all posted requests
// are published, or if `qp` is NULL.
void mlx5mk_doorbell(struct mlx5mk_qp *qp);

// Creates an empty list, with memory for `capacity` entries, 1 to 65532.
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM.
int32_t mlx5mk_list_create(const struct mlx5mk_pd *pd,
                           uint32_t capacity,
                           struct mlx5mk_list **list,
                           struct mlx5mk_error *error);

// Replaces all entries of the list. Before this call, all requests that were posted with the list must have
// completed, because the device reads the list when it executes them.
//
// Errors: MLX5MK_CONFIG for more entries than the capacity, or an entry of 0 bytes or over 2^31;
// MLX5MK_ARGUMENT. After an error the list is as before.
int32_t mlx5mk_list_write(struct mlx5mk_list *list,
                          const struct mlx5mk_range *entries,
                          uint32_t count,
                          struct mlx5mk_error *error);

// As mlx5mk_list_write, with entries of `entry_size` bytes each, for mkeys of a pool or store whose
// `entry_size` is the same.
//
// Errors: MLX5MK_CONFIG for more entries than the capacity, MLX5MK_ARGUMENT. After an error the list is as
// before.
int32_t mlx5mk_list_write_equal(struct mlx5mk_list *list,
                                uint32_t entry_size,
                                const struct mlx5mk_place *entries,
                                uint32_t count,
                                struct mlx5mk_error *error);

// Destroys a list. The caller ensures that no request uses it any more. NULL is ignored.
void mlx5mk_list_destroy(struct mlx5mk_list *list);

// As mlx5mk_post_configure, with the entries of a list. The list may have at most as many entries as the
// field `max_entries` of the pool's properties allows. With an empty list, the mkey's space has 0 bytes. The
// function writes the signature and crypto properties into the list's memory, behind the entries. So do not
// write, post or destroy the list before the request has completed.
//
// Errors: as mlx5mk_post_configure.
int32_t mlx5mk_post_configure_list(struct mlx5mk_qp *qp,
                                   uint64_t id,
                                   uint32_t flags,
                                   struct mlx5mk_pool *pool,
                                   struct mlx5mk_mkey mkey,
                                   const struct mlx5mk_prepared *prepared,
                                   struct mlx5mk_list *list,
                                   struct mlx5mk_error *error);

// Replaces entries of the list layout of an mkey in use, beginning with the entry number `first`, a multiple
// of 4. The rest of the layout and its length stay, so the new entries must have as many bytes in total as
// the old ones. `count` is a multiple of 4, unless the new entries are the last of the layout. The array is
// read during the call only.
//
// Errors: MLX5MK_CONFIG, also for an mkey whose layout is not a list; MLX5MK_FULL, MLX5MK_ARGUMENT. After an
// error queue pair and mkey are as before.
int32_t mlx5mk_post_replace(struct mlx5mk_qp *qp,
                            uint64_t id,
                            uint32_t flags,
                            struct mlx5mk_pool *pool,
                            struct mlx5mk_mkey mkey,
                            uint32_t first,
                            const struct mlx5mk_range *entries,
                            uint32_t count,
                            struct mlx5mk_error *error);

// As mlx5mk_post_replace, with the entries of `list`, which may be more than a request can hold. Do not
// change the list until the request has completed.
//
// Errors: as mlx5mk_post_replace.
int32_t mlx5mk_post_replace_list(struct mlx5mk_qp *qp,
                                 uint64_t id,
                                 uint32_t flags,
                                 struct mlx5mk_pool *pool,
                                 struct mlx5mk_mkey mkey,
                                 uint32_t first,
                                 const struct mlx5mk_list *list,
                                 struct mlx5mk_error *error);

// Appends the entries of a list to the layout of an mkey in use. The length of the mkey's space grows by the
// length of the entries. The existing layout must come from a list as well (mlx5mk_post_configure_list), and
// have a multiple of 4 entries. The mkey must have neither signature nor crypto. Use this function to build
// layouts of more than 65532 entries in parts. Do not change the list until the request has completed.
//
// Errors: as mlx5mk_post_replace.
int32_t mlx5mk_post_append_list(struct mlx5mk_qp *qp,
                                uint64_t id,
                                uint32_t flags,
                                struct mlx5mk_pool *pool,
                                struct mlx5mk_mkey mkey,
                                const struct mlx5mk_list *list,
                                struct mlx5mk_error *error);

// Creates an mkey over `count` ranges, one after the other. Its space begins at the address `start` and is
// as long as all ranges together. Requests and the peer name the first byte by `start`. The mkey can be used
// at once, with the access rights `access`: MLX5MK_LOCAL_WRITE and others. The array is read during the call
// only. The caller ensures that the regions of the ranges belong to the protection domain `pd`, and keeps
// them registered as long as the mkey is used.
//
// Errors: MLX5MK_COMMAND where the device refuses, and for: no ranges, a range of 0 bytes or of more than
// 2^31, more ranges than the device takes (the message has the limit), more than 4,076 ranges (the limit of
// the kernel's interface), or a space that ends after 2^64; MLX5MK_ARGUMENT, MLX5MK_SYSTEM.
int32_t mlx5mk_list_mkey_create(const struct mlx5mk_pd *pd,
                                uint32_t access,
                                uint64_t start,
                                const struct mlx5mk_range *entries,
                                uint32_t count,
                                struct mlx5mk_list_mkey **mkey,
                                struct mlx5mk_error *error);

// As mlx5mk_list_mkey_create, with entries of equal length: each has `entry_size` bytes, a power of two from
// 4096 to 2^31. The device then finds the entry of an address without a search, however long the list is.
//
// Errors: as mlx5mk_list_mkey_create; MLX5MK_COMMAND also where the device does not support entries of one
// length.
int32_t mlx5mk_list_mkey_create_equal(const struct mlx5mk_pd *pd,
                                      uint32_t access,
                                      uint64_t start,
                                      uint32_t entry_size,
                                      const struct mlx5mk_place *entries,
                                      uint32_t count,
                                      struct mlx5mk_list_mkey **mkey,
                                      struct mlx5mk_error *error);

// Writes to `key` the mkey's key, which is both local and remote, and to `length` the length of the mkey's
// space in bytes. Either pointer may be NULL.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_list_mkey_key(const struct mlx5mk_list_mkey *mkey,
                             uint32_t *key,
                             uint64_t *length);

// Destroys an mkey. The caller ensures that no request uses it any more. NULL is ignored.
void mlx5mk_list_mkey_destroy(struct mlx5mk_list_mkey *mkey);

// Creates `count` windows, 1 to 65536, none of them in use.
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM, MLX5MK_COMMAND where the device has no memory windows, or refuses.
// After an error no window is left on the device.
int32_t mlx5mk_windows_create(const struct mlx5mk_pd *pd,
                              uint32_t count,
                              struct mlx5mk_windows **windows,
                              struct mlx5mk_error *error);

// Takes a free window, to be bound, and writes its name to `window`.
//
// Errors: MLX5MK_FULL while all windows are in use.
int32_t mlx5mk_windows_take(struct mlx5mk_windows *windows,
                            struct mlx5mk_window *window,
                            struct mlx5mk_error *error);

// Binds a window in use to a range of a registered region (IBV_WR_BIND_MW), and writes the new key to `key`.
// With this key, the peer of this queue pair has the access rights `access` until the window is revoked
// (mlx5mk_post_invalidate_window), even if the region itself gives no remote rights. The peer names the
// first byte of the range by the address `start`. `access` is a sum of MLX5MK_REMOTE_… constants. The region
// must belong to the windows' protection domain, and must have MLX5MK_LOCAL_WRITE if the peer gets the right
// to write. The device does not see the request before mlx5mk_doorbell.
//
// Errors: MLX5MK_CONFIG for a window that is bound, or a range of 0 bytes, of more than 2^31 bytes, or that
// ends after 2^64; MLX5MK_FULL, MLX5MK_ARGUMENT. After an error queue pair and window are as before.
int32_t mlx5mk_post_bind(struct mlx5mk_qp *qp,
                         uint64_t id,
                         uint32_t flags,
                         struct mlx5mk_windows *windows,
                         struct mlx5mk_window window,
                         const struct mlx5mk_range *range,
                         uint32_t access,
                         uint64_t start,
                         uint32_t *key,
                         struct mlx5mk_error *error);

// Revokes a bound window. The function posts a request (IBV_WR_LOCAL_INV) with the name `id` and with
// `flags` to `qp`, which must be the queue pair that bound the window. Use MLX5MK_FENCED if earlier requests
// still use the window's key.
//
// Put the window back (mlx5mk_windows_put) with a completion of this request, which has one if `flags`
// contains MLX5MK_SIGNALED, or of a later request on the same queue pair. The names of the two requests do
// not matter. If the request fails, or the queue pair is reset before it completes, the peer may still use
// the key: when the queue pair works again, call this function again. A window whose queue pair was
// destroyed stays in use until the windows are destroyed.
//
// Errors: MLX5MK_CONFIG for a window that is not bound, or that another queue pair has bound;
// MLX5MK_ARGUMENT for a window of another set, or one that was put back; MLX5MK_FULL. After an error nothing
// is posted.
int32_t mlx5mk_post_invalidate_window(struct mlx5mk_qp *qp,
                                      uint64_t id,
                                      uint32_t flags,
                                      struct mlx5mk_windows *windows,
                                      struct mlx5mk_window window,
                                      struct mlx5mk_error *error);

// Puts a window back. `completion` proves that the window is no longer bound. It is the success of the
// request of mlx5mk_post_invalidate_window or of a later request on the same queue pair, or the receipt of a
// message with which the peer has invalidated the key (MLX5MK_OP_SEND_INVALIDATE). Pass NULL for a window
// that was not bound.
//
// Errors: MLX5MK_IN_SERVICE where the completion is no such proof, for example because the request has
// failed, and with NULL for a bound window; MLX5MK_ARGUMENT for a window that is not in use. After an error
// the window is as before.
int32_t mlx5mk_windows_put(struct mlx5mk_windows *windows,
                           struct mlx5mk_window window,
                           const struct mlx5mk_completion *completion,
                           struct mlx5mk_error *error);

// Destroys the windows. The caller ensures that no request uses them any more. NULL is ignored.
void mlx5mk_windows_destroy(struct mlx5mk_windows *windows);

// Writes to `crc` the CRC32C of data that consist of a first part and `count` blocks of `block_bytes` bytes
// each. `blocks` are the CRCs of the blocks, as MLX5MK_CRC32C writes them (little endian in memory). `seed`
// is the start value of all these CRCs, MLX5MK_SEED_ZEROS or MLX5MK_SEED_ONES. `first` is the CRC of the
// first part. If there is no first part, `first` is the CRC of no data: 0 with MLX5MK_SEED_ONES, UINT32_MAX
// with MLX5MK_SEED_ZEROS. The function needs only the CRCs, not the data. For each block, the function
// multiplies two polynomials of 32 bits.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_crc32c_combine(uint32_t first,
                              const uint32_t *blocks,
                              uint32_t count,
                              uint64_t block_bytes,
                              uint32_t seed,
                              uint32_t *crc,
                              struct mlx5mk_error *error);

// As mlx5mk_crc32c_combine, for CRCs as MLX5MK_CRC64_XP10 writes them (CRC-64/NVME, little endian in
// memory). With MLX5MK_SEED_ZEROS, the CRC of no data is UINT64_MAX.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_crc64_combine(uint64_t first,
                             const uint64_t *blocks,
                             uint32_t count,
                             uint64_t block_bytes,
                             uint32_t seed,
                             uint64_t *crc,
                             struct mlx5mk_error *error);

// Registers `length` bytes at `address` as a umem (`mlx5dv_devx_umem_reg_ex`). Commands that create queues
// name the umem as the memory of rings and doorbell records. `access` states what the device may do with the
// memory: for a completion queue MLX5MK_LOCAL_WRITE, since the device writes the entries. `page_sizes` is
// the sum of the accepted page sizes in bytes, or 0 for all. The caller keeps the memory mapped until
// mlx5mk_umem_deregister has returned 0.
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_LIBRARY where rdma-core is older than version 35, MLX5MK_SYSTEM where the
// memory is not mapped with these rights (EFAULT) or has none of the page sizes (EINVAL).
int32_t mlx5mk_umem_register(const struct mlx5mk_device *device,
                             void *address,
                             size_t length,
                             uint32_t access,
                             uint64_t page_sizes,
                             struct mlx5mk_umem **umem,
                             struct mlx5mk_error *error);

// As mlx5mk_umem_register, for `length` bytes of the dma-buf `fd`, from `offset` on. The program may close
// `fd` after the call. Offsets in commands count from the first registered byte.
//
// Errors: as mlx5mk_umem_register.
int32_t mlx5mk_umem_register_dmabuf(const struct mlx5mk_device *device,
                                    int32_t fd,
                                    size_t offset,
                                    size_t length,
                                    uint32_t access,
                                    uint64_t page_sizes,
                                    struct mlx5mk_umem **umem,
                                    struct mlx5mk_error *error);

// Returns the number by which commands name the memory; 0 for NULL.
uint32_t mlx5mk_umem_number(const struct mlx5mk_umem *umem);

// Ends the registration. Before this call, destroy the objects that use the memory. The handle is destroyed
// even after an error. NULL is ignored.
//
// Errors: MLX5MK_SYSTEM. After this error the device may still access the memory, so the memory must stay
// mapped.
int32_t mlx5mk_umem_deregister(struct mlx5mk_umem *umem,
                               struct mlx5mk_error *error);

// Allocates a page of doorbell registers (`mlx5dv_devx_alloc_uar`), for queues that commands create.
//
// Errors: MLX5MK_SYSTEM.
int32_t mlx5mk_uar_alloc(const struct mlx5mk_device *device,
                         struct mlx5mk_uar **uar,
                         struct mlx5mk_error *error);

// Writes to `number` the number by which commands name the UAR page.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_uar_number(const struct mlx5mk_uar *uar,
                          uint32_t *number,
                          struct mlx5mk_error *error);

// Returns the address of the UAR page, which is mapped as long as the handle exists; NULL where the page is
// not mapped.
void *mlx5mk_uar_address(const struct mlx5mk_uar *uar);

// Frees the UAR page. Before this call, destroy the objects that use it. NULL is ignored.
void mlx5mk_uar_free(struct mlx5mk_uar *uar);

// Writes to `number` the number of the event queue that the kernel has for a completion vector
// (`mlx5dv_devx_query_eqn`). Commands that create completion queues need this number. Vector 0 always
// exists.
//
// Errors: MLX5MK_SYSTEM.
int32_t mlx5mk_device_event_queue(const struct mlx5mk_device *device,
                                  uint32_t vector,
                                  uint32_t *number,
                                  struct mlx5mk_error *error);

// Sends the device a command that creates an object (`mlx5dv_devx_obj_create`). `request` and `reply` are
// the structures that the PRM defines for the command. The caller keeps memory that the command gives to the
// device valid until mlx5mk_object_destroy has returned 0. Linux passes a command on only if it knows how to
// destroy the object. `reply` is written even after an error.
//
// Errors: MLX5MK_COMMAND where the device refuses, MLX5MK_SYSTEM where the kernel does not let the command
// through (EINVAL), MLX5MK_ARGUMENT.
int32_t mlx5mk_object_create(const struct mlx5mk_device *device,
                             const void *request,
                             uint32_t request_bytes,
                             void *reply,
                             uint32_t reply_bytes,
                             struct mlx5mk_object **object,
                             struct mlx5mk_error *error);

// Sends the device a query of the object (`mlx5dv_devx_obj_query`). `reply` is written even after an error.
//
// Errors: as mlx5mk_object_create.
int32_t mlx5mk_object_query(const struct mlx5mk_object *object,
                            const void *request,
                            uint32_t request_bytes,
                            void *reply,
                            uint32_t reply_bytes,
                            struct mlx5mk_error *error);

// Sends the device a command that changes the object (`mlx5dv_devx_obj_modify`). `reply` is written even
// after an error.
//
// Errors: as mlx5mk_object_create.
int32_t mlx5mk_object_modify(const struct mlx5mk_object *object,
                             const void *request,
                             uint32_t request_bytes,
                             void *reply,
                             uint32_t reply_bytes,
                             struct mlx5mk_error *error);

// Destroys the object on the device. The handle is destroyed even after an error. NULL is ignored.
//
// Errors: MLX5MK_SYSTEM. After this error the object still exists on the device, so its memory must stay
// valid.
int32_t mlx5mk_object_destroy(struct mlx5mk_object *object,
                              struct mlx5mk_error *error);

// Creates a channel for the answers to queries for which the program does not wait
// (`mlx5dv_devx_create_cmd_comp`).
//
// Errors: MLX5MK_SYSTEM.
int32_t mlx5mk_queries_create(const struct mlx5mk_device *device,
                              struct mlx5mk_queries **queries,
                              struct mlx5mk_error *error);

// Sends the device a query of a queue pair, and does not wait. The answer arrives at the channel `queries`,
// with this `id`.
//
// Errors: MLX5MK_SYSTEM, with EAGAIN while the channel is full (1 MiB of answers); MLX5MK_ADOPT for a queue
// pair that was adopted.
int32_t mlx5mk_qp_query_later(const struct mlx5mk_qp *qp,
                              const struct mlx5mk_queries *queries,
                              uint64_t id,
                              struct mlx5mk_error *error);

// Sends the device a query of a data encryption key, and does not wait. The answer arrives at the channel
// `queries`, with this `id`.
//
// Errors: MLX5MK_SYSTEM, with EAGAIN while the channel is full (1 MiB of answers); MLX5MK_ARGUMENT for a key
// that a cache has lent.
int32_t mlx5mk_dek_query_later(const struct mlx5mk_dek *dek,
                               const struct mlx5mk_queries *queries,
                               uint64_t id,
                               struct mlx5mk_error *error);

// Sends the device a query of an object, and does not wait. The answer of `reply_bytes` bytes arrives at the
// channel `queries`, with this `id`.
//
// Errors: MLX5MK_SYSTEM, with EAGAIN while the channel is full (1 MiB of answers); MLX5MK_ARGUMENT.
int32_t mlx5mk_object_query_later(const struct mlx5mk_object *object,
                                  const struct mlx5mk_queries *queries,
                                  const void *request,
                                  uint32_t request_bytes,
                                  uint32_t reply_bytes,
                                  uint64_t id,
                                  struct mlx5mk_error *error);

// Takes the next answer from the channel and returns 1. Waits up to `milliseconds`, or without limit if
// `milliseconds` is negative. Returns 0 when the time is over. Before the call, the caller sets the fields
// `reply` and `room` of `answer`.
//
// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM.
int32_t mlx5mk_queries_next(const struct mlx5mk_queries *queries,
                            struct mlx5mk_answer *answer,
                            int32_t milliseconds,
                            struct mlx5mk_error *error);

// Returns a file descriptor for poll or epoll, which is readable while there are answers. The descriptor
// belongs to the channel: do not read from it or close it.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_queries_fd(const struct mlx5mk_queries *queries,
                          struct mlx5mk_error *error);

// Destroys the channel. Answers that were not taken are lost. NULL is ignored.
void mlx5mk_queries_destroy(struct mlx5mk_queries *queries);

// Decodes the answer to mlx5mk_qp_query_later.
//
// Errors: MLX5MK_COMMAND where the device has refused the query, MLX5MK_ARGUMENT.
int32_t mlx5mk_answer_qp(const struct mlx5mk_answer *answer,
                         struct mlx5mk_qp_info *info,
                         struct mlx5mk_error *error);

// Decodes the answer to mlx5mk_dek_query_later, and returns the key's state, MLX5MK_DEK_READY or
// MLX5MK_DEK_ERROR. Writes to `opaque` the 8 bytes that the program gave as `opaque` when it loaded the key.
//
// Errors: MLX5MK_COMMAND where the device has refused the query, MLX5MK_ARGUMENT.
int32_t mlx5mk_answer_dek(const struct mlx5mk_answer *answer,
                          uint8_t (*opaque)[8],
                          struct mlx5mk_error *error);

// Describes the bytes of a send queue or a completion queue, whichever library wrote them, and lists what a
// device would refuse in them. The caller ensures that nobody writes to the bytes during the call. `what` is
// one of the MLX5MK_INSPECT constants. A remainder that is too short for a block or an entry is ignored.
//
// Writes each request or entry to `words`, with its bytes and findings; see mlx5mk_device_describe for
// `words` and `size`. Writes the length of the whole text in bytes, without the NUL, to `length` if that is
// not NULL. Allocates nothing.
//
// Returns the severity of the worst finding: MLX5MK_NOTHING, MLX5MK_NOTE, MLX5MK_SUSPICIOUS or
// MLX5MK_REFUSED.
//
// Errors: MLX5MK_ARGUMENT.
int32_t mlx5mk_inspect(const void *bytes,
                       size_t count,
                       uint32_t what,
                       char *words,
                       size_t size,
                       size_t *length,
                       struct mlx5mk_error *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MLX5_MKEY_H */
