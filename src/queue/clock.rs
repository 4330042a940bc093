//! Converts time stamps of completions to nanoseconds.

use core::time::Duration;

/// Converts ticks of a device's free-running clock to nanoseconds (`struct mlx5dv_clock_info`). The
/// completions of a queue pair have time stamps in ticks of that clock, or in real time ([`real_time`]). The
/// creation of the queue pair chooses the format ([`crate::command::TimestampFormat`]).
///
/// ```
/// use mlx5_mkey::queue::ClockInfo;
/// // A clock of 1 GHz whose ticks are counted from the start of the device, by 64 bits.
/// let clock = ClockInfo::of_frequency(1_000_000).ok_or("a device without clock")?;
/// assert_eq!(clock.nanoseconds(5_000), 5_000);
/// // The same clock, converted to another clock, which showed a billion nanoseconds at tick 5000.
/// let shifted = ClockInfo { cycles: 5_000, base: 1_000_000_000, ..clock };
/// assert_eq!((shifted.nanoseconds(5_002), shifted.nanoseconds(4_999)), (1_000_000_002, 999_999_999));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ClockInfo {
    /// The time in nanoseconds when the device's clock showed `cycles` (`nsec`).
    pub base: u64,
    /// The tick that the device's clock showed at time `base` (`last_cycles`).
    pub cycles: u64,
    /// A fraction of a nanosecond to add to `base`, in units of 2^-`shift` nanoseconds (`frac`).
    pub fraction: u64,
    /// The length of a tick, in units of 2^-`shift` nanoseconds (`mult`).
    pub multiplier: u32,
    /// The number of bits by which a product of ticks and `multiplier` is shifted right (`shift`).
    pub shift: u32,
    /// The bits that the clock's ticks have (`mask`), for example 48 ones.
    pub mask: u64,
}

impl ClockInfo {
    /// Returns the conversion for a clock of this frequency in kHz
    /// ([`GeneralCapabilities::device_frequency_khz`](crate::command::GeneralCapabilities::device_frequency_khz)),
    /// with tick 0 at nanosecond 0. The conversion is as exact as the frequency. (The kernel corrects its own
    /// conversion, and gives a new base from time to time.) Returns `None` under 245 kHz, a frequency that no
    /// device has.
    pub const fn of_frequency(khz: u32) -> Option<Self> {
        const SHIFT: u32 = 20;
        if khz == 0 {
            return None;
        }
        let multiplier = (1_000_000_u64 << SHIFT) / khz as u64;
        if multiplier > u32::MAX as u64 {
            return None;
        }
        let multiplier = multiplier as u32;
        Some(Self { base: 0, cycles: 0, fraction: 0, multiplier, shift: SHIFT, mask: u64::MAX })
    }

    /// Returns the nanoseconds of a time stamp of the free-running clock. The time stamp may be before or
    /// after the base. (`mlx5dv_ts_to_ns` overflows after some hours, this function does not.) Wrong numbers
    /// from the kernel lead to wrong nanoseconds, and to no error.
    pub const fn nanoseconds(&self, timestamp: u64) -> u64 {
        let (multiplier, fraction) = (self.multiplier as u128, self.fraction as u128);
        let ahead = timestamp.wrapping_sub(self.cycles) & self.mask;
        if ahead <= self.mask / 2 {
            let scaled = ahead as u128 * multiplier + fraction;
            return self.base.wrapping_add(scaled.wrapping_shr(self.shift) as u64);
        }
        let behind = self.cycles.wrapping_sub(timestamp) & self.mask;
        let scaled = (behind as u128 * multiplier).saturating_sub(fraction);
        self.base.wrapping_sub(scaled.wrapping_shr(self.shift) as u64)
    }
}

/// Returns the time that a time stamp in real time contains: seconds in the high half, nanoseconds in the low
/// half (kernel, `REAL_TIME_TO_NS`).
///
/// ```
/// use core::time::Duration;
/// assert_eq!(mlx5_mkey::queue::real_time(7 << 32 | 5), Duration::new(7, 5));
/// ```
pub const fn real_time(timestamp: u64) -> Duration {
    Duration::from_secs(timestamp >> 32).saturating_add(Duration::from_nanos(timestamp & 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_what_mlx5dv_ts_to_ns_says() {
        // A clock of 156.25 MHz and 48 bits. The expected numbers come from the formula of `mlx5dv_ts_to_ns`
        // in rdma-core's header.
        let clock = ClockInfo {
            base: 1_000_000_000_000,
            cycles: 0xffff_ffff_fff0,
            fraction: 0x1_2345,
            multiplier: 6_710_886,
            shift: 20,
            mask: 0xffff_ffff_ffff,
        };
        let expected = |delta: i64| {
            let scaled = (delta.unsigned_abs() * 6_710_886) as i64;
            1_000_000_000_000
                + if delta < 0 { -((scaled - 0x1_2345) >> 20) } else { (scaled + 0x1_2345) >> 20 }
        };
        for delta in [0, 1, 2, 15, 16, 1_000_000, -1, -2, -1_000_000] {
            let stamp = clock.cycles.wrapping_add_signed(delta) & clock.mask;
            assert_eq!(clock.nanoseconds(stamp), expected(delta) as u64, "{delta}");
        }
        assert_eq!(clock.nanoseconds(0), expected(16) as u64, "over the clock's end");
        // Senseless numbers cause no panic.
        let nonsense = ClockInfo {
            base: 0,
            cycles: u64::MAX,
            fraction: u64::MAX,
            multiplier: u32::MAX,
            shift: u32::MAX,
            mask: 0,
        };
        nonsense.nanoseconds(1);
        ClockInfo { mask: u64::MAX, ..nonsense }.nanoseconds(7);
    }

    #[test]
    fn frequencies_and_real_time() {
        assert_eq!([0, 1, 244].map(ClockInfo::of_frequency), [None; 3]);
        assert!(ClockInfo::of_frequency(245).is_some());
        let clock = ClockInfo::of_frequency(156_250).unwrap();
        assert_eq!(clock.nanoseconds(156_250_000), 1_000_000_000 - 60, "as exact as the multiplier");
        assert_eq!(
            real_time(u64::MAX),
            Duration::new(u32::MAX.into(), 0) + Duration::from_nanos(u32::MAX.into())
        );
    }
}
