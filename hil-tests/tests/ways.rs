//! The public ways of posting, as the library's source has them, are those that are compared and run: `hil_tests::way`.
//!
//! Sources are read as the compiler reads them: what is said in a comment or in a text calls nothing.

use hil_tests::way::{METHODS, Way};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{File, ImplItem, Item, ReturnType, Signature, TraitItem, Type, Visibility};

fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
}

/// Reads all sources of a folder, or one.
fn texts(path: &str, ending: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let mut found = Vec::new();
    if path.is_dir() {
        files(&path, ending, &mut found)
    } else {
        found.push(path)
    }
    found.sort();
    found.iter().map(|file| std::fs::read_to_string(file).expect("a source")).collect()
}

/// The modules of the library in which requests are posted.
fn library() -> Vec<File> {
    let modules = ["queue", "wqe", "mkey", "devx"].map(|module| texts(&format!("../src/{module}"), "rs"));
    modules.iter().flatten().map(|text| syn::parse_file(text).expect("a source of Rust")).collect()
}

/// The names in a part of a source.
#[derive(Default)]
struct Names {
    all: BTreeSet<String>,
    /// Those in what a closure is given.
    given: BTreeSet<String>,
    /// Those behind `&mut`.
    mutable: BTreeSet<String>,
    depth: [usize; 2],
}

impl<'s> Visit<'s> for Names {
    fn visit_ident(&mut self, name: &'s proc_macro2::Ident) {
        let [given, mutable] = self.depth;
        self.all.insert(name.to_string());
        if given > 0 {
            self.given.insert(name.to_string());
        }
        if mutable > 0 {
            self.mutable.insert(name.to_string());
        }
    }

    fn visit_parenthesized_generic_arguments(&mut self, arguments: &'s syn::ParenthesizedGenericArguments) {
        self.depth[0] += 1;
        visit::visit_parenthesized_generic_arguments(self, arguments);
        self.depth[0] -= 1;
    }

    fn visit_type_reference(&mut self, reference: &'s syn::TypeReference) {
        let mutable = usize::from(reference.mutability.is_some());
        self.depth[1] += mutable;
        visit::visit_type_reference(self, reference);
        self.depth[1] -= mutable;
    }
}

/// Returns whether a method posts: it may fail as a post does, or begins a request or a batch, or lends a send queue.
fn posts(of: &str, signature: &Signature) -> bool {
    let (mut whole, mut returned) = (Names::default(), Names::default());
    whole.visit_signature(signature);
    returned.visit_return_type(&signature.output);
    let begins = ["PostError", "SendRequest", "Batch"].iter().any(|name| returned.all.contains(*name));
    let lends = whole.given.contains("SendQueue") || returned.mutable.contains("SendQueue");
    // What a request returns is itself.
    let is_itself = matches!(&signature.output, ReturnType::Type(_, output) if named(output) == "Self");
    begins || lends || of == "SendRequest" && !is_itself
}

/// Returns the name of a type without its path and parameters.
fn named(of: &Type) -> String {
    match of {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        Type::Reference(reference) => named(&reference.elem),
        _ => String::new(),
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

/// What is called with a name and a signature for each public function, and for each that a macro may make.
type Found<'f> = dyn FnMut(&str, &Signature, bool) + 'f;

/// Finds the functions of items: whose they are, their signatures, and whether they are public.
fn functions(items: &[Item], found: &mut Found<'_>) {
    for item in items {
        match item {
            Item::Mod(module) if !is_test(&module.attrs) => {
                functions(
                    module.content.as_ref().map(|(_, items)| items.as_slice()).unwrap_or_default(),
                    found,
                );
            }
            Item::Impl(block) => {
                let of = named(&block.self_ty);
                for item in &block.items {
                    let ImplItem::Fn(function) = item else { continue };
                    found(&of, &function.sig, matches!(function.vis, Visibility::Public(_)));
                }
            }
            Item::Trait(declared) => {
                for item in &declared.items {
                    let TraitItem::Fn(function) = item else { continue };
                    found(
                        &declared.ident.to_string(),
                        &function.sig,
                        matches!(declared.vis, Visibility::Public(_)),
                    );
                }
            }
            Item::Fn(function) if !is_test(&function.attrs) => {
                found("", &function.sig, matches!(function.vis, Visibility::Public(_)));
            }
            _ => {}
        }
    }
}

/// Returns the public methods that post.
fn posting(file: &File) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    functions(&file.items, &mut |of, signature, public| {
        if public && posts(of, signature) {
            names.insert(format!("{of}::{}", signature.ident));
        }
    });
    names
}

/// Returns the names of methods and functions that a source calls, in macros, too, and not in its tests.
fn calls(text: &str) -> BTreeSet<String> {
    fn walk(tokens: TokenStream, found: &mut BTreeSet<String>) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.to_string() == text);
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(_) if is(at, "#") && is(at + 1, "[cfg (test)]") && is(at + 2, "mod") => {
                    at += 4
                }
                TokenTree::Ident(name) => {
                    let arguments = tokens.get(at + 1);
                    let called = matches!(arguments, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
                    let declared = at.checked_sub(1).is_some_and(|before| is(before, "fn"));
                    if called && !declared {
                        let method = at.checked_sub(1).is_some_and(|before| is(before, "."));
                        found.insert(format!("{}{name}", if method { "." } else { "" }));
                        // Whose method or function it is, or what it is called on.
                        if let Some(TokenTree::Ident(of)) =
                            at.checked_sub(if method { 2 } else { 3 }).and_then(|of| tokens.get(of))
                        {
                            found.insert(format!("{of}{}{name}", if method { "." } else { "::" }));
                        }
                    }
                }
                TokenTree::Group(group) => walk(group.stream(), found),
                _ => {}
            }
            at += 1;
        }
    }
    let mut found = BTreeSet::new();
    walk(text.parse().expect("a source of Rust"), &mut found);
    found
}

fn all_calls(path: &str) -> BTreeSet<String> {
    texts(path, "rs").iter().flat_map(|text| calls(text)).collect()
}

#[test]
fn every_way_of_the_library_is_proven() {
    let found: BTreeSet<String> = library().iter().flat_map(posting).collect();
    let known: BTreeSet<String> = METHODS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, known, "the library's, and those of way::METHODS");
    for way in Way::ALL {
        assert!(METHODS.iter().any(|(_, ways)| ways.contains(&way)), "{way:?} is no way of the library");
    }
}

#[test]
fn every_method_that_posts_is_called() {
    let dispatch = all_calls("scenarios/src/way.rs");
    let users = ["src/vectors", "src/differential", "scenarios/src/scenarios"].map(all_calls);
    for (name, ways) in METHODS.iter().filter(|(_, ways)| !ways.is_empty()) {
        let (of, method) = name.split_once("::").expect("type and method");
        match of {
            "SendRequest" => {
                let call = format!(".{method}");
                assert!(users.iter().any(|user| user.contains(&call)), "{name}: nobody calls it");
            }
            // One has to be made first, and then bears this name.
            "SharedSendQueue" => {
                let made = |user: &BTreeSet<String>| {
                    user.contains("SharedSendQueue::new") && user.contains(&format!("shared.{method}"))
                };
                assert!(users.iter().any(made), "{name}: nobody calls it");
            }
            // How a request begins is chosen with the way.
            _ => assert!(
                dispatch.contains(&format!(".{method}")),
                "{name}: in {ways:?}, but way.rs does not call it"
            ),
        }
    }
    for user in &users[..2] {
        for call in ["way.open", "way.prepare"] {
            assert!(user.contains(call), "vectors and differential test post through way.rs: {call}");
        }
    }
    for past in ["queue.request", ".batch", "PreparedConfig::new"] {
        assert!(!users.iter().any(|user| user.contains(past)), "past way.rs: {past}");
    }
}

#[test]
fn every_change_in_place_is_proven() {
    let mut changes = BTreeSet::new();
    for file in library() {
        functions(&file.items, &mut |of, signature, public| {
            let changes_itself = signature
                .receiver()
                .is_some_and(|itself| itself.mutability.is_some() && itself.reference.is_some());
            if public && of == "PreparedConfig" && changes_itself {
                changes.insert(signature.ident.to_string());
            }
        });
    }
    assert!(changes.contains("set_tweak"), "{changes:?}");
    let dispatch = all_calls("scenarios/src/way.rs");
    for change in changes {
        assert!(dispatch.contains(&format!("prepared.{change}")), "way.rs does not change with {change}");
    }
}

/// The functions for C that change a queue pair: those that post are among them.
fn functions_for_c() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for text in texts("../src/capi", "rs") {
        let file = syn::parse_file(&text).expect("a source of Rust");
        functions(&file.items, &mut |_, signature, public| {
            let mut names = Names::default();
            signature.inputs.iter().for_each(|input| names.visit_fn_arg(input));
            if public && signature.abi.is_some() && names.mutable.contains("Qp") {
                found.insert(signature.ident.to_string());
            }
        });
    }
    found
}

/// The text of a program in C without comments and texts.
fn without_comments(text: &str) -> String {
    let (mut rest, mut kept) = (text, String::new());
    while let Some(at) = rest.find(['/', '"']) {
        let (before, from) = rest.split_at(at);
        kept.push_str(before);
        let (begin, end) = match from.as_bytes() {
            [b'"', ..] => (1, "\""),
            [b'/', b'*', ..] => (2, "*/"),
            [b'/', b'/', ..] => (2, "\n"),
            _ => {
                kept.push('/');
                rest = &from[1..];
                continue;
            }
        };
        let mut end_at = begin;
        loop {
            let found = from[end_at..].find(end).expect("an end of what was begun");
            end_at += found + end.len();
            // A quotation mark that is part of the text.
            if begin != 1 || !from[..end_at - 1].ends_with('\\') {
                break;
            }
        }
        kept.push(' ');
        rest = &from[end_at..];
    }
    kept + rest
}

#[test]
fn every_function_for_c_that_changes_a_queue_pair_is_called() {
    let programs: String = ["capi", "examples/c"]
        .iter()
        .flat_map(|folder| texts(folder, "c"))
        .map(|text| without_comments(&text))
        .collect();
    let found = functions_for_c();
    assert!(
        ["mlx5mk_post", "mlx5mk_post_bind", "mlx5mk_pool_put"].iter().all(|name| found.contains(*name)),
        "{found:?}"
    );
    for name in &found {
        assert!(programs.contains(&format!("{name}(")), "{name}: no program calls it");
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
    // pub fn unsaid(self) -> Result<(), PostError> {}
    pub fn later<'l>(mut self, layout: impl Into<Layout<'l>>) -> Result<(), PostError> {
    }
}
impl Batch {
    pub fn all(self) -> Result<usize, PostError> {
    }
}
impl<'r, D> Shared<'r, D> {
    pub fn new(queue: SendQueue<'r, D>) -> Self {
    }
    pub fn with<T>(&self, work: impl FnOnce(&mut SendQueue<'r, D>) -> T) -> T {
    }
    pub fn lend(&mut self) -> &mut SendQueue<'r, D> {
    }
}
pub trait Posts {
    fn post(&mut self) -> Result<(), PostError>;
}
pub unsafe fn alone() -> Result<(), error::PostError> {
}
#[cfg(test)]
mod tests {
    pub fn tested() -> Result<(), PostError> {
    }
}
";
    let found: Vec<String> = posting(&syn::parse_file(source).unwrap()).into_iter().collect();
    let expected = [
        "::alone",
        "Batch::all",
        "Posts::post",
        "SendQueue::request",
        "SendRequest::another",
        "SendRequest::later",
        "Shared::lend",
        "Shared::with",
    ];
    assert_eq!(found, expected);
}

#[test]
fn comments_texts_and_tests_call_nothing() {
    let source = "
/// As `queue.one(1)`.
fn here() {
    // queue.two(2);
    /* queue.three(3); */
    let text = \"queue.four(4)\";
    ensure!(queue.five(5).is_ok(), \"queue.six(6)\");
}
#[cfg(test)]
mod tests {
    fn there() {
        queue.seven(7);
    }
}
fn behind() {
    Kind::eight(8);
}
";
    let found: Vec<String> = calls(source).into_iter().collect();
    assert_eq!(found, [".five", ".is_ok", "Kind::eight", "eight", "queue.five"]);
    let text = "one(); // two();\n/* three(); \"*/ four(\"\\\"five();\"); a / b";
    assert_eq!(without_comments(text).split_whitespace().collect::<String>(), "one();four();a/b");
}
