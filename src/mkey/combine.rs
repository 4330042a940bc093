//! Computes the CRC of several blocks from the CRCs of the single blocks, which the device has computed. The
//! computation needs only the CRCs, not the data.

use crate::types::Seed;

macro_rules! combine {
    ($(#[$doc:meta])* $name:ident, $crc:ty, $polynomial:literal) => {
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use mlx5_mkey::{mkey::", stringify!($name), ", types::Seed};")]
        #[doc = concat!("const BLOCK: ", stringify!($name), " =")]
        #[doc = concat!("    ", stringify!($name), "::behind(512, Seed::Ones);")]
        #[doc = concat!("const NOTHING: ", stringify!($crc), " =")]
        #[doc = concat!("    ", stringify!($name), "::of_nothing(Seed::Ones);")]
        /// // A loop over blocks begins with the CRC of no data.
        /// assert_eq!(BLOCK.combine(NOTHING, 0x1234), 0x1234);
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name {
            /// The polynomial x to the power of the number of bits in the second block, modulo the CRC's
            /// polynomial.
            power: $crc,
            /// The CRC of no data. `combine` removes this value from the first CRC by XOR, because the second
            /// CRC contains it already.
            start: $crc,
        }

        impl $name {
            /// The CRC's polynomial. The highest bit is the coefficient of the lowest power.
            const POLYNOMIAL: $crc = $polynomial;
            /// The polynomial 1.
            const ONE: $crc = 1 << (<$crc>::BITS - 1);

            /// Returns the CRC of no data: 0 if CRCs begin with all ones, and all ones if they begin with 0.
            pub const fn of_nothing(seed: Seed) -> $crc {
                match seed {
                    Seed::Ones => 0,
                    Seed::Zeros => <$crc>::MAX,
                }
            }

            /// Creates the value that combines the CRC of a block of `bytes` bytes with the CRC of the data
            /// before the block. This takes up to 128 multiplications of polynomials, and no table.
            pub const fn behind(bytes: u64, seed: Seed) -> Self {
                let (mut power, mut square, mut rest) = (Self::ONE, Self::ONE >> 8, bytes);
                while rest > 0 {
                    if rest & 1 == 1 {
                        power = Self::multiply(power, square);
                    }
                    square = Self::multiply(square, square);
                    rest >>= 1;
                }
                // If the first CRC is the CRC of no data, `combine` must return the second CRC.
                Self { power, start: Self::of_nothing(seed) }
            }

            /// Returns the CRC of all data. `first` is the CRC of the data before the block, `second` is the
            /// CRC of the block, whose length was given to `behind`. This takes one multiplication.
            #[must_use]
            pub const fn combine(self, first: $crc, second: $crc) -> $crc {
                Self::multiply(first ^ self.start, self.power) ^ second
            }

            /// Multiplies two polynomials, modulo the CRC's polynomial.
            const fn multiply(mut left: $crc, mut right: $crc) -> $crc {
                let mut product = 0;
                while left != 0 {
                    if left & Self::ONE != 0 {
                        product ^= right;
                    }
                    left <<= 1;
                    right = right >> 1 ^ if right & 1 == 1 { Self::POLYNOMIAL } else { 0 };
                }
                product
            }
        }
    };
}

combine! {
    /// Computes the CRC32C of two adjacent ranges of data from the CRC32Cs of the ranges, as
    /// [`Signature::Crc32c`](super::Signature::Crc32c) writes them.
    ///
    /// The device writes a CRC32C in little endian. The polynomial is 1EDC6F41 (RFC 3720), and the CRC is
    /// inverted at the end.
    ///
    /// ```
    /// use mlx5_mkey::mkey::Crc32cCombine;
    /// use mlx5_mkey::types::Seed;
    /// // One constant serves any number of blocks of 512 bytes.
    /// const BLOCK: Crc32cCombine = Crc32cCombine::behind(512, Seed::Ones);
    /// /// Returns the CRC of an object, from the CRCs that the device wrote behind its blocks.
    /// fn of_object(blocks: &[[u8; 4]]) -> u32 {
    ///     let nothing = Crc32cCombine::of_nothing(Seed::Ones);
    ///     blocks.iter().fold(nothing, |object, block| BLOCK.combine(object, u32::from_le_bytes(*block)))
    /// }
    /// // The CRC of "123456789" from the CRCs of "1234" and "56789".
    /// assert_eq!(Crc32cCombine::behind(5, Seed::Ones).combine(0xf63a_f4ee, 0x83b5_65d8), 0xe306_9283);
    /// ```
    Crc32cCombine, u32, 0x82f6_3b78
}

combine! {
    /// Computes the CRC64-XP10 of two adjacent ranges of data from the CRC64-XP10s of the ranges, as
    /// [`Signature::Crc64Xp10`](super::Signature::Crc64Xp10) writes them. NVMe uses the same CRC
    /// (CRC-64/NVME).
    ///
    /// The device writes a CRC64-XP10 in little endian. The polynomial is AD93D23594C93659, and the CRC is
    /// inverted at the end.
    ///
    /// ```
    /// use mlx5_mkey::mkey::Crc64Combine;
    /// use mlx5_mkey::types::Seed;
    /// /// Returns the CRC of an object of blocks of 4096 bytes and a rest, as object stores keep it.
    /// fn of_object(blocks: &[u64], (rest, rest_bytes): (u64, u64)) -> u64 {
    ///     let block = Crc64Combine::behind(4096, Seed::Ones);
    ///     let nothing = Crc64Combine::of_nothing(Seed::Ones);
    ///     let whole = blocks.iter().fold(nothing, |object, crc| block.combine(object, *crc));
    ///     Crc64Combine::behind(rest_bytes, Seed::Ones).combine(whole, rest)
    /// }
    /// assert_eq!(of_object(&[0x6482_d367_eb22_b64e], (0, 0)), 0x6482_d367_eb22_b64e);
    /// ```
    Crc64Combine, u64, 0x9a6c_9329_ac4b_c9b5
}

#[cfg(test)]
mod tests {
    use super::*;
    use crc::{Algorithm, CRC_32_ISCSI, CRC_64_NVME, Crc, Table};
    use proptest::prelude::*;

    const FROM_ZERO_32: Algorithm<u32> = Algorithm { init: 0, ..CRC_32_ISCSI };
    const FROM_ZERO_64: Algorithm<u64> = Algorithm { init: 0, ..CRC_64_NVME };
    const CRC32C: [(Seed, Crc<u32, Table<1>>); 2] = [
        (Seed::Ones, Crc::<u32, Table<1>>::new(&CRC_32_ISCSI)),
        (Seed::Zeros, Crc::<u32, Table<1>>::new(&FROM_ZERO_32)),
    ];
    const CRC64: [(Seed, Crc<u64, Table<1>>); 2] = [
        (Seed::Ones, Crc::<u64, Table<1>>::new(&CRC_64_NVME)),
        (Seed::Zeros, Crc::<u64, Table<1>>::new(&FROM_ZERO_64)),
    ];

    #[test]
    fn published_values_are_put_together() {
        const NINE_DIGITS: u32 = Crc32cCombine::behind(5, Seed::Ones).combine(0xf63a_f4ee, 0x83b5_65d8);
        assert_eq!(NINE_DIGITS, 0xe306_9283, "of 123456789, at compile time");
        // The CRC of 32 zeros comes from RFC 3720, here combined from two halves of 16 bytes. The CRCs of
        // 4096 bytes come from the NVM Express specification, here combined from 64 parts of 64 bytes.
        let (half, [(seed, crc), _]) = ([0; 16], CRC32C);
        let half = crc.checksum(&half);
        assert_eq!(Crc32cCombine::behind(16, seed).combine(half, half), 0x8a91_36aa);
        let block = [(0_u8, 0x6482_d367_eb22_b64e), (0xff, 0xc0dd_ba73_02ec_a3ac_u64)];
        for (byte, whole) in block {
            let [(seed, crc), _] = CRC64;
            let part = crc.checksum(&[byte; 64]);
            let parts = Crc64Combine::behind(64, seed);
            assert_eq!((0..64).fold(0, |object, _| parts.combine(object, part)), whole);
        }
    }

    #[test]
    fn nothing_behind_changes_nothing_and_lengths_have_64_bits() {
        for (seed, crc) in CRC32C {
            let (of_nothing, some) = (Crc32cCombine::of_nothing(seed), crc.checksum(b"some"));
            assert_eq!(of_nothing, crc.checksum(&[]));
            assert_eq!(Crc32cCombine::behind(0, seed).combine(some, of_nothing), some);
            assert_eq!(Crc32cCombine::behind(4, seed).combine(of_nothing, some), some);
        }
        let (all, half) =
            (Crc32cCombine::behind(u64::MAX, Seed::Ones), Crc32cCombine::behind(u64::MAX / 2, Seed::Ones));
        let twice = half.combine(half.combine(1, 0), 0);
        assert_eq!(all.combine(1, 0), Crc32cCombine::behind(1, Seed::Ones).combine(twice, 0));
    }

    proptest! {
        #[test]
        fn two_ranges_are_as_one(
            data in proptest::collection::vec(any::<u8>(), 0..3000),
            cut in any::<prop::sample::Index>(),
        ) {
            let (first, second) = data.split_at(cut.index(data.len() + 1));
            for (seed, crc) in CRC32C {
                let parts = Crc32cCombine::behind(second.len() as u64, seed);
                let combined = parts.combine(crc.checksum(first), crc.checksum(second));
                prop_assert_eq!(combined, crc.checksum(&data));
            }
            for (seed, crc) in CRC64 {
                let parts = Crc64Combine::behind(second.len() as u64, seed);
                let combined = parts.combine(crc.checksum(first), crc.checksum(second));
                prop_assert_eq!(combined, crc.checksum(&data));
            }
        }
    }
}
