//! Checks the code size of the smallest service, a bare-metal program that contains the library.

use object::{File, Object, ObjectSection};

/// The most bytes of code that the program may have.
const LIMIT: u64 = 14 * 1024;

/// Adds up the sizes of a program's code sections.
///
/// # Errors
/// The size, if it is over the limit.
pub(super) fn check(program: &[u8]) -> Result<String, String> {
    let file = File::parse(program).map_err(|error| error.to_string())?;
    let code = file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".text")));
    within_limit(code.map(|section| section.size()).sum())
}

fn within_limit(bytes: u64) -> Result<String, String> {
    match bytes {
        0 => Err("the smallest service has no code".into()),
        1..=LIMIT => Ok(format!("the smallest service has {bytes} bytes of code, {LIMIT} are allowed")),
        _ => Err(format!("the smallest service has {bytes} bytes of code, {LIMIT} are allowed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_this_size_is_refused() {
        let own = std::env::current_exe().and_then(std::fs::read).unwrap();
        assert!(check(&own).is_err());
        assert!(check(b"no program").is_err());
    }

    #[test]
    fn a_byte_over_the_limit_is_refused() {
        assert!(within_limit(LIMIT).is_ok());
        for bytes in [0, LIMIT + 1] {
            assert!(within_limit(bytes).is_err(), "{bytes}");
        }
    }
}
