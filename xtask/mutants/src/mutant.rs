//! A mutant: one small change of a file, as cargo-mutants lists it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;
use xtask::run::{answer, program};
use xtask::tools::MUTANTS;

/// A part of the source whose mutants are run: its name and its folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) folder: &'static str,
    /// Whether the part belongs to the library. Other parts belong to the software device.
    pub(crate) core: bool,
}

pub(crate) const PARTS: &[Part] = &[
    Part { name: "command", folder: "src/command", core: true },
    Part { name: "inspect", folder: "src/inspect", core: true },
    Part { name: "mkey", folder: "src/mkey", core: true },
    Part { name: "queue", folder: "src/queue", core: true },
    Part { name: "softdev", folder: "hil-tests/emulator/device/src", core: false },
    Part { name: "wqe", folder: "src/wqe", core: true },
];

/// A place in a file: line and column (in characters), both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// The kind of change that a mutant makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) enum Kind {
    /// The function returns a constant at once.
    Body,
    /// A binary operator is replaced by another one.
    Binary,
    /// A unary operator is removed.
    Unary,
    /// A match arm is removed.
    Arm,
    /// A match guard is replaced by `true` or `false`.
    Guard,
    /// A field of a struct expression is left out, so that it takes the value of the base (`..base`).
    Field,
}

/// The kinds of mutants, with their names in cargo-mutants and in the list of survivors.
const KINDS: [(Kind, &str, &str); 6] = [
    (Kind::Body, "FnValue", "body"),
    (Kind::Binary, "BinaryOperator", "binary"),
    (Kind::Unary, "UnaryOperator", "unary"),
    (Kind::Arm, "MatchArm", "arm"),
    (Kind::Guard, "MatchArmGuard", "guard"),
    (Kind::Field, "StructField", "field"),
];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) struct Mutant {
    pub(crate) start: Place,
    pub(crate) end: Place,
    pub(crate) kind: Kind,
    pub(crate) replacement: String,
    /// The name of the function that contains the change. The name of a method begins with its type.
    pub(crate) function: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (line, column) = text.split_once(':').ok_or(())?;
        Ok(Self { line: line.parse().map_err(drop)?, column: column.parse().map_err(drop)? })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        KINDS.iter().find(|(kind, ..)| kind == self).map_or(Ok(()), |(.., name)| f.write_str(name))
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        KINDS.iter().find(|(.., name)| *name == text).map(|(kind, ..)| *kind).ok_or(())
    }
}

impl Mutant {
    /// Parses columns of the list of survivors: place, kind, new text, function.
    pub(crate) fn read(place: &str, kind: &str, replacement: &str, function: &str) -> Option<Self> {
        let (start, end) = place.split_once('-')?;
        Some(Self {
            start: start.parse().ok()?,
            end: end.parse().ok()?,
            kind: kind.parse().ok()?,
            replacement: replacement.into(),
            function: function.into(),
        })
    }

    /// Returns whether both mutants make the same change in the same function, perhaps at different places.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let of = |mutant: &Self| (mutant.kind, mutant.replacement.clone(), mutant.function.clone());
        of(self) == of(other)
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} `{}` in {}", self.start, self.kind, self.replacement, self.function)
    }
}

/// Returns all mutants of these files, as cargo-mutants lists them.
pub(crate) fn list(files: &[String]) -> Result<Vec<(String, Mutant)>, String> {
    let tool = MUTANTS.find()?;
    let mut command =
        program(&tool.to_string_lossy(), &["mutants", "--list", "--json", "--no-config", "--workspace"]);
    command.args(files.iter().flat_map(|file| ["--file", file]));
    let listed: Value = serde_json::from_str(&answer(command)?).map_err(|error| error.to_string())?;
    let read = |entry| mutant(entry).ok_or_else(|| format!("{tool:?} lists an unknown entry: {entry}"));
    let mut all = listed.as_array().ok_or("no list")?.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    all.sort();
    all.dedup();
    Ok(all)
}

fn mutant(entry: &Value) -> Option<(String, Mutant)> {
    let text = |pointer: &str| entry.pointer(pointer)?.as_str().map(String::from);
    let place = |end: &str| {
        let number =
            |field: &str| usize::try_from(entry.pointer(&format!("/span/{end}/{field}"))?.as_u64()?).ok();
        Some(Place { line: number("line")?, column: number("column")? })
    };
    let genre = text("/genre")?;
    let kind = KINDS.iter().find(|(_, name, _)| *name == genre)?.0;
    Some((
        text("/file")?,
        Mutant {
            start: place("start")?,
            end: place("end")?,
            kind,
            replacement: text("/replacement")?,
            function: text("/function/function_name").unwrap_or_default(),
        },
    ))
}
