//! A source file: its text, and its code as parsed by `syn`.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::{Attribute, Item, Meta};

/// A Rust file or Markdown page of the repository.
pub(crate) struct Source {
    /// The path from the root of the repository.
    pub(crate) name: String,
    pub(crate) text: String,
    /// The parsed code, if it is a Rust file.
    pub(crate) code: Option<syn::File>,
}

impl Source {
    /// Parses a Rust file. Of another file, keeps only the text.
    ///
    /// # Errors
    /// The file is not valid Rust.
    pub(crate) fn new(name: &str, text: String) -> Result<Self, String> {
        let code = name.ends_with(".rs").then(|| syn::parse_file(&text)).transpose();
        let code = code.map_err(|error| format!("{name}:{}: {error}", error.span().start().line))?;
        Ok(Self { name: name.into(), text, code })
    }
}

/// Returns the lines of code with their numbers. Lines that consist of a comment are left out.
pub(crate) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    numbered(text).filter(is_code)
}

/// Returns the lines of code before the test module, with their numbers.
pub(crate) fn shipped(text: &str) -> impl Iterator<Item = (usize, &str)> {
    before_tests(text).filter(is_code)
}

/// Returns the lines before the test module with their numbers, including comments.
pub(crate) fn before_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut before = "";
    numbered(text).take_while(move |(_, line)| {
        let tests = before.starts_with("#[cfg(test)]") && line.starts_with("mod ") && line.ends_with('{');
        before = line;
        !tests
    })
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn is_code((_, line): &(usize, &str)) -> bool {
    !line.trim_start().starts_with("//")
}

/// Returns whether a file contains tests only, by its path.
pub(crate) fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("/tests.rs")
}

/// Returns whether a character may be part of an identifier.
pub(crate) fn is_letter(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

pub(crate) fn names(line: &str) -> Vec<&str> {
    line.split(|character| !is_letter(character)).filter(|name| !name.is_empty()).collect()
}

/// Returns whether attributes compile an item only for tests: `cfg(test)`, or `cfg(all(test, …))`.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let mut words = list.tokens.clone().into_iter();
        let only = |tokens: TokenStream| tokens.into_iter().any(|token| is_word(&token, "test"));
        attribute.path().is_ident("cfg")
            && match words.next() {
                Some(word) if is_word(&word, "test") => true,
                Some(word) if is_word(&word, "all") => {
                    matches!(words.next(), Some(TokenTree::Group(group)) if only(group.stream()))
                }
                _ => false,
            }
    })
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(name) if name == word)
}

pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Calls `each` with every path among the tokens of a macro. `a::b` is one path.
pub(crate) fn paths(tokens: TokenStream, each: &mut dyn FnMut(&[Ident])) {
    let mut path: Vec<Ident> = Vec::new();
    // The number of colons since the last identifier.
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 && !path.is_empty() {
                    each(&path);
                    path.clear();
                }
                path.push(name);
                colons = 0;
            }
            TokenTree::Punct(sign) if sign.as_char() == ':' && colons < 2 => colons += 1,
            other => {
                if !path.is_empty() {
                    each(&path);
                    path.clear();
                }
                colons = 0;
                if let TokenTree::Group(group) = other {
                    paths(group.stream(), each);
                }
            }
        }
    }
    if !path.is_empty() {
        each(&path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_macros_are_found() {
        let tokens: TokenStream = "a::b c, { $crate::d(\"e::f\", g) } h: i".parse().unwrap();
        let mut found = Vec::new();
        paths(tokens, &mut |path| {
            found.push(path.iter().map(ToString::to_string).collect::<Vec<_>>().join("::"));
        });
        assert_eq!(found, ["a::b", "c", "crate::d", "g", "h", "i"]);
    }

    #[test]
    fn code_that_is_no_rust_is_refused() {
        let refused = Source::new("src/a.rs", "fn f() {\n    let;\n}".into()).err().unwrap();
        assert!(refused.starts_with("src/a.rs:2: "), "{refused}");
        assert!(Source::new("a.md", "let;".into()).is_ok_and(|source| source.code.is_none()));
    }

    #[test]
    fn items_of_tests_are_known() {
        for (text, expected) in [
            ("#[cfg(test)] mod a;", true),
            ("#[cfg(all(test, unix))] mod a;", true),
            ("#[cfg(any(test, unix))] mod a;", false),
            ("#[cfg(not(test))] mod a;", false),
            ("mod a;", false),
        ] {
            let file = syn::parse_file(text).unwrap();
            assert_eq!(is_for_tests(attributes(&file.items[0])), expected, "{text}");
        }
    }
}
