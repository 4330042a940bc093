//! The graph of references between the functions and constants of compiled archives.

use object::read::archive::ArchiveFile;
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;

/// A section of an object file. Each function and each constant is in a section of its own.
#[derive(Debug, Default)]
struct Section {
    /// The symbols in the section.
    names: Vec<String>,
    /// The indices of the sections that this section refers to, by calls or by addresses.
    refers: BTreeSet<usize>,
    /// The symbols that this section refers to and that no archive defines.
    missing: BTreeSet<String>,
}

/// Returns all nodes that can be reached from the nodes `from`, including these.
fn closure(from: &BTreeSet<usize>, next: impl Fn(usize) -> Vec<usize>) -> BTreeSet<usize> {
    let (mut found, mut waiting) = (from.clone(), Vec::from_iter(from.iter().copied()));
    while let Some(at) = waiting.pop() {
        waiting.extend(next(at).into_iter().filter(|next| found.insert(*next)));
    }
    found
}

/// The functions and constants of some archives, as nodes of a graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    sections: Vec<Section>,
}

impl Graph {
    /// Reads archives (`.a`, `.rlib`). If a symbol is defined twice, the first definition counts.
    pub(super) fn read(archives: &[Vec<u8>]) -> Result<Self, object::Error> {
        let mut objects = Vec::new();
        for data in archives {
            for member in ArchiveFile::parse(data.as_slice())?.members() {
                let member = member?;
                // `lib.rmeta` is metadata for the compiler. All other members are object files.
                if member.name() != b"lib.rmeta" {
                    objects.push(object::File::parse(member.data(data.as_slice())?)?);
                }
            }
        }
        let mut sections = Vec::new();
        let mut defined = BTreeMap::new();
        let mut places = BTreeMap::new();
        for (number, object) in objects.iter().enumerate() {
            for section in object.sections() {
                places.insert((number, section.index().0), sections.len());
                sections.push(Section::default());
            }
            for symbol in object.symbols() {
                let Some(place) = symbol.section_index().and_then(|index| places.get(&(number, index.0)))
                else {
                    continue;
                };
                let name = symbol.name()?;
                if symbol.is_global() {
                    defined.entry(name).or_insert(*place);
                }
                if let Some(section) = sections.get_mut(*place).filter(|_| !name.is_empty()) {
                    section.names.push(format!("{:#}", rustc_demangle::demangle(name)));
                }
            }
        }
        for (number, object) in objects.iter().enumerate() {
            for section in object.sections() {
                let place = places.get(&(number, section.index().0));
                let Some(from) = place.and_then(|place| sections.get_mut(*place)) else { continue };
                for (_, relocation) in section.relocations() {
                    let RelocationTarget::Symbol(index) = relocation.target() else { continue };
                    let symbol = object.symbol_by_index(index)?;
                    let place = symbol.section_index().and_then(|index| places.get(&(number, index.0)));
                    match place.or_else(|| defined.get(symbol.name().unwrap_or_default())) {
                        Some(place) => _ = from.refers.insert(*place),
                        None => {
                            _ = from.missing.insert(format!("{:#}", rustc_demangle::demangle(symbol.name()?)))
                        }
                    }
                }
            }
        }
        Ok(Self { sections })
    }

    /// Reads the direct calls of a linked program from objdump's disassembly. Calls through pointers are not
    /// in the graph.
    pub(super) fn read_calls(disassembly: &str) -> Self {
        let function = |line: &'_ str| Some(line.strip_suffix(">:")?.split_once(" <")?.1.to_owned());
        let places: BTreeMap<String, usize> =
            disassembly.lines().filter_map(function).enumerate().map(|(at, name)| (name, at)).collect();
        let mut sections = Vec::new();
        for line in disassembly.lines() {
            if let Some(name) = function(line) {
                let name = format!("{:#}", rustc_demangle::demangle(&name));
                sections.push(Section { names: vec![name], ..Section::default() });
            } else if line.contains("\tadrp\t") {
                // The operand is the address of a memory page. objdump prints the name of the function at
                // that address, which is not referred to.
            } else if let Some((_, target)) = line.split_once('<') {
                let place = target.split_once('>').and_then(|(name, _)| places.get(name));
                if let (Some(place), Some(section)) = (place, sections.last_mut()) {
                    section.refers.insert(*place);
                }
            }
        }
        Self { sections }
    }

    pub(super) fn names(&self) -> BTreeSet<&str> {
        self.sections.iter().flat_map(|section| &section.names).map(String::as_str).collect()
    }

    /// Returns the sections with a symbol whose name fulfils a condition.
    pub(super) fn named(&self, is_meant: impl Fn(&str) -> bool) -> BTreeSet<usize> {
        let sections = self.sections.iter().enumerate();
        sections
            .filter(|(_, section)| section.names.iter().any(|name| is_meant(name)))
            .map(|(at, _)| at)
            .collect()
    }

    /// Returns the shortest path from one of `from` to one of `to` that avoids `but`, as names of symbols.
    pub(super) fn path(
        &self,
        from: &BTreeSet<usize>,
        to: &BTreeSet<usize>,
        but: &BTreeSet<usize>,
    ) -> Option<Vec<&str>> {
        // The predecessor of each reached section on its path. A section of `from` is its own predecessor.
        let mut before: BTreeMap<usize, usize> = from.iter().map(|start| (*start, *start)).collect();
        let mut waiting: VecDeque<usize> = from.iter().copied().collect();
        while let Some(at) = waiting.pop_front() {
            if to.contains(&at) {
                let back =
                    iter::successors(Some(at), |at| before.get(at).copied().filter(|before| before != at));
                let mut names: Vec<_> = back.map(|at| self.name(at)).collect();
                names.reverse();
                return Some(names);
            }
            for next in self.sections.get(at).into_iter().flat_map(|section| section.refers.difference(but)) {
                before.entry(*next).or_insert_with(|| {
                    waiting.push_back(*next);
                    at
                });
            }
        }
        None
    }

    /// Returns the sections that can be reached from `from` on paths that avoid `but`. The result includes
    /// `from`.
    pub(super) fn reached(&self, from: &BTreeSet<usize>, but: &BTreeSet<usize>) -> BTreeSet<usize> {
        let refers = |at: usize| self.sections.get(at).into_iter().flat_map(|section| &section.refers);
        closure(from, |at| refers(at).copied().filter(|next| !but.contains(next)).collect())
    }

    /// Returns the sections from which `to` can be reached on paths that avoid `but`. The result includes
    /// `to`.
    pub(super) fn reaching(&self, to: &BTreeSet<usize>, but: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut referring: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (from, section) in self.sections.iter().enumerate() {
            for at in section.refers.difference(but) {
                referring.entry(*at).or_default().push(from);
            }
        }
        closure(to, |at| referring.get(&at).cloned().unwrap_or_default())
    }

    /// Groups the sections by a key that `key` computes from the name of a symbol.
    pub(super) fn keyed<K: Ord>(&self, key: impl Fn(&str) -> Option<K>) -> BTreeMap<K, BTreeSet<usize>> {
        let mut found: BTreeMap<K, BTreeSet<usize>> = BTreeMap::new();
        for (at, section) in self.sections.iter().enumerate() {
            for key in section.names.iter().filter_map(|name| key(name)) {
                found.entry(key).or_default().insert(at);
            }
        }
        found
    }

    /// Returns the undefined symbols of all sections that can be reached from `from`.
    pub(super) fn missing(&self, from: &BTreeSet<usize>) -> BTreeSet<&str> {
        let reached = self.reached(from, &BTreeSet::new());
        let sections = reached.into_iter().filter_map(|at| self.sections.get(at));
        sections.flat_map(|section| &section.missing).map(String::as_str).collect()
    }

    /// Returns the name of a symbol in the section. The symbols `$x` and `$d` are left out: they only mark
    /// the beginning of code and of constants.
    fn name(&self, at: usize) -> &str {
        let names = self.sections.get(at).into_iter().flat_map(|section| &section.names);
        names.map(String::as_str).find(|name| !name.starts_with('$')).unwrap_or("a constant")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `path`, `reached` and `reaching` agree on whether a section can be reached from another one.
    #[test]
    fn ways_and_sets_agree() {
        let calls = |from: &str, to: &str| format!("0 <{from}>:\n 0:\tbl\t0 <{to}>\n\n");
        let text: String = [("a", "b"), ("b", "c"), ("c", "b"), ("d", "c"), ("e", "never"), ("never", "c")]
            .map(|(from, to)| calls(from, to))
            .concat();
        let graph = Graph::read_calls(&text);
        let named = |wanted: &str| graph.named(|name| name == wanted);
        let but = named("never");
        for from in ["a", "b", "c", "d", "e", "never"] {
            for to in ["a", "b", "c", "d", "e", "never"] {
                let path = graph.path(&named(from), &named(to), &but).is_some();
                assert_eq!(!graph.reached(&named(from), &but).is_disjoint(&named(to)), path, "{from} {to}");
                assert_eq!(!graph.reaching(&named(to), &but).is_disjoint(&named(from)), path, "{from} {to}");
            }
        }
        assert!(graph.path(&named("e"), &named("c"), &but).is_none());
        let keyed = graph.keyed(|name| name.len().checked_sub(1));
        assert_eq!((keyed[&0].len(), &keyed[&4]), (5, &but));
    }
}
