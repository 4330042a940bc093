//! Checks that `hil_tests::way` or `hil_tests::request` uses each public method of the library that posts.
//! The tests with vectors and recordings, the differential test and fuzzing post through these two modules,
//! so they reach each method.
//!
//! The test parses the library's sources with `syn`, which ignores comments and strings.

use hil_tests::way::{BEGIN, OTHERS};
use std::collections::BTreeSet;
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{ImplItem, Item, ReturnType, Signature, Type, Visibility};

/// Parses all sources below a folder, or a single source.
fn sources(path: &Path) -> Vec<syn::File> {
    if path.is_file() {
        let text = std::fs::read_to_string(path).expect("a source");
        return vec![syn::parse_file(&text).expect("a source of Rust")];
    }
    let mut entries: Vec<_> =
        std::fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.retain(|path| path.is_dir() || path.extension().is_some_and(|ending| ending == "rs"));
    entries.iter().flat_map(|path| sources(path)).collect()
}

fn below(path: &str) -> Vec<syn::File> {
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
}

/// Returns the parsed sources of the library's modules that post requests.
fn library() -> Vec<syn::File> {
    ["queue", "wqe", "mkey", "devx"].iter().flat_map(|module| below(&format!("../src/{module}"))).collect()
}

/// All identifiers that occur in a part of a source.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl<'s> Visit<'s> for Names {
    fn visit_ident(&mut self, name: &'s syn::Ident) {
        self.0.insert(name.to_string());
    }
}

/// Finds out whether a function gives its caller a send queue by `&mut`: as its return value, or as the
/// argument of a closure.
#[derive(Default)]
struct Lent {
    inside: usize,
    found: bool,
}

impl<'s> Visit<'s> for Lent {
    fn visit_parenthesized_generic_arguments(&mut self, arguments: &'s syn::ParenthesizedGenericArguments) {
        self.inside += 1;
        visit::visit_parenthesized_generic_arguments(self, arguments);
        self.inside -= 1;
    }

    fn visit_return_type(&mut self, returned: &'s ReturnType) {
        let lends = matches!(returned, ReturnType::Type(_, output)
            if matches!(&**output, Type::Reference(reference) if reference.mutability.is_some()));
        self.inside += usize::from(lends);
        visit::visit_return_type(self, returned);
        self.inside -= usize::from(lends);
    }

    fn visit_ident(&mut self, name: &'s syn::Ident) {
        self.found |= self.inside > 0 && name == "SendQueue";
    }
}

/// Returns whether a method counts as one that posts: it returns a post error, begins a request or a batch,
/// or gives its caller a send queue by `&mut`.
fn posts(of: &str, signature: &Signature) -> bool {
    let (mut returned, mut lent) = (Names::default(), Lent::default());
    returned.visit_return_type(&signature.output);
    lent.visit_signature(signature);
    let begins = ["PostError", "SendRequest", "Batch"].iter().any(|name| returned.0.contains(*name));
    // A method that only sets a flag of a request returns `Self`.
    let is_itself = matches!(&signature.output, ReturnType::Type(_, output) if named(output) == "Self");
    begins || lent.found || of == "SendRequest" && !is_itself
}

/// Returns the name of a type without path and parameters.
fn named(of: &Type) -> String {
    match of {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        Type::Reference(reference) => named(&reference.elem),
        _ => String::new(),
    }
}

/// Returns the public methods and functions of these items, each with the name of its type or trait. Traits
/// and inner modules are included, tests are not.
fn functions(items: &[Item]) -> Vec<(String, &Signature)> {
    let is_test = |attributes: &[syn::Attribute]| {
        attributes.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
        })
    };
    let is_public = |visibility: &Visibility| matches!(visibility, Visibility::Public(_));
    let mut found = Vec::new();
    for item in items {
        match item {
            Item::Mod(module) if !is_test(&module.attrs) => {
                found.extend(module.content.iter().flat_map(|(_, items)| functions(items)));
            }
            Item::Impl(block) => found.extend(block.items.iter().filter_map(|item| match item {
                ImplItem::Fn(function) if is_public(&function.vis) => {
                    Some((named(&block.self_ty), &function.sig))
                }
                _ => None,
            })),
            Item::Trait(declared) if is_public(&declared.vis) => {
                found.extend(declared.items.iter().filter_map(|item| match item {
                    syn::TraitItem::Fn(function) => Some((declared.ident.to_string(), &function.sig)),
                    _ => None,
                }));
            }
            Item::Fn(function) if is_public(&function.vis) && !is_test(&function.attrs) => {
                found.push((String::new(), &function.sig));
            }
            _ => {}
        }
    }
    found
}

/// Returns the names of the public methods of a source that post.
fn posting(file: &syn::File) -> BTreeSet<String> {
    let posting = functions(&file.items).into_iter().filter(|(of, signature)| posts(of, signature));
    posting.map(|(of, signature)| format!("{of}::{}", signature.ident)).collect()
}

/// The names of the calls in a source: functions, and methods with the name of their receiver.
#[derive(Default)]
struct Calls(BTreeSet<String>);

impl<'s> Visit<'s> for Calls {
    fn visit_item_mod(&mut self, module: &'s syn::ItemMod) {
        // Calls in tests do not count.
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'s syn::ExprMethodCall) {
        let on = match &*call.receiver {
            syn::Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            syn::Expr::Field(field) => match &field.member {
                syn::Member::Named(name) => Some(name.to_string()),
                syn::Member::Unnamed(_) => None,
            },
            _ => None,
        };
        self.0.insert(format!("{}.{}", on.unwrap_or_default(), call.method));
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'s syn::ExprCall) {
        if let syn::Expr::Path(path) = &*call.func {
            let names: Vec<String> =
                path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.0.insert(names[names.len().saturating_sub(2)..].join("::"));
        }
        visit::visit_expr_call(self, call);
    }
}

fn calls(files: &[syn::File]) -> BTreeSet<String> {
    let mut calls = Calls::default();
    files.iter().for_each(|file| calls.visit_file(file));
    calls.0
}

/// Each method of `SendRequest` that posts must be called by `Request::perform`. Every other method that
/// posts must be in a list of `way.rs`, with the reason why `Request` needs no variant for it.
#[test]
fn every_method_that_posts_is_performed() {
    let found: BTreeSet<String> = library().iter().flat_map(posting).collect();
    let performed = calls(&below("scenarios/src/request.rs"));
    let performed = performed.iter().filter_map(|call| call.strip_prefix("request."));
    let flags = ["fenced", "signaled", "solicited"];
    let performed = performed.filter(|call| !flags.contains(call)).map(|call| format!("SendRequest::{call}"));
    let known = BEGIN.iter().chain(OTHERS).map(|(name, _)| (*name).to_owned());
    assert_eq!(
        found,
        performed.chain(known).collect(),
        "left: methods of the library, right: methods of this list"
    );
}

/// `way.rs` must call each method that begins requests, because all tests that compare bytes post through
/// `Request::perform` and `way.rs`.
#[test]
fn all_that_compares_posts_through_one_function() {
    let ways = calls(&below("scenarios/src/way.rs"));
    for (name, way) in BEGIN {
        assert!(ways.contains(*way), "{name}: way.rs does not call {way}");
    }
    let requests: BTreeSet<String> = library()
        .iter()
        .flat_map(posting)
        .filter_map(|name| Some(name.strip_prefix("SendRequest::")?.into()))
        .collect();
    for user in ["src/vectors", "src/differential", "src/recording", "fuzz/src/calls"] {
        let calls = calls(&below(user));
        let performs = calls.iter().any(|call| call.ends_with(".perform"));
        assert!(performs, "{user} does not post through Request::perform");
        let past = calls
            .iter()
            .filter_map(|call| call.split_once('.'))
            .find(|(_, method)| requests.contains(*method));
        assert_eq!(past, None, "{user} posts without Request::perform");
    }
    for user in ["src/vectors", "src/differential"] {
        let calls = calls(&below(user));
        for call in ["way.open", "way.prepare_with_any_data_unit"] {
            assert!(calls.contains(call), "{user} must post through way.rs: {call}");
        }
        for past in ["queue.request", "queue.batch", "PreparedConfig::new"] {
            assert!(!calls.contains(past), "{user} posts without way.rs: {past}");
        }
    }
}

#[test]
fn every_change_in_place_is_proven() {
    let library = library();
    let changes = library.iter().flat_map(|file| functions(&file.items)).filter(|(of, signature)| {
        let changes_itself = signature
            .receiver()
            .is_some_and(|itself| itself.mutability.is_some() && itself.reference.is_some());
        of == "PreparedConfig" && changes_itself
    });
    let changes: BTreeSet<String> =
        changes.map(|(_, signature)| format!("prepared.{}", signature.ident)).collect();
    let made = calls(&below("scenarios/src/way.rs"));
    let made = made.into_iter().filter(|call| call.starts_with("prepared.set_")).collect();
    assert_eq!(changes, made, "way.rs makes each change that the library offers");
}

#[test]
fn methods_are_found_in_source() {
    let source = "
impl<'r, D: Doorbell> SendQueue<'r, D> {
    pub const fn request(&mut self, id: u64) -> SendRequest<'_, 'r> { begin() }
    pub fn producer(&self) -> u32 { 0 }
    fn hidden(&self) -> Result<(), PostError> { Ok(()) }
}
impl<'q, 'r> SendRequest<'q, 'r> {
    pub const fn fenced(mut self) -> Self { self }
    pub fn another<const E: usize>(self) -> Result<(), Other> { Ok(()) }
}
impl SendRequest<'_, '_> {
    // pub fn unsaid(self) -> Result<(), PostError> {}
    pub fn later<'l>(mut self, layout: impl Into<Layout<'l>>) -> Result<(), PostError> { Ok(()) }
}
impl<'r, D> Shared<'r, D> {
    pub fn new(queue: SendQueue<'r, D>) -> Self { Self }
    pub fn with<T>(&self, work: impl FnOnce(&mut SendQueue<'r, D>) -> T) -> T { work() }
    pub fn lend(&mut self) -> &mut SendQueue<'r, D> { self }
}
pub trait Posts {
    fn post(&mut self) -> Result<(), PostError>;
}
pub unsafe fn alone() -> Result<(), error::PostError> { Ok(()) }
#[cfg(test)]
mod tests {
    pub fn tested() -> Result<(), PostError> { queue.seven(7) }
}
fn here() {
    // queue.two(2);
    let text = \"queue.four(4)\";
    self.way.open(queue);
    a::Kind::eight(8);
}
";
    let file = syn::parse_file(source).unwrap();
    let expected = [
        "::alone",
        "Posts::post",
        "SendQueue::request",
        "SendRequest::another",
        "SendRequest::later",
        "Shared::lend",
        "Shared::with",
    ];
    assert_eq!(posting(&file).into_iter().collect::<Vec<_>>(), expected);
    let expected = ["Kind::eight", "Ok", "begin", "way.open", "work"];
    assert_eq!(calls(&[file]).into_iter().collect::<Vec<_>>(), expected);
}
