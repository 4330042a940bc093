//! Compares the answers of libmlx5 and of the library to the question for an mkey's signature error.
//!
//! Both sides decode an error by a signature that they remember, but not always by the same one. The library
//! decodes an error when it is polled ([`mlx5_mkey::mkey::Mkey::record`]), by the signature that was posted
//! last. libmlx5 keeps the completion entry (`mlx5_parse_cqe`, case `MLX5_CQE_SIG_ERR`; a later entry
//! replaces it) and decodes it in `_mlx5dv_mkey_check`, by the domain in `sig_ctx->block.attr`. Every setter
//! of a signature copies into this field and a reset writes `MLX5_SIG_TYPE_NONE`, even if the chain of
//! requests is refused. If libmlx5 cannot decode an error by this domain, it returns `EINVAL` and keeps the
//! error. See `hil-tests/vectors/DIFFERENCES.md`.

use libmlx5::abi::MkeyError;
use mlx5_mkey::error::CheckError;
use mlx5_mkey::mkey::{SignatureError, SignatureErrorKind};

/// `EINVAL`, the answer of libmlx5 for an mkey without signature and for an error that it cannot decode.
const EINVAL: i32 = 22;

/// A signature error that was polled, but that the test has not yet read from libmlx5 and the library. The
/// fields tell how the mkey was configured around the poll.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unread {
    /// Whether the mkey was configured after the failing request and before the error was polled.
    pub(super) late: bool,
    /// Whether the mkey was configured after the poll, or a second error arrived. libmlx5 and the library
    /// then remember different signatures or errors.
    pub(super) stale: bool,
}

/// How far the answers of libmlx5 and the library agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// Neither libmlx5 nor the library has an error to report.
    NoError,
    /// libmlx5 and the library report the same error, value by value, or neither can decode it.
    SameError,
    /// Both libmlx5 and the library have an error, but decode it by different signatures. The values are
    /// therefore not compared.
    BothErrors,
    Differ,
}

pub(super) fn compare(
    ours: &Result<Option<SignatureError>, CheckError>,
    theirs: &Result<MkeyError, i32>,
    unread: Unread,
) -> Answers {
    let there = match (ours, theirs) {
        (Ok(None), Ok(error)) if error.kind == 0 => return Answers::NoError,
        (Err(CheckError::NotASignatureMkey), Err(EINVAL)) => return Answers::NoError,
        (Ok(Some(ours)), Ok(theirs)) if as_reference(ours) == *theirs => return Answers::SameError,
        (Ok(Some(_)) | Err(CheckError::Unintelligible { .. }), theirs) if unread.stale => match theirs {
            Ok(error) => error.kind != 0,
            Err(errno) => *errno == EINVAL,
        },
        // The signature was reset between the failing request and the poll, so neither libmlx5 nor the
        // library can decode the error.
        (Err(CheckError::Unintelligible { .. }), Err(EINVAL)) if unread.late => return Answers::SameError,
        // The mkey's current signature has no tags, so the library cannot decode an error in a tag. libmlx5
        // decodes it by the earlier signature.
        (Err(CheckError::Unintelligible { .. }), Ok(error)) => unread.late && error.kind > 1,
        _ => false,
    };
    if there { Answers::BothErrors } else { Answers::Differ }
}

/// Converts a signature error to libmlx5's form. libmlx5 calls the value in the data stream `actual`, as the
/// device does.
fn as_reference(error: &SignatureError) -> MkeyError {
    let kind = match error.kind {
        SignatureErrorKind::Guard => 1,
        SignatureErrorKind::RefTag => 2,
        SignatureErrorKind::AppTag => 3,
        // libmlx5 does not know digests: its `enum mlx5dv_mkey_err_type` has no number for them.
        SignatureErrorKind::Digest => 0,
    };
    MkeyError { kind, actual: error.found, expected: error.computed, offset: error.offset }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_mkey::types::DomainKind;

    #[test]
    fn an_error_is_the_same_value_by_value() {
        let found = |found| {
            let (kind, domain) = (SignatureErrorKind::Guard, DomainKind::Wire);
            Ok(Some(SignatureError { kind, domain, found, computed: 2, offset: 519, stride: 520 }))
        };
        let theirs = Ok(MkeyError { kind: 1, actual: 1, expected: 2, offset: 519 });
        let fresh = Unread::default();
        assert_eq!(compare(&found(1), &theirs, fresh), Answers::SameError);
        assert_eq!(compare(&found(3), &theirs, fresh), Answers::Differ);
        assert_eq!(compare(&found(3), &theirs, Unread { late: true, stale: false }), Answers::Differ);
        assert_eq!(compare(&found(3), &theirs, Unread { late: false, stale: true }), Answers::BothErrors);
        assert_eq!(compare(&found(1), &Err(EINVAL), fresh), Answers::Differ);
        let unread = CheckError::Unintelligible { syndrome: 0x2000, sig_type: 0, domain: 0 };
        for (late, stale, answers) in [
            (false, false, Answers::Differ),
            (true, false, Answers::Differ),
            (false, true, Answers::BothErrors),
            (true, true, Answers::BothErrors),
        ] {
            assert_eq!(compare(&Err(unread), &theirs, Unread { late, stale }), answers, "{late} {stale}");
        }
        // Even if the values are not comparable, libmlx5 and the library must agree whether there is an
        // error.
        let none = Ok(MkeyError::default());
        for stale in [false, true] {
            let unread = Unread { late: stale, stale };
            assert_eq!(compare(&Ok(None), &theirs, unread), Answers::Differ);
            assert_eq!(compare(&found(1), &none, unread), Answers::Differ);
            assert_eq!(compare(&Ok(None), &none, unread), Answers::NoError);
        }
    }
}
