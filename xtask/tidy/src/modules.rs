//! Finds the modules of each crate that have their own files, and the imports between these modules.

use crate::source::{Source, attributes, is_for_tests, is_test, paths};
use proc_macro2::Ident;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, Macro, UseTree, Visibility};

/// The path of a module or an item, from the root of its crate.
pub(crate) type Path = Vec<String>;

struct Import {
    /// Whether the import is a re-export (`pub use`).
    public: bool,
    /// The name by which the file uses the import, or `*`.
    name: String,
    path: Path,
    line: usize,
}

/// A module with its own file.
struct Module<'s> {
    source: &'s Source,
    imports: Vec<Import>,
    /// The paths in the code: the module in which each is written, the path itself, and the line.
    paths: Vec<(Path, Path, usize)>,
    words: BTreeSet<String>,
}

/// A crate with its modules, without tests.
pub(crate) struct Crate<'s> {
    /// The path of the crate's root file.
    pub(crate) root: &'s str,
    modules: BTreeMap<Path, Module<'s>>,
}

/// The use of one module by another.
pub(crate) struct Use<'c> {
    pub(crate) module: &'c Path,
    pub(crate) used: &'c Path,
    /// File and line of the using code.
    pub(crate) file: &'c str,
    pub(crate) line: usize,
}

/// A module that is declared in one file (`mod name;`) and has its own file.
struct Declared {
    name: Path,
    file: String,
    for_tests: bool,
}

pub(crate) type Sources<'s> = BTreeMap<&'s str, &'s Source>;

/// Returns all crates, without tests. A file that no other file declares as a module is the root of a crate.
pub(crate) fn crates<'s>(sources: &Sources<'s>) -> Vec<Crate<'s>> {
    let declared: BTreeMap<&str, Vec<Declared>> =
        sources.values().map(|source| (&*source.name, declared(source, sources))).collect();
    let children: BTreeSet<&str> = declared.values().flatten().map(|child| &*child.file).collect();
    let roots = sources.values().filter(|source| source.code.is_some() && !children.contains(&*source.name));
    let roots = roots.filter(|source| !is_test(&source.name));
    roots.map(|root| Crate::new(root, &declared, sources)).collect()
}

fn declared(source: &Source, sources: &Sources<'_>) -> Vec<Declared> {
    let mut found = Vec::new();
    if let Some(code) = &source.code {
        declared_by(&code.items, &mut Vec::new(), false, source, sources, &mut found);
    }
    found
}

fn declared_by(
    items: &[Item],
    inside: &mut Path,
    for_tests: bool,
    source: &Source,
    sources: &Sources<'_>,
    found: &mut Vec<Declared>,
) {
    for item in items {
        let Item::Mod(module) = item else { continue };
        let for_tests = for_tests || is_for_tests(&module.attrs);
        inside.push(module.ident.to_string());
        if let Some((_, items)) = &module.content {
            declared_by(items, inside, for_tests, source, sources, found);
        } else if let Some(file) = file_of(inside, source, sources) {
            found.push(Declared { name: inside.clone(), file, for_tests });
        }
        inside.pop();
    }
}

/// Returns the file of a declared module. `inside` is the module's path inside of the declaring file.
fn file_of(inside: &[String], source: &Source, sources: &Sources<'_>) -> Option<String> {
    let stem = source.name.trim_end_matches(".rs");
    let (folder, _) = stem.rsplit_once('/')?;
    let inside = inside.join("/");
    // A module is in the folder of the declaring file if that file is `mod.rs` or the root of a crate, which
    // may have any name. Otherwise the module is in the folder that is named after the declaring file.
    let mut places = [stem, folder]
        .into_iter()
        .flat_map(|folder| [format!("{folder}/{inside}.rs"), format!("{folder}/{inside}/mod.rs")]);
    places.find(|place| sources.contains_key(&**place))
}

impl<'s> Crate<'s> {
    fn new(root: &'s Source, declared: &BTreeMap<&str, Vec<Declared>>, sources: &Sources<'s>) -> Self {
        let mut modules = BTreeMap::new();
        let mut open = vec![(Path::new(), root)];
        while let Some((path, source)) = open.pop() {
            for child in declared.get(&*source.name).into_iter().flatten() {
                if !child.for_tests
                    && let Some(file) = sources.get(&*child.file)
                {
                    open.push(([&path[..], &child.name].concat(), file));
                }
            }
            let module = Module { source, imports: vec![], paths: vec![], words: BTreeSet::new() };
            modules.insert(path, module);
        }
        let mut this = Self { root: &root.name, modules };
        let names: Vec<Path> = this.modules.keys().cloned().collect();
        for name in names {
            let Some(code) = this.modules.get(&name).and_then(|module| module.source.code.as_ref()) else {
                continue;
            };
            let mut reader = Reader { inside: name.clone(), ..Reader::default() };
            reader.visit_file(code);
            let imports = reader.imports.into_iter().filter_map(|(from, import)| {
                let path = this.absolute(&from, &import.path, &[])?;
                Some(Import { path, ..import })
            });
            let imports = imports.collect();
            if let Some(module) = this.modules.get_mut(&name) {
                (module.imports, module.paths, module.words) = (imports, reader.paths, reader.words);
            }
        }
        this
    }

    /// Returns a path that is written in `module` as a path from the root of the crate. Returns `None` for a
    /// path of another crate.
    fn absolute(&self, module: &Path, path: &[String], imports: &[Import]) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        let mut base = match first.as_str() {
            "crate" => Path::new(),
            "self" => module.clone(),
            "super" => module.split_last()?.1.to_vec(),
            name => {
                let imported = imports.iter().find(|import| import.name == name);
                let child = [&module[..], &[name.to_string()]].concat();
                match imported {
                    Some(import) => import.path.clone(),
                    None if self.modules.contains_key(&child) => child,
                    None => return None,
                }
            }
        };
        for name in rest {
            match name.as_str() {
                "super" => drop(base.pop()?),
                _ => base.push(name.clone()),
            }
        }
        Some(base)
    }

    /// Returns the module that declares an item. Re-exports are followed. Returns `None` if the path is that
    /// of a module.
    fn owner(&self, path: &[String], depth: usize) -> Option<Path> {
        let mut module = Path::new();
        let mut rest = path;
        while let [name, behind @ ..] = rest {
            rest = behind;
            let child = [&module[..], std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&child) {
                module = child;
                continue;
            }
            let imports = self.modules.get(&module).map_or(&[][..], |module| &module.imports);
            let import = imports.iter().find(|import| import.public && import.name == *name);
            // The import of an exported macro may have the macro's own path (`pub use crate::name`). Imports
            // may also form circles: the limit of the depth ends the search.
            let Some(import) = import.filter(|import| import.path != child && depth < 8) else {
                return Some(module);
            };
            return self.owner(&[&import.path[..], rest].concat(), depth + 1);
        }
        None
    }

    /// Returns the modules that a module uses, each with the first line that uses it. An item that is only
    /// re-exported does not count.
    fn used(&self, name: &Path, module: &Module<'_>) -> BTreeMap<&Path, usize> {
        let mut used: Vec<(Path, usize)> = Vec::new();
        for import in &module.imports {
            if import.public && !module.words.contains(&import.name) {
                continue;
            }
            let owner = match import.name.as_str() {
                "*" => Some(import.path.clone()),
                _ => self.owner(&import.path, 0),
            };
            used.extend(owner.map(|owner| (owner, import.line)));
        }
        for (from, path, line) in &module.paths {
            let path = self.absolute(from, path, &module.imports);
            used.extend(path.and_then(|path| self.owner(&path, 0)).map(|owner| (owner, *line)));
        }
        used.retain(|(path, _)| path != name);
        used.sort_by_key(|(_, line)| std::cmp::Reverse(*line));
        let known = |(path, line): &(Path, usize)| Some((self.modules.get_key_value(path)?.0, *line));
        used.iter().filter_map(known).collect()
    }

    pub(crate) fn uses(&self) -> impl Iterator<Item = Use<'_>> {
        self.modules.iter().flat_map(|(path, module)| {
            let file = &*module.source.name;
            self.used(path, module).into_iter().map(move |(used, line)| Use {
                module: path,
                used,
                file,
                line,
            })
        })
    }

    /// Returns the names of the modules that the root declares.
    pub(crate) fn top(&self) -> BTreeSet<&str> {
        self.modules.keys().filter_map(|path| path.first()).map(String::as_str).collect()
    }

    /// Returns descriptions of the circles of imports, one for each module that is the first of a circle in
    /// the order of paths.
    pub(crate) fn circles(&self) -> Vec<String> {
        let mut used: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
        for one in self.uses() {
            used.entry(one.module).or_default().insert(one.used);
        }
        let circles = self.modules.keys().filter_map(|start| circle(start, &used));
        circles.map(|circle| self.describe(&circle)).collect()
    }

    fn describe(&self, circle: &[&Path]) -> String {
        let modules = circle.iter().filter_map(|path| self.modules.get(*path));
        let names: Vec<&str> = modules.map(|module| &*module.source.name).collect();
        format!("{}: a circle of imports", names.join(" -> "))
    }
}

/// Returns the shortest circle through `start` whose other modules come later in the order of paths, if any.
fn circle<'a>(start: &'a Path, used: &BTreeMap<&'a Path, BTreeSet<&'a Path>>) -> Option<Vec<&'a Path>> {
    let mut seen = BTreeSet::new();
    let mut ways = vec![vec![start]];
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in &ways {
            let last = way.last()?;
            for &next in used.get(last).into_iter().flatten() {
                let way = [&way[..], &[next]].concat();
                if next == start {
                    return Some(way);
                }
                if next > start && seen.insert(next) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}

/// Collects the imports and paths of a file. Tests are left out, because they may import any module.
#[derive(Default)]
struct Reader {
    /// The module of the visited code, including modules that are written inside of the file.
    inside: Path,
    imports: Vec<(Path, Import)>,
    paths: Vec<(Path, Path, usize)>,
    words: BTreeSet<String>,
}

impl Reader {
    fn add(&mut self, path: &[Ident]) {
        self.words.extend(path.iter().map(ToString::to_string));
        if let [first, _, ..] = path {
            let line = first.span().start().line;
            self.paths.push((self.inside.clone(), path.iter().map(ToString::to_string).collect(), line));
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.inside.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        let public = !matches!(import.vis, Visibility::Inherited);
        let inside = self.inside.clone();
        leaves(&import.tree, &mut Path::new(), &mut |path, name, line| {
            self.imports.push((inside.clone(), Import { public, name, path: path.to_vec(), line }));
        });
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<Ident> = path.segments.iter().map(|segment| segment.ident.clone()).collect();
        self.add(&names);
        visit::visit_path(self, path);
    }

    fn visit_ident(&mut self, name: &'ast Ident) {
        self.words.insert(name.to_string());
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        paths(call.tokens.clone(), &mut |path| self.add(path));
        visit::visit_macro(self, call);
    }
}

/// Calls `each` for every name that a `use` imports, with its path, its name in the file, and its line.
fn leaves(tree: &UseTree, path: &mut Path, each: &mut dyn FnMut(&[String], String, usize)) {
    let line = |name: &Ident| name.span().start().line;
    match tree {
        UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            leaves(&tree.tree, path, each);
            path.pop();
        }
        UseTree::Group(tree) => tree.items.iter().for_each(|tree| leaves(tree, path, each)),
        UseTree::Glob(tree) => each(path, "*".into(), tree.star_token.span.start().line),
        UseTree::Name(tree) if tree.ident == "self" => {
            each(path, path.last().cloned().unwrap_or_default(), line(&tree.ident));
        }
        UseTree::Rename(tree) if tree.ident == "self" => {
            each(path, tree.rename.to_string(), line(&tree.rename));
        }
        UseTree::Name(tree) => {
            path.push(tree.ident.to_string());
            each(path, tree.ident.to_string(), line(&tree.ident));
            path.pop();
        }
        UseTree::Rename(tree) => {
            path.push(tree.ident.to_string());
            each(path, tree.rename.to_string(), line(&tree.rename));
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the circles of imports in a crate with these files and a root that declares the module `m`.
    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<Source> = files
            .iter()
            .chain(&[("src/lib.rs", "mod m;")])
            .map(|(name, text)| Source::new(name, (*text).into()).unwrap())
            .collect();
        let sources = files.iter().map(|source| (&*source.name, source)).collect();
        let crates = crates(&sources);
        assert_eq!(crates.iter().map(|one| one.root).collect::<Vec<_>>(), ["src/lib.rs"]);
        crates[0].circles()
    }

    fn files(names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| format!("src/{name}.rs")).collect();
        format!("{}: a circle of imports", names.join(" -> "))
    }

    #[test]
    fn a_circle_of_two_is_found_however_it_is_written() {
        let declared = ("src/m/mod.rs", "mod a;\nmod b;\n");
        for back in [
            "use super::a::A;",
            "use crate::m::{\n    a::{A, self as other},\n};",
            "use super::super::m::a::A as Other;",
            "use super::a;\nfn f(_: a::A) {}",
            "fn f() {\n    super::a::f();\n}",
            "use super::a::*;",
        ] {
            let found = circles(&[declared, ("src/m/a.rs", "use super::b::B;"), ("src/m/b.rs", back)]);
            assert_eq!(found, [files(&["m/a", "m/b", "m/a"])], "{back}");
        }
    }

    #[test]
    fn a_circle_of_three_is_found_once() {
        let found = circles(&[
            ("src/m/mod.rs", "mod a;\nmod b;\nmod c;\n"),
            ("src/m/a.rs", "use super::c::C;"),
            ("src/m/b.rs", "use super::a::A;"),
            ("src/m/c.rs", "use super::b::B;"),
        ]);
        assert_eq!(found, [files(&["m/a", "m/c", "m/b", "m/a"])]);
    }

    #[test]
    fn an_item_comes_from_where_it_is_declared() {
        let found = circles(&[
            ("src/m/mod.rs", "mod a;\nmod b;\npub use a::A;\npub(crate) use b::{B, D as E};\n"),
            ("src/m/a.rs", "use super::E;"),
            ("src/m/b.rs", "use crate::m::A;"),
        ]);
        assert_eq!(found, [files(&["m/a", "m/b", "m/a"])]);
    }

    #[test]
    fn a_parent_that_uses_its_children_is_in_a_circle_with_those_that_use_it() {
        for parent in [
            "mod a;\npub fn own() {\n    a::f();\n}",
            "mod a;\nuse a::A;\npub struct Own(A);",
            "mod a;\npub use a::A;\npub struct Own(A);",
        ] {
            let found = circles(&[("src/m/mod.rs", parent), ("src/m/a.rs", "use super::Own;")]);
            assert_eq!(found, [files(&["m/mod", "m/a", "m/mod"])], "{parent}");
        }
    }

    #[test]
    fn no_circle() {
        for (parent, a, b) in [
            // The parent only declares and re-exports its children. It does not use them.
            ("mod a;\nmod b;\npub use a::A;\npub struct Own;", "use super::Own;", "use super::{A, Own};"),
            // The parent uses its children.
            ("mod a;\nmod b;\nuse a::A;\npub use b::B;\npub struct Own(A, B);", "", "use super::a::A;"),
            // Tests and comments may name any module.
            (
                "mod a;\nmod b;",
                "use super::b::B;\n#[cfg(test)]\nmod tests {\n    use super::*;\n}",
                "//! [`super::a::A`]\nfn f() {} // super::a::A\nconst S: &str = \"super::a::A\";\n\
                #[cfg(test)]\nmod tests {\n    use crate::m::a::A;\n}",
            ),
            // A path of another crate is no import.
            ("mod a;\nmod b;", "use super::b::B;", "use core::a::A;\nfn f(_: core::a::A) {}"),
        ] {
            let a = format!("{a}\n#[cfg(test)]\nmod tests;");
            let tests = ("src/m/a/tests.rs", "use crate::m::b::B;\nuse crate::m::a::A;");
            let found = circles(&[("src/m/mod.rs", parent), ("src/m/a.rs", &a), ("src/m/b.rs", b), tests]);
            assert_eq!(found, [""; 0], "{parent}");
        }
    }
}
