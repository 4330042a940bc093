//! Programs that run twice, as server and as client.

/// The command lines, the same for server and client.
pub(super) const PAIRS: &[&str] = &[
    "ibv_rc_pingpong -d mlx5_0 -g 0 -e -n 200",
    "ibv_uc_pingpong -d mlx5_0 -g 0 -e -n 200",
    "ibv_ud_pingpong -d mlx5_0 -g 0 -e -n 200",
    "ibv_srq_pingpong -d mlx5_0 -g 0 -e -n 200",
    "ib_write_bw -d mlx5_0 -F -n 100 -s 4096",
    "ib_read_bw -d mlx5_0 -F -n 100 -s 4096",
    "ib_send_bw -d mlx5_0 -F -n 100 -s 4096",
    "ib_send_bw -d mlx5_0 -F -n 100 -s 65536 -e",
    "ib_write_bw -d mlx5_0 -F -n 100 -s 4096 -q 4",
    "ib_send_bw -d mlx5_0 -F -c UC -n 1000 -s 4096",
    "ib_send_bw -d mlx5_0 -F -c UD -n 1000",
    "ib_send_lat -d mlx5_0 -F -c UD -n 200",
    "ib_send_bw -d mlx5_0 -F --use-srq -q 4 -n 200 -s 4096",
    "ib_send_bw -d mlx5_0 -F --use-srq -c UD -n 200",
    // The client ends while many messages are still on their way.
    "ib_write_bw -d mlx5_0 -F -c UC",
    // These lines run UCX through libmlx5 (`rc_verbs`, `ud_verbs`), and with rings and doorbells that UCX
    // creates itself by DEVX commands (`rc_mlx5`, `ud_mlx5`).
    "ucx_perftest -d mlx5_0:1 -x rc_verbs -t am_lat -n 200 -w 20",
    "ucx_perftest -d mlx5_0:1 -x ud_verbs -t am_lat -n 200 -w 20",
    "ucx_perftest -d mlx5_0:1 -x rc_mlx5 -t am_lat -n 100 -w 10",
    "ucx_perftest -d mlx5_0:1 -x ud_mlx5 -t am_lat -n 100 -w 10",
    "ucx_perftest -d mlx5_0:1 -x rc_verbs -t put_bw -D zcopy -s 65536 -n 100",
    // For this test (compare and swap), UCX uses a KSM mkey on top of the memory region.
    "ucx_perftest -d mlx5_0:1 -x rc_mlx5 -t cswap -n 50 -w 5",
    // UCX posts atomics of 4 bytes as masked atomics.
    "ucx_perftest -d mlx5_0:1 -x rc_mlx5 -t fadd -s 4 -n 50 -w 5",
    "ucx_perftest -d mlx5_0:1 -x rc_mlx5 -t swap -s 4 -n 50 -w 5",
];

/// Options of `ib_write_bw` for encrypted traffic. The options that name the files with keys are added later.
pub(super) const ENCRYPTED: &[&[&str]] = &[
    &["--aes_block_size=512", "-s", "4096", "--encrypt_on_tx"],
    &["--aes_block_size=4096", "-s", "65536"],
    &["--aes_block_size=512", "-s", "512", "--encrypt_on_tx", "--sig_before"],
];

/// Client programs that end with status 0 even after a failure, and the text that they print on success.
const PROOFS: &[(&str, &str)] = &[("ucx_perftest", "\nFinal: ")];

/// Returns the text that the client of a pair must print.
pub(super) fn proof(pair: &[&str]) -> &'static str {
    PROOFS.iter().find(|(name, _)| pair.first() == Some(name)).map_or("", |(_, proof)| proof)
}
