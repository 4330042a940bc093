//! Which functions of built archives can reach which: a graph of what they refer to.

use object::read::archive::ArchiveFile;
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;

/// A section of an object file. The compiler gives each function and each constant one of its own.
#[derive(Debug, Default)]
struct Section {
    /// What is in it.
    names: Vec<String>,
    /// Sections that it refers to, by calls and by addresses.
    refers: BTreeSet<usize>,
    /// What it refers to that is in no archive.
    missing: BTreeSet<String>,
}

/// Returns `from` and all that steps lead to.
fn closure(from: &BTreeSet<usize>, next: impl Fn(usize) -> Vec<usize>) -> BTreeSet<usize> {
    let (mut found, mut waiting) = (from.clone(), Vec::from_iter(from.iter().copied()));
    while let Some(at) = waiting.pop() {
        waiting.extend(next(at).into_iter().filter(|next| found.insert(*next)));
    }
    found
}

/// All functions and constants of some archives.
#[derive(Debug, Default)]
pub(super) struct Graph {
    sections: Vec<Section>,
}

impl Graph {
    /// Reads archives. Where a name is defined twice the first counts.
    pub(super) fn read(archives: &[Vec<u8>]) -> Result<Self, object::Error> {
        let mut objects = Vec::new();
        for data in archives {
            for member in ArchiveFile::parse(data.as_slice())?.members() {
                let member = member?;
                // Apart from objects there is only what the compiler wants to know of a crate.
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

    /// Reads the calls of a linked program, as objdump prints it. Calls through pointers are not seen.
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
                // The address of a page, which objdump calls by the function that happens to begin there.
            } else if let Some((_, target)) = line.split_once('<') {
                let place = target.split_once('>').and_then(|(name, _)| places.get(name));
                if let (Some(place), Some(section)) = (place, sections.last_mut()) {
                    section.refers.insert(*place);
                }
            }
        }
        Self { sections }
    }

    /// Returns all names.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        self.sections.iter().flat_map(|section| &section.names).map(String::as_str).collect()
    }

    /// Returns the sections in which something has a name of this kind.
    pub(super) fn named(&self, is_meant: impl Fn(&str) -> bool) -> BTreeSet<usize> {
        let sections = self.sections.iter().enumerate();
        sections
            .filter(|(_, section)| section.names.iter().any(|name| is_meant(name)))
            .map(|(at, _)| at)
            .collect()
    }

    /// Returns a way from one of `from` to one of `to` that goes around `but`: the names on it.
    pub(super) fn way(
        &self,
        from: &BTreeSet<usize>,
        to: &BTreeSet<usize>,
        but: &BTreeSet<usize>,
    ) -> Option<Vec<&str>> {
        // Where each section was reached from; a start is reached from itself.
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

    /// Returns all that can be reached from `from` by ways that go around `but`, with `from` itself.
    pub(super) fn reached(&self, from: &BTreeSet<usize>, but: &BTreeSet<usize>) -> BTreeSet<usize> {
        let refers = |at: usize| self.sections.get(at).into_iter().flat_map(|section| &section.refers);
        closure(from, |at| refers(at).copied().filter(|next| !but.contains(next)).collect())
    }

    /// Returns all from which one of `to` can be reached by ways that go around `but`, with `to` itself.
    pub(super) fn reaching(&self, to: &BTreeSet<usize>, but: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut referring: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (from, section) in self.sections.iter().enumerate() {
            for at in section.refers.difference(but) {
                referring.entry(*at).or_default().push(from);
            }
        }
        closure(to, |at| referring.get(&at).cloned().unwrap_or_default())
    }

    /// Returns the sections in which something has a name of which `key` makes something, by what it makes.
    pub(super) fn keyed<K: Ord>(&self, key: impl Fn(&str) -> Option<K>) -> BTreeMap<K, BTreeSet<usize>> {
        let mut found: BTreeMap<K, BTreeSet<usize>> = BTreeMap::new();
        for (at, section) in self.sections.iter().enumerate() {
            for key in section.names.iter().filter_map(|name| key(name)) {
                found.entry(key).or_default().insert(at);
            }
        }
        found
    }

    /// Returns what can be reached from `from` and is in no archive.
    pub(super) fn missing(&self, from: &BTreeSet<usize>) -> BTreeSet<&str> {
        let (mut reached, mut waiting) = (from.clone(), Vec::from_iter(from.iter().copied()));
        let mut missing = BTreeSet::new();
        while let Some(section) = waiting.pop().and_then(|at| self.sections.get(at)) {
            missing.extend(section.missing.iter().map(String::as_str));
            waiting.extend(section.refers.iter().filter(|next| reached.insert(**next)));
        }
        missing
    }

    /// Returns a section's name. Those with `$` say where code (x) and where constants (d) begin.
    fn name(&self, at: usize) -> &str {
        let names = self.sections.get(at).into_iter().flat_map(|section| &section.names);
        names.map(String::as_str).find(|name| !name.starts_with('$')).unwrap_or("a constant")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What reaches and what is reached, in one pass each, is what a way is found for.
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
                let way = graph.way(&named(from), &named(to), &but).is_some();
                assert_eq!(!graph.reached(&named(from), &but).is_disjoint(&named(to)), way, "{from} {to}");
                assert_eq!(!graph.reaching(&named(to), &but).is_disjoint(&named(from)), way, "{from} {to}");
            }
        }
        assert!(graph.way(&named("e"), &named("c"), &but).is_none());
        let keyed = graph.keyed(|name| name.len().checked_sub(1));
        assert_eq!((keyed[&0].len(), &keyed[&4]), (5, &but));
    }
}
