//! Tests of calls that the stand-in refuses because Linux refuses them, each with Linux's error number. The
//! tests follow the rows of "What Linux checks" in hil-tests/DEVICE.md.

use crate::event_channel;
use crate::shared::create;
use crate::verbs::{self, Attribute, Context, End, Pages, call, changed};
use mlx5_testing::preload::{Side::Inside, preloaded, preloaded_with};

/// Returns a command of the device with this length and opcode. `bytes` are its other bytes, each with its
/// offset.
fn command(length: usize, opcode: u16, bytes: &[(usize, u8)]) -> Vec<u8> {
    let mut command = vec![0; length];
    command[..2].copy_from_slice(&opcode.to_be_bytes());
    changed(&command, bytes)
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

#[test]
fn commands_about_no_object() {
    let Inside = preloaded() else { return };
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
}

#[test]
fn commands_that_make_objects() {
    let Inside = preloaded() else { return };
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
    assert_eq!(made(&command(64, 0x936, &[(7, 1)])), Err(libc::EINVAL), "a change of a flow table's entry");
    // The kernel passes these commands on, and the device refuses them.
    for opcode in [0x700, 0x900, 0x930, 0x936] {
        assert_eq!(made(&command(64, opcode, &[])), Err(libc::EREMOTEIO), "{opcode:#x}");
    }
}

#[test]
fn commands_about_objects() {
    let Inside = preloaded() else { return };
    let end = End::new();
    let (context, qp) = (&end.context, end.qp);
    let (psv, number) = create(context, &psvs(context, 1)).unwrap();
    let destroy = |handle| context.destroy(0x1001, 0x1001, handle);
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

    assert_eq!(context.query_object(qp, &named(0x50b, end.qpn)), Ok(()));
    assert_eq!(context.query_object(qp, &named(0x50b, end.qpn + 1)), Err(libc::EINVAL), "another");
    assert_eq!(context.query_object(psv, &named(0x50b, end.qpn)), Err(libc::EINVAL), "by a PSV's handle");
    assert_eq!(context.query_object(qp, &named(0x507, end.qpn)), Err(libc::EINVAL), "a change");
    assert_eq!(context.query_object(psv, &named(0x602, number)), Err(libc::EINVAL), "of a PSV");
}

#[test]
fn memory_pages_and_vectors() {
    let Inside = preloaded_with(&[("MLX5_UVERBS_WRITE_COMBINING", "no")]) else { return };
    let (context, plain) = (Context::new(), Context::with_flags(0));
    let memory = Pages::new(4096);
    let register = |context: &Context, access| context.umem(memory.0, 4096, access).map(drop);
    for access in [1, 3, 4, 5, 7] {
        assert_eq!(register(&context, access), Ok(()), "{access}");
    }
    for access in [2, 6, 8, 9] {
        assert_eq!(register(&context, access), Err(libc::EINVAL), "{access}");
    }
    assert_eq!(register(&plain, 1), Err(libc::EINVAL), "without DEVX");

    let page = |kind| context.doorbell_page(kind).map(drop);
    assert_eq!(page(0), Err(libc::EOPNOTSUPP), "one that gathers stores");
    assert_eq!(page(1), Ok(()));
    assert_eq!(page(2), Err(libc::EOPNOTSUPP));

    let vector = |number: u32| context.event_queue(&number.to_ne_bytes());
    assert_eq!((vector(0), vector(1)), (Ok(()), Err(libc::ENOENT)));
}

#[test]
fn what_is_asked_for_of_events() {
    let Inside = preloaded() else { return };
    let (end, plain) = (End::new(), Context::with_flags(0));
    let context = &end.context;
    let channel = event_channel(context);
    let (psv, _) = create(context, &psvs(context, 1)).unwrap();
    let drained = [3_u8, 0];
    let ask = |channel, object, numbers: &[u8]| context.subscribe(channel, object, numbers, &[]);
    assert_eq!(ask(channel, Some(psv), &drained.repeat(16)), Ok(()));
    assert_eq!(ask(channel, Some(psv), &drained.repeat(17)), Err(libc::EINVAL), "too many");
    assert_eq!(ask(channel, Some(psv), &[]), Err(libc::EINVAL), "none");
    assert_eq!(ask(channel, Some(psv), &[3, 0, 3]), Err(libc::EINVAL), "one and a half");
    assert_eq!(ask(channel, Some(psv), &[0x77, 0]), Err(libc::EINVAL), "no such");
    assert_eq!(ask(channel, Some(psv), &[9, 0]), Err(libc::EINVAL), "of a port");
    assert_eq!(ask(channel, None, &[9, 0]), Ok(()));
    assert_eq!(ask(channel, None, &drained), Err(libc::EINVAL), "of the device as a whole");
    assert_eq!(ask(channel, Some(99), &drained), Err(libc::ENOENT), "no object");
    assert_eq!(ask(channel, Some(end.qp), &drained), Err(libc::EINVAL), "a queue pair of verbs");
    assert_eq!(ask(channel + 50, Some(psv), &drained), Err(libc::EBADF), "no channel");
    assert_eq!(ask(context.0, Some(psv), &drained), Err(libc::EBADF), "a context");
    let both: [(u16, &[u8]); 2] = [(0x1003, &[0; 4]), (0x1004, &[0; 8])];
    let refused = context.subscribe(channel, Some(psv), &drained, &both);
    assert_eq!(refused, Err(libc::EINVAL), "two targets");
    let refused = plain.subscribe(event_channel(&plain), None, &[9, 0], &[]);
    assert_eq!(refused, Err(libc::EINVAL), "without DEVX");
    let make = |attributes: &mut [Attribute<'_>]| call(context.0, 0x1005, 0x1000, attributes);
    assert_eq!(make(&mut [Attribute::New(0x1000)]), Err(libc::EINVAL), "no flags");
    let unknown = Attribute::Number(0x1001, 2);
    assert_eq!(make(&mut [Attribute::New(0x1000), unknown]), Err(libc::EINVAL), "an unknown flag");
}

#[test]
fn any_uid_is_overwritten() {
    let Inside = preloaded() else { return };
    let context = Context::new();
    let mut command = psvs(&context, 1);
    command[2..4].fill(0xff);
    create(&context, &command).unwrap();
}

/// Linux keeps a state of each queue pair of its own (`mlx5_ib_modify_qp`), and commands of the device do not
/// change this state.
#[test]
fn linux_knows_a_state_of_its_own() {
    let Inside = preloaded() else { return };
    let end = End::new();
    let modify = |mask, state| end.context.modify(end.qp, mask, state, end.qpn);
    assert_eq!(modify(0x39, 1), Ok(()));
    // 2ERR_QP changes the state in the device, but not the state that Linux keeps.
    assert_eq!(end.context.command(end.qp, &named(0x507, end.qpn)), Ok(()));
    assert_eq!(modify(0x12_9181, 2), Err(libc::EINVAL), "the device refuses INIT2RTR");
    assert_eq!(end.context.query(end.qp).0, 6, "ERR");
    assert_eq!(modify(1, 0), Ok(()), "Linux knows now");
    assert_eq!(modify(0x39, 1), Ok(()));
    assert_eq!(end.context.command(end.qp, &named(0x50a, end.qpn)), Ok(()), "2RST_QP");
    assert_eq!(modify(0x39, 1), Err(libc::EINVAL), "Linux believes in INIT");
    assert_eq!(modify(1, 0), Ok(()));
    end.connect(end.qpn);
    // A program may name the state from which the transition starts.
    let named = |state, to| end.context.modify_with(end.qp, 0b11, to, 0, &[(97, state)]);
    assert_eq!(named(3, 3), Ok(()), "RTS to RTS");
    assert_eq!(named(4, 3), Err(libc::EINVAL), "the device is not in SQD");
    assert_eq!(named(0, 0), Err(libc::EINVAL), "RESET takes no current state");
    assert_eq!(named(9, 3), Err(libc::EINVAL));
}

#[test]
fn steps_of_queue_pairs() {
    let Inside = preloaded() else { return };
    let end = End::new();
    let modify = |mask, state| end.context.modify(end.qp, mask, state, end.qpn);
    assert_eq!(modify(1, 6), Err(libc::EINVAL), "RESET to ERR");
    assert_eq!(modify(0x1_2e01, 3), Err(libc::EINVAL), "RESET to RTS");
    assert_eq!(modify(1, 1), Err(libc::EINVAL), "INIT without a port");
    assert_eq!(modify(1, 0), Ok(()), "RESET to RESET");
    assert_eq!(modify(0, 0), Ok(()), "nothing");
    assert_eq!(modify(0x79, 1), Err(libc::EINVAL), "a queue key");
    assert_eq!(modify(0x39, 1), Ok(()));
    assert_eq!(modify(0x38, 0), Ok(()), "INIT stays");
    assert_eq!(modify(0x12_91a1, 2), Err(libc::EINVAL), "a port");
    assert_eq!(modify(0x02_9181, 2), Err(libc::EINVAL), "RTR without a destination");
    assert_eq!(modify(0x12_d181, 2), Err(libc::EINVAL), "an alternate path");
    assert_eq!(modify(0x12_9199, 2), Ok(()), "rights and a partition key");
    assert_eq!(modify(0x1_ae0b, 3), Err(libc::EINVAL), "that is not the current state");
    assert_eq!(modify(0x1_ae09, 3), Ok(()), "rights and a timer");
    assert_eq!(modify(1, 4), Err(libc::EINVAL), "RTS to SQD");
    assert_eq!(modify(1, 9), Err(libc::EINVAL), "RTS to no state");
    assert_eq!(modify(0x8008, 0), Ok(()), "RTS stays");
    assert_eq!(modify(0x200, 0), Err(libc::EINVAL), "a timeout");
    assert_eq!(modify(9, 6), Err(libc::EINVAL), "rights in ERR");
    assert_eq!(modify(1, 6), Ok(()));
    assert_eq!(modify(1 << 25, 6), Err(libc::EOPNOTSUPP), "an attribute of the extended command");
}

#[test]
fn paths_and_values_of_queue_pairs() {
    let Inside = preloaded() else { return };
    let end = End::new();
    let with = |mask, state, at, byte| end.context.modify_with(end.qp, mask, state, end.qpn, &[(at, byte)]);
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
}

#[test]
fn attributes_of_calls() {
    let Inside = preloaded() else { return };
    let context = Context::new();
    let pd = context.pd();
    let end = |attributes: &mut [Attribute<'_>]| call(context.0, 1, 0, attributes).map(drop);
    let raw = |length, reserved, data| Attribute::Raw(0, length, verbs::MANDATORY, reserved, data);
    let handle = u64::from(pd);
    assert_eq!(end(&mut [raw(0, 0, handle), raw(0, 0, handle)]), Err(libc::EINVAL), "twice");
    assert_eq!(end(&mut [raw(0, 1, handle)]), Err(libc::EINVAL), "a reserved field");
    assert_eq!(end(&mut [raw(8, 0, handle)]), Err(libc::EINVAL), "a handle with a length");
    assert_eq!(end(&mut [raw(0, 0, 1 << 32 | handle)]), Err(libc::ENOENT), "a handle of 33 bits");
    assert_eq!(end(&mut [raw(0, 0, u64::MAX)]), Err(libc::EINVAL), "a negative handle");
    assert_eq!(end(&mut []), Err(libc::EINVAL), "no handle");
    let unknown = |flags, count: usize| {
        let mut attributes = vec![raw(0, 0, handle)];
        attributes.extend((0..count).map(|_| Attribute::Raw(50, 3, flags, 7, 0)));
        end(&mut attributes)
    };
    assert_eq!(unknown(verbs::MANDATORY, 1), Err(libc::EPROTONOSUPPORT));
    assert_eq!(unknown(0, 254), Err(libc::EINVAL), "more than a page");
    assert_eq!(unknown(0, 253), Ok(()), "ones that may be skipped");

    for length in [0, 3, 5, 8] {
        let refused = context.event_queue(&[0; 8][..length]);
        assert_eq!(refused, Err(libc::EINVAL), "{length} bytes for a number of 4");
    }
    assert_eq!(context.event_queue(&[0; 4]), Ok(()));
    let channel = |flags: &[u8]| {
        let mut attributes = [Attribute::New(0x1000), Attribute::In(0x1001, flags)];
        call(context.0, 0x1005, 0x1000, &mut attributes).map(drop)
    };
    for length in [0, 3, 5, 6, 7] {
        assert_eq!(channel(&[0; 8][..length]), Err(libc::EINVAL), "{length} bytes of flags");
    }
    assert_eq!((channel(&[0; 4]), channel(&[0; 8])), (Ok(()), Ok(())));
    let mut wide = vec![0; 12];
    let mut attributes = [Attribute::Number(0, 1), Attribute::Out(1, &mut wide)];
    assert_eq!(call(context.0, 0, 2, &mut attributes), Err(libc::EINVAL), "QUERY_PORT without room");
    let alloc = |bytes: &[u8]| verbs::command(context.0, 3, bytes, &mut [0; 4], &mut [0; 4]);
    assert_eq!(alloc(&[0; 16]), Ok(()), "a longer structure");
    assert_eq!(alloc(&[[0; 8], [1; 8]].concat()), Err(libc::EOPNOTSUPP), "a field of a later version");
}

#[test]
fn channels_of_calls() {
    let Inside = preloaded() else { return };
    let (context, other) = (Context::new(), Context::new());
    let completions = |context: &Context| {
        let mut descriptor = [0; 4];
        verbs::command(context.0, 17, &[0; 8], &mut descriptor, &mut []).unwrap();
        u32::from_ne_bytes(descriptor)
    };
    let asynchronous = |context: &Context| call(context.0, 0x10, 0, &mut [Attribute::New(0)]).unwrap();
    let [own, foreign] = [&context, &other].map(|context| (completions(context), asynchronous(context)));
    let memory = Pages::new(8192);
    let driver = verbs::cq_driver(memory.0, memory.0 + 4096);
    let cq = |channel: Option<u32>, events: Option<u32>| {
        let more = [channel.map(|fd| Attribute::Handle(3, fd)), events.map(|fd| Attribute::Handle(7, fd))];
        context.cq_with(&driver, 0, more.into_iter().flatten().collect())
    };
    assert!(cq(Some(own.0), Some(own.1)).is_ok());
    assert_eq!(cq(Some(foreign.0), None), Err(libc::EBADF), "another context's");
    assert_eq!(cq(Some(own.1), None), Err(libc::EBADF), "one for asynchronous events");
    assert_eq!(cq(None, Some(foreign.1)), Err(libc::EBADF), "another context's events");
    assert_eq!(cq(None, Some(own.0)), Err(libc::EBADF), "one for completions");
    assert_eq!(cq(Some(context.0.unsigned_abs()), None), Err(libc::EBADF), "the context itself");
    assert_eq!(cq(Some(u32::MAX), None), Err(libc::EINVAL), "no number of a descriptor");
    let (pd, made) = (context.pd(), cq(None, None).unwrap());
    let rings = Pages::new(8192);
    let driver = verbs::qp_driver(rings.0, memory.0 + 4096 + 64);
    let qp = |events| context.qp_with(pd, made, &driver, 16, vec![Attribute::Handle(12, events)]);
    assert!(qp(own.1).is_ok());
    assert_eq!(qp(foreign.1), Err(libc::EBADF));
    assert_eq!(qp(own.0), Err(libc::EBADF));

    let (psv, number) = create(&context, &psvs(&context, 1)).unwrap();
    let events = event_channel(&other);
    let asked = context.subscribe(events, Some(psv), &[3, 0], &[(0x1004, &[0; 8])]);
    assert_eq!(asked, Err(libc::EBADF), "another's events");
    let asked = context.query_later(psv, &named(0x602, number), other.answers(), (16, 0));
    assert_eq!(asked, Err(libc::EBADF), "another's answers");
}

/// The address of a ring whose end is beyond the last address.
const WRAPS: u64 = u64::MAX - 4095;

#[test]
fn doorbell_registers_of_contexts() {
    let Inside = preloaded() else { return };
    let context = |bytes: &[(usize, u8)]| Context::with(bytes).map(|context| verbs::close(context.0));
    assert_eq!(context(&[]), Err(libc::EINVAL), "none");
    assert_eq!(context(&[(0, 1), (4, 2)]), Err(libc::EINVAL), "more fast ones than there are");
    assert_eq!(context(&[(1, 2), (0, 1)]), Err(libc::ENOMEM), "513");
    assert_eq!(context(&[(1, 2)]), Ok(()), "512");
    assert_eq!(context(&[(24, 2)]), Ok(()), "pages are allocated by the program");
}

#[test]
fn completion_queues() {
    let Inside = preloaded() else { return };
    let (context, dynamic) = (Context::new(), Context::with(&[(8, 1), (16, 1), (24, 2)]).unwrap());
    let memory = Pages::new(8192);
    let good = verbs::cq_driver(memory.0, memory.0 + 4096);
    let create = |changes: &[(usize, u8)], flags| {
        context.cq_with(&changed(&good, changes), flags, Vec::new()).map(drop)
    };
    assert_eq!((create(&[], 0), create(&[], 3)), (Ok(()), Ok(())));
    assert_eq!(create(&[], 4), Err(libc::EINVAL), "an unknown flag");
    assert_eq!(create(&[(22, 8)], 0), Err(libc::EINVAL), "an unknown flag of the driver");
    assert_eq!(create(&[(22, 1)], 0), Err(libc::EOPNOTSUPP), "padded entries");
    assert_eq!(create(&[(20, 1)], 0), Err(libc::EOPNOTSUPP), "compressed entries");
    assert_eq!((create(&[(26, 1)], 0), create(&[(28, 1)], 0)), (Err(libc::EINVAL), Err(libc::EINVAL)));
    assert_eq!(create(&[(16, 65)], 0), Err(libc::EINVAL), "entries of 65 bytes");
    assert_eq!(create(&[(0, 32)], 0), Err(libc::EINVAL), "a ring at 32");
    let at = |ring, record| context.cq(ring, record, 0).map(drop);
    assert_eq!(at(WRAPS, memory.0 + 4096), Err(libc::EINVAL), "a ring that wraps");
    assert_eq!(at(memory.0, u64::MAX - 3), Err(libc::EINVAL), "a record that wraps");
    let short = context.cq_with(&good[..21], 0, Vec::new());
    assert_eq!(short, Err(libc::EINVAL), "without the driver's flags");

    let create = |changes: &[(usize, u8)]| dynamic.cq_with(&changed(&good, changes), 0, Vec::new()).map(drop);
    assert_eq!(create(&[]), Err(libc::EINVAL), "without a doorbell page");
    assert_eq!(create(&[(22, 2)]), Ok(()));
}

#[test]
fn queue_pairs() {
    let Inside = preloaded() else { return };
    let memory = Pages::new(1 << 14);
    let record = memory.0 + (3 << 12);
    let good = verbs::qp_driver(memory.0, record);
    let bench = |bytes: &[(usize, u8)], cq_flags| {
        let context = Context::with(bytes).unwrap();
        let driver = changed(&verbs::cq_driver(memory.0 + 8192, record + 64), &[(22, cq_flags)]);
        let (pd, cq) = (context.pd(), context.cq_with(&driver, 0, Vec::new()).unwrap());
        (context, pd, cq)
    };
    let (context, pd, cq) = bench(&[(0, 2), (16, 1)], 0);
    let create = |changes: &[(usize, u8)], receives, more| {
        context.qp_with(pd, cq, &changed(&good, changes), receives, more).map(drop)
    };
    let with = |changes: &[(usize, u8)]| create(changes, 16, Vec::new());
    assert_eq!(with(&[]), Ok(()));
    let kind = |number| create(&[], 16, vec![Attribute::Number(9, number)]);
    assert_eq!((kind(0), kind(5)), (Err(libc::EINVAL), Err(libc::EINVAL)), "unknown kinds");
    assert_eq!(kind(9), Err(libc::EOPNOTSUPP), "XRC");
    let flags = |kind, flags| create(&[], 16, vec![Attribute::Number(9, kind), Attribute::Number(10, flags)]);
    assert_eq!(flags(2, 1 << 12), Ok(()), "a completion of each request");
    for unknown in [1, 1 << 2, 1 << 13, 1 << 40] {
        assert_eq!(flags(4, unknown), Err(libc::EINVAL), "{unknown:#x}");
    }
    assert_eq!((flags(4, 2), flags(2, 2)), (Ok(()), Err(libc::EINVAL)), "own multicasts");
    assert_eq!(flags(4, 1 << 8), Err(libc::EINVAL), "of raw packets");
    assert_eq!(flags(4, 1 << 11), Err(libc::EOPNOTSUPP), "padded writes");
    // The next requests differ from the valid request in the driver's flags.
    assert_eq!(with(&[(28, 1 << 1)]), Ok(()), "scatter to CQE");
    assert_eq!(with(&[(28, 1 << 2)]), Err(libc::EINVAL), "tunnels");
    assert_eq!(with(&[(28, 1 << 3)]), Err(libc::EINVAL), "a register that is not there");
    assert_eq!(with(&[(29, 1 << 1)]), Ok(()), "credits by packets");
    let datagrams = vec![Attribute::Number(9, 4)];
    assert_eq!(create(&[(29, 1 << 1)], 16, datagrams), Err(libc::EINVAL), "of datagrams");
    assert_eq!(with(&[(29, 1 << 4)]), Err(libc::EINVAL), "an unknown flag");
    assert_eq!(with(&[(28, 1)]), Err(libc::EOPNOTSUPP), "signatures of requests");
    assert_eq!(with(&[(54, 1)]), Err(libc::EINVAL), "a reserved field");
    // The next requests differ from the valid request in the user index, which completion entries of
    // version 1 carry.
    assert_eq!(with(&[(32, 7)]), Ok(()));
    assert_eq!(with(&[(32, 0xff), (33, 0xff), (34, 0xff)]), Err(libc::EINVAL), "none");
    assert_eq!(with(&[(35, 1)]), Err(libc::EINVAL), "25 bits");
    // The next requests differ from the valid request in the sizes and addresses of the rings.
    assert_eq!(create(&[], 0, Vec::new()), Err(libc::EINVAL), "slots without receives");
    assert_eq!(create(&[(20, 0), (24, 0)], 0, Vec::new()), Ok(()), "neither");
    assert_eq!(with(&[(20, 0)]), Err(libc::EINVAL), "receives without slots");
    assert_eq!(with(&[(16, 3)]), Err(libc::EINVAL), "three blocks");
    assert_eq!(with(&[(0, 32)]), Err(libc::EINVAL), "a ring at 32");
    let ring = context.qp(pd, cq, WRAPS, record).map(drop);
    assert_eq!(ring, Err(libc::EINVAL), "a ring that wraps");
    let short = context.qp_with(pd, cq, &good[..47], 16, Vec::new());
    assert_eq!(short, Err(libc::EINVAL), "a short input of the driver");

    let (context, pd, cq) = bench(&[(0, 2)], 0);
    let old = |changes| context.qp_with(pd, cq, &changed(&good, changes), 16, Vec::new()).map(drop);
    assert_eq!(old(&[]), Err(libc::EINVAL), "a user index for entries of version 0");
    assert_eq!(old(&[(32, 0xff), (33, 0xff), (34, 0xff)]), Ok(()));
    let (context, pd, cq) = bench(&[(16, 1), (24, 2)], 2);
    let dynamic = |changes| context.qp_with(pd, cq, &changed(&good, changes), 16, Vec::new()).map(drop);
    assert_eq!(dynamic(&[]), Err(libc::EINVAL), "without a doorbell page");
    assert_eq!(dynamic(&[(29, 1 << 2)]), Ok(()));
}

#[test]
fn memory_of_regions() {
    let Inside = preloaded() else { return };
    const MW_BIND: u32 = 1 << 4;
    let context = Context::new();
    let (pd, memory) = (context.pd(), Pages::new(4096));
    let register = |address, length, access| context.register(pd, address, length, access).map(drop);
    assert_eq!(register(WRAPS, 4096, 1), Err(libc::EINVAL), "its end is no address");
    assert_eq!(register(WRAPS - 4096, 4097, 1), Err(libc::EINVAL), "neither is the end of its last page");
    assert_eq!(register(memory.0, 0, 1), Err(libc::EINVAL));
    assert_eq!(register(memory.0, 4096, MW_BIND), Ok(()));
    memory.protect(4096);
    assert_eq!(register(memory.0, 4096, MW_BIND), Err(libc::EFAULT), "windows may write");
    assert_eq!(register(memory.0, 4096, 1), Err(libc::EFAULT));
    assert_eq!(register(memory.0, 4096, 0), Ok(()), "it is only read");
    let umem = |address| context.umem(address, 4096, 0).map(drop);
    assert_eq!((umem(memory.0), umem(WRAPS)), (Ok(()), Err(libc::EINVAL)));
}

#[test]
fn mappings_of_the_file() {
    let Inside = preloaded() else { return };
    const READ: i32 = libc::PROT_READ;
    const WRITE: i32 = libc::PROT_WRITE;
    const SHARED: i32 = libc::MAP_SHARED;
    const CLOCK: i64 = 5 << 20;
    const INFO: i64 = 7 << 20;
    let fresh = verbs::open().unwrap();
    assert_eq!(verbs::map(fresh, 4096, READ, SHARED, CLOCK), Err(libc::EINVAL), "before GET_CONTEXT");
    let (context, dynamic) = (Context::new(), Context::with(&[(8, 1), (16, 1), (24, 2)]).unwrap());
    let map = |length, rights, kind, offset| verbs::map(context.0, length, rights, kind, offset);
    for offset in [CLOCK, INFO] {
        assert_eq!(map(4096, READ, SHARED, offset), Ok(()));
        assert_eq!(map(100, READ, SHARED, offset), Ok(()), "the system rounds up");
        assert_eq!(map(8192, READ, SHARED, offset), Err(libc::EINVAL), "two pages");
        assert_eq!(map(4096, READ, libc::MAP_PRIVATE, offset), Err(libc::EINVAL));
        assert_eq!(map(4096, READ | WRITE, SHARED, offset), Err(libc::EPERM));
    }
    assert_eq!(map(4096, READ, SHARED, INFO | 4096), Err(libc::EOPNOTSUPP), "another version");
    assert_eq!(map(4096, READ, SHARED, 1 << 20), Err(libc::ENOSYS), "contiguous pages");
    assert_eq!(map(4096, WRITE, SHARED, 8 << 20), Err(libc::EINVAL), "memory of the device");
    // The context has one page for doorbells from the start. Three commands in the offset (0, 2 and 3)
    // map this page.
    for command in [0, 2, 3] {
        assert_eq!(map(4096, WRITE, SHARED, command << 20), Ok(()), "{command}");
        assert_eq!(map(4096, WRITE, SHARED, command << 20 | 4096), Err(libc::EINVAL), "{command}");
        let none = verbs::map(dynamic.0, 4096, WRITE, SHARED, command << 20);
        assert_eq!(none, Err(libc::EINVAL), "{command}");
    }
    assert_eq!(map(4096, WRITE, SHARED, 6 << 20), Ok(()), "a further page");
    let (handle, offset, _) = dynamic.doorbell_page(1).unwrap();
    let at = |offset, kind| verbs::map(dynamic.0, 4096, WRITE, kind, offset);
    assert_eq!(at(offset, SHARED), Ok(()));
    assert_eq!(at(offset, libc::MAP_PRIVATE), Err(libc::EINVAL));
    assert_eq!(at(offset + 4096, SHARED), Err(libc::EINVAL), "another page");
    dynamic.destroy(0x1008, 0x1001, handle).unwrap();
    assert_eq!(at(offset, SHARED), Err(libc::EINVAL), "a page that is gone");
}

#[test]
fn reads_of_channels() {
    let Inside = preloaded() else { return };
    let end = End::new();
    assert_eq!(verbs::message_in(end.context.0, 16), Err(libc::EINVAL), "a context");
    let answers = end.context.answers();
    let ask = |number| {
        end.context.query_later(end.qp, &named(0x50b, end.qpn), answers, (120, number)).unwrap();
    };
    ask(1);
    for room in [0, 8, 127] {
        assert_eq!(verbs::message_in(answers, room), Err(libc::ENOSPC), "{room}");
    }
    assert_eq!(verbs::message_in(answers, 128).unwrap().len(), 128, "the answer is still there");
    verbs::never_wait(answers);
    assert_eq!(verbs::message_in(answers, 128), Err(libc::EAGAIN));
    let (verbs_events, events) = (
        call(end.context.0, 0x10, 0, &mut [Attribute::New(0)]).unwrap().cast_signed(),
        event_channel(&end.context),
    );
    let memory = Pages::new(1 << 14);
    let (rings, records) = (memory.0 + 4096, memory.0 + (3 << 12));
    let (pd, cq) = (end.context.pd(), end.context.cq(memory.0, records, 0).unwrap());
    let driver = verbs::qp_driver(rings, records + 64);
    let more = vec![Attribute::Handle(12, verbs_events.unsigned_abs())];
    let (qp, qpn) = end.context.qp_with(pd, cq, &driver, 16, more).unwrap();
    end.context.modify(qp, 0x39, 1, 0).unwrap();
    end.context.modify(qp, 0x12_9181, 2, qpn).unwrap();
    end.context.modify(qp, 0x1_2e01, 3, 0).unwrap();
    // An RDMA WRITE with a key that does not exist makes the queue pair that refuses the key raise an event.
    let (_, key) = end.context.register(pd, memory.0, 4096, 1).unwrap();
    let [high, low] = [memory.0 >> 32, memory.0].map(|half| half as u32);
    let request = [8, qpn << 8 | 3, 8, 0, high, low, 0x77, 0, 8, key, high, low].map(u32::to_be_bytes);
    memory.write(4096 + 16 * 64, &request.concat());
    memory.write((3 << 12) + 64 + 4, &1_u32.to_be_bytes());
    let event = verbs::message_in(verbs_events, 15);
    assert_eq!(event, Err(libc::EINVAL), "room for a part of the event");
    assert_eq!(verbs::message_in(verbs_events, 16).unwrap()[..8], 88_u64.to_ne_bytes());
    ask(2);
    verbs::never_wait(events);
    verbs::close(end.context.0);
    assert_eq!(verbs::message_in(answers, 128), Err(libc::EAGAIN), "the answer is gone");
    assert_eq!(verbs::message_in(events, 128), Err(libc::EAGAIN));
    assert_eq!(verbs::message_in(verbs_events, 128), Err(libc::EIO));
}
