//! A mutant: one small change of a file, as cargo-mutants lists it.

use serde::{Deserialize, Serialize};
use std::fmt;
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

/// The kind of change that a mutant makes, by its name in cargo-mutants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) enum Kind {
    /// The function returns a constant at once.
    FnValue,
    /// A binary operator is replaced by another one.
    BinaryOperator,
    /// A unary operator is removed.
    UnaryOperator,
    /// A match arm is removed.
    MatchArm,
    /// A match guard is replaced by `true` or `false`.
    MatchArmGuard,
    /// A field of a struct expression is left out, so that it takes the value of the base (`..base`).
    StructField,
}

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

impl Mutant {
    /// Parses columns of the list of survivors: place, kind, new text, function.
    pub(crate) fn read(place: &str, kind: &str, replacement: &str, function: &str) -> Option<Self> {
        let place_of = |text: &str| {
            let (line, column) = text.split_once(':')?;
            Some(Place { line: line.parse().ok()?, column: column.parse().ok()? })
        };
        let (start, end) = place.split_once('-')?;
        Some(Self {
            start: place_of(start)?,
            end: place_of(end)?,
            kind: serde_json::from_value(kind.into()).ok()?,
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
        write!(f, "{}: {:?} `{}` in {}", self.start, self.kind, self.replacement, self.function)
    }
}

/// An entry of cargo-mutants' list.
#[derive(Deserialize)]
struct Entry {
    file: String,
    function: Option<Function>,
    genre: Kind,
    replacement: String,
    span: Span,
}

#[derive(Deserialize)]
struct Function {
    function_name: String,
}

#[derive(Deserialize)]
struct Span {
    start: Place,
    end: Place,
}

/// Returns all mutants of these files, as cargo-mutants lists them.
pub(crate) fn list<'f>(files: impl Iterator<Item = &'f str>) -> Result<Vec<(String, Mutant)>, String> {
    let files: Vec<_> = files.flat_map(|file| ["--file", file]).collect();
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let tool = MUTANTS.find()?;
    let mut command =
        program(&tool.to_string_lossy(), &["mutants", "--list", "--json", "--no-config", "--workspace"]);
    command.args(files);
    let listed: Vec<Entry> = serde_json::from_str(&answer(command)?).map_err(|error| error.to_string())?;
    let mutant = |Entry { file, function, genre, replacement, span: Span { start, end } }| {
        let function = function.map(|function: Function| function.function_name).unwrap_or_default();
        (file, Mutant { start, end, kind: genre, replacement, function })
    };
    let mut all: Vec<_> = listed.into_iter().map(mutant).collect();
    all.sort();
    all.dedup();
    Ok(all)
}
