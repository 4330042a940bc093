//! Programs that are run twice, as client and as server.

/// Client and server programs; what both get.
pub(super) const PAIRS: &[&[&str]] = &[
    &["ibv_rc_pingpong", "-d", "mlx5_0", "-g", "0", "-e", "-n", "200"],
    &["ibv_uc_pingpong", "-d", "mlx5_0", "-g", "0", "-e", "-n", "200"],
    &["ibv_ud_pingpong", "-d", "mlx5_0", "-g", "0", "-e", "-n", "200"],
    &["ibv_srq_pingpong", "-d", "mlx5_0", "-g", "0", "-e", "-n", "200"],
    &["ib_write_bw", "-d", "mlx5_0", "-F", "-n", "100", "-s", "4096"],
    &["ib_read_bw", "-d", "mlx5_0", "-F", "-n", "100", "-s", "4096"],
    &["ib_send_bw", "-d", "mlx5_0", "-F", "-n", "100", "-s", "4096"],
    &["ib_send_bw", "-d", "mlx5_0", "-F", "-n", "100", "-s", "65536", "-e"],
    &["ib_write_bw", "-d", "mlx5_0", "-F", "-n", "100", "-s", "4096", "-q", "4"],
    &["ib_send_bw", "-d", "mlx5_0", "-F", "-c", "UC", "-n", "1000", "-s", "4096"],
    &["ib_send_bw", "-d", "mlx5_0", "-F", "-c", "UD", "-n", "1000"],
    &["ib_send_lat", "-d", "mlx5_0", "-F", "-c", "UD", "-n", "200"],
    &["ib_send_bw", "-d", "mlx5_0", "-F", "--use-srq", "-q", "4", "-n", "200", "-s", "4096"],
    &["ib_send_bw", "-d", "mlx5_0", "-F", "--use-srq", "-c", "UD", "-n", "200"],
    // The client is done while much is still on its way.
    &["ib_write_bw", "-d", "mlx5_0", "-F", "-c", "UC"],
];

/// Options of `ib_write_bw` for encrypted traffic, besides the files with keys.
pub(super) const ENCRYPTED: &[&[&str]] = &[
    &["--aes_block_size=512", "-s", "4096", "--encrypt_on_tx"],
    &["--aes_block_size=4096", "-s", "65536"],
    &["--aes_block_size=512", "-s", "512", "--encrypt_on_tx", "--sig_before"],
];
