//! The command line of `cargo xtask decode`.

use super::memory::Memory;
use super::reading::{EntrySize, QUEUES, Reading};
use mlx5_mkey::inspect::{DeviceContext, QueueKind};
use mlx5_mkey::mkey::XtsEngine;
use std::num::NonZero;
use xtask::run;
use xtask_parsers::hex::WordOrder;

pub(crate) const USAGE: &str = "\
Usage: cargo xtask decode [options] HEX... | FILE | -

Decodes send work requests, one after the other on blocks of 64 bytes, or completion entries of 64
or 128 bytes.
HEX may have blanks, commas, 0x, and colons between bytes. FILE holds such text, a dump of xxd,
xxd -p, xxd -i, hexdump -C or od -tx1, what `cargo xtask emulate` wrote with --log or --log-json, or
raw bytes; - reads standard input. It may also be a log with dumps in it, as libmlx5, the kernel and
DPDK print them, or what a debugger printed: rows are found wherever they stand in a line, and the
lines without one, and dumps that lack some, are told. Digits are bytes in the order in which they
are written. Words behind an address (gdb's x/16xw, rd of crash) are numbers of a little-endian
machine, and so are words that make sense in that order only. A word that is both hex and a file is
a file. Of text, up to 8 MiB are read: four of the largest rings.

  --cqe              completion entries; without it, whichever makes sense, else requests
  --wqe              requests, also where only completion entries make sense
  --cqe-size BYTES   completion entries of this size, 64 or 128
  --queue KIND       queue that requests are from: rc, uc, ud, dc (initiator), xrc or ethernet;
                     without it, requests of other queues than rc and uc are not decoded in full
  --words ORDER      order of the bytes in the words of a dump: memory (as they lie there) or little
                     (numbers of a little-endian machine: od -x, print_hex_dump with groups of 4);
                     without it, where neither the form nor the sense tells, memory
  --stride BYTES     block plus signature, to name the block of a signature error
  --engine KIND      AES-XTS engine of the device: single-block, multi-block or multi-block-le
  --html OUT         the same as a page, which needs nothing but itself: blocks and segments in
                     colour, fields on demand, and both sides of each mkey and transfer
  --memory ADDR=FILE memory of the program from address ADDR (0x...) on, copied into FILE (gdb's
                     `dump memory FILE START END`): the page shows the bytes of each mkey and
                     transfer that are in it; more than once if you like
  --help             this text

Exit status: 0 nothing is refused, 1 something is, 2 the arguments or the input make no sense.
";

#[derive(Debug, Default, PartialEq)]
pub(super) struct Options {
    /// The kind of the input. `None`: `decode` recognises the kind by the bytes.
    pub(super) reading: Option<Reading>,
    pub(super) queue: QueueKind,
    pub(super) words: Option<WordOrder>,
    pub(super) stride: Option<u32>,
    pub(super) device: DeviceContext,
    /// The file to which the page is written, if a page is drawn.
    pub(super) html: Option<String>,
    pub(super) memory: Memory,
    pub(super) input: Vec<String>,
}

pub(super) fn parse(words: &mut run::Options) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(word) = words.word()? {
        match word.as_str() {
            "--cqe" => options.reading = options.reading.or(Some(Reading::Entries(None))),
            "--wqe" => options.reading = Some(Reading::Requests),
            "--cqe-size" => {
                let size = words.one_of(&[("64", EntrySize::Short), ("128", EntrySize::Long)])?;
                options.reading = Some(Reading::Entries(Some(size)));
            }
            "--queue" => options.queue = words.one_of(QUEUES)?,
            "--words" => {
                let known = [("memory", WordOrder::Memory), ("little", WordOrder::LittleEndian)];
                options.words = Some(words.one_of(&known)?);
            }
            "--engine" => {
                options.device.engine = Some(words.one_of(&[
                    ("single-block", XtsEngine::SingleBlock),
                    ("multi-block", XtsEngine::MultiBlock),
                    ("multi-block-le", XtsEngine::MultiBlockLittleEndian),
                ])?);
            }
            "--stride" => options.stride = Some(words.value::<NonZero<u32>>()?.get()),
            "--html" => options.html = Some(words.value()?),
            "--memory" => options.memory.add(&words.value::<String>()?)?,
            option if option.starts_with("--") => return Err(run::unknown(option)),
            _ => options.input.push(word),
        }
    }
    if options.input.is_empty() {
        return Err("nothing to decode".into());
    }
    if options.memory != Memory::default() && options.html.is_none() {
        return Err("--memory is for --html".into());
    }
    Ok(options)
}
