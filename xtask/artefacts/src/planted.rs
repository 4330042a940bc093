//! Plants a panic in each public function of a copy of the library, to test that the search for panics finds
//! them.

use crate::reached::Place;
use proc_macro2::Ident;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use xtask::run::{At, files, root};

/// The path of the module that the copy has in addition. It contains a panicking function for each public
/// function of the library.
pub(super) const MODULE: &str = "mlx5_mkey::planted::";

/// The smallest plausible number of functions that get a panic: with fewer, planting does not work. Functions
/// that macros generate get none.
const LEAST: usize = 10;

/// A copy of the library with planted panics. Its workspace has links to all other files of the repository.
pub(super) struct Copy {
    pub(super) folder: PathBuf,
    /// The names of the functions that got a panic. The position of a name is the number of its panic.
    pub(super) functions: Vec<String>,
}

impl Copy {
    /// Makes the copy in a folder below `target`.
    pub(super) fn make(places: &[Place]) -> Result<Self, String> {
        let folder = root().join("target/planted");
        let mut copy = Self { folder, functions: Vec::new() };
        let own = copy.folder.join("src");
        if own.exists() {
            fs::remove_dir_all(&own).at(&copy.folder)?;
        }
        link(&copy.folder).at(&copy.folder)?;
        for file in files(&root().join("src")).at(&copy.folder)? {
            let name = file.strip_prefix(root()).unwrap_or(&file).to_path_buf();
            copy.add(&name, places).at(&name)?;
        }
        let module = copy.folder.join("src/planted.rs");
        fs::write(&module, panics(copy.functions.len())).map_err(|error| error.to_string())?;
        let count = copy.functions.len();
        if count < LEAST { Err(format!("panics were planted in only {count} functions")) } else { Ok(copy) }
    }

    /// Copies a source file, and plants panics in the functions at these places.
    fn add(&mut self, name: &Path, places: &[Place]) -> Result<(), String> {
        let (from, to) = (root().join(name), self.folder.join(name));
        let say = |error: io::Error| error.to_string();
        fs::create_dir_all(to.parent().unwrap_or(&to)).map_err(say)?;
        if name.extension().is_none_or(|ending| ending != "rs") {
            return fs::copy(&from, &to).map(drop).map_err(say);
        }
        let here: Vec<&Place> = places.iter().filter(|place| Path::new(&place.file) == name).collect();
        let source = fs::read_to_string(&from).map_err(say)?;
        let (mut text, functions) = plant(&source, &here, self.functions.len())?;
        self.functions.extend(functions.iter().map(|function| format!("{function} ({})", name.display())));
        if name == Path::new("src/lib.rs") {
            text.push_str("\nmod planted;\n");
        }
        fs::write(&to, text).map_err(say)
    }
}

/// Makes links to all files and folders of the repository except `src` and `.git`. The link to `target` lets
/// the copy use built dependencies.
fn link(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(root())? {
        let name = entry?.file_name();
        let to = folder.join(&name);
        let is_own = ["src", ".git"].iter().any(|own| name == *own);
        if !is_own && to.symlink_metadata().is_err() {
            symlink(root().join(&name), to)?;
        }
    }
    Ok(())
}

/// Returns the source text of a module with `count` panicking functions.
fn panics(count: usize) -> String {
    // Each function has its own message: otherwise the compiler would merge equal functions.
    let one = |number| {
        format!(
            "#[inline(never)]\npub(crate) const fn p{number}() -> ! {{\n\
             panic!(\"planted {number}\")\n}}\n"
        )
    };
    (0..count).map(one).collect()
}

/// Inserts a call of a panicking function into each function at these places, numbered from `first` on. The
/// compiler cannot know that the call never happens. Returns the text, and the names of the functions.
fn plant(source: &str, places: &[&Place], first: usize) -> Result<(String, Vec<String>), String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut finder = Finder { places, found: BTreeMap::new() };
    finder.visit_file(&file);
    let (mut text, mut copied) = (String::new(), 0);
    for (number, at) in (first..).zip(finder.found.keys()) {
        text.push_str(source.get(copied..*at).unwrap_or_default());
        text.push_str(&format!(" if core::hint::black_box(false) {{ crate::planted::p{number}(); }}"));
        copied = *at;
    }
    text.push_str(source.get(copied..).unwrap_or_default());
    Ok((text, finder.found.into_values().collect()))
}

/// Finds the offsets in a source at which the bodies of the wanted functions begin.
struct Finder<'p> {
    places: &'p [&'p Place],
    found: BTreeMap<usize, String>,
}

impl Finder<'_> {
    fn note(&mut self, name: &Ident, body: &syn::Block) {
        let line = name.span().start().line;
        let is_here = |place: &&Place| name == place.name.as_str() && place.lines.contains(&line);
        if self.places.iter().any(is_here) {
            self.found.insert(body.brace_token.span.open().byte_range().end, name.to_string());
        }
    }
}

impl<'f> Visit<'f> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'f syn::ItemFn) {
        self.note(&item.sig.ident, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'f syn::ImplItemFn) {
        self.note(&item.sig.ident, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'f syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.note(&item.sig.ident, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_planted_where_a_function_is_named() {
        let source = "impl A {\n    pub fn b() -> u8 {\n        1\n    }\n    fn c() {}\n}\n\
                      trait D {\n    fn e();\n    fn f() {}\n}\nfn b() {}\n";
        let place = |name: &str, lines| Place { file: "src/a.rs".into(), name: name.into(), lines };
        let (one, other) = (place("b", 2..=4), place("f", 9..=9));
        let (text, functions) = plant(source, &[&other, &one], 7).unwrap();
        assert_eq!(functions, ["b", "f"]);
        let call = |number| format!("{{ if core::hint::black_box(false) {{ crate::planted::p{number}(); }}");
        let expected = source.replacen("u8 {", &format!("u8 {}", call(7)), 1);
        assert_eq!(text, expected.replace("fn f() {", &format!("fn f() {}", call(8))));
        assert_eq!(plant(source, &[&place("c", 1..=3), &place("e", 8..=8)], 0), Ok((source.into(), vec![])));
        assert!(plant("fn", &[], 0).is_err());
    }

    #[test]
    fn each_panic_has_words_of_its_own() {
        let module = panics(2);
        assert!(syn::parse_file(&module).is_ok());
        assert!(module.contains("p0()") && module.contains("\"planted 1\""), "{module}");
    }
}
