//! `cargo xtask demo`: runs the examples of three man pages, the ten rows of the table in
//! `mlx5dv_wr_set_mkey_crypto`, and the transfer of a file on the software device.

mod render;

use hil_tests::demo::{self, examples, faults, file, rows};
use render::{Painter, Summary};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xtask::run::{self, root};

const HELP: &str = "\
cargo xtask demo [--file PATH] [--fault NAME | --fault list]

  --file PATH    the file that is sent and received (default: LICENSE-APACHE of this repository)
  --fault NAME   breaks the software device; the demo must then fail. `list` lists the names.
                 It cannot show those that `list` marks so: what they break is in none of the three
                 manual pages (SEND with invalidation, wrapped keys, draining, and the like)
  --help         this text

Exit status: 0 all is correct, 1 something is wrong, 2 the arguments make no sense.
";

/// The file that the demo transfers by default. It exists in every clone.
const DEFAULT_FILE: &str = "LICENSE-APACHE";

/// The file that the demo transfers, and a broken device's fault. `None`: the faults are listed.
type Request = Option<(PathBuf, Option<&'static faults::Fault>)>;

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    run::with_options(arguments, HELP, parse, |request| match serve(request) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => run::misuse(&format!("error: {error}")),
    })
}

fn serve(request: Request) -> Result<bool, String> {
    let mut out = BufWriter::new(io::stdout().lock());
    let done = match request {
        None => list(&mut out).map(|()| true),
        Some((file, fault)) => perform(&mut out, Painter::for_stdout(), open(&file)?, &file, fault),
    };
    match done.and_then(|good| out.flush().map(|()| good)) {
        // The reader of the output has closed the pipe. The output is incomplete, which counts as a failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        done => done.map_err(|error| error.to_string()),
    }
}

fn list(out: &mut impl Write) -> io::Result<()> {
    faults::ALL.iter().try_for_each(|fault| {
        let hidden = if fault.shown { "" } else { " (not shown)" };
        writeln!(out, "{:<27}  {}{hidden}", fault.name(), fault.what)
    })
}

fn parse(words: &mut run::Options) -> Result<Request, String> {
    let (mut file, mut fault) = (root().join(DEFAULT_FILE), None);
    while let Some(option) = words.word()? {
        match option.as_str() {
            "--file" => file = words.value()?,
            "--fault" => {
                let name: String = words.value()?;
                if name == "list" {
                    return Ok(None);
                }
                let found = faults::find(&name);
                fault = Some(found.ok_or_else(|| format!("no fault `{name}`; `--fault list` lists them"))?);
            }
            other => return Err(run::unknown(other)),
        }
    }
    Ok(Some((file, fault)))
}

fn open(path: &Path) -> Result<File, String> {
    let fail = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let file = File::open(path).map_err(fail)?;
    if file.metadata().map_err(fail)?.is_dir() {
        return Err(format!("cannot read {}: it is a directory", path.display()));
    }
    Ok(file)
}

/// Runs the three parts of the demo, each on a new device, and prints their results. Returns whether all
/// results were correct.
fn perform(
    out: &mut impl Write,
    painter: Painter,
    source: impl io::Read,
    path: &Path,
    fault: Option<&faults::Fault>,
) -> io::Result<bool> {
    let board = || demo::soft_board(fault.map(faults::Fault::alone).unwrap_or_default());
    let mut summary = Summary::default();
    render::title(out, painter, fault)?;

    let mut device = board();
    render::examples_head(out, painter)?;
    for example in examples::EXAMPLES {
        let seen = (example.run)(&mut device);
        render::example(out, painter, example, &seen)?;
        summary.add_example(example, &seen);
    }
    out.flush()?;

    let mut device = board();
    render::rows_head(out, painter)?;
    for row in rows::ROWS {
        let outcome = row.run(&mut device);
        render::row(out, painter, &outcome)?;
        summary.add_row(&outcome);
    }
    out.flush()?;

    let report = file::run(&mut board(), source)
        .map_err(|error| io::Error::other(format!("cannot read {}: {error}", path.display())))?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    render::file(out, painter, &name, &report)?;
    summary.add_file(&report);
    render::summary(out, painter, &summary)?;
    Ok(summary.wrong.is_empty())
}

#[cfg(test)]
mod tests {
    use super::render::WIDTH;
    use super::*;

    /// Runs the demo with these bytes as its file. Returns whether all was correct, and the output.
    fn demo(painter: Painter, fault: Option<&faults::Fault>, file: &[u8]) -> (bool, String) {
        let mut out = Vec::new();
        let good = perform(&mut out, painter, file, Path::new("folder/some file"), fault);
        (good.expect("memory takes all"), String::from_utf8(out).expect("text"))
    }

    fn lorem(length: usize) -> Vec<u8> {
        b"Lorem ipsum dolor sit amet, ".iter().copied().cycle().take(length).collect()
    }

    #[test]
    fn a_sound_device_passes() {
        for length in [0, 1, 5000] {
            let (good, text) = demo(Painter(false), None, &lorem(length));
            assert!(good, "{text}");
            let count = examples::EXAMPLES.len();
            let last = format!("demo: {count} examples, 10 rows, file of {length} bytes: all correct");
            let mut lines = text.lines().rev();
            let next: Vec<_> = lines.by_ref().take_while(|line| **line != last).collect();
            // After the verdict, the demo prints what it has shown, commands that show it as pages, and what
            // to do next.
            for part in ["Shown: ", "As pages: ", "decode --html", "Next: "] {
                assert!(next.iter().any(|line| line.contains(part)), "{part}: {text}");
            }
            assert!(text.is_ascii() && !text.contains('\x1b'));
            assert_eq!(text.lines().find(|line| line.len() > WIDTH), None);
        }
    }

    #[test]
    fn colours_change_nothing_else() {
        // The line with the data rate differs from run to run.
        let steady = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.contains("MB/s")).map(String::from).collect()
        };
        let (_, mut painted) = demo(Painter(true), None, &[]);
        let (_, plain) = demo(Painter(false), None, &[]);
        assert!(painted.contains('\x1b'));
        for code in ["1", "32", "1;31", "2", "0"] {
            painted = painted.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(steady(&painted), steady(&plain));
    }

    /// The faults of the device with which the demo must fail, and the part of the demo that must notice
    /// each.
    const SHOWN: &[(&str, &str)] = &[
        ("ref-tag-not-advancing", "mlx5dv_wr_set_mkey_sig_block, Example 2:"),
        ("tweak-not-advancing", "row A"),
        ("signature-over-plaintext", "row B"),
        ("stride-ignored", "mlx5dv_wr_mkey_configure, Interleaved data layout:"),
        ("access-flags-ignored", "mlx5dv_wr_mkey_configure, Access flags (setter):"),
        ("local-inv-ignored", "mlx5dv_wr_mkey_configure, LOCAL_INV (usage):"),
        ("binding-refused", "mlx5dv_wr_mkey_configure, LOCAL_INV (usage):"),
        ("dek256-as-128", "file:"),
        ("wire-signatures-ignored", "row C"),
        ("check-mask-ignored", "mlx5dv_wr_set_mkey_sig_block, check_mask:"),
        ("copy-mask-ignored", "mlx5dv_wr_set_mkey_sig_block, copy_mask:"),
        ("escapes-ignored", "mlx5dv_wr_set_mkey_sig_block, APP_ESCAPE:"),
        ("psv-not-reset-by-set-psv", "file:"),
        ("keytag-ignored", "mlx5dv_wr_set_mkey_crypto, key_tag:"),
        ("length-counts-memory-bytes", "row D"),
        ("job-size-ignored", "mlx5dv_wr_set_mkey_crypto, job_size, unit 512:"),
        ("error-not-kept-first", "mlx5dv_wr_set_mkey_sig_block, Example 2.1:"),
        ("crc-seed-inverted", "mlx5dv_wr_set_mkey_sig_block, Example 1:"),
    ];

    #[test]
    fn faults_are_listed_with_what_they_do() {
        let mut out = Vec::new();
        list(&mut out).expect("memory takes all");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.matches("(not shown)").count(), faults::ALL.len() - SHOWN.len(), "{text}");
        assert_eq!(text.lines().chain(HELP.lines()).find(|line| line.len() > WIDTH), None);
    }

    #[test]
    fn a_broken_device_fails_where_it_is_broken() {
        for fault in faults::ALL {
            let name = fault.name();
            let (good, text) = demo(Painter(false), Some(fault), &lorem(1300));
            assert_eq!(text.lines().find(|line| line.len() > WIDTH), None);
            let (_, wrong) = text.rsplit_once("\nWrong:\n").unwrap_or_default();
            match SHOWN.iter().find(|(shown, _)| *shown == name) {
                Some((_, part)) => {
                    assert!(!good && fault.shown, "{name}");
                    assert!(!text.contains("file of 0 bytes"), "{name}");
                    assert!(wrong.contains(&format!("  {part}")), "{name}: {wrong}");
                }
                None => assert!(good && !fault.shown, "{name}: {wrong}"),
            }
        }
        let named = |name: &str| faults::ALL.iter().any(|fault| fault.name() == name);
        assert!(SHOWN.iter().all(|(name, _)| named(name)));
    }

    #[test]
    fn wrong_arguments_are_explained() {
        let parsed = |words: &[&str]| parse(&mut run::Options::new(words));
        let error = |words: &[&str]| parsed(words).and_then(serve).expect_err("refused");
        assert!(error(&["--file", "no/such/file"]).starts_with("cannot read no/such/file"));
        assert!(error(&["--file", env!("CARGO_MANIFEST_DIR")]).ends_with("it is a directory"));
        assert!(error(&["--fault", "none-such"]).contains("none-such"));
        for words in [&["--file"][..], &["--fault"], &["--what"], &["file"]] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }
}
