//! Tests of `Trouble::of`, which decides whether an error concerns the other side or the device.

use super::{Broken, Lost, Trouble};
use mlx5_mkey::devx::DevxError;
use mlx5_mkey::error::CompletionError;
use std::error::Error;
use std::io::{self, ErrorKind};

/// Returns whether an error means that the other side is lost (`true`) or the device (`false`). Returns
/// `None` for other errors.
fn is_of_peer(error: impl Into<Box<dyn Error>>) -> Option<bool> {
    Trouble::of(error.into()).ok().map(|trouble| matches!(trouble, Trouble::Peer(_)))
}

#[test]
fn what_is_wrong_with_the_other_side_is_not_put_down_to_the_device() {
    let call = |what, kind: ErrorKind| DevxError::Call { what, cause: io::Error::from(kind) };
    for kind in [ErrorKind::TimedOut, ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable] {
        assert_eq!(is_of_peer(call("ibv_create_ah", kind)), Some(true), "{kind}");
        assert_eq!(is_of_peer(call("ibv_create_cq", kind)), Some(false), "{kind}");
    }
    assert_eq!(is_of_peer(call("ibv_create_ah", ErrorKind::OutOfMemory)), Some(false));
    assert_eq!(is_of_peer(Lost("gone".into())), Some(true));
    assert_eq!(is_of_peer(Broken("full".into())), Some(false));
    assert_eq!(is_of_peer(CompletionError::UnknownQueuePair { qpn: 1 }), Some(false));
    assert_eq!(is_of_peer("a fault of one's own"), None);
}
