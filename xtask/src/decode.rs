//! `cargo xtask decode`: prints work requests or completion entries and says what a device would refuse in them.

use mlx5_mkey::inspect::cqe::CompletionEntry;
use mlx5_mkey::inspect::{DeviceContext, Pretty, Requests, Severity, Style};
use mlx5_mkey::mkey::XtsEngine;
use std::fmt::Write;
use std::io::{IsTerminal, Read};
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask decode [options] HEX... | FILE | -

Decodes send work requests, one after the other on blocks of 64 bytes, or completion entries of 64 bytes.
HEX may have blanks, colons, commas, 0x, and lines that begin with an offset (`00000010: ...`).
FILE holds such text or raw bytes; - reads standard input. A word that is both hex and a file is a file.

  --cqe              completion entries; without it, requests
  --stride BYTES     block plus signature, to name the block of a signature error
  --engine KIND      AES-XTS engine of the device: single-block or multi-block
  --help             this text

Exit status: 0 nothing is refused, 1 something is, 2 the arguments or the input make no sense.
";

/// Nothing is refused.
const CLEAN: u8 = 0;
/// Something is refused.
const REFUSED: u8 = 1;
/// The arguments or the input make no sense.
const USAGE_ERROR: u8 = 2;

/// What the command line asks for.
#[derive(Debug, Default, PartialEq)]
struct Options {
    completions: bool,
    stride: Option<u32>,
    device: DeviceContext,
    input: Vec<String>,
    help: bool,
}

/// Runs `cargo xtask decode` with the arguments after `decode`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let terminal = std::io::stdout().is_terminal();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let style = if terminal && !plain { Style::Ansi } else { Style::Plain };
    match decode(args, style) {
        Ok((text, status)) => {
            // A reader that has seen enough (`| head`) is no error.
            let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
            ExitCode::from(status)
        }
        Err(message) => {
            eprintln!("decode: {message}");
            ExitCode::from(USAGE_ERROR)
        }
    }
}

/// Returns what is to be printed, and the exit status.
fn decode(args: &[String], style: Style) -> Result<(String, u8), String> {
    let options = parse_args(args)?;
    if options.help {
        return Ok((USAGE.to_owned(), CLEAN));
    }
    let bytes = read_input(&options.input)?;
    let mut text = String::new();
    let worst = if options.completions {
        completions(&bytes, options.stride, style, &mut text)?
    } else {
        requests(&bytes, options.device, style, &mut text)?
    };
    Ok((text, if worst == Some(Severity::Refused) { REFUSED } else { CLEAN }))
}

fn parse_args(args: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        match arg {
            "--cqe" => options.completions = true,
            "--engine" => {
                options.device.engine = Some(match args.next() {
                    Some("single-block") => XtsEngine::SingleBlock,
                    Some("multi-block") => XtsEngine::MultiBlock,
                    _ => return Err("--engine wants single-block or multi-block".to_owned()),
                });
            }
            "--stride" => {
                let stride = args.next().and_then(|word| word.parse().ok()).filter(|stride| *stride > 0);
                options.stride = Some(stride.ok_or("--stride wants a number of bytes")?);
            }
            "--help" | "-h" => options.help = true,
            option if option.starts_with("--") => return Err(format!("unknown option {option}\n\n{USAGE}")),
            input => options.input.push(input.to_owned()),
        }
    }
    if options.input.is_empty() && !options.help {
        return Err(format!("nothing to decode\n\n{USAGE}"));
    }
    Ok(options)
}

fn read_input(input: &[String]) -> Result<Vec<u8>, String> {
    let raw = match input {
        [one] if one == "-" => {
            let mut raw = Vec::new();
            std::io::stdin().read_to_end(&mut raw).map_err(|error| format!("standard input: {error}"))?;
            raw
        }
        [one] if std::path::Path::new(one).is_file() => {
            std::fs::read(one).map_err(|error| format!("{one}: {error}"))?
        }
        words => {
            let text = words.join(" ");
            return parse_hex(&text).ok_or(format!("neither hex nor a file: {text}"));
        }
    };
    // Raw bytes are whatever does not read as hex. A request has bytes that are no letters, so none is mistaken.
    let hex = str::from_utf8(&raw).ok().and_then(parse_hex);
    Ok(hex.unwrap_or(raw))
}

/// Reads hex in the forms of common dumps; `None` where it is something else, an odd number of digits or empty.
fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        for word in without_offset(line).split([' ', '\t', ':', ',', '-', '_']) {
            let digits = word.strip_prefix("0x").or(word.strip_prefix("0X")).unwrap_or(word);
            if !digits.len().is_multiple_of(2) {
                return None;
            }
            for pair in digits.as_bytes().chunks(2) {
                let pair = str::from_utf8(pair).ok()?;
                if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                bytes.push(u8::from_str_radix(pair, 16).ok()?);
            }
        }
    }
    (!bytes.is_empty()).then_some(bytes)
}

/// Cuts off an offset: a first word of more than two digits that ends in a colon with a blank behind it.
fn without_offset(line: &str) -> &str {
    match line.trim_start().split_once(": ") {
        Some((offset, rest))
            if offset.len() > 2 && !offset.contains([' ', ':']) && {
                let digits = offset.strip_prefix("0x").unwrap_or(offset);
                digits.bytes().all(|digit| digit.is_ascii_hexdigit())
            } =>
        {
            rest
        }
        _ => line,
    }
}

fn requests(
    bytes: &[u8],
    device: DeviceContext,
    style: Style,
    text: &mut String,
) -> Result<Option<Severity>, String> {
    let mut worst = None;
    let mut end = 0;
    for (offset, request) in Requests::new(bytes) {
        page(offset, &request.pretty(device, style), text);
        worst = worst.max(request.worst(&device));
        end = offset + request.blocks() * 64;
    }
    let left = bytes.len().saturating_sub(end);
    match end {
        0 => Err(format!("{} bytes are too few for a request: 16 are needed", bytes.len())),
        _ => {
            if left > 0 {
                let _ = writeln!(text, "\n{left} bytes are left over from byte {end} ({end:#x})");
            }
            Ok(worst)
        }
    }
}

fn completions(
    bytes: &[u8],
    stride: Option<u32>,
    style: Style,
    text: &mut String,
) -> Result<Option<Severity>, String> {
    let mut worst = None;
    for (number, chunk) in bytes.chunks(64).enumerate() {
        let entry = CompletionEntry::parse(chunk).map_err(|error| error.to_string())?;
        page(number * 64, &entry.pretty(stride, style), text);
        worst = worst.max(entry.worst());
    }
    Ok(worst)
}

/// Adds one decoded thing, behind a line that says where it began, and a blank line between two.
fn page(offset: usize, pretty: &Pretty<'_>, text: &mut String) {
    if offset > 0 {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\nfrom byte {offset} ({offset:#x}):");
    }
    let _ = write!(text, "{pretty}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOP: &str = "00000000 00001001 00000008 00000000";

    fn args(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn status(words: &[&str]) -> Result<u8, String> {
        decode(&args(words), Style::Plain).map(|(_, status)| status)
    }

    #[test]
    fn hex_comes_in_many_forms() {
        let want = Some(vec![0, 1, 0xab, 0xcd]);
        for text in [
            "0001abcd",
            "0x0001ABCD",
            "00 01 ab cd",
            "00:01:ab:cd",
            "0x00, 0x01, 0xab, 0xcd",
            "00000010: 0001 abcd",
            "0x010: 0001\n0x012: abcd\n",
            " 00 01\r\n ab cd",
        ] {
            assert_eq!(parse_hex(text), want, "{text:?}");
        }
        for text in ["", " \n", "000", "0g", "+1", "hello"] {
            assert_eq!(parse_hex(text), None, "{text:?}");
        }
    }

    #[test]
    fn exit_status_tells_findings_from_misuse() {
        assert_eq!(status(&[NOP]), Ok(CLEAN));
        // A size of 0.
        assert_eq!(status(&["00000000 00001000 00000008 00000000"]), Ok(REFUSED));
        // Bytes are missing.
        assert_eq!(status(&["00000000 00001002 00000008 00000000"]), Ok(REFUSED));
        assert!(status(&[]).is_err());
        assert!(status(&["0011"]).is_err());
        assert!(status(&["--engine", "steam", NOP]).is_err());
        assert!(status(&["--what", NOP]).is_err());
        assert!(status(&["--cqe", NOP]).is_err());
        assert_eq!(status(&["--help"]), Ok(CLEAN));
    }

    #[test]
    fn requests_are_split_by_their_size() -> Result<(), String> {
        let block = format!("{NOP}{}", "00".repeat(48));
        let (text, status) = decode(&args(&[&block, &block, NOP]), Style::Plain)?;
        assert_eq!(status, CLEAN);
        assert_eq!(text.matches("NOP, signalled").count(), 3, "{text}");
        assert!(text.contains("from byte 128 (0x80):"), "{text}");
        assert!(!text.contains('\x1b'), "plain has no colours");
        Ok(())
    }

    #[test]
    fn bytes_left_over_are_told() -> Result<(), String> {
        let (text, _) = decode(&args(&[NOP, &"00".repeat(48), "0000"]), Style::Plain)?;
        assert!(text.ends_with("\n2 bytes are left over from byte 64 (0x40)\n"), "{text}");
        Ok(())
    }

    #[test]
    fn completions_are_decoded_on_request() -> Result<(), String> {
        let entry = format!("{}000000d2", "00".repeat(60));
        let (text, status) = decode(&args(&["--cqe", &entry]), Style::Ansi)?;
        assert_eq!(status, CLEAN);
        assert!(text.contains("REQ_ERR") && text.contains('\x1b'), "{text}");
        Ok(())
    }
}
