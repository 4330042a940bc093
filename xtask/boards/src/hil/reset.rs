//! Resets boards: through rshim (the management driver of a BlueField), through a GPIO line, or by a command
//! of the user.

use embedded_hal::delay::DelayNs;
use embedded_hal::digital::{OutputPin, PinState};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use xtask::run;
use xtask_parsers::boards::Reset;

pub(super) fn perform(reset: &Reset) -> Result<(), String> {
    match reset {
        // With `Process`, the runner only starts the program again. With `Power`, the process that holds the
        // board's place in the lab has already switched the power.
        Reset::Process | Reset::Power { .. } => Ok(()),
        Reset::Rshim { file, .. } => rshim(file),
        Reset::Gpio { chip, line, active_low, hold_milliseconds, .. } => {
            gpio(chip, *line, Pulse { active_low: *active_low, hold_milliseconds: *hold_milliseconds })
        }
        Reset::Command { command, .. } => {
            let (program, arguments) = command.split_first().ok_or("the board's reset command is empty")?;
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
            run::check(command)
        }
    }
}

/// Returns the longest time from a reset to the board's first answer.
pub(super) fn boot_time(reset: &Reset) -> Duration {
    match reset {
        Reset::Process => Duration::ZERO,
        Reset::Rshim { boot_seconds, .. }
        | Reset::Gpio { boot_seconds, .. }
        | Reset::Power { boot_seconds }
        | Reset::Command { boot_seconds, .. } => Duration::from_secs((*boot_seconds).into()),
    }
}

/// Resets the Arm cores of a BlueField by a command to its management driver, rshim. The driver reads
/// commands from `file`.
fn rshim(file: &Path) -> Result<(), String> {
    let explain = |error| format!("reset by {}: {error}", file.display());
    // The file is not created: only the driver can make it.
    let mut file = std::fs::OpenOptions::new().write(true).open(file).map_err(explain)?;
    file.write_all(b"SW_RESET 1\n").map_err(explain)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pulse {
    active_low: bool,
    hold_milliseconds: u32,
}

impl Pulse {
    /// Returns the level of the line at rest.
    fn idle(self) -> PinState {
        PinState::from(self.active_low)
    }

    /// Drives the line to its active level for `hold_milliseconds`. Always releases the line, also after an
    /// error.
    fn send<P: OutputPin>(self, pin: &mut P, delay: &mut impl DelayNs) -> Result<(), P::Error> {
        let held = pin.set_state(!self.idle());
        if held.is_ok() {
            delay.delay_ms(self.hold_milliseconds);
        }
        pin.set_state(self.idle()).and(held)
    }
}

fn gpio(chip: &Path, number: u32, pulse: Pulse) -> Result<(), String> {
    let explain = |error| format!("line {number} of {}: {error}", chip.display());
    let mut pin = line::open(chip, number, pulse.idle()).map_err(explain)?;
    pulse.send(&mut pin, &mut Sleep).map_err(|error| explain(format!("{error:?}")))
}

struct Sleep;

impl DelayNs for Sleep {
    fn delay_ns(&mut self, nanoseconds: u32) {
        std::thread::sleep(Duration::from_nanos(nanoseconds.into()));
    }
}

#[cfg(feature = "gpio")]
mod line {
    use embedded_hal::digital::PinState;
    use linux_embedded_hal::CdevPin;
    use linux_embedded_hal::gpio_cdev::{Chip, LineRequestFlags};
    use std::path::Path;

    /// Opens a GPIO line as an output at its idle level, so that opening the line does not reset the board.
    pub(super) fn open(chip: &Path, number: u32, idle: PinState) -> Result<CdevPin, String> {
        let value = u8::from(idle == PinState::High);
        let request = LineRequestFlags::OUTPUT;
        let line = Chip::new(chip).and_then(|mut chip| chip.get_line(number));
        let handle = line.and_then(|line| line.request(request, value, "mlx5-mkey hil"));
        handle
            .map_err(|error| error.to_string())
            .and_then(|handle| CdevPin::new(handle).map_err(|error| error.to_string()))
    }
}

#[cfg(not(feature = "gpio"))]
mod line {
    use embedded_hal::digital::{ErrorType, OutputPin, PinState};
    use std::convert::Infallible;
    use std::path::Path;

    /// Replaces the type of a GPIO line if the feature `gpio` is off. This type has no values.
    pub(super) enum Nothing {}

    impl ErrorType for Nothing {
        type Error = Infallible;
    }

    impl OutputPin for Nothing {
        fn set_low(&mut self) -> Result<(), Infallible> {
            match *self {}
        }

        fn set_high(&mut self) -> Result<(), Infallible> {
            match *self {}
        }
    }

    pub(super) fn open(_: &Path, _: u32, _: PinState) -> Result<Nothing, String> {
        Err("GPIO lines need the feature `gpio` of the package xtask-boards".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_hal_mock::eh1::MockError;
    use embedded_hal_mock::eh1::delay::{CheckedDelay, Transaction as Wait};
    use embedded_hal_mock::eh1::digital::{Mock, State, Transaction as Set};
    use std::io::ErrorKind;

    #[test]
    fn a_pulse_holds_the_line_for_its_time() {
        for (active_low, first, last) in [(true, State::Low, State::High), (false, State::High, State::Low)] {
            let mut pin = Mock::new(&[Set::set(first), Set::set(last)]);
            let mut delay = CheckedDelay::new(&[Wait::blocking_delay_ms(200)]);
            assert_eq!(Pulse { active_low, hold_milliseconds: 200 }.send(&mut pin, &mut delay), Ok(()));
            pin.done();
            delay.done();
        }
    }

    #[test]
    fn a_line_that_fails_is_let_go_without_a_wait() {
        let error = MockError::Io(ErrorKind::BrokenPipe);
        let mut pin = Mock::new(&[Set::set(State::Low).with_error(error.clone()), Set::set(State::High)]);
        let mut delay = CheckedDelay::new(&[]);
        let pulse = Pulse { active_low: true, hold_milliseconds: 200 };
        assert_eq!(pulse.send(&mut pin, &mut delay), Err(error));
        pin.done();
        delay.done();
    }

    #[test]
    fn a_bluefield_is_reset_through_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("misc");
        let reset = Reset::Rshim { file: file.clone(), boot_seconds: 3 };
        assert!(perform(&reset).unwrap_err().contains("misc: No such file"));
        assert!(!file.exists(), "a device file is not made");
        std::fs::write(&file, "").unwrap();
        assert_eq!(perform(&reset), Ok(()));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "SW_RESET 1\n");
        assert_eq!(boot_time(&reset), Duration::from_secs(3));
    }

    #[test]
    fn a_command_of_ones_own_resets() {
        let reset = |words: &[&str]| Reset::Command {
            command: words.iter().map(|word| (*word).into()).collect(),
            boot_seconds: 0,
        };
        assert_eq!(perform(&reset(&["true"])), Ok(()));
        assert!(perform(&reset(&["false"])).is_err());
        assert!(perform(&reset(&["/nowhere/at/all"])).is_err());
        assert!(perform(&reset(&[])).is_err());
        assert_eq!(perform(&Reset::Process), Ok(()));
    }
}
