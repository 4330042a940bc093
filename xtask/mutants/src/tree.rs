//! A copy of the repository, with a target folder of its own, in which mutants are built.

use crate::mutant::{Mutant, PARTS};
use crate::schema::{self, Schema};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use xtask::run::{answer, cargo, program, root};

/// The source of a module that turns mutants on, and the features that let constant functions call it.
const SWITCH: &str = include_str!("switch.txt");
const FEATURES: &str = "#![feature(core_intrinsics, const_eval_select)]\n";

/// A script that cargo calls instead of rustc in the copy: it allows unstable features and silences lints.
const WRAPPER: &str = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec \"$@\" --cap-lints allow\n";

/// In the copy, property tests try fewer cases: a few cases notice most mutants, and a survivor costs the
/// time of all cases.
const CASES: (&str, &str) = ("cases: 1000", "cases: 100");

/// A mutant to be built: its number, its file, and the change.
pub(crate) type Wanted<'a> = (u32, &'a str, &'a Mutant);

#[derive(Debug)]
pub(crate) struct Tree {
    folder: PathBuf,
    target: PathBuf,
    /// The original texts of the source files.
    sources: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    /// The folder in which cargo would run the test program.
    pub(crate) folder: PathBuf,
}

/// Mutants that are not in a common build, or may have no effect in it.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Mutants that the compiler refuses.
    pub(crate) refused: BTreeSet<u32>,
    /// Mutants that must be built alone.
    pub(crate) alone: BTreeSet<u32>,
    /// Mutants in constant functions. The compiler may have evaluated the function without the mutant.
    pub(crate) constant: BTreeSet<u32>,
}

impl Tree {
    /// Copies the repository to a folder below `target`. A copy of an earlier run is only brought up to date.
    pub(crate) fn copy() -> Result<Self, String> {
        let home = root().join("target/mutants");
        let mut tree =
            Self { folder: home.join("tree"), target: home.join("target"), sources: BTreeMap::new() };
        let listed = answer(program("git", &["ls-files", "-co", "--exclude-standard"]))?;
        let files: BTreeSet<_> = listed.lines().filter(|file| root().join(file).is_file()).collect();
        let say = |error: io::Error| error.to_string();
        fs::create_dir_all(&tree.folder).map_err(say)?;
        for gone in xtask::run::files(&tree.folder).map_err(say)? {
            let name = gone.strip_prefix(&tree.folder).unwrap_or(&gone).to_string_lossy().into_owned();
            if !files.contains(name.as_str()) {
                fs::remove_file(&gone).map_err(say)?;
            }
        }
        for file in files {
            let bytes = fs::read(root().join(file)).map_err(say)?;
            match String::from_utf8(bytes) {
                Ok(text) if file.ends_with(".rs") => {
                    tree.put(file, text.replace(CASES.0, CASES.1).as_bytes())?;
                    tree.sources.insert(file.into(), text);
                }
                Ok(text) => tree.put(file, text.as_bytes())?,
                Err(error) => tree.put(file, error.as_bytes())?,
            }
        }
        let wrapper = tree.wrapper();
        fs::write(&wrapper, WRAPPER)
            .and_then(|()| fs::set_permissions(&wrapper, Permissions::from_mode(0o755)))
            .map_err(say)?;
        Ok(tree)
    }

    fn source(&self, file: &str) -> Result<&str, String> {
        self.sources.get(file).map(String::as_str).ok_or_else(|| format!("{file} was not copied"))
    }

    fn wrapper(&self) -> PathBuf {
        self.target.with_file_name("rustc")
    }

    /// Writes a file of the copy if its content differs, so that cargo builds only changed files again.
    fn put(&self, file: &str, bytes: &[u8]) -> Result<(), String> {
        let path = self.folder.join(file);
        if fs::read(&path).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        folder.and_then(|()| fs::write(&path, bytes)).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes the source files of all parts into the copy, with these mutants in them, and the switch of
    /// mutants.
    fn plant(&self, wanted: &[Wanted<'_>], left: &mut Left) -> Result<BTreeMap<String, Schema>, String> {
        let mut schemas = BTreeMap::new();
        for part in PARTS {
            let switch = if part.core { "crate::mutant_switch::on" } else { "mlx5_mkey::mutant_switch::on" };
            for file in crate::results::files(part)? {
                let of_file = |wanted: &&Wanted<'_>| {
                    let number = wanted.0;
                    wanted.1 == file && !left.refused.contains(&number) && !left.alone.contains(&number)
                };
                let mutants: Vec<_> =
                    wanted.iter().filter(of_file).map(|wanted| (wanted.0, wanted.2)).collect();
                let source = self.source(&file)?;
                if mutants.is_empty() {
                    self.put(&file, source.as_bytes())?;
                    continue;
                }
                let schema =
                    schema::write(source, switch, &mutants).map_err(|error| format!("{file}: {error}"))?;
                left.alone.extend(&schema.alone);
                left.refused.extend(&schema.refused);
                left.constant.extend(&schema.constant);
                self.put(&file, schema.text.as_bytes())?;
                schemas.insert(file, schema);
            }
        }
        self.put("src/mutant_switch.rs", SWITCH.as_bytes())?;
        let library =
            self.source("src/lib.rs")?.replacen("#![no_std]\n", &format!("#![no_std]\n{FEATURES}"), 1);
        self.put("src/lib.rs", format!("{library}\n#[doc(hidden)]\npub mod mutant_switch;\n").as_bytes())?;
        Ok(schemas)
    }

    /// Builds tests with all of these mutants. Repeats the build without the mutants that the compiler
    /// refuses, until no error is left.
    pub(crate) fn build(
        &self,
        wanted: &[Wanted<'_>],
        selection: &[&str],
        left: &mut Left,
    ) -> Result<Vec<Built>, String> {
        loop {
            let schemas = self.plant(wanted, left)?;
            let (built, errors) = self.cargo(selection)?;
            if errors.is_empty() {
                return Ok(built);
            }
            let before = (left.refused.len(), left.alone.len());
            for error in &errors {
                blame(error, &schemas, left);
            }
            println!(
                "  {} errors of the compiler; refused so far {}, to be built alone {}",
                errors.len(),
                left.refused.len(),
                left.alone.len()
            );
            if before == (left.refused.len(), left.alone.len()) {
                let texts = errors.iter().filter_map(|error| error.get("rendered")?.as_str());
                return Err(texts.take(3).collect());
            }
        }
    }

    /// Builds tests with one mutant. Returns `None` if the compiler refuses the mutant.
    pub(crate) fn build_alone(
        &self,
        file: &str,
        mutant: &Mutant,
        selection: &[&str],
    ) -> Result<Option<Vec<Built>>, String> {
        self.build_text(file, &schema::replace(self.source(file)?, mutant), selection)
    }

    /// Builds tests with a new text of a file. Returns `None` if the compiler refuses the text.
    pub(crate) fn build_text(
        &self,
        file: &str,
        text: &str,
        selection: &[&str],
    ) -> Result<Option<Vec<Built>>, String> {
        self.plant(&[], &mut Left::default())?;
        self.put(file, text.as_bytes())?;
        let (built, errors) = self.cargo(selection)?;
        Ok(errors.is_empty().then_some(built))
    }

    /// Builds tests with cargo. Returns the test programs, and the errors of the compiler.
    fn cargo(&self, selection: &[&str]) -> Result<(Vec<Built>, Vec<Value>), String> {
        let mut command = cargo(&["test", "--no-run", "--quiet", "--message-format=json", "--offline"]);
        command.args(selection).current_dir(&self.folder);
        command.env("CARGO_TARGET_DIR", &self.target).env("RUSTC_WORKSPACE_WRAPPER", self.wrapper());
        // The copy is built many times with small changes. Its builds are incremental even if the environment
        // turns incremental builds off.
        command.env("CARGO_INCREMENTAL", "1");
        let output = command.output().map_err(|error| error.to_string())?;
        let (mut built, mut errors) = (Vec::new(), Vec::new());
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let message: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
            let text = |pointer: &str| Some(message.pointer(pointer)?.as_str()?.to_owned());
            if text("/message/level").as_deref() == Some("error") {
                errors.extend(message.get("message").cloned());
            }
            if let (Some(program), Some(name), Some(manifest)) =
                (text("/executable"), text("/target/name"), text("/manifest_path"))
                && message.pointer("/profile/test") == Some(&Value::Bool(true))
            {
                let folder = Path::new(&manifest).parent().map(Path::to_path_buf).unwrap_or_default();
                built.push(Built { name, program: program.into(), folder });
            }
        }
        if !output.status.success() && errors.is_empty() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok((built, errors))
    }
}

/// Finds the mutants that cause an error of the compiler, and leaves them out of the next build: the mutant
/// at the place of the error, otherwise the mutants around this place, otherwise the next mutants after it
/// (mutants of a body can cause an error in the signature).
fn blame(error: &Value, schemas: &BTreeMap<String, Schema>, left: &mut Left) {
    let spans = error.get("spans").and_then(Value::as_array).into_iter().flatten();
    let place = |span: &Value| {
        let schema = schemas.get(span.get("file_name")?.as_str()?)?;
        let start = usize::try_from(span.get("byte_start")?.as_u64()?).ok()?;
        Some((schema, start, span.get("is_primary")?.as_bool()?))
    };
    let mut places: Vec<_> = spans.filter_map(place).collect();
    places.sort_by_key(|(.., primary)| !primary);
    let branch = places.iter().find_map(|(schema, at, _)| {
        let within = schema.branches.iter().filter(|(range, _)| range.contains(at));
        within.min_by_key(|(range, _)| range.len())
    });
    if let Some((_, number)) = branch {
        left.refused.insert(*number);
        return;
    }
    let around = places.iter().find_map(|(schema, at, _)| {
        let within = schema.around.iter().filter(|(range, _)| range.contains(at));
        within.min_by_key(|(range, _)| range.len())
    });
    let next = || {
        places.iter().find_map(|(schema, at, _)| {
            let behind = schema.around.iter().filter(|(range, _)| range.start >= *at);
            behind.min_by_key(|(range, _)| range.start)
        })
    };
    if let Some((_, numbers)) = around.or_else(next) {
        left.alone.extend(numbers);
        let text = error.get("rendered").and_then(Value::as_str).unwrap_or_default();
        // The first line is the error, the second one its place.
        let lines = text.lines().take(2).map(str::trim_start).collect::<Vec<_>>();
        println!("  {} to be built alone: {}", numbers.len(), lines.join(" "));
    }
}
