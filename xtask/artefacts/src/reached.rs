//! Checks that the compiled code in which panics are searched contains every public function of the library.
//!
//! rustdoc's JSON lists the functions. A function without generic parameters is compiled in the library
//! itself. The freestanding program has to call any other function. If a function has a parameter for a
//! user's type, the call has to pass a type of that program. The symbols of an unoptimised build show the
//! calls.

use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Returns the name of a function: a free function (`of` is empty), a method of the type `of`, or a function
/// of the trait `by` that `of` implements. Types and traits are named without paths and parameters.
fn named(of: &str, by: &str, name: &str) -> String {
    match (of, by) {
        ("", _) => name.to_owned(),
        (of, "") => format!("{of}::{name}"),
        (of, by) => format!("<{of} as {by}>::{name}"),
    }
}

/// The compiled instances of a function that must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The function itself, which has no generic parameters.
    One,
    /// An instance with any arguments for its generic parameters, which are constants or types of the
    /// library. One instance is enough.
    OfSize,
    /// An instance with a type of the freestanding program, which represents a user's type.
    OfType,
}

/// The place of a function in the library's sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) name: String,
    pub(super) lines: RangeInclusive<usize>,
}

/// Traits that no type outside of the library implements.
const SEALED: [&str; 1] = ["CqeSlot"];

/// The crate (the freestanding program) whose types represent a user's types.
const USER: &str = "hil_freestanding::";

/// Checks that all public functions exist among the demangled symbols of the library or of the freestanding
/// program.
///
/// # Errors
/// The missing functions, or the reason why the list of functions cannot be complete.
pub(super) fn check(
    json: &str,
    library: &BTreeSet<&str>,
    program: &BTreeSet<&str>,
) -> Result<String, String> {
    let wanted = public(json).ok_or("rustdoc's JSON has another format")?;
    let in_library: BTreeSet<String> = library.iter().filter_map(|name| parse(name)).collect();
    let in_program: BTreeSet<String> = program.iter().filter_map(|name| parse(name)).collect();
    let of_users = program.iter().filter(|name| name.contains(USER));
    let of_users: BTreeSet<String> = of_users.filter_map(|name| parse(name)).collect();
    let is_there = |function: &String, wanted: Wanted| match wanted {
        Wanted::One => in_library.contains(function) || in_program.contains(function),
        Wanted::OfSize => in_program.contains(function),
        Wanted::OfType => of_users.contains(function),
    };
    let missing: Vec<String> = wanted
        .iter()
        .filter(|(function, wanted)| !is_there(function, *wanted))
        .map(|(function, _)| function.clone())
        .collect();
    if !missing.is_empty() {
        return Err(format!(
            "public functions that hil-tests/freestanding does not call: {}",
            missing.join(", ")
        ));
    }
    let count = |kind| wanted.iter().filter(|(_, wanted)| *wanted == kind).count();
    let (all, sizes, types) = (wanted.len(), count(Wanted::OfSize), count(Wanted::OfType));
    if sizes == 0 || types == 0 {
        return Err("no function depends on a size or a type: the check does not work".into());
    }
    Ok(format!("all {all} public functions are checked, {types} for types of a user and {sizes} for a size"))
}

/// Returns all public functions in rustdoc's JSON, without derived and blanket implementations.
fn public(json: &str) -> Option<Vec<(String, Wanted)>> {
    let json: Value = serde_json::from_str(json).ok()?;
    let index = json.get("index")?.as_object()?;
    let item = |id: &Value| index.get(&id.to_string());
    let mut found = Vec::new();
    let mut owned = BTreeSet::new();
    for entry in index.values() {
        let inner = entry.get("inner")?;
        if let Some(of_trait) = inner.get("trait") {
            owned.extend(of_trait.get("items")?.as_array()?.iter().map(Value::to_string));
        }
        let Some(block) = inner.get("impl") else { continue };
        let items = block.get("items")?.as_array()?;
        owned.extend(items.iter().map(Value::to_string));
        let is_derived = entry.get("attrs")?.as_array()?.iter().any(|one| one == "automatically_derived");
        if is_derived || block.get("is_synthetic")? == true || !block.get("blanket_impl")?.is_null() {
            continue;
        }
        let of = type_name(block.get("for")?)?;
        let by = block.get("trait")?.get("path").and_then(Value::as_str).map_or("", last);
        let own_trait = block.get("trait")?.get("id").and_then(item);
        let provided = own_trait.and_then(|found| found.get("inner")?.get("trait")?.get("items")?.as_array());
        let outer = wanted(block.get("generics")?)?;
        let mut add = |function: &Value| {
            let inner = function.get("inner")?.get("function")?;
            if inner.get("has_body")? == true {
                let wanted = outer.max_of(wanted(inner.get("generics")?)?);
                let function = named(&of, by, function.get("name")?.as_str()?);
                if !found.iter().any(|(known, _)| *known == function) {
                    found.push((function, wanted));
                }
            }
            Some(())
        };
        // This loop adds the methods of this implementation, and the default methods of a trait of the
        // library.
        for id in provided.into_iter().flatten().chain(items) {
            if let Some(function) = item(id).filter(|found| found.pointer("/inner/function").is_some()) {
                add(function)?;
            }
        }
    }
    for (id, entry) in index.iter().filter(|(id, _)| !owned.contains(*id)) {
        if let (Some(inner), false) = (entry.pointer("/inner/function"), id.is_empty()) {
            found.push((entry.get("name")?.as_str()?.to_owned(), wanted(inner.get("generics")?)?));
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Some(found)
}

/// Returns the places of public functions. For a derived function, the place is that of the attribute
/// `derive`.
pub(super) fn places(json: &str) -> Option<Vec<Place>> {
    let json: Value = serde_json::from_str(json).ok()?;
    let place = |entry: &Value| {
        if entry.pointer("/inner/function/has_body")? != true {
            return None;
        }
        let line = |end: &str| usize::try_from(entry.pointer(&format!("/span/{end}/0"))?.as_u64()?).ok();
        let file = entry.pointer("/span/filename")?.as_str()?.to_owned();
        Some(Place {
            file,
            name: entry.get("name")?.as_str()?.to_owned(),
            lines: line("begin")?..=line("end")?,
        })
    };
    Some(json.get("index")?.as_object()?.values().filter_map(place).collect())
}

impl Wanted {
    fn max_of(self, other: Self) -> Self {
        if self == Self::OfType || other == Self::One { self } else { other }
    }
}

/// Returns which instances the generic parameters of a function require.
fn wanted(generics: &Value) -> Option<Wanted> {
    let kinds = generics.get("params")?.as_array()?.iter().map(|parameter| parameter.get("kind"));
    kinds.into_iter().try_fold(Wanted::One, |before, kind| {
        let kind = kind?;
        let this = match () {
            () if kind.get("type").is_some_and(is_sealed) => Wanted::OfSize,
            () if kind.get("type").is_some() => Wanted::OfType,
            () if kind.get("const").is_some() => Wanted::OfSize,
            () => Wanted::One,
        };
        Some(before.max_of(this))
    })
}

/// Returns whether a type parameter can only be a type of the library.
fn is_sealed(parameter: &Value) -> bool {
    let bounds = parameter.get("bounds").and_then(Value::as_array);
    let path = |bound: &Value| Some(last(bound.pointer("/trait_bound/trait/path")?.as_str()?).to_owned());
    bounds.into_iter().flatten().filter_map(path).any(|path| SEALED.contains(&path.as_str()))
}

fn type_name(value: &Value) -> Option<String> {
    let (kind, inner) = value.as_object()?.iter().next()?;
    Some(match kind.as_str() {
        "resolved_path" => last(inner.get("path")?.as_str()?).to_owned(),
        "borrowed_ref" => format!("&{}", type_name(inner.get("type")?)?),
        // A type parameter matches any type.
        "generic" => "?".into(),
        "tuple" => "()".into(),
        "primitive" => inner.as_str()?.to_owned(),
        other => other.into(),
    })
}

fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Parses a demangled symbol. A reference to any type becomes `&?`, because the library implements its traits
/// for references to all types alike.
fn parse(symbol: &str) -> Option<String> {
    let Some(rest) = symbol.strip_prefix('<') else {
        return symbol.starts_with("mlx5_mkey::").then(|| last(&plain(symbol)).to_owned());
    };
    let end = closing(rest)?;
    let (inside, behind) = (rest.get(..end)?, rest.get(end + 1..)?);
    let name = plain(behind.strip_prefix("::")?);
    // A closure is part of its function and not counted as a function.
    if name.contains("::") {
        return None;
    }
    let (of, by) = top_level(inside, " as ").map_or((inside, ""), |at| (&inside[..at], &inside[at + 4..]));
    let of = match of.strip_prefix('&') {
        Some(_) => "&?".to_owned(),
        None if of.starts_with('(') => "()".into(),
        None => last(&plain(of)).to_owned(),
    };
    Some(named(&of, last(&plain(by)), &name))
}

/// Returns each character with its offset, and with the nesting depth of angle brackets after the character.
fn depths(text: &str) -> impl Iterator<Item = (usize, char, i32)> {
    let (mut depth, mut before) = (0, ' ');
    text.char_indices().map(move |(at, letter)| {
        // The `>` of an arrow `->` closes no bracket.
        depth += i32::from(letter == '<') - i32::from(letter == '>' && before != '-');
        before = letter;
        (at, letter, depth)
    })
}

/// Returns a path without its generic arguments (the parts in angle brackets).
fn plain(path: &str) -> String {
    let outside = depths(path).filter(|(_, letter, depth)| *depth == 0 && *letter != '>');
    let kept: String = outside.map(|(_, letter, _)| letter).collect();
    kept.trim_end_matches("::").to_owned()
}

/// Returns the offset of the first angle bracket that closes a bracket opened before `text`.
fn closing(text: &str) -> Option<usize> {
    depths(text).find(|(_, _, depth)| *depth < 0).map(|(at, _, _)| at)
}

/// Returns the offset of a word that is outside of all angle brackets.
fn top_level(text: &str, word: &str) -> Option<usize> {
    text.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = text.get(..*at).unwrap_or_default();
        depths(before).last().is_none_or(|(_, _, depth)| depth == 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rustdoc's JSON for: a type with a function that has a constant parameter and one that takes a
    /// callback; a trait of the library with a default method, and a type that implements the trait; a free
    /// function; a derived function.
    const JSON: &str = r#"{"index": {
        "0": {"name": "ring", "inner": {"function": {"generics": {"params": []}, "has_body": true}}},
        "1": {"name": "restart", "inner": {"function": {"generics": {"params": [{"kind": {"type": {}}}]},
            "has_body": true}}},
        "2": {"name": "encode", "inner": {"function": {"generics": {"params": []}, "has_body": true}}},
        "3": {"name": "write", "inner": {"function": {"generics": {"params": []}, "has_body": false}}},
        "4": {"name": "write", "inner": {"function": {"generics": {"params": []}, "has_body": true}}},
        "5": {"name": "wipe", "inner": {"function": {"generics": {"params": []}, "has_body": true}}},
        "6": {"name": "Command", "inner": {"trait": {"items": [2, 3]}}},
        "7": {"attrs": [], "inner": {"impl": {"items": [0], "is_synthetic": false, "blanket_impl": null,
            "trait": null,
            "generics": {"params": [{"kind": {"const": {}}}]}, "for": {"resolved_path": {"path": "Queue"}}}}},
        "8": {"attrs": [], "inner": {"impl": {"items": [1], "is_synthetic": false, "blanket_impl": null,
            "trait": null,
            "generics": {"params": [{"kind": {"lifetime": {}}}]},
            "for": {"resolved_path": {"path": "Queue"}}}}},
        "9": {"attrs": [], "inner": {"impl": {"items": [4], "is_synthetic": false, "blanket_impl": null,
            "trait": {"path": "super::Command", "id": 6}, "generics": {"params": []},
            "for": {"resolved_path": {"path": "Make"}}}}},
        "10": {"name": "fmt", "inner": {"function": {"generics": {"params": []}, "has_body": true}}},
        "11": {"attrs": ["automatically_derived"], "inner": {"impl": {"items": [10], "is_synthetic": false,
            "blanket_impl": null,
            "trait": {"path": "Debug", "id": 99}, "generics": {"params": []},
            "for": {"resolved_path": {"path": "Make"}}}}}
    }}"#;

    const LIBRARY: [&str; 2] =
        ["<mlx5_mkey::command::Make as mlx5_mkey::command::Command>::write", "mlx5_mkey::wipe"];
    const PROGRAM: [&str; 3] = [
        "<mlx5_mkey::command::Make as mlx5_mkey::command::Command>::encode",
        "<mlx5_mkey::queue::Queue<mlx5_mkey::queue::Bell, 64>>::ring",
        "<mlx5_mkey::queue::Queue<u8, 64>>::restart::<hil_freestanding::entry::{closure#0}>",
    ];

    #[test]
    fn a_function_that_nothing_calls_is_named() {
        let (library, program) = (BTreeSet::from(LIBRARY), BTreeSet::from(PROGRAM));
        let all = check(JSON, &library, &program).unwrap();
        assert_eq!(all, "all 5 public functions are checked, 1 for types of a user and 1 for a size");
        for (absent, name) in LIBRARY.iter().chain(&PROGRAM).zip([
            "<Make as Command>::write",
            "wipe",
            "<Make as Command>::encode",
            "Queue::ring",
            "Queue::restart",
        ]) {
            let without =
                |names: &BTreeSet<&'static str>| names.iter().copied().filter(|one| one != absent).collect();
            let error = check(JSON, &without(&library), &without(&program)).unwrap_err();
            assert!(error.ends_with(&format!(": {name}")), "{error}");
        }
        // The check fails if only the library has an instance of a generic function. The check also fails if
        // no instance of a function for a user's type has such a type.
        let moved: BTreeSet<_> = LIBRARY.into_iter().chain([PROGRAM[1]]).collect();
        let rest = BTreeSet::from([PROGRAM[0], PROGRAM[2]]);
        assert!(check(JSON, &moved, &rest).unwrap_err().ends_with(": Queue::ring"));
        let ours =
            BTreeSet::from([PROGRAM[0], PROGRAM[1], "<mlx5_mkey::queue::Queue<u8, 64>>::restart::<fn(u64)>"]);
        assert!(check(JSON, &library, &ours).unwrap_err().ends_with(": Queue::restart"));
        assert!(
            check("{}", &library, &program).is_err() && check("{\"index\": {}}", &library, &program).is_err()
        );
    }

    #[test]
    fn functions_with_a_body_have_a_place() {
        let function = |has_body| {
            format!(
                r#"{{"name": "f", "span": {{"filename": "src/a.rs", "begin": [3, 5], "end": [7, 6]}},
                    "inner": {{"function": {{"has_body": {has_body}}}}}}}"#
            )
        };
        let json = format!(r#"{{"index": {{"0": {}, "1": {}}}}}"#, function(true), function(false));
        let place = Place { file: "src/a.rs".into(), name: "f".into(), lines: 3..=7 };
        assert_eq!(places(&json), Some(vec![place]));
        assert_eq!(places(JSON), Some(Vec::new()), "no place is told");
    }

    #[test]
    fn a_type_of_the_librarys_own_is_no_users() {
        let parameter = |bound: &str| {
            let text = format!(
                r#"{{"params": [{{"kind": {{"type": {{"bounds": [
                    {{"trait_bound": {{"trait": {{"path": "{bound}"}}}}}}]}}}}}}]}}"#
            );
            wanted(&serde_json::from_str(&text).unwrap()).unwrap()
        };
        assert_eq!(parameter("crate::wire::cqe::CqeSlot"), Wanted::OfSize);
        assert_eq!(parameter("CompletionRouter"), Wanted::OfType);
    }

    #[test]
    fn names_are_read_without_what_is_in_brackets() {
        for (symbol, name) in [
            ("<mlx5_mkey::queue::send::SendQueue<D>>::cancel", Some("SendQueue::cancel")),
            ("<mlx5_mkey::a::B<fn() -> u8>>::c::<fn(&D) -> E>", Some("B::c")),
            ("<&mut mlx5_mkey::a::B as mlx5_mkey::a::T<u8>>::c", Some("<&? as T>::c")),
            ("<(A, <B as C>::D) as mlx5_mkey::a::T>::c", Some("<() as T>::c")),
            ("mlx5_mkey::a::b::<u8>", Some("b")),
            ("<mlx5_mkey::a::B>::c::{closure#0}", None),
            ("core::fmt::write", None),
        ] {
            assert_eq!(parse(symbol).as_deref(), name, "{symbol}");
        }
    }
}
