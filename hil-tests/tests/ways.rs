//! The public ways of posting, as the library's source has them, are those that are compared and run: `hil_tests::way`.

use hil_tests::way::{METHODS, Way};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Reads all sources of a folder, or one.
fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let mut found = Vec::new();
    if path.is_dir() {
        files(&path, &mut found)
    } else {
        found.push(path)
    }
    found.sort();
    found.iter().map(|file| std::fs::read_to_string(file).expect("a source")).collect::<Vec<_>>().join("\n")
}

/// Returns the type that an `impl` is for: `SendQueue` of `impl<'r, D> SendQueue<'r, D>`.
fn subject(header: &str) -> &str {
    let mut depth = 0;
    let parameters = header.find(|letter: char| {
        depth += i32::from(letter == '<') - i32::from(letter == '>');
        depth == 0
    });
    let rest = parameters.map_or(header, |end| header[end..].trim_start_matches('>').trim_start());
    let rest = rest.split_once(" for ").map_or(rest, |(_, subject)| subject);
    rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default()
}

/// Returns the public methods that post: that may fail as a post does, or begin a request or a batch.
fn posting(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut of = "";
    let mut rest = source;
    while let Some((line, behind)) = rest.split_once('\n') {
        if let Some(header) = line.strip_prefix("impl") {
            of = subject(header);
        }
        let function = ["    pub fn ", "    pub const fn ", "    pub unsafe fn ", "    pub const unsafe fn "]
            .iter()
            .find_map(|start| line.strip_prefix(start));
        if let Some(function) = function {
            let signature = &rest[..rest.find(['{', ';']).expect("the function's end")];
            let (_, returned) = signature.rsplit_once("->").unwrap_or_default();
            let posts = ["PostError", "SendRequest<", "Batch<"].iter().any(|part| returned.contains(part));
            // What a request returns is itself.
            if posts || of == "SendRequest" && !returned.trim_start().starts_with("Self") {
                let name = function.split(['(', '<']).next().expect("a name");
                found.insert(format!("{of}::{name}"));
            }
        }
        rest = behind;
    }
    found
}

#[test]
fn every_way_of_the_library_is_proven() {
    let library = ["queue", "wqe", "mkey", "devx"].map(|module| text(&format!("../src/{module}"))).join("\n");
    let known: BTreeSet<String> = METHODS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(posting(&library), known, "the library's, and those of way::METHODS");
    for way in Way::ALL {
        assert!(METHODS.iter().any(|(_, ways)| ways.contains(&way)), "{way:?} is no way of the library");
    }
}

#[test]
fn every_method_that_posts_is_called() {
    let dispatch = text("scenarios/src/way.rs");
    let users = ["src/vectors", "src/differential", "scenarios/src/scenarios"].map(text);
    for (name, ways) in METHODS.iter().filter(|(_, ways)| !ways.is_empty()) {
        let (of, method) = name.split_once("::").expect("type and method");
        let call = format!(".{method}(");
        if of == "SendRequest" {
            assert!(users.iter().any(|user| user.contains(&call)), "{name}: nobody calls it");
        } else {
            // How a request begins is chosen with the way.
            assert!(dispatch.contains(&call), "{name}: in {ways:?}, but way.rs does not call it");
        }
    }
    for user in &users[..2] {
        for call in ["way.open(", "way.prepare("] {
            assert!(user.contains(call), "vectors and differential test post through way.rs: {call}");
        }
    }
    for past in ["queue.request(", ".batch()", "PreparedConfig::new("] {
        assert!(!users.iter().any(|user| user.contains(past)), "past way.rs: {past}");
    }
}

#[test]
fn every_change_in_place_is_proven() {
    let prepared = text("../src/wqe/prepared.rs");
    let changes: Vec<&str> = prepared
        .lines()
        .filter_map(|line| line.strip_prefix("    pub fn "))
        .filter(|rest| rest.contains("&mut self"))
        .filter_map(|rest| rest.split('(').next())
        .collect();
    assert!(changes.contains(&"set_tweak"), "{changes:?}");
    let dispatch = text("scenarios/src/way.rs");
    for change in changes {
        assert!(dispatch.contains(&format!("prepared.{change}(")), "way.rs does not change with {change}");
    }
}

#[test]
fn methods_are_found_in_source() {
    let source = "
impl<'r, D: Doorbell, const N: usize> SendQueue<'r, D, N> {
    pub const fn request(&mut self, id: u64) -> SendRequest<'_, 'r> {
    }
    pub fn producer(&self) -> u32 {
    }
    fn hidden(&self) -> Result<(), PostError> {
    }
}
impl<'q, 'r> SendRequest<'q, 'r> {
    pub const fn fenced(mut self) -> Self {
    }
    pub fn another<const E: usize>(
        self,
    ) -> Result<(), Other> {
    }
}
impl SendRequest<'_, '_> {
    pub fn later<'l>(mut self, layout: impl Into<Layout<'l>>) -> Result<(), PostError> {
    }
}
impl Batch {
    pub fn all(self) -> Result<usize, PostError> {
    }
}
";
    let found: Vec<String> = posting(source).into_iter().collect();
    assert_eq!(found, ["Batch::all", "SendQueue::request", "SendRequest::another", "SendRequest::later"]);
}
