//! The storage example on a board: target and initiator run as child processes of the test runner `hil`.

use std::error::Error;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
const TARGET: &str = "storage_target";
const INITIATOR: &str = "storage_initiator";

/// The storage example: the folder of its two programs, and the name of the device that both open (`None`:
/// the device of the stand-in for the kernel).
pub(super) struct Service {
    programs: PathBuf,
    device: Option<String>,
}

/// How many lines of a program's output the reason of a failure shows.
const LINES: usize = 3;

/// Returns the last lines of an output in one line. A line that was printed before is left out, because a
/// program that connects again and again prints the same lines each time.
fn last_words(output: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in output.lines().rev() {
        if lines.len() < LINES && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.reverse();
    lines.join("; ")
}

/// A child process that is killed when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // `kill` fails if the program has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Service {
    /// Returns a service whose programs are in this folder.
    pub(super) fn new(programs: &Path, device: Option<&str>) -> Self {
        Self { programs: programs.into(), device: device.map(Into::into) }
    }

    /// Starts target and initiator, and waits until both have ended. The initiator checks each byte, and
    /// checks that the corrupted blocks are reported and no others.
    pub(super) fn run(&self, ios: u32, corrupt: u32) -> Result<(), Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let folder = folder.path();
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let volume = folder.join("volume");
        let volume = volume.to_str().ok_or("the folder for temporary files has a name that is no text")?;
        let (ios, corrupt) = (ios.to_string(), corrupt.to_string());
        let start = |name: &str, words: &[(&str, &str)]| self.start(folder, name, &address, words);
        let target = [("--volume", volume), ("--blocks", "8192"), ("--depth", "8"), ("--corrupt", &corrupt)];
        let target = start(TARGET, &target)?;
        let initiator = start(INITIATOR, &[("--ios", &ios)])?;
        // This wait has no limit, because the caller limits the time of the test. The initiator ends too if
        // the target ends early.
        for (name, mut program) in [(INITIATOR, initiator), (TARGET, target)] {
            let status = program.0.wait()?;
            if !status.success() {
                let last =
                    |name: &str| last_words(&fs::read_to_string(folder.join(name)).unwrap_or_default());
                let said = [INITIATOR, TARGET].map(|name| format!("{name}: {}", last(name)));
                return Err(format!("{name}: {status}; {}", said.join("; ")).into());
            }
        }
        Ok(())
    }

    /// Starts one of the two programs. Its output goes to a file with its name.
    fn start(
        &self,
        folder: &Path,
        name: &str,
        address: &str,
        words: &[(&str, &str)],
    ) -> Result<Running, Box<dyn Error>> {
        let said = File::create(folder.join(name))?;
        let mut command = Command::new(self.programs.join(name));
        command.args(["--address", address]).args(words.iter().flat_map(|(option, value)| [option, value]));
        if let Some(device) = &self.device {
            command.args(["--device", device]);
        }
        // Under the stand-in for the kernel, both programs must use the same folder, through which the
        // software devices of the two processes reach each other.
        command.env("MLX5_UVERBS_DIR", folder.join("fabric"));
        command.stdin(Stdio::null()).stderr(said.try_clone()?).stdout(said);
        Ok(Running(command.spawn().map_err(|error| format!("{name}: {error}"))?))
    }
}

#[cfg(test)]
mod tests {
    use super::last_words;

    #[test]
    fn last_words_leave_out_repeated_lines() {
        let output = "target: 8 blocks\nlost: a\nagain\nlost: a\nagain\nerror: given up\n";
        assert_eq!(last_words(output), "lost: a; again; error: given up");
        assert_eq!(last_words(""), "");
    }
}
