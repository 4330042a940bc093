//! The command line of `cargo xtask decode`.

use super::memory::Memory;
use super::reading::{EntrySize, Reading, queue_kind};
use mlx5_mkey::inspect::{DeviceContext, QueueKind};
use mlx5_mkey::mkey::XtsEngine;
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
    pub(super) help: bool,
}

pub(super) fn parse_args(args: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        match arg {
            "--cqe" => options.reading = options.reading.or(Some(Reading::Entries(None))),
            "--wqe" => options.reading = Some(Reading::Requests),
            "--cqe-size" => {
                options.reading = Some(Reading::Entries(Some(match args.next() {
                    Some("64") => EntrySize::Short,
                    Some("128") => EntrySize::Long,
                    _ => return Err("--cqe-size wants 64 or 128".to_owned()),
                })));
            }
            "--queue" => {
                let kind = args.next().and_then(queue_kind);
                options.queue = kind.ok_or("--queue wants rc, uc, ud, dc, xrc or ethernet")?;
            }
            "--words" => {
                options.words = Some(match args.next() {
                    Some("memory") => WordOrder::Memory,
                    Some("little") => WordOrder::LittleEndian,
                    _ => return Err("--words wants memory or little".to_owned()),
                });
            }
            "--engine" => {
                options.device.engine = Some(match args.next() {
                    Some("single-block") => XtsEngine::SingleBlock,
                    Some("multi-block") => XtsEngine::MultiBlock,
                    Some("multi-block-le") => XtsEngine::MultiBlockLittleEndian,
                    _ => {
                        let wanted = "--engine wants single-block, multi-block or multi-block-le";
                        return Err(wanted.to_owned());
                    }
                });
            }
            "--stride" => {
                let stride = args.next().and_then(|word| word.parse().ok()).filter(|stride| *stride > 0);
                options.stride = Some(stride.ok_or("--stride wants a number of bytes")?);
            }
            "--html" => options.html = Some(args.next().ok_or("--html wants the name of a file")?.to_owned()),
            "--memory" => options.memory.add(args.next().unwrap_or_default())?,
            "--help" | "-h" => options.help = true,
            option if option.starts_with("--") => return Err(format!("unknown option {option}\n\n{USAGE}")),
            input => options.input.push(input.to_owned()),
        }
    }
    if options.input.is_empty() && !options.help {
        return Err(format!("nothing to decode\n\n{USAGE}"));
    }
    if options.memory != Memory::default() && options.html.is_none() {
        return Err(format!("--memory is for --html\n\n{USAGE}"));
    }
    Ok(options)
}
