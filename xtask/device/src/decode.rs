//! `cargo xtask decode`: prints or draws work requests or completion entries, and describes what a device
//! would refuse in them.

mod card;
mod labels;
mod memory;
mod mkeys;
mod options;
mod page;
mod pieces;
mod reading;
mod sides;
mod tape;
mod text;

use mlx5_mkey::inspect::{Severity, Style};
use options::{Options, USAGE, parse};
use std::io::{IsTerminal, Read};
use std::process::ExitCode;
use xtask::run;
use xtask_parsers::hex::{self, Input, WordOrder};

/// The exit status if a device would refuse nothing.
const CLEAN: u8 = 0;
/// The exit status if a device would refuse a request.
const REFUSED: u8 = 1;

pub(crate) fn run(args: &[String]) -> ExitCode {
    let terminal = std::io::stdout().is_terminal();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let style = if terminal && !plain { Style::Ansi } else { Style::Plain };
    run::with_options(args, USAGE, parse, |options| match decode(&options, style) {
        Ok((text, status)) => run::print(&text, status),
        Err(message) => run::misuse(&format!("decode: {message}")),
    })
}

/// Decodes the input that the options name, and returns the text to print and the exit status.
fn decode(options: &Options, style: Style) -> Result<(String, u8), String> {
    let input = read_input(&options.input, options.words)?;
    let pieces = pieces::pieces(&input, options.reading, options.queue)?;
    let worst = pieces.iter().filter_map(|piece| piece.worst(&options.device)).max();
    let status = if worst == Some(Severity::Refused) { REFUSED } else { CLEAN };
    let Some(file) = &options.html else {
        return Ok((text::text(&pieces, options.device, options.stride, style), status));
    };
    let page = page::page(&source(&options.input), &pieces, options)?;
    let count = pieces.iter().filter(|piece| piece.is_shown()).count();
    std::fs::write(file, page).map_err(|error| format!("{file}: {error}"))?;
    Ok((format!("{file}: {count} drawn\n"), status))
}

/// Returns where the input comes from, in words for the title of the page.
fn source(input: &[String]) -> String {
    match input {
        [one] if one == "-" => "standard input".into(),
        [one] if std::path::Path::new(one).is_file() => one.clone(),
        _ => "the command line".into(),
    }
}

fn read_input(input: &[String], order: Option<WordOrder>) -> Result<Input, String> {
    let raw = match input {
        [one] if one == "-" => {
            let mut raw = Vec::new();
            std::io::stdin().read_to_end(&mut raw).map_err(|error| format!("standard input: {error}"))?;
            raw
        }
        [one] if std::path::Path::new(one).is_file() => {
            std::fs::read(one).map_err(|error| format!("{one}: {error}"))?
        }
        // The input is on the command line. One word may contain a whole log with several lines.
        words => {
            let read = hex::read_text(&words.join(" "), order);
            return read.map_err(|what| format!("neither a file nor hex: {what}"));
        }
    };
    hex::read(raw, order).map_err(|error| error.to_string())
}

/// Decodes as a command line says.
#[cfg(test)]
fn decoded(words: &[&str]) -> Result<(String, u8), String> {
    decode(&parse(&mut run::Options::new(words))?, Style::Plain)
}

#[cfg(test)]
mod dump_tests;
#[cfg(test)]
mod page_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_mkey::inspect::{DeviceContext, QueueKind};

    const NOP: &str = "00000000 00001001 00000008 00000000";

    fn status(words: &[&str]) -> Result<u8, String> {
        decoded(words).map(|(_, status)| status)
    }

    #[test]
    fn exit_status_tells_findings_from_misuse() {
        assert_eq!(status(&[NOP]), Ok(CLEAN));
        // The request has a size field of 0.
        assert_eq!(status(&["00000000 00001000 00000008 00000000"]), Ok(REFUSED));
        // A dump may end inside of a request. The missing part is no reason for a refusal.
        assert_eq!(status(&["00000000 00001002 00000008 00000000"]), Ok(CLEAN));
        assert_eq!(status(&["--words", "little", "25000000"]), status(&["--words", "memory", "25000000"]));
        assert!(status(&["--words", "big", NOP]).is_err());
        assert!(status(&[]).is_err());
        assert!(status(&["0011"]).is_err());
        assert!(status(&["--engine", "steam", NOP]).is_err());
        assert!(status(&["--what", NOP]).is_err());
        assert!(status(&["--cqe", NOP]).is_err());
        assert!(status(&["--stride", "0", NOP]).is_err());
        assert!(status(&["--queue", "what", NOP]).is_err());
        assert!(status(&["--cqe-size", "32", NOP]).is_err());
        assert!(status(&[NOP, "--memory", "0x10=file"]).is_err());
    }

    #[test]
    fn requests_are_split_by_their_size() -> Result<(), String> {
        let block = format!("{NOP}{}", "00".repeat(48));
        let (text, status) = decoded(&[&block, &block, NOP])?;
        assert_eq!(status, CLEAN);
        assert_eq!(text.matches("NOP, signalled").count(), 3, "{text}");
        assert!(text.contains("from byte 128 (0x80):"), "{text}");
        assert!(!text.contains('\x1b'), "plain has no colours");
        Ok(())
    }

    #[test]
    fn a_log_is_decoded_to_itself() -> Result<(), String> {
        let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hil-tests/emulator/record/log.txt");
        let (text, clean) = decoded(&[log])?;
        assert_eq!(clean, CLEAN);
        assert_eq!(format!("{text}\n"), std::fs::read_to_string(log).map_err(|error| error.to_string())?);
        assert!(status(&["--cqe", log]).is_err());
        Ok(())
    }

    #[test]
    fn a_log_of_json_is_decoded_as_the_text() -> Result<(), String> {
        let log =
            |name: &str| format!("{}/../../hil-tests/emulator/record/{name}", env!("CARGO_MANIFEST_DIR"));
        let (text, json) = (log("log.txt"), log("log.jsonl"));
        assert_eq!(decoded(&[&json])?, decoded(&[&text])?);
        let (entry, clean) = decoded(&["--cqe", &json])?;
        assert!(entry.starts_with("mlx5_0 cq 0x3\nREQ: queue pair 0x41, counter 2, RDMA_WRITE"), "{entry}");
        assert_eq!(clean, CLEAN);
        assert!(hex::read(b"{\"bytes\":\"00\"}".to_vec(), None).is_err());
        assert!(hex::read(b"{\"bytes\":".to_vec(), None).is_err());
        Ok(())
    }

    #[test]
    fn blocks_that_were_never_written_are_one_line() -> Result<(), String> {
        let zeros = |blocks: usize| "00".repeat(64 * blocks);
        let block = format!("{NOP}{}", "00".repeat(48));
        let entry = format!("{}0000007700000010", "00".repeat(56));
        for (many, one) in [(&[][..], &block), (&["--cqe"][..], &entry)] {
            let mut words = many.to_vec();
            let input = format!("{one} {} {one} {}", zeros(16), zeros(1));
            words.push(&input);
            let (text, status) = decoded(&words)?;
            assert!(
                text.contains("\nfrom byte 64 (0x40):\n16 empty blocks, never written\n\nfrom byte 1088"),
                "{text}"
            );
            assert!(text.ends_with("\nfrom byte 1152 (0x480):\n1 empty block, never written\n"), "{text}");
            assert_eq!((text.matches("from byte ").count(), status), (3, CLEAN), "{text}");
        }
        let (text, status) = decoded(&[&zeros(2)])?;
        assert_eq!((text.as_str(), status), ("2 empty blocks, never written\n", CLEAN));
        Ok(())
    }

    /// A log names the kind of each queue pair that is not a connected one, here `ud`. The kind decides how
    /// segments are decoded.
    #[test]
    fn a_log_names_the_kind_of_its_queues() -> Result<(), String> {
        let bytes = "0000000a00004202000000080000000000000011000000000000004300000000";
        let rows = "0x000  0000000a 00004202 00000008 00000000\n0x010  00000011 00000000 00000043 00000000\n";
        let json = format!("{{\"queue_pair\":66,\"queue\":\"ud\",\"block\":0,\"bytes\":\"{bytes}\"}}\n");
        for log in [format!("mlx5_0 ud qp 0x42 block 0\n{rows}\n"), json] {
            let input = hex::read(log.clone().into_bytes(), None).map_err(|error| error.to_string())?;
            let pieces = pieces::pieces(&input, None, QueueKind::Unknown)?;
            let text = text::text(&pieces, DeviceContext::UNKNOWN, None, Style::Plain);
            assert!(text.contains("to queue pair 0x43, Q_Key 0x00000011"), "{log}: {text}");
        }
        Ok(())
    }

    #[test]
    fn bytes_left_over_are_told() -> Result<(), String> {
        let (text, _) = decoded(&[NOP, &"00".repeat(48), "0000"])?;
        assert!(text.ends_with("\n2 bytes are left over from byte 64 (0x40)\n"), "{text}");
        Ok(())
    }

    #[test]
    fn a_page_goes_into_a_file() -> Result<(), String> {
        let folder = run::temporary("decode-page")?;
        let file = folder.path().join("page.html").display().to_string();
        let (text, clean) = decoded(&["--html", &file, NOP])?;
        assert_eq!((text, clean), (format!("{file}: 1 drawn\n"), CLEAN));
        assert_eq!(status(&["--html", &file, "00000000 00001000 00000008 00000000"]), Ok(REFUSED));
        let page = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("the command line"), "{page}");
        let nowhere = folder.path().join("none/page.html").display().to_string();
        assert!(status(&["--html", &nowhere, NOP]).is_err());
        assert!(status(&[NOP, "--html"]).is_err());
        assert!(status(&["--memory", &format!("0x10={file}"), NOP]).is_err());
        assert!(status(&["--memory", "0x10=/nowhere/at/all", "--html", &file, NOP]).is_err());
        Ok(())
    }

    #[test]
    fn completions_are_decoded_on_request() -> Result<(), String> {
        let entry = format!("{}000000d2", "00".repeat(60));
        let (text, status) = decode(&parse(&mut run::Options::new(["--cqe", &entry]))?, Style::Ansi)?;
        assert_eq!(status, CLEAN);
        assert!(text.contains("REQ_ERR") && text.contains('\x1b'), "{text}");
        Ok(())
    }
}
