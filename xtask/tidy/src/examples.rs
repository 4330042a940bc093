//! A rule of `cargo xtask tidy`: every public module, and every public type that users construct, has an
//! example.

use crate::source::{Source, before_tests, is_letter, is_test, names as tokens};

/// Files and folders whose types and modules need no example, with the reason. The documentation of the
/// module `wire` itself needs one.
const EXEMPT: &[(&str, &str)] = &[
    ("src/devx/abi.rs", "structures of libibverbs, which the page of `devx` hides"),
    ("src/capi/", "for programs in C: the guide's page and `hil-tests/examples/c`"),
    ("src/wire/", "structs of the device, which `wqe` and `command` encode"),
    ("src/guide/", "pages for reading, some of them tables"),
];

/// Types that users receive and never construct, grouped by the reason, with spaces between their names. They
/// need no example. Error types need none either.
const RECEIVED: &[(&str, &str)] = &[
    (
        "found in completions",
        "Completion CqeOrigin Failure Message Outcome RequestKind Retired SignatureErrorKind \
         SignatureFault WorkCompletion",
    ),
    ("found in errors", "ConfigPart EqualHalves OutOfRange"),
    ("replies of the device", "CryptoCapabilities DekInfo GeneralCapabilities KeyImport QpInfo"),
    (
        "read from bytes by `inspect`",
        "Body DataSegmentView EntryKind Finding LayoutView Problem Segment SegmentKind",
    ),
    ("returned by the shim", "Event MkeyObject Outstanding RingAddresses"),
];

pub(crate) fn check(files: &[Source], faults: &mut Vec<String>) {
    let mut excused = Vec::new();
    for Source { name, text, .. } in files {
        let exempt = EXEMPT.iter().any(|(folder, _)| name.starts_with(folder));
        if exempt || !name.starts_with("src/") || !name.ends_with(".rs") || is_test(name) {
            continue;
        }
        let lines: Vec<&str> = before_tests(text).map(|(_, line)| line).collect();
        let mut docs = Docs::default();
        for (index, line) in lines.iter().enumerate() {
            let number = index + 1;
            let code = line.trim_start();
            if let Some(module) = code.strip_prefix("pub mod ") {
                let has_example = match module.strip_suffix(';') {
                    Some(_) if docs.has_example => true,
                    Some(module) => page(files, name, module).is_none_or(|page| example(page, "//!")),
                    None => docs.has_example,
                };
                if !has_example {
                    let module = module.split([' ', ';']).next().unwrap_or_default();
                    faults.push(format!("{name}:{number}: the page of module {module} has no example"));
                }
            } else if let Some(declaration) =
                code.strip_prefix("pub struct ").or_else(|| code.strip_prefix("pub enum "))
            {
                let type_name = declaration.split(|c| !is_letter(c) && c != '$').next().unwrap_or_default();
                let rest = lines.get(index..).unwrap_or_default();
                let lacks = !docs.has_example && is_constructed(rest, type_name, &lines);
                if lacks && received().any(|name| name == type_name) {
                    excused.push(type_name);
                } else if lacks && !type_name.ends_with("Error") {
                    faults.push(format!("{name}:{number}: {type_name} has no example"));
                }
            }
            docs.read(code);
        }
    }
    for name in received().filter(|name| !excused.contains(name)) {
        faults.push(format!("xtask/tidy/src/examples.rs: {name} needs no exception"));
    }
}

fn received() -> impl Iterator<Item = &'static str> {
    RECEIVED.iter().flat_map(|(_, names)| names.split(' '))
}

/// Returns the text of the file of a declared module, or `None` if the module needs no example.
fn page<'t>(files: &'t [Source], declared_in: &str, module: &str) -> Option<&'t str> {
    let folder = declared_in.strip_suffix("lib.rs").or_else(|| declared_in.strip_suffix("mod.rs"));
    let folder = folder.map_or_else(|| declared_in.replace(".rs", "/"), str::to_owned);
    let names = [format!("{folder}{module}.rs"), format!("{folder}{module}/mod.rs")];
    let is_page = |file: &&Source| names.contains(&file.name) && file.name != "src/guide/mod.rs";
    files.iter().find(is_page).map(|file| &*file.text)
}

/// Returns whether the comments that begin with `opening` (`///` or `//!`) contain an example that is
/// compiled.
fn example(text: &str, opening: &str) -> bool {
    let (mut is_open, mut found) = (false, false);
    for comment in text.lines().filter_map(|line| line.trim_start().strip_prefix(opening)) {
        if let Some(kind) = comment.trim().strip_prefix("```") {
            found |= !is_open && ["", "no_run"].contains(&kind);
            is_open = !is_open;
        }
    }
    found
}

/// The documentation that precedes the next item. A hidden item counts as one with an example.
#[derive(Default)]
struct Docs<'t> {
    comments: Vec<&'t str>,
    in_attribute: bool,
    has_example: bool,
}

impl<'t> Docs<'t> {
    fn read(&mut self, line: &'t str) {
        if line.starts_with("//") {
            self.comments.push(line);
            self.has_example = example(&self.comments.join("\n"), "///");
        } else if line == "#[doc(hidden)]" {
            self.has_example = true;
        } else if line.starts_with("#[") || line.starts_with("$(#[") || self.in_attribute {
            self.in_attribute = !line.contains(']');
        } else {
            *self = Self::default();
        }
    }
}

/// Returns whether users construct the type that the first of these lines declares: an enum, a struct with
/// public fields only, or a type with a public constructor.
fn is_constructed(lines: &[&str], name: &str, file: &[&str]) -> bool {
    let [first, body @ ..] = lines else { return false };
    let declaration = first.trim_start();
    if declaration.starts_with("pub enum") || declaration.ends_with(&format!("{name};")) {
        return true;
    }
    let is_public = |field: &str| field.starts_with("pub ");
    let fields_are_public = if declaration.ends_with('{') {
        let indent = first.len() - declaration.len() + 4;
        let body = body.iter().take_while(|line| line.trim() != "}").filter_map(|line| line.get(indent..));
        body.filter(|field| field.starts_with(is_letter)).all(is_public)
    } else {
        declaration.split_once('(').is_some_and(|(_, fields)| fields.split(", ").all(is_public))
    };
    fields_are_public || has_constructor(file, name.trim_start_matches('$'))
}

/// Returns whether a type has a public function without `self` that returns `Self`.
fn has_constructor(file: &[&str], name: &str) -> bool {
    let (mut is_inside, mut signature) = (false, String::new());
    for line in file.iter().map(|line| line.trim_start()) {
        if line.starts_with("impl") {
            let names = tokens(line);
            is_inside = names.contains(&name) && !names.contains(&"for");
        } else if is_inside
            && (!signature.is_empty() || line.starts_with("pub ") && tokens(line).contains(&"fn"))
        {
            signature.push_str(line);
            if line.ends_with(['{', '}']) {
                let (parameters, result) = signature.split_once("->").unwrap_or_default();
                if !tokens(parameters).contains(&"self") && tokens(result).contains(&"Self") {
                    return true;
                }
                signature.clear();
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a source file that is not parsed, so its text may be incomplete.
    fn source(name: &str, text: &str) -> Source {
        Source { name: name.into(), text: text.into(), code: None }
    }

    /// Returns the violations in a file of the library with this text.
    fn found(text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check(&[source("src/mkey/a.rs", text)], &mut faults);
        faults.retain(|fault| !fault.ends_with("needs no exception"));
        faults
    }

    #[test]
    fn types_that_users_construct_need_an_example() {
        for text in [
            "pub struct A;",
            "pub struct A(pub u32);",
            "/// Text.\npub struct A<'a> {\n    /// One.\n    pub one: &'a u32,\n}",
            "pub enum A {\n    One,\n}",
            "pub struct A(u32);\nimpl A {\n    pub const fn new(one: u32) -> Self {",
            "pub struct A<T>(T);\nimpl<T> A<T> {\n    pub fn open(\n        one: T,\n    ) \
             -> Result<Self, E> {",
            // Three types without an example of their own: the code is not Rust, the code is not compiled,
            // the example belongs to the item before.
            "/// ```text\n/// ```\npub struct A;",
            "/// ```ignore\n/// ```\npub struct A;",
            "/// ```\n/// ```\nfn f() {}\npub struct A;",
        ] {
            let faults = found(text);
            let is_found = matches!(&faults[..], [one] if one.ends_with(": A has no example"));
            assert!(is_found, "{text}: {faults:?}");
        }
        let faults = found("macro_rules! a {\n        $(#[$doc])*\n        pub struct $name(pub u32);");
        assert_eq!(faults, ["src/mkey/a.rs:3: $name has no example"]);
    }

    #[test]
    fn others_do_not() {
        for text in [
            "/// ```\n/// ```\npub struct A;",
            "/// ```no_run\n/// ```\n// Why.\n#[derive(\n    Clone,\n)]\npub struct A;",
            "/// ```text\n/// ```\n///\n/// ```\n/// ```\n$(#[$doc])*\npub struct A;",
            "pub(crate) struct A;",
            "pub struct A(u32);",
            "pub struct A {\n    pub one: u32,\n    two: u32,\n}",
            "pub struct A(u32);\nimpl A {\n    pub fn next(self) -> Self {\n    \
             pub(super) fn new() -> Self {",
            "pub struct A(u32);\nimpl B {\n    pub fn new() -> Self {",
            "pub enum AError {",
            "pub enum Body<'a> {",
            "#[cfg(test)]\nmod tests {\npub struct A;",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn module_pages_need_an_example() {
        let faults = |lib: &str, name: &str, text: &str| {
            let mut faults = Vec::new();
            check(&[source("src/lib.rs", lib), source(name, text)], &mut faults);
            faults.retain(|fault| !fault.ends_with("needs no exception"));
            faults.len()
        };
        assert_eq!(faults("pub mod a;", "src/a.rs", "//! Text."), 1);
        assert_eq!(faults("pub mod wire;", "src/wire/mod.rs", "//! Text."), 1);
        assert_eq!(faults("pub mod a;", "src/a/mod.rs", "//! ```\n//! f();\n//! ```"), 0);
        assert_eq!(faults("mod a;", "src/a.rs", "//! Text."), 0);
        assert_eq!(faults("pub mod guide;", "src/guide/mod.rs", "//! Text."), 0);
        assert_eq!(found("/// Text.\npub mod a {\n").len(), 1);
    }

    #[test]
    fn exceptions_end_with_their_reason() {
        let mut faults = Vec::new();
        let example = "/// ```\n/// ```\npub enum Outcome {".to_owned();
        check(&[source("src/queue/a.rs", &example)], &mut faults);
        assert!(faults.iter().any(|fault| fault.ends_with("Outcome needs no exception")), "{faults:?}");
    }
}
