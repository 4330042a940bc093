//! Reports of the results of a run: as text in a terminal, as an HTML page, and as JUnit XML.

mod file;
mod html;
mod junit;
mod terminal;

pub(super) use file::ReportFile;
pub(super) use html::html;
pub(super) use junit::junit;
pub(super) use terminal::{Terminal, summary};

#[cfg(test)]
mod tests;
