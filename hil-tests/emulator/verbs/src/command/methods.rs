//! The table of the methods of the kernel's interface: their attributes, and the functions that carry them
//! out.

use super::devx::{self, query as devx_query, queue as devx_queue};
use super::invoke::invoke_write;
use super::{completion, device, memory, queue_pair, shared_receive};
use crate::command::call::Run;
use crate::command::numbers::{
    AH, ASYNC_EVENT, COMMAND, CORE_IN, CORE_OUT, CQ, DEVICE, DEVX, DEVX_COMMANDS, DEVX_EVENTS, DEVX_OBJECT,
    DEVX_UMEM, MR, MW, PD, QP, SRQ, UAR, UHW_IN, UHW_OUT,
};
use crate::command::request::Kind::{self, Flags, NewObject, Object as Handle};
use crate::command::request::{Spec, input, input_from, needs, output, output_from, takes};
use crate::state::object::Object;

/// A method of an object type of the kernel's interface.
pub(crate) struct Method {
    pub(crate) object: u16,
    pub(crate) method: u16,
    /// Whether the method works before GET_CONTEXT.
    pub(crate) early: bool,
    /// Whether the method destroys an object.
    pub(crate) ends: bool,
    pub(crate) attributes: &'static [Spec],
    pub(crate) run: Run,
}

const CONSTANT: Kind = Kind::CONSTANT;

const fn method(object: u16, method: u16, attributes: &'static [Spec], run: Run) -> Method {
    Method { object, method, early: false, ends: false, attributes, run }
}

/// Returns a method that destroys an object.
const fn ending(object: u16, method: u16, attributes: &'static [Spec], run: Run) -> Method {
    Method { object, method, early: false, ends: true, attributes, run }
}

/// All methods of the kernel's interface that the stand-in has (`ib_user_ioctl_cmds.h`,
/// `mlx5_user_ioctl_cmds.h`).
pub(crate) const METHODS: &[Method] = &[
    Method {
        object: DEVICE,
        method: 0,
        early: true,
        ends: false,
        attributes: &[
            takes(CORE_IN, input_from(4)),
            takes(CORE_OUT, output_from(0)),
            needs(COMMAND, CONSTANT),
            takes(UHW_IN, input_from(0)),
            takes(UHW_OUT, output_from(0)),
        ],
        run: invoke_write,
    },
    Method {
        object: DEVICE,
        method: 3,
        early: true,
        ends: false,
        attributes: &[
            takes(0, output(4)),
            takes(1, output(8)),
            needs(UHW_IN, input_from(8)),
            takes(UHW_OUT, output_from(0)),
        ],
        run: device::get_context,
    },
    method(DEVICE, 2, &[needs(0, CONSTANT), needs(1, output_from(48))], device::query_port),
    method(
        DEVICE,
        5,
        &[needs(0, CONSTANT), takes(1, Flags), needs(2, output_from(0)), needs(3, output(8))],
        device::query_gid_table,
    ),
    method(
        DEVICE,
        6,
        &[needs(0, CONSTANT), needs(1, CONSTANT), needs(2, Flags), needs(3, output_from(32))],
        device::query_gid_entry,
    ),
    method(ASYNC_EVENT, 0, &[needs(0, NewObject)], device::alloc_async_event),
    ending(PD, 0, &[needs(0, Handle)], |call| call.destroy(0, |object| matches!(object, Object::Pd(_)))),
    ending(AH, 0, &[needs(0, Handle)], |call| {
        call.destroy(0, |object| matches!(object, Object::AddressHandle))
    }),
    ending(MR, 1, &[needs(0, Handle)], |call| call.destroy(0, |object| matches!(object, Object::Mr(_)))),
    ending(MW, 0, &[needs(0, Handle)], |call| call.destroy(0, |object| matches!(object, Object::Window(_)))),
    method(
        MR,
        4,
        &[
            needs(0, NewObject),
            needs(1, Handle),
            needs(2, input(8)),
            needs(3, input(8)),
            needs(4, input(8)),
            needs(5, input(4)),
            takes(6, Flags),
            needs(7, output(4)),
            needs(8, output(4)),
        ],
        memory::register_dmabuf,
    ),
    method(
        CQ,
        0,
        &[
            needs(0, NewObject),
            needs(1, input(4)),
            needs(2, input(8)),
            takes(3, Handle),
            needs(4, input(4)),
            takes(5, Flags),
            needs(6, output(4)),
            takes(7, Handle),
            // The driver's input must have all fields up to the flags. The driver's answer is a number of 4
            // bytes.
            needs(UHW_IN, input_from(22)),
            needs(UHW_OUT, output_from(4)),
        ],
        completion::create_cq,
    ),
    ending(CQ, 1, &[needs(0, Handle), needs(1, output(8))], completion::destroy_cq),
    method(
        QP,
        0,
        &[
            needs(0, NewObject),
            takes(1, Handle),
            takes(2, Handle),
            takes(3, Handle),
            takes(4, Handle),
            takes(5, Handle),
            takes(6, Handle),
            needs(7, input(8)),
            needs(8, input_from(20)),
            needs(9, CONSTANT),
            takes(10, Flags),
            takes(11, input(4)),
            takes(12, Handle),
            needs(13, output_from(20)),
            needs(14, output(4)),
            // The driver's input must have all fields up to `ece_options`.
            needs(UHW_IN, input_from(48)),
            takes(UHW_OUT, output_from(0)),
        ],
        queue_pair::create,
    ),
    ending(QP, 1, &[needs(0, Handle), needs(1, output(4))], queue_pair::destroy),
    method(
        SRQ,
        0,
        &[
            needs(0, NewObject),
            needs(1, Handle),
            takes(2, Handle),
            takes(3, Handle),
            needs(4, input(8)),
            needs(5, input(4)),
            needs(6, input(4)),
            needs(7, input(4)),
            takes(8, input(4)),
            needs(9, CONSTANT),
            takes(10, Handle),
            needs(11, output(4)),
            needs(12, output(4)),
            takes(13, output(4)),
            needs(UHW_IN, input_from(16)),
            takes(UHW_OUT, output_from(0)),
        ],
        shared_receive::create,
    ),
    ending(SRQ, 1, &[needs(0, Handle), needs(1, output(4))], shared_receive::destroy),
    method(DEVX, 0x1000, &[needs(0x1000, input_from(16)), needs(0x1001, output_from(16))], devx::other),
    method(DEVX, 0x1001, &[needs(0x1000, input(4)), needs(0x1001, output(4))], devx::query_uar),
    method(DEVX, 0x1002, &[needs(0x1000, input(4)), needs(0x1001, output(4))], devx::query_eqn),
    method(
        DEVX,
        0x1003,
        &[
            needs(0x1000, Handle),
            takes(0x1001, Handle),
            needs(0x1002, input_from(2)),
            takes(0x1003, input(4)),
            takes(0x1004, input(8)),
        ],
        devx::subscribe,
    ),
    method(DEVX_EVENTS, 0x1000, &[needs(0x1000, NewObject), needs(0x1001, Flags)], devx::alloc_event_channel),
    method(
        DEVX_OBJECT,
        0x1000,
        &[needs(0x1000, NewObject), needs(0x1001, input_from(16)), needs(0x1002, output_from(16))],
        devx::create,
    ),
    ending(DEVX_OBJECT, 0x1001, &[needs(0x1000, Handle)], |call| call.destroy(0x1000, Object::is_of_command)),
    method(
        DEVX_OBJECT,
        0x1002,
        &[needs(0x1000, Handle), needs(0x1001, input_from(16)), needs(0x1002, output_from(16))],
        devx::modify,
    ),
    method(
        DEVX_OBJECT,
        0x1003,
        &[needs(0x1000, Handle), needs(0x1001, input_from(16)), needs(0x1002, output_from(16))],
        devx_query::query,
    ),
    method(DEVX_COMMANDS, 0x1000, &[needs(0x1000, NewObject)], devx_query::alloc_channel),
    method(
        DEVX_OBJECT,
        0x1004,
        &[
            needs(0x1000, Handle),
            needs(0x1001, input_from(16)),
            needs(0x1002, Handle),
            needs(0x1003, input(8)),
            needs(0x1004, CONSTANT),
        ],
        devx_query::query_later,
    ),
    method(
        DEVX_UMEM,
        0x1000,
        &[
            needs(0x1000, NewObject),
            needs(0x1001, input(8)),
            needs(0x1002, input(8)),
            takes(0x1003, Flags),
            needs(0x1004, output(4)),
            takes(0x1005, CONSTANT),
            takes(0x1006, Handle),
        ],
        devx_queue::register_umem,
    ),
    ending(DEVX_UMEM, 0x1001, &[needs(0x1000, Handle)], |call| {
        call.destroy(0x1000, |object| matches!(object, Object::Umem(_)))
    }),
    method(
        UAR,
        0x1000,
        &[
            needs(0x1000, NewObject),
            needs(0x1001, CONSTANT),
            needs(0x1002, output(8)),
            needs(0x1003, output(4)),
            needs(0x1004, output(4)),
        ],
        memory::alloc_uar,
    ),
    ending(UAR, 0x1001, &[needs(0x1000, Handle)], |call| {
        call.destroy(0x1000, |object| matches!(object, Object::Uar(_)))
    }),
];
