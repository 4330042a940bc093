//! The command line of the bare-metal image, which `hil-tests/firmware` builds.

use crate::way::Ways;

/// The parsed command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a> {
    /// Selects cases whose name contains this text.
    pub filter: &'a str,
    /// Selects cases after the one with this name.
    pub after: Option<&'a str>,
    /// The posting methods of each selected case.
    pub ways: Ways,
    /// Other work of the image, in place of the cases.
    pub instead: Option<Instead>,
}

/// Work of the bare-metal image other than running cases (scenarios and measurements).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// Causes this fault on purpose.
    Provoke(Provoke),
    /// Counts the instructions of the library's benchmarks.
    Count,
}

/// Faults that the image causes on purpose, to test that they are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provoke {
    /// Reads an unmapped address.
    DataAbort,
    /// Writes to memory that holds code.
    WriteToCode,
    /// Recurses without an end.
    StackOverflow,
    /// Panics.
    Panic,
    /// Panics while a line is being logged.
    PanicWhileLogging,
    /// Loops forever without a report.
    Hang,
}

impl Provoke {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "data-abort" => Self::DataAbort,
            "write-to-code" => Self::WriteToCode,
            "stack-overflow" => Self::StackOverflow,
            "panic" => Self::Panic,
            "panic-while-logging" => Self::PanicWhileLogging,
            "hang" => Self::Hang,
            _ => return None,
        })
    }
}

impl<'a> Options<'a> {
    /// Parses the words of the command line, without the program's name.
    ///
    /// # Errors
    /// The first invalid word.
    pub fn parse(words: impl IntoIterator<Item = &'a str>) -> Result<Self, &'a str> {
        let mut options = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match (word, words.next()) {
                ("--filter", Some(value)) => options.filter = value,
                ("--after", Some(value)) => options.after = Some(value),
                ("--ways", Some(value)) => options.ways = value.parse().map_err(|_| value)?,
                ("--provoke", Some(value)) => {
                    options.instead = Some(Instead::Provoke(Provoke::named(value).ok_or(value)?));
                }
                ("--count", Some("benchmarks")) => options.instead = Some(Instead::Count),
                _ => return Err(word),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_options() {
        assert_eq!(Options::parse([]), Ok(Options::default()));
        let (filter, after, ways) = ("r1", Some("r170"), Ways::Drawn(7));
        let options = Options { filter, after, ways, instead: None };
        assert_eq!(Options::parse(["--filter", "r1", "--after", "r170", "--ways", "7"]), Ok(options));
        let instead = Some(Instead::Provoke(Provoke::DataAbort));
        let options = Options { instead, ..Options::default() };
        assert_eq!(Options::parse(["--provoke", "data-abort"]), Ok(options));
        let options = Options { instead: Some(Instead::Count), ..Options::default() };
        assert_eq!(Options::parse(["--count", "benchmarks"]), Ok(options));
        assert_eq!(Options::parse(["--count", "sheep"]), Err("--count"));
        assert_eq!(Options::parse(["--provoke", "nothing"]), Err("nothing"));
        assert_eq!(Options::parse(["--ways", "none"]), Err("none"));
        assert_eq!(Options::parse(["--filter"]), Err("--filter"));
        assert_eq!(Options::parse(["x", "y"]), Err("x"));
    }
}
