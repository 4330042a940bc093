//! Tests of calls that the stand-in refuses because Linux does, each with Linux's error number. They are the
//! rows of "What Linux checks" in hil-tests/DEVICE.md.

use crate::event_channel;
use crate::shared::create;
use crate::verbs::{self, Attribute, Context, End, Pages, call};
use mlx5_testing::preload::{preloaded, prepared};

/// Returns a command of the device with this length and opcode. `bytes` are its other bytes, each with its
/// offset.
fn command(length: usize, opcode: u16, bytes: &[(usize, u8)]) -> Vec<u8> {
    let mut command = vec![0; length];
    command[..2].copy_from_slice(&opcode.to_be_bytes());
    for (at, byte) in bytes {
        command[*at] = *byte;
    }
    command
}

/// Returns the command CREATE_PSV for `count` PSVs, in a new protection domain.
fn psvs(context: &Context, count: u8) -> Vec<u8> {
    let (mut response, mut driver) = ([0; 4], [0; 4]);
    verbs::command(context.0, 3, &[0; 8], &mut response, &mut driver).unwrap();
    let [_, high, middle, low] = u32::from_ne_bytes(driver).to_be_bytes();
    command(16, 0x600, &[(8, count << 4), (9, high), (10, middle), (11, low)])
}

fn named(opcode: u16, number: u32) -> Vec<u8> {
    let [_, high, middle, low] = number.to_be_bytes();
    command(272, opcode, &[(9, high), (10, middle), (11, low)])
}

fn query(context: &Context, handle: u32, input: &[u8]) -> Result<(), i32> {
    let mut output = [0; 0x110];
    let mut attributes = [
        Attribute::Handle(0x1000, handle),
        Attribute::In(0x1001, input),
        Attribute::Out(0x1002, &mut output),
    ];
    call(context.0, 0x1001, 0x1003, &mut attributes).map(drop)
}

#[test]
fn commands_about_no_object() {
    preloaded("linux::commands_about_no_object", || {
        let (context, plain) = (Context::new(), Context::with_flags(0));
        let mut reply = [0; 4112];
        let capabilities = command(16, 0x100, &[(7, 1)]);
        let mut other = |context: &Context, command: &[u8]| context.other(command, &mut reply);
        assert_eq!(other(&context, &capabilities), Ok(()));
        assert_eq!(other(&plain, &capabilities), Ok(()), "without DEVX");
        assert_eq!(other(&context, &command(16, 0x842, &[])), Ok(()));
        assert_eq!(other(&plain, &command(16, 0x842, &[])), Err(libc::EINVAL), "QUERY_LAG without DEVX");
        assert_eq!(other(&context, &named(0x50b, 0)), Err(libc::EINVAL), "QUERY_QP");
        assert_eq!(other(&context, &command(16, 0x802, &[])), Err(libc::EINVAL), "ALLOC_UAR");
        // The kernel passes these commands on, and the device refuses them.
        assert_eq!(other(&context, &command(16, 0x80d, &[])), Err(libc::EREMOTEIO), "NOP");
        assert_eq!(other(&context, &command(16, 0xbff, &[])), Err(libc::EREMOTEIO));
        assert_eq!(other(&context, &command(16, 0xd00, &[])), Err(libc::EINVAL));
    });
}

#[test]
fn commands_that_make_objects() {
    preloaded("linux::commands_that_make_objects", || {
        let (context, plain) = (Context::new(), Context::with_flags(0));
        let made = |command: &[u8]| create(&context, command).map(drop);
        for count in [0, 2, 3, 4] {
            assert_eq!(made(&psvs(&context, count)), Err(libc::EINVAL), "{count} PSVs");
        }
        assert_eq!(made(&psvs(&context, 1)), Ok(()));
        assert_eq!(create(&plain, &psvs(&plain, 1)).map(drop), Err(libc::EINVAL), "without DEVX");
        let mut tunnelled = psvs(&context, 1);
        tunnelled[5] = 1;
        assert_eq!(made(&tunnelled), Err(libc::EINVAL), "for another function");
        for opcode in [0x301, 0x50c, 0x50e, 0x802, 0xa04, 0xa08] {
            assert_eq!(made(&command(272, opcode, &[])), Err(libc::EINVAL), "{opcode:#x}");
        }
        assert_eq!(made(&command(0x4f, 0x200, &[])), Err(libc::EINVAL), "an mkey without a whole context");
        assert_eq!(made(&command(272, 0x400, &[(0x27, 7)])), Err(libc::ENOENT), "no such event queue");
        assert_eq!(
            made(&command(64, 0x936, &[(7, 1)])),
            Err(libc::EINVAL),
            "a change of a flow table's entry"
        );
        // The kernel passes these commands on, and the device refuses them.
        for opcode in [0x700, 0x900, 0x930, 0x936] {
            assert_eq!(made(&command(64, opcode, &[])), Err(libc::EREMOTEIO), "{opcode:#x}");
        }
    });
}

#[test]
fn commands_about_objects() {
    preloaded("linux::commands_about_objects", || {
        let end = End::new();
        let (context, qp) = (&end.context, end.qp);
        let (psv, number) = create(context, &psvs(context, 1)).unwrap();
        let destroy = |handle| call(context.0, 0x1001, 0x1001, &mut [Attribute::Handle(0x1000, handle)]);
        assert_eq!(destroy(qp), Err(libc::EINVAL), "a queue pair that no command has made");
        assert_eq!(destroy(999), Err(libc::ENOENT), "no object");
        let change = |handle, opcode, number| context.command(handle, &named(opcode, number));
        assert_eq!(change(qp, 0x50c, end.qpn), Err(libc::EINVAL), "SQD_RTS_QP");
        assert_eq!(change(qp, 0x507, end.qpn + 1), Err(libc::EINVAL), "2ERR_QP of another");
        assert_eq!(change(psv, 0x507, end.qpn), Err(libc::EINVAL), "by a PSV's handle");
        assert_eq!(change(qp, 0x50b, end.qpn), Err(libc::EINVAL), "a query");
        assert_eq!(change(psv, 0x601, number), Err(libc::EINVAL), "DESTROY_PSV");
        let mut tunnelled = named(0x507, end.qpn);
        tunnelled[5] = 1;
        assert_eq!(context.command(qp, &tunnelled), Err(libc::EINVAL), "of another function");
        // The kernel passes this command on, and the device refuses it.
        assert_eq!(change(qp, 0x505, end.qpn), Err(libc::EREMOTEIO), "RTS2RTS_QP");
        assert_eq!(change(qp, 0x507, end.qpn), Ok(()));

        assert_eq!(query(context, qp, &named(0x50b, end.qpn)), Ok(()));
        assert_eq!(query(context, qp, &named(0x50b, end.qpn + 1)), Err(libc::EINVAL), "another");
        assert_eq!(query(context, psv, &named(0x50b, end.qpn)), Err(libc::EINVAL), "by a PSV's handle");
        assert_eq!(query(context, qp, &named(0x507, end.qpn)), Err(libc::EINVAL), "a change");
        assert_eq!(query(context, psv, &named(0x602, number)), Err(libc::EINVAL), "of a PSV");
    });
}

#[test]
fn memory_pages_and_vectors() {
    let prepare = |command: &mut std::process::Command, _: &std::path::Path| {
        command.env("MLX5_UVERBS_WRITE_COMBINING", "no");
    };
    prepared("linux::memory_pages_and_vectors", prepare, || {
        let (context, plain) = (Context::new(), Context::with_flags(0));
        let memory = Pages::new(4096);
        let register = |context: &Context, access| {
            let mut id = [0; 4];
            let mut attributes = [
                Attribute::New(0x1000),
                Attribute::Number(0x1001, memory.0),
                Attribute::Number(0x1002, 4096),
                Attribute::Number(0x1003, access),
                Attribute::Out(0x1004, &mut id),
            ];
            call(context.0, 0x1002, 0x1000, &mut attributes).map(drop)
        };
        for access in [1, 3, 4, 5, 7] {
            assert_eq!(register(&context, access), Ok(()), "{access}");
        }
        for access in [2, 6, 8, 9] {
            assert_eq!(register(&context, access), Err(libc::EINVAL), "{access}");
        }
        assert_eq!(register(&plain, 1), Err(libc::EINVAL), "without DEVX");

        let page = |kind| {
            let (mut offset, mut length, mut number) = ([0; 8], [0; 4], [0; 4]);
            let mut attributes = [
                Attribute::New(0x1000),
                Attribute::Number(0x1001, kind),
                Attribute::Out(0x1002, &mut offset),
                Attribute::Out(0x1003, &mut length),
                Attribute::Out(0x1004, &mut number),
            ];
            call(context.0, 0x1008, 0x1000, &mut attributes).map(drop)
        };
        assert_eq!(page(0), Err(libc::EOPNOTSUPP), "one that gathers stores");
        assert_eq!(page(1), Ok(()));
        assert_eq!(page(2), Err(libc::EOPNOTSUPP));

        let vector = |number| {
            let mut queue = [0; 4];
            let mut attributes = [Attribute::Number(0x1000, number), Attribute::Out(0x1001, &mut queue)];
            call(context.0, 0x1000, 0x1002, &mut attributes).map(drop)
        };
        assert_eq!((vector(0), vector(1)), (Ok(()), Err(libc::ENOENT)));
    });
}

#[test]
fn what_is_asked_for_of_events() {
    preloaded("linux::what_is_asked_for_of_events", || {
        let (context, plain) = (Context::new(), Context::with_flags(0));
        let channel = event_channel(&context);
        let (psv, _) = create(&context, &psvs(&context, 1)).unwrap();
        let numbers = |count: usize| [3_u8, 0].repeat(count);
        let ask = |context: &Context, channel: i32, object: Option<u32>, numbers: &[u8], more: &[u16]| {
            let mut attributes =
                vec![Attribute::Handle(0x1000, channel as u32), Attribute::In(0x1002, numbers)];
            attributes.extend(more.iter().map(|id| Attribute::Number(*id, 0)));
            attributes.extend(object.map(|handle| Attribute::Handle(0x1001, handle)));
            call(context.0, 0x1000, 0x1003, &mut attributes).map(drop)
        };
        assert_eq!(ask(&context, channel, Some(psv), &numbers(16), &[]), Ok(()));
        assert_eq!(ask(&context, channel, Some(psv), &numbers(17), &[]), Err(libc::EINVAL), "too many");
        assert_eq!(ask(&context, channel, Some(psv), &[], &[]), Err(libc::EINVAL), "none");
        assert_eq!(ask(&context, channel, Some(psv), &[3, 0, 3], &[]), Err(libc::EINVAL), "one and a half");
        assert_eq!(ask(&context, channel, Some(psv), &[0x77, 0], &[]), Err(libc::EINVAL), "no such");
        assert_eq!(ask(&context, channel, Some(psv), &[9, 0], &[]), Err(libc::EINVAL), "of a port");
        assert_eq!(ask(&context, channel, None, &[9, 0], &[]), Ok(()));
        let both = [0x1003, 0x1004];
        assert_eq!(ask(&context, channel, Some(psv), &numbers(1), &both), Err(libc::EINVAL), "two targets");
        let other = event_channel(&plain);
        assert_eq!(ask(&plain, other, None, &[9, 0], &[]), Err(libc::EINVAL), "without DEVX");
        let mut attributes = [Attribute::New(0x1000)];
        assert_eq!(call(context.0, 0x1005, 0x1000, &mut attributes), Err(libc::EINVAL), "no flags");
    });
}

#[test]
fn any_uid_is_overwritten() {
    preloaded("linux::any_uid_is_overwritten", || {
        let context = Context::new();
        let mut command = psvs(&context, 1);
        command[2..4].fill(0xff);
        create(&context, &command).unwrap();
    });
}

/// Linux keeps a state of each queue pair of its own (`mlx5_ib_modify_qp`), and commands of the device do not
/// change this state.
#[test]
fn linux_knows_a_state_of_its_own() {
    preloaded("linux::linux_knows_a_state_of_its_own", || {
        let end = End::new();
        let modify = |mask, state| end.context.modify(end.qp, mask, state, end.qpn);
        assert_eq!(modify(0x39, 1), Ok(()));
        // 2ERR_QP moves the queue pair, and Linux does not notice.
        assert_eq!(end.context.command(end.qp, &named(0x507, end.qpn)), Ok(()));
        assert_eq!(modify(0x12_9181, 2), Err(libc::EINVAL), "the device refuses INIT2RTR");
        assert_eq!(end.context.query(end.qp).0, 6, "ERR");
        assert_eq!(modify(1, 0), Ok(()), "Linux knows now");
        assert_eq!(modify(0x39, 1), Ok(()));
        assert_eq!(end.context.command(end.qp, &named(0x50a, end.qpn)), Ok(()), "2RST_QP");
        assert_eq!(modify(0x39, 1), Err(libc::EINVAL), "Linux believes in INIT");
        assert_eq!(modify(1, 0), Ok(()));
        end.connect(end.qpn);
        // A program may name the state at which the step begins.
        let named = |state, to| end.context.modify_with(end.qp, 0b11, to, 0, &[(97, state)]);
        assert_eq!(named(3, 3), Ok(()), "RTS to RTS");
        assert_eq!(named(4, 3), Err(libc::EINVAL), "the device is not in SQD");
        assert_eq!(named(0, 0), Err(libc::EINVAL), "RESET takes no current state");
        assert_eq!(named(9, 3), Err(libc::EINVAL));
    });
}

#[test]
fn steps_of_queue_pairs() {
    preloaded("linux::steps_of_queue_pairs", || {
        let end = End::new();
        let modify = |mask, state| end.context.modify(end.qp, mask, state, end.qpn);
        assert_eq!(modify(1, 6), Err(libc::EINVAL), "RESET to ERR");
        assert_eq!(modify(1, 0), Ok(()), "RESET to RESET");
        assert_eq!(modify(0, 0), Ok(()), "nothing");
        assert_eq!(modify(0x79, 1), Err(libc::EINVAL), "a queue key");
        assert_eq!(modify(0x39, 1), Ok(()));
        assert_eq!(modify(0x38, 0), Ok(()), "INIT stays");
        assert_eq!(modify(0x12_91a1, 2), Err(libc::EINVAL), "a port");
        assert_eq!(modify(0x12_d181, 2), Err(libc::EINVAL), "an alternate path");
        assert_eq!(modify(0x12_9199, 2), Ok(()), "rights and a partition key");
        assert_eq!(modify(0x1_ae0b, 3), Err(libc::EINVAL), "that is not the current state");
        assert_eq!(modify(0x1_ae09, 3), Ok(()), "rights and a timer");
        assert_eq!(modify(1, 4), Err(libc::EINVAL), "RTS to SQD");
        assert_eq!(modify(0x8008, 0), Ok(()), "RTS stays");
        assert_eq!(modify(0x200, 0), Err(libc::EINVAL), "a timeout");
        assert_eq!(modify(9, 6), Err(libc::EINVAL), "rights in ERR");
        assert_eq!(modify(1, 6), Ok(()));
        assert_eq!(modify(1 << 25, 6), Err(libc::EOPNOTSUPP), "an attribute of the extended command");
    });
}

#[test]
fn paths_and_values_of_queue_pairs() {
    preloaded("linux::paths_and_values_of_queue_pairs", || {
        let end = End::new();
        let with =
            |mask, state, at, byte| end.context.modify_with(end.qp, mask, state, end.qpn, &[(at, byte)]);
        assert_eq!(with(0x39, 1, 104, 2), Err(libc::EINVAL), "a port that does not exist");
        assert_eq!(with(0x39, 1, 92, 1), Err(libc::EINVAL), "a partition key that does not exist");
        assert_eq!(with(0x39, 1, 0, 0), Ok(()));
        let ready = |at, byte| with(0x12_9181, 2, at, byte);
        assert_eq!(ready(31, 2), Err(libc::EINVAL), "a path from another port");
        assert_eq!(ready(30, 0), Err(libc::EINVAL), "a path without a GID");
        assert_eq!(ready(24, 255), Err(libc::ENODATA), "an empty entry of the table of GIDs");
        for mtu in [0, 6] {
            assert_eq!(ready(98, mtu), Err(libc::EINVAL), "path MTU {mtu}");
        }
        assert_eq!(ready(102, 17), Err(libc::EINVAL), "17 reads of the peer at once");
        assert_eq!(ready(102, 16), Ok(()));
        assert_eq!(with(0x1_2e01, 3, 101, 17), Err(libc::EINVAL), "17 reads at once");
        assert_eq!(with(0x1_2e01, 3, 101, 16), Ok(()));

        let pd = end.context.pd();
        let address_handle = |at: usize, byte: u8| {
            let mut request = [0; 56];
            request[16..20].copy_from_slice(&pd.to_ne_bytes());
            request[24..26].copy_from_slice(&[0xfe, 0x80]); // a link-local GID
            request[53] = 1; // global
            request[54] = 1; // port
            request[at] = byte;
            verbs::command(end.context.0, 5, &request, &mut [0; 4], &mut [0; 16])
        };
        assert_eq!(address_handle(54, 2), Err(libc::EINVAL));
        assert_eq!(address_handle(53, 0), Err(libc::EINVAL));
        assert_eq!(address_handle(44, 255), Err(libc::ENODATA));
    });
}
