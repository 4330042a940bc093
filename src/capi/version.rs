//! The version of the library.

#![allow(unsafe_code)] // `no_mangle` is unsafe.

/// The first of the three numbers of the header's version. A program can compare the numbers at compile time.
pub const MLX5MK_VERSION_MAJOR: u32 = 0;
/// The second number of the version.
pub const MLX5MK_VERSION_MINOR: u32 = 1;
/// The third number of the version.
pub const MLX5MK_VERSION_PATCH: u32 = 0;

// The generator of the C header copies the numbers from here, so they are literals. They must equal the
// version in `Cargo.toml`.
const _: () = {
    assert!(matches!(u32::from_str_radix(env!("CARGO_PKG_VERSION_MAJOR"), 10), Ok(MLX5MK_VERSION_MAJOR)));
    assert!(matches!(u32::from_str_radix(env!("CARGO_PKG_VERSION_MINOR"), 10), Ok(MLX5MK_VERSION_MINOR)));
    assert!(matches!(u32::from_str_radix(env!("CARGO_PKG_VERSION_PATCH"), 10), Ok(MLX5MK_VERSION_PATCH)));
};

/// Returns the version of the library that the program is linked with at run time: major * 10000 + minor *
/// 100 + patch. A shared library may be newer than the header (MLX5MK_VERSION_MAJOR and others).
#[unsafe(no_mangle)]
pub extern "C" fn mlx5mk_version() -> u32 {
    MLX5MK_VERSION_MAJOR * 10_000 + MLX5MK_VERSION_MINOR * 100 + MLX5MK_VERSION_PATCH
}
