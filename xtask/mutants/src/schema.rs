//! Writes all mutants of a file into one text, so that one build contains them all. Conditions select a
//! mutant at run time.

use crate::mutant::{Kind, Mutant, Place};
use proc_macro2::Span;
use std::cmp::Reverse;
use std::ops::Range;
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

/// The kind of code that mutants change, with the parts of it that are needed to write the mutants.
enum Form {
    /// The beginning of a function's body, before its first statement.
    Body,
    Binary {
        left: Range<usize>,
        right: Range<usize>,
    },
    Unary {
        operand: Range<usize>,
    },
    Arm,
    Guard,
    /// A field of a struct expression with a base. `value` is `None` for a shorthand field.
    Field {
        name: String,
        value: Option<Range<usize>>,
        base: Range<usize>,
    },
}

struct Node<'a> {
    range: Range<usize>,
    form: Form,
    mutants: Vec<Numbered<'a>>,
}

/// Returns the text of a file with its mutants. `switch` is the path of a function that returns whether the
/// mutant with a number is on.
///
/// # Errors
/// A description of the reason why the file is not valid Rust.
pub(crate) fn write(source: &str, switch: &str, mutants: &[Numbered<'_>]) -> Result<Schema, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let lines = Lines::new(source);
    let mut finder = Finder {
        source,
        lines: &lines,
        mutants,
        nodes: Vec::new(),
        constant: 0,
        in_constant: false,
        found: Vec::new(),
        constants: Vec::new(),
        refused: Vec::new(),
    };
    finder.visit_file(&file);
    let Finder { mut nodes, found, constants, refused, .. } = finder;
    nodes.sort_by_key(|node| (node.range.start, node.range.end > node.range.start, Reverse(node.range.end)));
    let alone = mutants.iter().map(|(number, _)| *number).filter(|number| !found.contains(number)).collect();
    let mut writer = Writer {
        source,
        switch,
        nodes: &nodes,
        next: 0,
        schema: Schema { alone, refused, constant: constants, ..Schema::default() },
    };
    writer.copy(0..source.len());
    Ok(writer.schema)
}

/// Returns the text of a file in which one mutant replaces the original code.
pub(crate) fn replace(source: &str, mutant: &Mutant) -> String {
    let lines = Lines::new(source);
    let (start, end) = (lines.offset(source, mutant.start), lines.offset(source, mutant.end));
    let (before, behind) = (source.get(..start).unwrap_or_default(), source.get(end..).unwrap_or_default());
    format!("{before}{}{behind}", mutant.replacement)
}

/// The offset at which each line of a text begins.
struct Lines(Vec<usize>);

impl Lines {
    fn new(source: &str) -> Self {
        Self(std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    fn offset(&self, source: &str, place: Place) -> usize {
        let start = self.0.get(place.line.saturating_sub(1)).copied().unwrap_or(source.len());
        let rest = source.get(start..).unwrap_or_default();
        let within = rest.char_indices().nth(place.column.saturating_sub(1)).map_or(rest.len(), |(at, _)| at);
        start + within
    }
}

/// Visits the syntax tree of a file, and finds the code that mutants change.
struct Finder<'a, 's> {
    source: &'s str,
    lines: &'s Lines,
    mutants: &'s [Numbered<'a>],
    nodes: Vec<Node<'a>>,
    /// How deep the visited code is nested in code that the compiler evaluates. 0: the code runs at run time.
    constant: usize,
    /// Whether the visited code is in a constant function.
    in_constant: bool,
    found: Vec<u32>,
    constants: Vec<u32>,
    refused: Vec<u32>,
}

impl Finder<'_, '_> {
    fn range(span: Span) -> Range<usize> {
        span.byte_range()
    }

    /// Adds the code in `range`, with the mutants of these kinds that begin at `place`. Code that the
    /// compiler evaluates is left out.
    fn add(&mut self, kinds: &[Kind], place: &Range<usize>, range: Range<usize>, form: Form) {
        if self.constant > 0 {
            return;
        }
        let here = |mutant: &Mutant| {
            kinds.contains(&mutant.kind) && self.lines.offset(self.source, mutant.start) == place.start
        };
        let mutants: Vec<_> = self.mutants.iter().filter(|(_, mutant)| here(mutant)).copied().collect();
        if !mutants.is_empty() {
            let numbers = mutants.iter().map(|(number, _)| *number);
            self.constants.extend(numbers.clone().filter(|_| self.in_constant));
            self.found.extend(numbers);
            self.nodes.push(Node { range, form, mutants });
        }
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
            let start = Self::range(first.span()).start;
            self.add(&[Kind::Body], &(start..start), start..start, Form::Body);
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

impl<'ast> Visit<'ast> for Finder<'_, '_> {
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
        let op = Self::range(item.op.span());
        if matches!(item.op, BinOp::And(_)) && (has_let(&item.left) || has_let(&item.right)) {
            let here = |mutant: &Mutant| self.lines.offset(self.source, mutant.start) == op.start;
            let numbers: Vec<_> =
                self.mutants.iter().filter(|(_, mutant)| here(mutant)).map(|(number, _)| *number).collect();
            self.found.extend(&numbers);
            self.refused.extend(numbers);
        } else {
            let (left, right) = (Self::range(item.left.span()), Self::range(item.right.span()));
            self.add(&[Kind::Binary], &op, Self::range(item.span()), Form::Binary { left, right });
        }
        visit::visit_expr_binary(self, item);
    }

    fn visit_expr_unary(&mut self, item: &'ast syn::ExprUnary) {
        let form = Form::Unary { operand: Self::range(item.expr.span()) };
        self.add(&[Kind::Unary], &Self::range(item.op.span()), Self::range(item.span()), form);
        visit::visit_expr_unary(self, item);
    }

    fn visit_arm(&mut self, item: &'ast syn::Arm) {
        if let Some((_, guard)) = &item.guard {
            let guard = Self::range(guard.span());
            self.add(&[Kind::Guard], &guard.clone(), guard, Form::Guard);
        } else {
            let end = Self::range(item.pat.span()).end;
            self.add(&[Kind::Arm], &Self::range(item.span()), end..end, Form::Arm);
        }
        visit::visit_arm(self, item);
    }

    fn visit_expr_struct(&mut self, item: &'ast syn::ExprStruct) {
        if let Some(base) = &item.rest {
            let base = Self::range(base.span());
            for field in &item.fields {
                if let syn::Member::Named(name) = &field.member {
                    let range = Self::range(field.span());
                    let value = field.colon_token.as_ref().map(|_| Self::range(field.expr.span()));
                    let form = Form::Field { name: name.to_string(), value, base: base.clone() };
                    self.add(&[Kind::Field], &range.clone(), range, form);
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
    nodes: &'a [Node<'a>],
    /// The index of the next changed code in `nodes`.
    next: usize,
    schema: Schema,
}

impl Writer<'_> {
    fn push(&mut self, text: &str) {
        self.schema.text.push_str(text);
    }

    fn source(&self, range: &Range<usize>) -> String {
        self.source.get(range.clone()).unwrap_or_default().into()
    }

    /// Copies a range of the source, with the mutants in it.
    fn copy(&mut self, range: Range<usize>) {
        let mut at = range.start;
        let nodes = self.nodes;
        while let Some(node) = nodes.get(self.next).filter(|node| node.range.start < range.end) {
            self.push(&self.source(&(at..node.range.start)));
            self.next += 1;
            at = node.range.end;
            self.node(node);
        }
        self.push(&self.source(&(at..range.end)));
    }

    fn node(&mut self, node: &Node<'_>) {
        let start = self.schema.text.len();
        match &node.form {
            Form::Body => {
                for (number, mutant) in &node.mutants {
                    self.push(&format!("if {}({number}) {{ return ", self.switch));
                    self.branch(*number, &mutant.replacement);
                    self.push("; } ");
                }
            }
            Form::Arm => {
                self.push(" if true");
                for (number, _) in &node.mutants {
                    self.push(&format!(" && !{}({number})", self.switch));
                }
            }
            Form::Binary { left, right } => {
                self.push("(");
                for (number, mutant) in &node.mutants {
                    let text =
                        format!("({}) {} ({})", self.source(left), mutant.replacement, self.source(right));
                    self.choice(*number, &text);
                }
                // In a block, code that begins with `if` would be a statement. Parentheses make it an
                // expression.
                self.push("{ (");
                self.copy(left.clone());
                self.push(&self.source(&(left.end..right.start)));
                self.copy(right.clone());
                self.push(") })");
            }
            Form::Unary { operand } => {
                self.push("(");
                for (number, _) in &node.mutants {
                    self.choice(*number, &self.source(operand));
                }
                self.push("{ ");
                self.copy(node.range.clone());
                self.push(" })");
            }
            Form::Guard => {
                self.push("(");
                for (number, mutant) in &node.mutants {
                    self.choice(*number, &mutant.replacement);
                }
                self.push("{ ");
                self.copy(node.range.clone());
                self.push(" })");
            }
            Form::Field { name, value, base } => {
                self.push(&format!("{name}: "));
                for (number, _) in &node.mutants {
                    self.choice(*number, &format!("({}).{name}", self.source(base)));
                }
                self.push("{ ");
                match value {
                    Some(value) => self.copy(value.clone()),
                    None => self.push(name),
                }
                self.push(" }");
            }
        }
        let numbers: Vec<_> = node.mutants.iter().map(|(number, _)| *number).collect();
        self.schema.around.push((start..self.schema.text.len(), numbers));
    }

    fn choice(&mut self, number: u32, text: &str) {
        self.push(&format!("if {}({number}) {{ ", self.switch));
        self.branch(number, text);
        self.push(" } else ");
    }

    fn branch(&mut self, number: u32, text: &str) {
        let start = self.schema.text.len();
        self.push(text);
        self.schema.branches.push((start..self.schema.text.len(), number));
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
        let mutants =
            [("a & 3 == 1", Kind::Body, "true"), ("==", Kind::Binary, "!="), ("&", Kind::Binary, "|")];
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
            ("1 => -a,", Kind::Arm, ""),
            ("-a", Kind::Unary, ""),
            ("b > 7", Kind::Guard, "true"),
            ("a, b: 2", Kind::Field, ""),
            ("b: 2", Kind::Field, ""),
        ];
        assert_eq!(
            written(source, &mutants).text,
            "fn f(a: i8) -> A { match a { 1 if true && !on(0) => (if on(1) { a } else { -a }), \
             b if (if on(2) { true } else { b > 7 }) => \
             A { a: if on(3) { (A::C).a } else { a }, b: if on(4) { (A::C).b } else { 2 }, ..A::C }, \
             _ => 0 } }"
        );
    }

    #[test]
    fn what_the_compiler_computes_is_left_to_a_build_of_its_own() {
        let source = "const A: u8 = 1 + 2;\n\
                      const fn f(a: u8) -> [u8; 3 - 1] { if let 1 = a && a < 2 {} [a * 5; 1 | 3] }";
        let mutants = [
            ("+", Kind::Binary, "-"),
            ("-", Kind::Binary, "+"),
            ("|", Kind::Binary, "&"),
            ("&&", Kind::Binary, "||"),
        ];
        let schema = written(source, &mutants);
        assert_eq!((schema.text.as_str(), schema.alone, schema.refused), (source, vec![0, 1, 2], vec![3]));
        let schema = written(source, &[("*", Kind::Binary, "+"), ("<", Kind::Binary, ">")]);
        assert_eq!(schema.constant, [1, 0]);
        let mutant = mutant(source, "&&", Kind::Binary, "||");
        assert!(replace(source, &mutant).contains("1 = a || a < 2"));
    }
}
