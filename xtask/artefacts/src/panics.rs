//! Checks that compiled code of the library reaches no panic and no allocator.

use super::reach::Graph;

/// A function of core with a panic that cannot happen: the function compares the number of names with the
/// number of values, and both are constants. Derived `Debug` calls the function for structs of more than five
/// fields. The check ignores the function.
const NEVER: &str = "<core::fmt::Formatter>::debug_struct_fields_finish";

/// A function of the checked program (`hil-tests/freestanding`) that can panic. If the check does not find
/// this panic, the check does not work.
const CONTROL: &str = "control_that_panics";

/// Checks that no function of the library reaches the panic handler or an allocator, and that the archives
/// (compiled libraries) contain everything the library needs.
///
/// Every function of the library counts, also a function that the freestanding program does not call. The
/// check does not consider arguments: a path to a panic counts even if no arguments lead to it.
///
/// # Errors
/// The functions on a path to a panic or an allocator, or the missing symbols.
pub(super) fn check(archives: &[Vec<u8>]) -> Result<String, String> {
    let graph = Graph::read(archives).map_err(|error| error.to_string())?;
    let handler = graph.named(|name| name.contains("rust_begin_unwind"));
    let (control, never) = (graph.named(|name| name == CONTROL), graph.named(|name| name == NEVER));
    if graph.path(&control, &handler, &never).is_none() {
        return Err(format!("no way from `{CONTROL}` to a panic was found: the check does not work"));
    }
    let own = graph.named(is_looked_at);
    if let Some(path) = graph.path(&own, &handler, &never) {
        return Err(format!("the library can panic: {}", path.join(" → ")));
    }
    let missing = graph.missing(&own);
    if !missing.is_empty() {
        return Err(format!("the library needs {}", Vec::from_iter(missing).join(", ")));
    }
    if let Some(path) = graph.path(&own, &graph.named(is_allocator), &never) {
        return Err(format!("the library allocates: {}", path.join(" → ")));
    }
    Ok(format!("none of {} functions reaches a panic or an allocator", own.len()))
}

/// Returns whether a function must be free of panics: a function of the library, or one of the freestanding
/// program that calls the library.
fn is_looked_at(name: &str) -> bool {
    is_own(name) || name.starts_with("entry_")
}

/// Checks that [`check`] covers every public function. `archives` are a copy of the library in which each
/// public function calls a panicking function of its own: the function `p0`, `p1` and so on of `module`.
///
/// # Errors
/// The functions whose panics are not found.
pub(super) fn check_planted(
    archives: &[Vec<u8>],
    module: &str,
    functions: &[String],
) -> Result<String, String> {
    if check(archives).is_ok() {
        return Err("no planted panic was found: the check does not work".into());
    }
    let graph = Graph::read(archives).map_err(|error| error.to_string())?;
    let handler = graph.named(|name| name.contains("rust_begin_unwind"));
    let never = graph.named(|name| name == NEVER);
    let own = graph.named(|name| is_looked_at(name) && !name.starts_with(module));
    // Both sets are computed once for all functions: a search for each function would take long.
    let (reached, reaching) = (graph.reached(&own, &never), graph.reaching(&handler, &never));
    let planted = graph.keyed(|name| name.strip_prefix(module)?.strip_prefix('p')?.parse::<usize>().ok());
    let is_found = |number: usize| {
        planted.get(&number).is_some_and(|at| !reached.is_disjoint(at) && !reaching.is_disjoint(at))
    };
    let lost: Vec<&str> = functions
        .iter()
        .enumerate()
        .filter(|(number, _)| !is_found(*number))
        .map(|(_, function)| function.as_str())
        .collect();
    if lost.is_empty() {
        Ok(format!("planted panics were found in all {} public functions", functions.len()))
    } else {
        Err(format!("planted panics were not found in {}", lost.join(", ")))
    }
}

/// Checks that no function of the library reaches a panic or an allocator in a complete bare-metal image.
/// Other parts of the image may do both.
///
/// # Errors
/// The functions on a path to a panic or an allocator.
pub(super) fn check_image(disassembly: &str) -> Result<String, String> {
    let graph = Graph::read_calls(disassembly);
    let handler = graph.named(|name| name.contains("rust_begin_unwind"));
    let (own, foreign) = (graph.named(is_own), graph.named(|name| !is_own(name) && !is_core(name)));
    let others = graph.named(|name| !is_own(name));
    if own.is_empty() || graph.path(&others, &handler, &own).is_none() {
        return Err(
            "the image has no function of the library, or nothing that panics: the check does not work"
                .into(),
        );
    }
    // A callback of the library's user, such as one that writes to a string, may allocate. The library may
    // also free memory, because it frees only values of its user, such as a boxed doorbell.
    let callers = |name: &str| name.contains(" as core::fmt::Write>") || name.contains("__rust_dealloc");
    let allocator = graph.named(|name| is_allocator(name) && !callers(name));
    let wrong = &handler | &allocator;
    if let Some(path) = graph.path(&own, &wrong, &(&foreign - &wrong)) {
        return Err(format!("the library can panic or allocate in the image: {}", path.join(" → ")));
    }
    Ok(format!("none of the library's {} functions in the image reaches a panic or an allocator", own.len()))
}

/// Returns whether a function belongs to core: by its path, or because it is implemented for a primitive
/// type.
fn is_core(name: &str) -> bool {
    let path = name.trim_start_matches(['<', '&']);
    path.starts_with("core::") || path.starts_with(['[', '*']) || is_language(path)
}

fn is_language(path: &str) -> bool {
    let word = path.split(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or_default();
    let integer =
        word.strip_prefix(['u', 'i']).is_some_and(|bits| bits == "size" || bits.parse::<u8>().is_ok());
    integer || ["bool", "char", "str", "dyn"].contains(&word)
}

/// Returns whether a function belongs to the library: by its path, or by the type and trait that it is
/// implemented for. Blanket implementations of alloc, and implementations for types of other crates, do not
/// belong to the library.
fn is_own(name: &str) -> bool {
    let path = name.trim_start_matches(['<', '&']).trim_start_matches("mut ");
    let of = name.split_once(" as ").map_or("", |(_, of)| of);
    let is_foreign = || {
        let of_type = path.split_once(" as ").map_or(path, |(of_type, _)| of_type);
        !of_type.contains("mlx5_mkey::") && !is_core(of_type)
    };
    of.starts_with("mlx5_mkey::") && !is_foreign()
        || path.starts_with("mlx5_mkey::") && !of.starts_with("alloc::")
}

fn is_allocator(name: &str) -> bool {
    let path = name.trim_start_matches(['<', '&']);
    path.starts_with("alloc::")
        || ["__rust_alloc", "__rust_realloc", "__rust_dealloc"].iter().any(|at| name.contains(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_library_is_found_and_one_of_others_is_not() {
        let image = |calls: &[(&str, &str)]| {
            let function =
                |(from, to): &(&str, &str)| format!("0000 <{from}>:\n 0:\tbl\t10 <{to}>\n 4:\tret\n\n");
            calls.iter().map(function).collect::<String>()
        };
        let others = [
            ("core::panicking::panic", "rust_begin_unwind"),
            ("rust_begin_unwind", "stop"),
            ("main", "core::panicking::panic"),
        ];
        let with = |calls: &[(&str, &str)]| check_image(&image(&[&others, calls].concat()));
        assert!(with(&[("mlx5_mkey::post", "main")]).is_ok(), "callbacks may panic");
        let page = "0000 <mlx5_mkey::post>:\n 0:\tadrp\tx8, 1000 <core::panicking::panic>\n 4:\tret\n\n";
        let page = check_image(&(image(&others) + page));
        assert!(page.is_ok(), "the page of a function is not the function: {page:?}");
        assert!(with(&[("mlx5_mkey::post", "mlx5_mkey::ring")]).is_ok());
        assert!(with(&[("mlx5_mkey::post", "__rustc::__rust_dealloc")]).is_ok());
        assert!(
            with(&[("mlx5_mkey::post", "__rustc::__rust_alloc"), ("__rustc::__rust_alloc", "stop")]).is_err()
        );
        assert!(with(&[("mlx5_mkey::post", "core::panicking::panic")]).is_err());
        assert!(
            with(&[("mlx5_mkey::post", "core::slice::cut"), ("core::slice::cut", "core::panicking::panic")])
                .is_err()
        );
        assert!(
            with(&[("mlx5_mkey::post", "alloc::raw_vec::grow"), ("alloc::raw_vec::grow", "stop")]).is_err()
        );
        assert!(with(&[]).is_err() && check_image(&image(&[("mlx5_mkey::post", "stop")])).is_err());
    }

    #[test]
    fn whose_a_function_is() {
        for own in [
            "mlx5_mkey::wqe::umr::write",
            "<mlx5_mkey::queue::send::SendQueue<D>>::ring_doorbell",
            "<&&mlx5_mkey::wire::ctrl::ControlSegment as core::fmt::Debug>::fmt",
            "<u32 as mlx5_mkey::types::Number>::get",
        ] {
            assert!(is_own(own), "{own}");
        }
        for foreign in [
            "core::fmt::write",
            "<[u8]>::split_at",
            "<core::option::Option<mlx5_mkey::types::Key>>::unwrap",
            "<hil_scenarios::board::softdev::Bell as mlx5_mkey::queue::doorbell::Doorbell>::ring",
        ] {
            assert!(!is_own(foreign), "{foreign}");
        }
        assert!(
            ["<[u8]>::split_at", "<u64 as core::fmt::Display>::fmt", "core::fmt::write"]
                .into_iter()
                .all(is_core)
        );
        assert!(
            !is_core("unused::of_core")
                && !is_core("<hil_scenarios::QpPairFixture as core::fmt::Debug>::fmt")
        );
        assert!(is_allocator("__rustc::__rust_alloc") && is_allocator("<alloc::string::String>::push"));
        assert!(!is_allocator(
            "<mlx5_mkey::command::resources::AllocPd as mlx5_mkey::command::Command>::write"
        ));
    }
}
