//! Numbers of the kernel's interface: attributes, objects, methods (`ib_user_ioctl_cmds.h`,
//! `mlx5_user_ioctl_cmds.h`).

/// Attributes with the driver's part of input and output (`UVERBS_ATTR_UHW_IN`, `UVERBS_ATTR_UHW_OUT`).
pub(crate) const UHW_IN: u16 = 0x1000;
pub(crate) const UHW_OUT: u16 = 0x1001;

/// Attributes of INVOKE_WRITE, which carries a command of the older `write` interface: the command's
/// structure, its answer, and its number (`uverbs_attrs_invoke_write_cmd_attr_ids`).
pub(crate) const CORE_IN: u16 = 0;
pub(crate) const CORE_OUT: u16 = 1;
pub(crate) const COMMAND: u16 = 2;

/// The flag in the numbers of the extended commands of the older `write` interface
/// (`IB_USER_VERBS_CMD_FLAG_EXTENDED`). Their structures may have more fields in later kernels.
pub(crate) const EXTENDED: u64 = 0x8000_0000;

/// Types of objects of the kernel's interface.
pub(crate) const DEVICE: u16 = 0;
pub(crate) const PD: u16 = 1;
pub(crate) const CQ: u16 = 3;
pub(crate) const QP: u16 = 4;
pub(crate) const SRQ: u16 = 5;
pub(crate) const AH: u16 = 6;
pub(crate) const MR: u16 = 7;
pub(crate) const MW: u16 = 8;
pub(crate) const ASYNC_EVENT: u16 = 0x10;
pub(crate) const DEVX: u16 = 0x1000;
pub(crate) const DEVX_OBJECT: u16 = 0x1001;
/// The method of [`DEVX_OBJECT`] that modifies an object.
pub(crate) const MODIFY: u16 = 0x1002;
pub(crate) const DEVX_UMEM: u16 = 0x1002;
pub(crate) const DEVX_COMMANDS: u16 = 0x1004;
pub(crate) const DEVX_EVENTS: u16 = 0x1005;
pub(crate) const UAR: u16 = 0x1008;

/// Object and method of a call that carries a command of the older `write` interface.
pub(crate) const INVOKE_WRITE: (u16, u16) = (DEVICE, 0);
