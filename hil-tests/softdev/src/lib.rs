//! A software mlx5 device.
#![no_std]
#![forbid(unsafe_code)]
