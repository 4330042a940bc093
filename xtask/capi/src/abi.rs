//! Reads the ABI of the C header as sorted lines: constants, functions with their types, and structs with
//! sizes and offsets.

use crate::header::ZERO;
use std::fmt::Write as _;

/// A struct of the header: its name, and type and name of each field.
struct Struct {
    name: String,
    fields: Vec<(String, String)>,
}

/// The declarations of a header.
pub(super) struct Declared {
    /// A line for each constant, function and handle (a struct without known fields).
    lines: Vec<String>,
    structs: Vec<Struct>,
}

impl Declared {
    /// Reads the declarations of a header that `header::make` has generated.
    pub(super) fn read(header: &str) -> Result<Self, String> {
        let (mut lines, mut structs, mut rest) = (Vec::new(), Vec::new(), String::new());
        for line in header.lines() {
            let line = line.split("//").next().unwrap_or_default().trim().replace(ZERO, "");
            if let Some(constant) = line.strip_prefix("#define MLX5MK_") {
                lines.push(format!("constant MLX5MK_{constant}"));
            } else if !line.starts_with('#') {
                let _ = write!(rest, "{line} ");
            }
        }
        let rest = rest.replace("extern \"C\" {", "");
        for declaration in declarations(&rest) {
            if let Some((head, body)) = declaration.split_once('{') {
                structs.push(structure(head, body)?);
            } else if let Some(name) = declaration.strip_prefix("typedef struct ") {
                lines.push(format!("handle {}", name.split(' ').next().unwrap_or_default()));
            } else if declaration.contains('(') {
                lines.push(format!("function {declaration}"));
            } else if declaration != "}" {
                return Err(format!("`{declaration}` in the header is of an unknown kind"));
            }
        }
        Ok(Self { lines, structs })
    }

    pub(super) fn functions(&self) -> Vec<&str> {
        let functions = self.lines.iter().filter_map(|line| line.strip_prefix("function "));
        functions.filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next()).collect()
    }

    /// Returns the functions of a header that can fail and whose documentation has no paragraph `Errors:`.
    pub(super) fn without_errors(header: &str) -> Vec<&str> {
        let (mut is_told, mut found) = (false, Vec::new());
        for line in header.lines().map(str::trim) {
            match line.strip_prefix("//") {
                Some(words) => is_told |= words.trim_start_matches('/').trim_start().starts_with("Errors: "),
                None => {
                    let name = line.strip_prefix("int32_t ").and_then(|rest| rest.split('(').next());
                    found.extend(name.filter(|name| name.starts_with("mlx5mk_") && !is_told));
                    is_told = false;
                }
            }
        }
        found
    }

    /// Returns a C program that prints the size of each struct and the offsets of its fields.
    pub(super) fn program(&self) -> String {
        let mut text = "#include <mlx5_mkey.h>\n#include <stdio.h>\n\nint main(void)\n{\n".to_owned();
        for Struct { name, fields } in &self.structs {
            let _ = writeln!(text, "    printf(\"struct {name}: %zu bytes\", sizeof({name}));");
            for (kind, field) in fields {
                let _ = writeln!(
                    text,
                    "    printf(\"; %zu {kind} {field}\", offsetof({name}, {}));",
                    field.split('[').next().unwrap_or_default()
                );
            }
            text.push_str("    printf(\"\\n\");\n");
        }
        text.push_str("    return 0;\n}\n");
        text
    }

    /// Returns the ABI as sorted lines. `printed` is the output of [`Self::program`].
    pub(super) fn listing(&self, printed: &str) -> String {
        let mut lines: Vec<&str> = self.lines.iter().map(String::as_str).chain(printed.lines()).collect();
        lines.sort_unstable();
        lines.join("\n") + "\n"
    }
}

/// Splits a text at semicolons outside of braces, and reduces white space to single blanks.
fn declarations(text: &str) -> impl Iterator<Item = String> {
    let mut depth = 0_i32;
    let ends = move |character: char| {
        depth += i32::from(character == '{') - i32::from(character == '}');
        character == ';' && depth <= 0
    };
    let words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split(ends).map(words).filter(|words| !words.is_empty()).collect::<Vec<_>>().into_iter()
}

fn structure(head: &str, body: &str) -> Result<Struct, String> {
    let odd = || format!("`{head}` in the header is no known form of a struct");
    let (body, name) = body.rsplit_once('}').ok_or_else(odd)?;
    if !head.starts_with("typedef struct ") {
        return Err(odd());
    }
    let field = |field: &str| {
        let at = field.rfind([' ', '*'])? + 1;
        Some((field.get(..at)?.trim_end().to_owned(), field.get(at..)?.to_owned()))
    };
    let fields = body.split(';').map(str::trim).filter(|text| !text.is_empty()).map(field);
    Ok(Struct { name: name.trim().into(), fields: fields.collect::<Option<_>>().ok_or_else(odd)? })
}

/// Returns the lines that only one of two texts has, marked with `-` and `+` as by `diff`. Returns `None` if
/// there are none.
pub(super) fn difference(recorded: &str, found: &str) -> Option<String> {
    let only = |mark: char, these: &str, those: &str| {
        let lines = these.lines().filter(|line| those.lines().all(|other| other != *line));
        lines.map(|line| format!("{mark} {line}\n")).collect::<String>()
    };
    let text = only('-', recorded, found) + &only('+', found, recorded);
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "\
// A comment; of two (parts).
#ifndef GUARD
#define GUARD
#define MLX5MK_FULL -7
#include <stdint.h>
typedef struct mlx5mk_qp mlx5mk_qp;
/// Of four; bytes.
typedef struct mlx5mk_pair {
  // A first.
  uint16_t first;
  const struct mlx5mk_qp *second[2];
} mlx5mk_pair;
#ifdef __cplusplus
extern \"C\" {
#endif // __cplusplus
int32_t mlx5mk_do(struct mlx5mk_qp *qp,
                  const struct mlx5mk_pair *pair);
const char *mlx5mk_words(int32_t code);
#ifdef __cplusplus
}  // extern \"C\"
#endif
";

    #[test]
    fn each_declaration_has_a_line() {
        let declared = Declared::read(HEADER).unwrap();
        assert_eq!(declared.functions(), ["mlx5mk_do", "mlx5mk_words"]);
        assert_eq!(
            declared.listing("struct mlx5mk_pair: 24 bytes\n"),
            "constant MLX5MK_FULL -7\n\
             function const char *mlx5mk_words(int32_t code)\n\
             function int32_t mlx5mk_do(struct mlx5mk_qp *qp, const struct mlx5mk_pair *pair)\n\
             handle mlx5mk_qp\n\
             struct mlx5mk_pair: 24 bytes\n"
        );
        let program = declared.program();
        for line in [
            "printf(\"struct mlx5mk_pair: %zu bytes\", sizeof(mlx5mk_pair));",
            "printf(\"; %zu uint16_t first\", offsetof(mlx5mk_pair, first));",
            "printf(\"; %zu const struct mlx5mk_qp * second[2]\", offsetof(mlx5mk_pair, second));",
        ] {
            assert!(program.contains(line), "{program}");
        }
    }

    #[test]
    fn a_function_that_may_fail_says_how() {
        let told = "/// Does.\n///\n/// Errors: MLX5MK_FULL.\nint32_t mlx5mk_do(int a,\n   int b);\n\n";
        let words = "/// Nothing fails.\nsize_t mlx5mk_words(void);\n\nvoid mlx5mk_end(void);\n\n";
        let untold = "/// Does more; Errors: are elsewhere.\nint32_t mlx5mk_more(int a);\n";
        let header = format!("{told}{words}{untold}");
        assert_eq!(Declared::without_errors(&header), ["mlx5mk_more"]);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(Declared::read("union u { int a; };").is_err());
        assert!(Declared::read("extern int count;").is_err());
    }

    #[test]
    fn a_difference_names_both_sides() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\n", "a\nc\n").unwrap(), "- b\n+ c\n");
    }
}
