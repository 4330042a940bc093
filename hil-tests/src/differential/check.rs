//! Compares what both sides say when they are asked for an mkey's signature error.
//!
//! Both find the width of an error's values in a signature that they remember, but not in the same one. The library reads an
//! error when it is polled ([`mlx5_mkey::mkey::Mkey::record`]), by the signature posted last. libmlx5 keeps the completion
//! entry (`mlx5_parse_cqe`, case `MLX5_CQE_SIG_ERR`; a later entry replaces it) and reads it when it is asked:
//! `_mlx5dv_mkey_check` takes the domain from `sig_ctx->block.attr`, into which every setter of a signature copies and in
//! which a reset writes `MLX5_SIG_TYPE_NONE`, even if the chain is refused then. An error that it cannot read by that
//! domain it answers with `EINVAL`, and keeps. See `hil-tests/vectors/DIFFERENCES.md`.

use libmlx5::abi::MkeyError;
use mlx5_mkey::error::CheckError;
use mlx5_mkey::mkey::{SignatureError, SignatureErrorKind};

/// `EINVAL`, which the reference says of an mkey that has no signature, and of an error that it cannot read.
const EINVAL: i32 = 22;

/// An error that was polled and that nobody has asked for yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unread {
    /// The mkey was configured behind the request that made the error, before the error was polled.
    pub(super) late: bool,
    /// The mkey was configured, or another error came, after it was polled: the sides have different signatures, or errors.
    pub(super) stale: bool,
}

/// How far the answers are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// There is no error, or none can be asked for.
    NoError,
    /// The same error, value by value; or one that neither can read.
    SameError,
    /// There is an error, which the sides read by different signatures: nothing else is compared.
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
        // A reset came in between.
        (Err(CheckError::Unintelligible { .. }), Err(EINVAL)) if unread.late => return Answers::SameError,
        // The signature has no tags now. The reference does not look at that.
        (Err(CheckError::Unintelligible { .. }), Ok(error)) => unread.late && error.kind > 1,
        _ => false,
    };
    if there { Answers::BothErrors } else { Answers::Differ }
}

/// Puts a signature error as the reference does, who calls what the data stream held `actual`, as the device does.
fn as_reference(error: &SignatureError) -> MkeyError {
    let kind = match error.kind {
        SignatureErrorKind::Guard => 1,
        SignatureErrorKind::RefTag => 2,
        SignatureErrorKind::AppTag => 3,
        // The reference has no digests, and no number for them.
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
        // Presence is compared whatever else is left out.
        let none = Ok(MkeyError::default());
        for stale in [false, true] {
            let unread = Unread { late: stale, stale };
            assert_eq!(compare(&Ok(None), &theirs, unread), Answers::Differ);
            assert_eq!(compare(&found(1), &none, unread), Answers::Differ);
            assert_eq!(compare(&Ok(None), &none, unread), Answers::NoError);
        }
    }
}
