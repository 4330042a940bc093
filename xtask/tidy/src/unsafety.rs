//! Finds `unsafe` in parsed code.

use crate::source::paths;
use proc_macro2::Ident;
use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use syn::{Attribute, ExprUnsafe, File, ItemForeignMod, ItemImpl, ItemTrait, Macro, Meta, Signature};

/// Returns the numbers of the lines that contain `unsafe`, or that allow the lint `unsafe_code`. The type of
/// a pointer to an unsafe function does not count.
pub(crate) fn lines(code: &File) -> BTreeSet<usize> {
    let mut finder = Finder::default();
    finder.visit_file(code);
    finder.0
}

#[derive(Default)]
struct Finder(BTreeSet<usize>);

impl Finder {
    fn found(&mut self, token: Option<&syn::Token![unsafe]>) {
        self.0.extend(token.map(|token| token.span.start().line));
    }

    fn words(&mut self, path: &[Ident], word: &str) {
        let found = path.iter().filter(|name| *name == word);
        self.0.extend(found.map(|name| name.span().start().line));
    }
}

macro_rules! may_be_unsafe {
    ($($visit:ident: $item:ident,)+) => {
        $(fn $visit(&mut self, item: &'ast $item) {
            self.found(item.unsafety.as_ref());
            visit::$visit(self, item);
        })+
    };
}

impl<'ast> Visit<'ast> for Finder {
    may_be_unsafe! {
        visit_signature: Signature,
        visit_item_impl: ItemImpl,
        visit_item_trait: ItemTrait,
        visit_item_foreign_mod: ItemForeignMod,
    }

    fn visit_expr_unsafe(&mut self, block: &'ast ExprUnsafe) {
        self.found(Some(&block.unsafe_token));
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let Meta::List(list) = &attribute.meta else { return };
        for (name, word) in [("allow", "unsafe_code"), ("expect", "unsafe_code"), ("cfg_attr", "unsafe")] {
            if list.path.is_ident(name) {
                paths(list.tokens.clone(), &mut |path| self.words(path, word));
            }
        }
        if let Some(name) = list.path.get_ident() {
            self.words(std::slice::from_ref(name), "unsafe");
        }
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        // The macro `Token![unsafe]` names a type of `syn` and is not unsafe.
        if call.path.segments.last().is_some_and(|last| last.ident == "Token") {
            return;
        }
        paths(call.tokens.clone(), &mut |path| {
            self.words(path, "unsafe");
            self.words(path, "unsafe_code");
        });
        visit::visit_macro(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_is_found_however_it_is_written() {
        for text in [
            "fn f() {\n    unsafe { g() }\n}",
            "const A: u8 = {\n    unsafe { g() }\n};",
            "// One line.\nunsafe fn f() {}",
            "impl A {\n    unsafe fn f() {}\n}",
            "trait A {\n    unsafe fn f();\n}",
            "struct A;\nunsafe impl Send for A {}",
            "struct A;\nunsafe trait B {}",
            "struct A;\nunsafe extern \"C\" {}",
            "struct A;\n#[unsafe(no_mangle)]\nfn f() {}",
            "struct A;\n#[allow(unsafe_code)]\nfn f() {}",
            "//! Text.\n#![expect(dead_code, unsafe_code, reason = \"none\")]",
            "macro_rules! a {\n    () => { unsafe { g() } };\n}",
            "a! {\n    f(unsafe { g() });\n}",
        ] {
            assert_eq!(lines(&syn::parse_file(text).unwrap()), BTreeSet::from([2]), "{text}");
        }
    }

    #[test]
    fn others_are_not() {
        for text in [
            "// unsafe\nconst A: &str = \"unsafe {}\";",
            "struct A {\n    f: unsafe extern \"C\" fn(u8),\n}",
            "#![deny(unsafe_code)]",
            "fn f(_: Token![unsafe], _: syn::Token![unsafe]) {}",
            "fn f() {\n    is_unsafe();\n}",
        ] {
            assert_eq!(lines(&syn::parse_file(text).unwrap()), BTreeSet::new(), "{text}");
        }
    }
}
