//! Kinds of calls, by the numbers of the kernel's interface.

use mlx5_faults::CallKind;

/// The kind of a program's call to the kernel's driver: object and method, or a command of the older `write`
/// interface, or the opening of the device's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId(u64);

impl CallId {
    /// The kind of the call that opens the device's file.
    pub const OPEN: Self = Self(u64::MAX);

    /// Returns the kind of a call of this method of this object. `command` is the number of the command that
    /// the call carries, or 0 if it carries none.
    pub const fn new(object: u16, method: u16, command: u64) -> Self {
        Self((object as u64) << 48 | (method as u64) << 32 | command & 0xffff_ffff)
    }

    /// Returns whether the call is of the kind that a rule names. The numbers of the objects, methods and
    /// commands are from `ib_user_verbs.h` and `ib_user_ioctl_cmds.h`.
    pub(crate) const fn is(self, kind: CallKind) -> bool {
        /// The flag in the number of an extended command, whose structures can grow
        /// (`IB_USER_VERBS_CMD_FLAG_EXTENDED`).
        const EXTENDED: u64 = 1 << 31;
        const DEVICE: u64 = 0;
        let Self(number) = self;
        let (object, method, command) = (number >> 48, number >> 32 & 0xffff, number & 0xffff_ffff);
        match (object, method, command & !EXTENDED) {
            _ if number == Self::OPEN.0 => matches!(kind, CallKind::Open),
            (DEVICE, 3, _) => matches!(kind, CallKind::GetContext),
            (DEVICE, 0, 1) => matches!(kind, CallKind::QueryDevice),
            (DEVICE, 2, _) => matches!(kind, CallKind::QueryPort),
            (DEVICE, 5 | 6, _) => matches!(kind, CallKind::QueryGid),
            (DEVICE, 0, 3) => matches!(kind, CallKind::AllocPd),
            (DEVICE, 0, 5) => matches!(kind, CallKind::CreateAh),
            (DEVICE, 0, 9) | (7, 4, _) => matches!(kind, CallKind::RegMr),
            (DEVICE, 0, 14) => matches!(kind, CallKind::AllocMw),
            (DEVICE, 0, 17) => matches!(kind, CallKind::CreateCompChannel),
            (DEVICE, 0, 25) => matches!(kind, CallKind::QueryQp),
            (DEVICE, 0, 26) => matches!(kind, CallKind::ModifyQp),
            (3, 0, _) => matches!(kind, CallKind::CreateCq),
            (4, 0, _) => matches!(kind, CallKind::CreateQp),
            (5, 0, _) => matches!(kind, CallKind::CreateSrq),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_that_of_a_call_of_its_own() {
        let calls = [
            CallId::OPEN,
            CallId::new(0, 3, 0),
            CallId::new(0, 0, 1),
            CallId::new(0, 2, 0),
            CallId::new(0, 6, 0),
            CallId::new(0, 0, 3),
            CallId::new(0, 0, 5),
            CallId::new(0, 0, 9),
            CallId::new(0, 0, 14),
            CallId::new(0, 0, 17),
            CallId::new(3, 0, 0),
            CallId::new(4, 0, 0),
            CallId::new(0, 0, 26),
            CallId::new(0, 0, 25),
            CallId::new(5, 0, 0),
        ];
        assert_eq!(calls.len(), CallKind::ALL.len());
        for (at, call) in calls.into_iter().enumerate() {
            let kinds: Vec<_> = CallKind::ALL.into_iter().filter(|kind| call.is(*kind)).collect();
            assert_eq!(kinds.first(), CallKind::ALL.get(at));
            assert_eq!(kinds.len(), 1);
        }
        assert!(CallId::new(0, 0, 1 << 31 | 26).is(CallKind::ModifyQp));
        assert!(!CallKind::ALL.into_iter().any(|kind| CallId::new(0x1001, 0x1000, 0).is(kind)));
    }
}
