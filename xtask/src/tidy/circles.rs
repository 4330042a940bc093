//! Circles of imports between the files of the library: a file that another one needs must not need that one.

use super::source::{is_letter, is_test, shipped, tokens};
use std::collections::{BTreeMap, BTreeSet};

/// The path of a module or an item, from the root of the library.
type Path = Vec<String>;

/// A name that a file brings in.
struct Import {
    /// Others may have it from here too.
    public: bool,
    /// What it is called here, `*` for everything.
    name: String,
    path: Path,
}

/// A module that has a file of its own.
struct File {
    name: String,
    imports: Vec<Import>,
    /// Paths in the code, as they are written.
    paths: Vec<Path>,
    /// All names in the code.
    words: BTreeSet<String>,
}

/// The modules of the library that are not tests.
pub(super) struct Files(BTreeMap<Path, File>);

impl Files {
    /// Takes the files of the library, each a name and its text. Others are left out.
    pub(super) fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut modules = BTreeMap::new();
        let mut texts = Vec::new();
        for (name, text) in files {
            let inside = name.strip_prefix("src/").filter(|inside| !is_test(inside));
            let Some(inside) = inside.and_then(|inside| inside.strip_suffix(".rs")) else { continue };
            let module = match inside.strip_suffix("/mod").unwrap_or(inside) {
                "lib" => Path::new(),
                inside => inside.split('/').map(String::from).collect(),
            };
            texts.push((module.clone(), text));
            let file = File {
                name: name.to_string(),
                imports: Vec::new(),
                paths: Vec::new(),
                words: BTreeSet::new(),
            };
            modules.insert(module, file);
        }
        let mut files = Self(modules);
        for (module, text) in texts {
            let lines: Vec<&str> = shipped(text).map(|(_, line)| line).collect();
            files.read(&module, &tokens(&lines.join("\n")));
        }
        files
    }

    /// Notes what a file imports and names.
    fn read(&mut self, module: &Path, mut tokens: &[&str]) {
        let (mut imports, mut paths, mut words) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut before: Vec<&str> = Vec::new();
        while let Some((token, rest)) = tokens.split_first() {
            if *token == "use" {
                let length = rest.iter().position(|token| *token == ";").unwrap_or(rest.len());
                let (tree, behind) = rest.split_at(length);
                // `pub` or `pub(crate)`, since what came before it ended.
                let public = before
                    .iter()
                    .rev()
                    .take_while(|token| !matches!(**token, ";" | "{" | "}" | "]"))
                    .any(|token| *token == "pub");
                leaves(tree, &Path::new(), &mut |path, name| {
                    if let Some(path) = self.absolute(module, path, &[]) {
                        imports.push(Import { public, name: name.to_string(), path });
                    }
                });
                tokens = behind;
                continue;
            }
            before.push(token);
            tokens = rest;
            if token.starts_with(is_letter) {
                let mut path = vec![(*token).to_string()];
                while let [colons, name, rest @ ..] = tokens
                    && *colons == "::"
                    && name.starts_with(is_letter)
                {
                    path.push((*name).to_string());
                    tokens = rest;
                }
                words.insert((*token).to_string());
                if path.len() > 1 {
                    paths.push(path);
                }
            }
        }
        if let Some(file) = self.0.get_mut(module) {
            (file.imports, file.paths, file.words) = (imports, paths, words);
        }
    }

    /// Returns a path from the root, `None` for one of another library.
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
                    None if self.0.contains_key(&child) => child,
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

    /// Returns the module that an item comes from: where it is re-exported, the one that it is re-exported from. `None` for
    /// a path that ends with a module.
    fn owner(&self, path: &[String], depth: usize) -> Option<Path> {
        let mut module = Path::new();
        let mut rest = path;
        while let [name, behind @ ..] = rest {
            rest = behind;
            let child = [&module[..], std::slice::from_ref(name)].concat();
            if self.0.contains_key(&child) {
                module = child;
                continue;
            }
            let imports = self.0.get(&module).map_or(&[][..], |file| &file.imports);
            let import = imports.iter().find(|import| import.public && import.name == *name);
            // A macro is exported under its own path, and `use` may run in circles.
            let Some(import) = import.filter(|import| import.path != child && depth < 8) else {
                return Some(module);
            };
            return self.owner(&[&import.path[..], rest].concat(), depth + 1);
        }
        None
    }

    /// Returns the modules that one uses. What it only re-exports it does not use.
    fn used(&self, module: &Path, file: &File) -> BTreeSet<&Path> {
        let mut used = BTreeSet::new();
        for import in &file.imports {
            if import.public && !file.words.contains(&import.name) {
                continue;
            }
            used.extend(match import.name.as_str() {
                "*" => Some(import.path.clone()),
                _ => self.owner(&import.path, 0),
            });
        }
        for path in &file.paths {
            let path = self.absolute(module, path, &file.imports);
            used.extend(path.and_then(|path| self.owner(&path, 0)));
        }
        used.remove(module);
        used.iter().filter_map(|path| self.0.get_key_value(path)).map(|(path, _)| path).collect()
    }

    /// Returns the circles: for each file the shortest one that begins with it and has no file before it.
    pub(super) fn circles(&self) -> Vec<String> {
        let used: BTreeMap<&Path, BTreeSet<&Path>> =
            self.0.iter().map(|(module, file)| (module, self.used(module, file))).collect();
        self.0.keys().filter_map(|start| circle(start, &used)).map(|circle| self.describe(&circle)).collect()
    }

    fn describe(&self, circle: &[&Path]) -> String {
        let names: Vec<&str> =
            circle.iter().filter_map(|module| self.0.get(*module)).map(|file| &*file.name).collect();
        format!("{}: a circle of imports", names.join(" -> "))
    }
}

/// Returns the shortest way from a module back to itself, through modules behind it only.
fn circle<'a>(start: &'a Path, used: &BTreeMap<&'a Path, BTreeSet<&'a Path>>) -> Option<Vec<&'a Path>> {
    let mut seen = BTreeSet::new();
    let mut ways = vec![vec![start]];
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in &ways {
            let last = way.last()?;
            for &next in used.get(last)? {
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

/// Calls `each` with every path that a `use` names, and what it is called behind it.
fn leaves(tree: &[&str], prefix: &Path, each: &mut dyn FnMut(&Path, &str)) {
    let mut path = prefix.clone();
    let mut tokens = tree;
    while let Some((token, rest)) = tokens.split_first() {
        tokens = rest;
        match *token {
            "::" => {}
            "{" => {
                let inner = rest.split_last().map_or(rest, |(_, inner)| inner);
                let mut depth = 0_u32;
                for branch in inner.split(|token| {
                    match *token {
                        "{" => depth += 1,
                        "}" => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    *token == "," && depth == 0
                }) {
                    leaves(branch, &path, each);
                }
                return;
            }
            "as" => return each(&path, rest.first().unwrap_or(&"_")),
            "*" => return each(&path, "*"),
            "self" if !path.is_empty() => {}
            name => path.push(name.to_string()),
        }
    }
    if let Some(name) = path.last().cloned()
        && !tree.is_empty()
    {
        each(&path, &name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        Files::new(files.iter().copied()).circles()
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
            // Declared and re-exported only.
            ("mod a;\nmod b;\npub use a::A;\npub struct Own;", "use super::Own;", "use super::{A, Own};"),
            // The parent uses its children.
            ("mod a;\nmod b;\nuse a::A;\npub use b::B;\npub struct Own(A, B);", "", "use super::a::A;"),
            // Tests may use what they like, and comments name what they like.
            (
                "mod a;\nmod b;",
                "use super::b::B;\n#[cfg(test)]\nmod tests {\n    use super::*;",
                "//! [`super::a::A`]\nfn f() {} // super::a::A\nconst S: &str = \"super::a::A\";\n#[cfg(test)]\nmod tests {\n    use crate::m::a::A;",
            ),
            // The name of another library's module is no import.
            ("mod a;\nmod b;", "use super::b::B;", "use core::a::A;\nfn f(_: core::a::A) {}"),
        ] {
            let tests = ("src/m/a/tests.rs", "use crate::m::b::B;\nuse crate::m::a::A;");
            let found = circles(&[("src/m/mod.rs", parent), ("src/m/a.rs", a), ("src/m/b.rs", b), tests]);
            assert_eq!(found, [""; 0], "{parent}");
        }
    }
}
