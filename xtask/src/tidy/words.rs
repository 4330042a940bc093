//! Words that nobody in the field uses, or that say less than they seem to.

/// What is refused, in small letters, and what to say instead. A `*` stands for any letters that follow.
const REFUSED: &[(&str, &str)] = &[
    ("so many", "name the number"),
    ("in hand", "say where it is"),
    ("what stands", "say what it is"),
    ("goes on where", "say where it continues"),
    ("who posts", "the caller, or the request"),
    ("settl*", "known, decided, done"),
    ("stretch*", "range, run"),
    ("encipher*", "encrypt"),
    ("decipher*", "decrypt"),
];

/// Finds refused words: in prose, also over the end of a line, and in names of either case.
pub(super) fn check(name: &str, text: &str, faults: &mut Vec<String>) {
    // This file names them.
    if name == "xtask/src/tidy/words.rs" {
        return;
    }
    let words = words(text);
    for (refused, instead) in REFUSED {
        let wanted: Vec<&str> = refused.split(' ').collect();
        for found in words.windows(wanted.len()) {
            if let [(number, _), ..] = found
                && found.iter().zip(&wanted).all(|((_, word), wanted)| is(word, wanted))
            {
                faults.push(format!("{name}:{number}: not `{refused}`; {instead}"));
            }
        }
    }
}

fn is(word: &str, wanted: &str) -> bool {
    wanted.strip_suffix('*').map_or(word == wanted, |stem| word.starts_with(stem))
}

/// Returns the words in small letters with the numbers of their lines. An empty one is for other signs between two words.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let prose = line.trim_start().trim_start_matches('/').trim_start_matches('!');
        let mut before = ' ';
        for character in prose.chars() {
            let begins = !before.is_alphabetic() || (character.is_uppercase() && before.is_lowercase());
            if character.is_alphabetic() {
                match words.last_mut() {
                    Some((_, word)) if !begins => word.extend(character.to_lowercase()),
                    _ => words.push((index + 1, character.to_lowercase().collect())),
                }
            } else if !character.is_whitespace() && character != '_' {
                words.push((index + 1, String::new()));
            }
            before = character;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check("src/a.rs", text, &mut faults);
        faults
    }

    #[test]
    fn refused_words_are_found_however_they_are_written() {
        for (text, line, refused) in [
            ("/// Takes so many blocks.", 1, "so many"),
            ("code();\n    // So\n    // many blocks.", 2, "so many"),
            ("//! What stands there.", 1, "what stands"),
            ("fn what_stands_there() {}", 1, "what stands"),
            ("/// The request in hand.", 1, "in hand"),
            ("/// It goes on where it was.", 1, "goes on where"),
            ("/// Who posts must wait.", 1, "who posts"),
            ("let settled = 1;", 1, "settl*"),
            ("f(\"a stretch of memory\");", 1, "stretch*"),
            ("/// Enciphered data.", 1, "encipher*"),
            ("fn job_size_enciphers() {}", 1, "encipher*"),
            ("enum E {\n    IsDeciphered,\n}", 2, "decipher*"),
        ] {
            let faults = found(text);
            let start = format!("src/a.rs:{line}: not `{refused}`; ");
            assert!(matches!(&faults[..], [one] if one.starts_with(&start)), "{text}: {faults:?}");
        }
    }

    #[test]
    fn other_words_are_not() {
        for text in [
            "BothSignaturesOutsideCipher",
            "/// If so, many are left.",
            "/// In handlers, and so on. Many more.",
            "/// What it stands for.",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }
}
