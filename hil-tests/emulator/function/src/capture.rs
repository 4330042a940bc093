//! The frames of the network interface, in a file that Wireshark reads.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The file header of a capture: Ethernet frames, time stamps in nanoseconds, in this machine's byte order.
const HEAD: [u32; 6] = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 0x0004_0000, 1];

/// A file with the frames that the interface sends and receives.
#[derive(Debug)]
pub struct Capture(Option<File>);

impl Capture {
    /// Begins a capture. A file that exists is replaced.
    ///
    /// # Errors
    /// The system's error.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(HEAD.map(u32::to_ne_bytes).as_flattened())?;
        Ok(Self(Some(file)))
    }

    /// Adds a frame. A frame that cannot be written ends the capture before this frame.
    pub(crate) fn add(&mut self, frame: &[u8]) {
        let Some(file) = &mut self.0 else { return };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let length = frame.len() as u32;
        // The format has 32 bits for seconds.
        let head = [time.as_secs() as u32, time.subsec_nanos(), length, length].map(u32::to_ne_bytes);
        let before = file.metadata().map(|metadata| metadata.len());
        if let Err(error) = file.write_all(&[head.as_flattened(), frame].concat()) {
            // A part of a record would make the file unreadable.
            let _ = before.and_then(|length| file.set_len(length));
            eprintln!("the capture ends here: {error}");
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_whole_after_each_frame() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("frames");
        let mut capture = Capture::begin(&path).unwrap();
        let mut expected = 24;
        for frame in [&[7; 60][..], &[8; 1514], &[]] {
            capture.add(frame);
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(&bytes[expected + 8..expected + 12], (frame.len() as u32).to_ne_bytes());
            assert_eq!(&bytes[expected + 16..], frame);
            expected = bytes.len();
        }
        assert!(Capture::begin(home.path()).is_err());
    }
}
