//! The table of the methods of the kernel's interface: their attributes, and the functions that carry them
//! out.

use super::devx::{self, query as devx_query, queue as devx_queue};
use super::invoke::invoke_write;
use super::{address, completion, device, memory, queue_pair, shared_receive, window};
use crate::command::call::Run;
use crate::command::numbers::{
    AH, ASYNC_EVENT, COMMAND, CORE_IN, CORE_OUT, CQ, DEVICE, DEVX, DEVX_COMMANDS, DEVX_EVENTS, DEVX_OBJECT,
    DEVX_UMEM, MR, MW, PD, QP, SRQ, UAR, UHW_IN, UHW_OUT,
};
use crate::command::request::Kind::{In, InAny, NewObject, Object as Handle, Out, OutAny};
use crate::command::request::{Spec, needs, takes};

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

const fn method(object: u16, method: u16, attributes: &'static [Spec], run: Run) -> Method {
    Method { object, method, early: false, ends: false, attributes, run }
}

/// Returns a method that destroys an object.
const fn ending(object: u16, method: u16, attributes: &'static [Spec], run: Run) -> Method {
    Method { object, method, early: false, ends: true, attributes, run }
}

/// All methods of the kernel's interface that exist here (`ib_user_ioctl_cmds.h`, `mlx5_user_ioctl_cmds.h`).
pub(crate) const METHODS: &[Method] = &[
    Method {
        object: DEVICE,
        method: 0,
        early: true,
        ends: false,
        attributes: &[
            takes(CORE_IN, InAny),
            takes(CORE_OUT, OutAny),
            needs(COMMAND, In(8)),
            takes(UHW_IN, InAny),
            takes(UHW_OUT, OutAny),
        ],
        run: invoke_write,
    },
    Method {
        object: DEVICE,
        method: 3,
        early: true,
        ends: false,
        attributes: &[takes(0, Out(4)), takes(1, Out(8)), needs(UHW_IN, In(8)), needs(UHW_OUT, Out(16))],
        run: device::get_context,
    },
    method(DEVICE, 2, &[needs(0, In(4)), needs(1, Out(40))], device::query_port),
    method(
        DEVICE,
        5,
        &[needs(0, In(8)), takes(1, In(4)), needs(2, OutAny), needs(3, Out(8))],
        device::query_gid_table,
    ),
    method(
        DEVICE,
        6,
        &[needs(0, In(4)), needs(1, In(4)), takes(2, In(4)), needs(3, OutAny)],
        device::query_gid_entry,
    ),
    method(ASYNC_EVENT, 0, &[needs(0, NewObject)], device::alloc_async_event),
    ending(PD, 0, &[needs(0, Handle)], memory::destroy_pd),
    ending(AH, 0, &[needs(0, Handle)], address::destroy),
    ending(MR, 1, &[needs(0, Handle)], memory::destroy_mr),
    ending(MW, 0, &[needs(0, Handle)], window::destroy),
    method(
        MR,
        4,
        &[
            needs(0, NewObject),
            needs(1, Handle),
            needs(2, In(8)),
            needs(3, In(8)),
            needs(4, In(8)),
            needs(5, In(4)),
            takes(6, In(4)),
            needs(7, Out(4)),
            needs(8, Out(4)),
        ],
        memory::register_dmabuf,
    ),
    method(
        CQ,
        0,
        &[
            needs(0, NewObject),
            needs(1, In(4)),
            needs(2, In(8)),
            takes(3, Handle),
            takes(4, In(4)),
            takes(5, In(4)),
            needs(6, Out(4)),
            takes(7, Handle),
            needs(UHW_IN, In(16)),
            needs(UHW_OUT, Out(4)),
        ],
        completion::create_cq,
    ),
    ending(CQ, 1, &[needs(0, Handle), needs(1, Out(8))], completion::destroy_cq),
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
            needs(7, In(8)),
            needs(8, In(20)),
            needs(9, In(4)),
            takes(10, In(4)),
            takes(11, In(4)),
            takes(12, Handle),
            needs(13, Out(20)),
            needs(14, Out(4)),
            needs(UHW_IN, In(32)),
            takes(UHW_OUT, OutAny),
        ],
        queue_pair::create,
    ),
    ending(QP, 1, &[needs(0, Handle), needs(1, Out(4))], queue_pair::destroy),
    method(
        SRQ,
        0,
        &[
            needs(0, NewObject),
            needs(1, Handle),
            takes(2, Handle),
            takes(3, Handle),
            needs(4, In(8)),
            needs(5, In(4)),
            needs(6, In(4)),
            needs(7, In(4)),
            takes(8, In(4)),
            needs(9, In(4)),
            takes(10, Handle),
            needs(11, Out(4)),
            needs(12, Out(4)),
            takes(13, Out(4)),
            needs(UHW_IN, In(16)),
            takes(UHW_OUT, OutAny),
        ],
        shared_receive::create,
    ),
    ending(SRQ, 1, &[needs(0, Handle), needs(1, Out(4))], shared_receive::destroy),
    method(DEVX, 0x1000, &[needs(0x1000, In(16)), needs(0x1001, Out(16))], devx::other),
    method(DEVX, 0x1001, &[needs(0x1000, In(4)), needs(0x1001, Out(4))], devx::query_uar),
    method(DEVX, 0x1002, &[needs(0x1000, In(4)), needs(0x1001, Out(4))], devx::query_eqn),
    method(
        DEVX,
        0x1003,
        &[
            needs(0x1000, Handle),
            takes(0x1001, Handle),
            needs(0x1002, InAny),
            takes(0x1003, In(4)),
            takes(0x1004, In(8)),
        ],
        devx::subscribe,
    ),
    method(DEVX_EVENTS, 0x1000, &[needs(0x1000, NewObject), needs(0x1001, In(4))], devx::alloc_event_channel),
    method(
        DEVX_OBJECT,
        0x1000,
        &[needs(0x1000, NewObject), needs(0x1001, In(16)), needs(0x1002, Out(16))],
        devx::create,
    ),
    ending(DEVX_OBJECT, 0x1001, &[needs(0x1000, Handle)], devx::destroy),
    method(
        DEVX_OBJECT,
        0x1002,
        &[needs(0x1000, Handle), needs(0x1001, In(16)), needs(0x1002, Out(16))],
        devx::modify,
    ),
    method(
        DEVX_OBJECT,
        0x1003,
        &[needs(0x1000, Handle), needs(0x1001, In(16)), needs(0x1002, Out(16))],
        devx_query::query,
    ),
    method(DEVX_COMMANDS, 0x1000, &[needs(0x1000, NewObject)], devx_query::alloc_channel),
    method(
        DEVX_OBJECT,
        0x1004,
        &[
            needs(0x1000, Handle),
            needs(0x1001, In(16)),
            needs(0x1002, Handle),
            needs(0x1003, In(8)),
            needs(0x1004, In(2)),
        ],
        devx_query::query_later,
    ),
    method(
        DEVX_UMEM,
        0x1000,
        &[
            needs(0x1000, NewObject),
            needs(0x1001, In(8)),
            needs(0x1002, In(8)),
            needs(0x1003, In(4)),
            needs(0x1004, Out(4)),
            takes(0x1005, In(8)),
            takes(0x1006, Handle),
        ],
        devx_queue::register_umem,
    ),
    ending(DEVX_UMEM, 0x1001, &[needs(0x1000, Handle)], devx_queue::deregister_umem),
    method(
        UAR,
        0x1000,
        &[
            needs(0x1000, NewObject),
            needs(0x1001, In(4)),
            needs(0x1002, Out(8)),
            needs(0x1003, Out(4)),
            needs(0x1004, Out(4)),
        ],
        memory::alloc_uar,
    ),
    ending(UAR, 0x1001, &[needs(0x1000, Handle)], memory::destroy_uar),
];
