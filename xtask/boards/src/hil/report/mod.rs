//! The results as text, HTML and XML.

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
