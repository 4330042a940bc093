//! Writes all mutants of a file into one text, so that one build contains them all. Conditions select a
//! mutant at run time.

use crate::mutant::{Kind, Mutant, Place};
use proc_macro2::Span;
use std::cmp::Reverse;
use std::iter::Peekable;
use std::ops::Range;
use std::vec::IntoIter;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr};

/// A mutant, with the number that turns it on at run time.
pub(crate) type Numbered<'a> = (u32, &'a Mutant);

/// A file with its mutants. `text` contains the mutants that can be turned on at run time. The lists name
/// these mutants and the others.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) text: String,
    /// The range of each mutant's own code in `text`, with the mutant's number.
    pub(crate) branches: Vec<(Range<usize>, u32)>,
    /// The range of each changed piece of code in `text`, with the numbers of its mutants.
    pub(crate) around: Vec<(Range<usize>, Vec<u32>)>,
    /// Mutants that have to be built alone: the compiler evaluates their code, or a condition cannot select
    /// their code.
    pub(crate) alone: Vec<u32>,
    /// Mutants that are not valid Rust: `||` in a condition with `let`.
    pub(crate) refused: Vec<u32>,
    /// Mutants in constant functions. If the compiler evaluates the function, such a mutant has no effect,
    /// because mutants are turned on at run time.
    pub(crate) constant: Vec<u32>,
}

/// The kind of code that mutants change.
enum Form {
    /// The beginning of a function's body, before its first statement.
    Body,
    /// The end of an arm's pattern.
    Arm,
    /// An expression. The text `before` precedes it.
    Expression { before: String, original: Range<usize> },
}

struct Node {
    range: Range<usize>,
    form: Form,
    /// The number of each mutant, and the text that replaces the original code.
    mutants: Vec<(u32, String)>,
}

/// Returns the text of a file with its mutants. `switch` is the path of a function that returns whether the
/// mutant with a number is on.
///
/// # Errors
/// A description of the reason why the file is not valid Rust.
pub(crate) fn write(source: &str, switch: &str, mutants: &[Numbered<'_>]) -> Result<Schema, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let (nodes, found, schema) = (Vec::new(), Vec::new(), Schema::default());
    let mut finder = Finder { source, mutants, nodes, found, schema, constant: 0, in_constant: false };
    finder.visit_file(&file);
    let Finder { mut nodes, found, mut schema, .. } = finder;
    nodes.sort_by_key(|node| (node.range.start, node.range.end > node.range.start, Reverse(node.range.end)));
    let numbers = mutants.iter().map(|(number, _)| *number);
    schema.alone = numbers.filter(|number| !found.contains(number)).collect();
    let mut writer = Writer { source, switch, nodes: nodes.into_iter().peekable(), schema };
    writer.copy(0..source.len());
    Ok(writer.schema)
}

/// Returns the text of a file in which one mutant replaces the original code.
pub(crate) fn replace(source: &str, mutant: &Mutant) -> String {
    let [start, end] = [mutant.start, mutant.end].map(|place| offset(source, place));
    let (before, behind) = (source.get(..start).unwrap_or_default(), source.get(end..).unwrap_or_default());
    format!("{before}{}{behind}", mutant.replacement)
}

fn offset(source: &str, place: Place) -> usize {
    let start: usize = source.split_inclusive('\n').take(place.line.saturating_sub(1)).map(str::len).sum();
    let rest = source.get(start..).unwrap_or_default();
    start + rest.chars().take(place.column.saturating_sub(1)).map(char::len_utf8).sum::<usize>()
}

/// Visits the syntax tree of a file, and finds the code that mutants change.
struct Finder<'a> {
    source: &'a str,
    mutants: &'a [Numbered<'a>],
    nodes: Vec<Node>,
    found: Vec<u32>,
    schema: Schema,
    /// How deep the visited code is nested in code that the compiler evaluates. 0: the code runs at run time.
    constant: usize,
    /// Whether the visited code is in a constant function.
    in_constant: bool,
}

impl<'a> Finder<'a> {
    fn text(&self, code: &impl Spanned) -> &'a str {
        self.source.get(code.span().byte_range()).unwrap_or_default()
    }

    /// Returns the mutants that begin at the start of some code.
    fn at(&self, code: Span) -> impl Iterator<Item = Numbered<'a>> + use<'a> {
        let start = code.start();
        let place = Place { line: start.line, column: start.column + 1 };
        self.mutants.iter().filter(move |(_, mutant)| mutant.start == place).copied()
    }

    /// Adds the code in `range`, with the mutants of this kind that begin at the start of `at`. `text`
    /// returns the text of a mutant. Code that the compiler evaluates is left out.
    fn add(
        &mut self,
        kind: Kind,
        at: Span,
        range: Range<usize>,
        form: Form,
        text: impl Fn(&Mutant) -> String,
    ) {
        if self.constant > 0 {
            return;
        }
        let here = self.at(at).filter(|(_, mutant)| mutant.kind == kind);
        let mutants: Vec<_> = here.map(|(number, mutant)| (number, text(mutant))).collect();
        if !mutants.is_empty() {
            let numbers = mutants.iter().map(|(number, _)| *number);
            self.schema.constant.extend(numbers.clone().filter(|_| self.in_constant));
            self.found.extend(numbers);
            self.nodes.push(Node { range, form, mutants });
        }
    }

    /// Adds an expression whose mutants begin at the start of `at`.
    fn expression(&mut self, kind: Kind, at: Span, code: Span, text: impl Fn(&Mutant) -> String) {
        let range = code.byte_range();
        self.add(kind, at, range.clone(), Form::Expression { before: String::new(), original: range }, text);
    }

    fn function(&mut self, sig: &syn::Signature, block: &syn::Block, inside: impl FnOnce(&mut Self)) {
        // The body of a function inside of a constant is not evaluated with the constant: it runs at run
        // time.
        let constant = std::mem::take(&mut self.constant);
        let in_constant = std::mem::replace(&mut self.in_constant, sig.constness.is_some());
        // A function that returns `impl Trait` has one return type. The mutant's replacement may have another
        // type, so the mutant must be built alone.
        let opaque = match &sig.output {
            syn::ReturnType::Type(_, result) => matches!(**result, syn::Type::ImplTrait(_)),
            syn::ReturnType::Default => false,
        };
        if let (Some(first), false) = (block.stmts.first(), opaque) {
            let start = first.span().byte_range().start;
            self.add(Kind::FnValue, first.span(), start..start, Form::Body, |it| it.replacement.clone());
        }
        inside(self);
        (self.constant, self.in_constant) = (constant, in_constant);
    }

    fn constant(&mut self, inside: impl FnOnce(&mut Self)) {
        self.constant += 1;
        inside(self);
        self.constant -= 1;
    }
}

/// Defines how to visit code that the compiler evaluates.
macro_rules! evaluated {
    ($($visit:ident: $item:ident,)+) => {
        $(fn $visit(&mut self, item: &'ast syn::$item) {
            self.constant(|this| visit::$visit(this, item));
        })+
    };
}

impl<'ast> Visit<'ast> for Finder<'_> {
    evaluated! {
        visit_item_const: ItemConst,
        visit_impl_item_const: ImplItemConst,
        visit_trait_item_const: TraitItemConst,
        visit_item_static: ItemStatic,
        visit_expr_const: ExprConst,
        visit_type: Type,
        visit_generic_argument: GenericArgument,
        visit_pat: Pat,
        visit_item_enum: ItemEnum,
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block, |this| visit::visit_item_fn(this, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block, |this| visit::visit_impl_item_fn(this, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block, |this| visit::visit_trait_item_fn(this, item));
        }
    }

    fn visit_expr_repeat(&mut self, item: &'ast syn::ExprRepeat) {
        self.visit_expr(&item.expr);
        self.constant(|this| this.visit_expr(&item.len));
    }

    fn visit_expr_binary(&mut self, item: &'ast syn::ExprBinary) {
        if matches!(item.op, BinOp::And(_)) && (has_let(&item.left) || has_let(&item.right)) {
            let numbers: Vec<_> = self.at(item.op.span()).map(|(number, _)| number).collect();
            self.found.extend(&numbers);
            self.schema.refused.extend(numbers);
        } else {
            let (left, right) = (self.text(&item.left), self.text(&item.right));
            let text = |mutant: &Mutant| format!("({left}) {} ({right})", mutant.replacement);
            self.expression(Kind::BinaryOperator, item.op.span(), item.span(), text);
        }
        visit::visit_expr_binary(self, item);
    }

    fn visit_expr_unary(&mut self, item: &'ast syn::ExprUnary) {
        let operand = self.text(&item.expr);
        self.expression(Kind::UnaryOperator, item.op.span(), item.span(), |_| operand.into());
        visit::visit_expr_unary(self, item);
    }

    fn visit_arm(&mut self, item: &'ast syn::Arm) {
        if let Some((_, guard)) = &item.guard {
            self.expression(Kind::MatchArmGuard, guard.span(), guard.span(), |it| it.replacement.clone());
        } else {
            let end = item.pat.span().byte_range().end;
            self.add(Kind::MatchArm, item.span(), end..end, Form::Arm, |_| String::new());
        }
        visit::visit_arm(self, item);
    }

    fn visit_expr_struct(&mut self, item: &'ast syn::ExprStruct) {
        if let Some(base) = &item.rest {
            let base = self.text(base);
            for field in &item.fields {
                if let syn::Member::Named(name) = &field.member {
                    // The value of a shorthand field is the field's name.
                    let original = field.expr.span().byte_range();
                    let form = Form::Expression { before: format!("{name}: "), original };
                    let range = field.span().byte_range();
                    self.add(Kind::StructField, field.span(), range, form, |_| format!("({base}).{name}"));
                }
            }
        }
        visit::visit_expr_struct(self, item);
    }
}

fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
            has_let(&binary.left) || has_let(&binary.right)
        }
        _ => false,
    }
}

/// Copies a source text, and writes changed code together with all its mutants.
struct Writer<'a> {
    source: &'a str,
    switch: &'a str,
    /// The changed code that is not written yet.
    nodes: Peekable<IntoIter<Node>>,
    schema: Schema,
}

impl Writer<'_> {
    fn push(&mut self, text: &str) {
        self.schema.text.push_str(text);
    }

    /// Copies a range of the source, with the mutants in it.
    fn copy(&mut self, range: Range<usize>) {
        let mut at = range.start;
        while let Some(node) = self.nodes.next_if(|node| node.range.start < range.end) {
            self.push(self.source.get(at..node.range.start).unwrap_or_default());
            at = node.range.end;
            self.node(node);
        }
        self.push(self.source.get(at..range.end).unwrap_or_default());
    }

    fn node(&mut self, Node { form, mutants, .. }: Node) {
        let start = self.schema.text.len();
        match form {
            Form::Body => {
                for (number, text) in &mutants {
                    self.branch(*number, "return ", text, "; } ");
                }
            }
            Form::Arm => {
                self.push(" if true");
                for (number, _) in &mutants {
                    self.push(&format!(" && !{}({number})", self.switch));
                }
            }
            Form::Expression { before, original } => {
                self.push(&before);
                self.push("(");
                for (number, text) in &mutants {
                    self.branch(*number, "", text, " } else ");
                }
                // In a block, code that begins with `if` would be a statement. Parentheses make it an
                // expression.
                self.push("{ (");
                self.copy(original);
                self.push(") })");
            }
        }
        let numbers = mutants.iter().map(|(number, _)| *number).collect();
        self.schema.around.push((start..self.schema.text.len(), numbers));
    }

    /// Writes the condition of a mutant, and the mutant's text between two others.
    fn branch(&mut self, number: u32, before: &str, text: &str, behind: &str) {
        self.push(&format!("if {}({number}) {{ {before}", self.switch));
        let start = self.schema.text.len();
        self.push(text);
        self.schema.branches.push((start..self.schema.text.len(), number));
        self.push(behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a mutant that replaces the first occurrence of `at`.
    fn mutant(source: &str, at: &str, kind: Kind, replacement: &str) -> Mutant {
        let offset = source.find(at).unwrap();
        let place = |offset: usize| {
            let before = &source[..offset];
            let line = before.matches('\n').count() + 1;
            Place { line, column: before.rsplit('\n').next().unwrap().chars().count() + 1 }
        };
        Mutant {
            start: place(offset),
            end: place(offset + at.len()),
            kind,
            replacement: replacement.into(),
            function: String::new(),
        }
    }

    fn written(source: &str, mutants: &[(&str, Kind, &str)]) -> Schema {
        let mutants: Vec<_> =
            mutants.iter().map(|(at, kind, replacement)| mutant(source, at, *kind, replacement)).collect();
        let numbered: Vec<_> = (0..).zip(&mutants).collect();
        write(source, "on", &numbered).unwrap()
    }

    #[test]
    fn all_mutants_of_an_expression_are_there() {
        let source = "fn é(a: u8) -> bool {\n    a & 3 == 1\n}\n";
        let mutants = [
            ("a & 3 == 1", Kind::FnValue, "true"),
            ("==", Kind::BinaryOperator, "!="),
            ("&", Kind::BinaryOperator, "|"),
        ];
        let schema = written(source, &mutants);
        assert_eq!(
            schema.text,
            "fn é(a: u8) -> bool {\n    if on(0) { return true; } (if on(1) { (a & 3) != (1) } else \
             { ((if on(2) { (a) | (3) } else { (a & 3) }) == 1) })\n}\n"
        );
        let branch = |(range, number): &(Range<usize>, u32)| (*number, schema.text[range.clone()].to_owned());
        let branches: Vec<_> = schema.branches.iter().map(branch).collect();
        assert_eq!(branches, [(0, "true".into()), (1, "(a & 3) != (1)".into()), (2, "(a) | (3)".into())]);
        assert!(schema.alone.is_empty() && schema.constant.is_empty());
    }

    #[test]
    fn arms_guards_fields_and_signs_are_changed_in_their_place() {
        let source = "fn f(a: i8) -> A { match a { 1 => -a, b if b > 7 => A { a, b: 2, ..A::C }, _ => 0 } }";
        let mutants = [
            ("1 => -a,", Kind::MatchArm, ""),
            ("-a", Kind::UnaryOperator, ""),
            ("b > 7", Kind::MatchArmGuard, "true"),
            ("a, b: 2", Kind::StructField, ""),
            ("b: 2", Kind::StructField, ""),
        ];
        assert_eq!(
            written(source, &mutants).text,
            "fn f(a: i8) -> A { match a { 1 if true && !on(0) => (if on(1) { a } else { (-a) }), \
             b if (if on(2) { true } else { (b > 7) }) => \
             A { a: (if on(3) { (A::C).a } else { (a) }), b: (if on(4) { (A::C).b } else { (2) }), ..A::C }, \
             _ => 0 } }"
        );
    }

    #[test]
    fn what_the_compiler_computes_is_left_to_a_build_of_its_own() {
        let source = "const A: u8 = 1 + 2;\n\
                      const fn f(a: u8) -> [u8; 3 - 1] { if let 1 = a && a < 2 {} [a * 5; 1 | 3] }";
        let mutants = [
            ("+", Kind::BinaryOperator, "-"),
            ("-", Kind::BinaryOperator, "+"),
            ("|", Kind::BinaryOperator, "&"),
            ("&&", Kind::BinaryOperator, "||"),
        ];
        let schema = written(source, &mutants);
        assert_eq!((schema.text.as_str(), schema.alone, schema.refused), (source, vec![0, 1, 2], vec![3]));
        let schema = written(source, &[("*", Kind::BinaryOperator, "+"), ("<", Kind::BinaryOperator, ">")]);
        assert_eq!(schema.constant, [1, 0]);
        let mutant = mutant(source, "&&", Kind::BinaryOperator, "||");
        assert!(replace(source, &mutant).contains("1 = a || a < 2"));
    }
}
