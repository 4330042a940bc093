//! SPDK's `lib/mlx5`, unchanged, on the software device. A program of this repository calls the library as
//! SPDK's accel module does.

use super::running::Running;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xtask::run::{self, At, root};
use xtask::{debian, emulate};

/// The folder of the program that calls `lib/mlx5`, and of the headers that SPDK's `configure` would
/// generate.
const OURS: &str = "hil-tests/peer/spdk";

const ENGINES: [&str; 3] = ["multi-block", "multi-block-le", "single-block"];

/// The engines whose work requests are recorded. The library supports these.
const RECORDED: [&str; 2] = ["multi-block", "single-block"];

/// The time limit of a run. No engine needs a tenth of it on a quiet machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Builds the program with `lib/mlx5` of a checkout, and runs it on each engine. With `record`, a shorter run
/// writes its work requests to that file.
pub(super) fn check(checkout: &Path, record: Option<&Path>) -> Result<(), String> {
    debian::install(&[debian::VERBS, debian::C, debian::VERBS_HEADERS, debian::SPDK].concat())?;
    let folder = run::temporary("spdk")?;
    let program = compile(checkout, folder.path())?;
    let commit = commit(checkout);
    for engine in ENGINES {
        let output = execute(&program, engine, &[], folder.path())?;
        println!("passed  SPDK {commit} ({engine}): {}", output.lines().last().unwrap_or_default());
    }
    if let Some(file) = record {
        let mut recorded = Vec::new();
        for engine in RECORDED {
            let part = folder.path().join(engine);
            execute(&program, engine, &[&part.to_string_lossy(), &commit], folder.path())?;
            recorded.extend(fs::read(&part).at(&part)?);
        }
        compress(&recorded, folder.path(), file)?;
        println!("recorded into {}", file.display());
    }
    Ok(())
}

fn commit(checkout: &Path) -> String {
    let mut git = run::program("git", &["rev-parse", "HEAD"]);
    git.current_dir(checkout);
    run::answer(git).unwrap_or_else(|_| "of no commit".into())
}

fn compile(checkout: &Path, folder: &Path) -> Result<PathBuf, String> {
    let program = folder.join("spdk");
    let library = checkout.canonicalize().at(checkout)?;
    // SPDK's own build disables strict aliasing as well.
    let mut gcc = run::program("gcc", &["-std=gnu11", "-O2", "-g", "-fno-strict-aliasing"]);
    gcc.arg("-I").arg(root().join(OURS)).arg("-I").arg(library.join("include"));
    gcc.args(sources(&library.join("lib/mlx5"))?).args(sources(&root().join(OURS))?);
    // `--wrap` lets the program record objects before libmlx5 creates them.
    gcc.args(["-Wl,--wrap=mlx5dv_devx_obj_create", "-libverbs", "-lmlx5", "-lcrypto", "-o"]).arg(&program);
    run::check(gcc)?;
    Ok(program)
}

fn sources(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).at(folder)?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    if files.is_empty() { Err(format!("{} holds no C files", folder.display())) } else { Ok(files) }
}

fn execute(program: &Path, engine: &str, arguments: &[&str], folder: &Path) -> Result<String, String> {
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let mut command = emulate::command(words, "plaintext", engine)?;
    command.env("MLX5_UVERBS_DIR", folder.join("fabric")).current_dir(folder);
    let end = Running::start(command, &folder.join("spdk.log"))?.finish(LIMIT)?;
    if end.status.success() && end.output.lines().any(|line| line.ends_with(" passed, 0 failed")) {
        Ok(end.output)
    } else {
        Err(format!("SPDK ({engine}): {end}"))
    }
}

/// Compresses bytes into a file with gzip, without time and name: the same bytes make the same file.
fn compress(bytes: &[u8], folder: &Path, file: &Path) -> Result<(), String> {
    let plain = folder.join("recording");
    fs::write(&plain, bytes).at(&plain)?;
    let packed = fs::File::create(file).at(file)?;
    let mut gzip = run::program("gzip", &["-9", "--no-name", "--stdout"]);
    gzip.arg(&plain).stdout(packed);
    run::check(gzip)
}
