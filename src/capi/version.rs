//! The version of the library.

#![allow(unsafe_code)] // Unmangled names for C.

/// The first number of the header's version, which has three numbers. A program compares the numbers at
/// compile time.
pub const MLX5MK_VERSION_MAJOR: u32 = 0;
/// The second number of the version.
pub const MLX5MK_VERSION_MINOR: u32 = 1;
/// The third number of the version.
pub const MLX5MK_VERSION_PATCH: u32 = 0;

// The numbers are literals, because the generator of the C header copies them. They equal those in
// `Cargo.toml`.
const _: () = {
    assert!(matches!(u32::from_str_radix(env!("CARGO_PKG_VERSION_MAJOR"), 10), Ok(MLX5MK_VERSION_MAJOR)));
    assert!(matches!(u32::from_str_radix(env!("CARGO_PKG_VERSION_MINOR"), 10), Ok(MLX5MK_VERSION_MINOR)));
    assert!(matches!(u32::from_str_radix(env!("CARGO_PKG_VERSION_PATCH"), 10), Ok(MLX5MK_VERSION_PATCH)));
};

/// Returns the version of the library that the program runs with: major * 10000 + minor * 100 + patch. A
/// shared library may be newer than the header (MLX5MK_VERSION_MAJOR and others).
#[unsafe(no_mangle)]
pub extern "C" fn mlx5mk_version() -> u32 {
    MLX5MK_VERSION_MAJOR * 10_000 + MLX5MK_VERSION_MINOR * 100 + MLX5MK_VERSION_PATCH
}
