//! Every task of the project.
fn main() {}
