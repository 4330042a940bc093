//! Tests of re-registered regions, of memory windows, and of commands that modify and query queue pairs.

use crate::verbs::{Attribute, Context, End, Pages, call, command};
use mlx5_testing::preload::{Side::Inside, preloaded};

const TRANSLATION: u32 = 1;
const PD: u32 = 1 << 1;
const ACCESS: u32 = 1 << 2;
const LOCAL_WRITE: u32 = 1;
const REMOTE_WRITE: u32 = 1 << 1;

/// Makes the call REREG_MR. Returns the local and the remote key.
fn reregister(
    context: &Context,
    (mr, flags): (u32, u32),
    (start, length, iova): (u64, u64, u64),
    (pd, access): (u32, u32),
) -> Result<[u32; 2], i32> {
    let mut request = vec![0; 8];
    request.extend([mr, flags].map(u32::to_ne_bytes).as_flattened());
    request.extend([start, length, iova].map(u64::to_ne_bytes).as_flattened());
    request.extend([pd, access].map(u32::to_ne_bytes).as_flattened());
    let mut response = [0_u8; 8];
    command(context.0, 11, &request, &mut response, &mut [])?;
    let (keys, _) = response.as_chunks();
    Ok([u32::from_ne_bytes(keys[0]), u32::from_ne_bytes(keys[1])])
}

#[test]
fn a_region_is_changed_as_the_kernel_does() {
    let Inside = preloaded() else { return };
    let context = Context::new();
    let (pd, other) = (context.pd(), context.pd());
    let (page, gone) = (Pages::new(4096), Pages::new(4096));
    gone.unmap(4096);
    let (mr, key) = context.register(pd, page.0, 64, LOCAL_WRITE).unwrap();
    let change = |flags, memory, rest| reregister(&context, (mr, flags), memory, rest);
    let place = (page.0, 64, page.0);
    for (flags, memory, rest, error) in [
        (0, place, (pd, 0), libc::EINVAL),
        (1 << 3 | PD, place, (pd, 0), libc::EOPNOTSUPP),
        (TRANSLATION, (page.0, 64, page.0 + 1), (pd, 0), libc::EINVAL),
        (TRANSLATION, (page.0, 0, page.0), (pd, 0), libc::EINVAL),
        (TRANSLATION, (gone.0, 64, gone.0), (pd, 0), libc::EFAULT),
        (PD, place, (mr, 0), libc::EINVAL),
        (ACCESS, place, (pd, REMOTE_WRITE), libc::EINVAL),
        (ACCESS, place, (pd, 1 << 19), libc::EINVAL),
        (ACCESS, place, (pd, 1 << 6 | LOCAL_WRITE), libc::EOPNOTSUPP),
        (PD | ACCESS, place, (other, REMOTE_WRITE), libc::EINVAL),
    ] {
        assert_eq!(change(flags, memory, rest), Err(error), "{flags:#x} {memory:x?} {rest:?}");
    }
    assert_eq!(reregister(&context, (pd, PD), place, (pd, 0)), Err(libc::EINVAL), "no region");
    assert_eq!(context.destroy(1, 0, other), Ok(()), "nothing has moved to it");
    let other = context.pd();
    assert_eq!(change(PD | ACCESS | TRANSLATION, place, (other, LOCAL_WRITE | REMOTE_WRITE)), Ok([key; 2]));
    assert_eq!((context.destroy(1, 0, other), context.destroy(1, 0, pd)), (Err(libc::EBUSY), Ok(())));
}

/// A region over read-only memory gets no right to write, whatever rights a call requests.
#[test]
fn rights_that_memory_does_not_have_are_refused() {
    let Inside = preloaded() else { return };
    let context = Context::new();
    let pd = context.pd();
    // The memory is a constant, which a program cannot write.
    static TEXT: [u8; 64] = [7; 64];
    let text = (TEXT.as_ptr().expose_provenance() as u64, TEXT.len() as u64);
    let (mr, key) = context.register(pd, text.0, text.1, 0).unwrap();
    let place = (text.0, text.1, text.0);
    let change = |access| reregister(&context, (mr, ACCESS), place, (pd, access));
    assert_eq!(change(LOCAL_WRITE), Err(libc::EFAULT));
    assert_eq!(change(1 << 2), Ok([key; 2]));
}

#[test]
fn windows_are_made_and_end_as_the_kernel_does() {
    let Inside = preloaded() else { return };
    let context = Context::new();
    let pd = context.pd();
    let alloc = |pd: u32, kind: u8, driver: [u8; 8]| {
        let mut request = vec![0; 8];
        request.extend(pd.to_ne_bytes());
        request.extend([kind, 0, 0, 0]);
        let mut response = [0_u8; 8];
        let mut attributes = [
            Attribute::In(0, &request),
            Attribute::Number(2, 14),
            Attribute::Out(1, &mut response),
            Attribute::In(0x1000, &driver),
        ];
        call(context.0, 0, 0, &mut attributes)?;
        let (words, _) = response.as_chunks();
        Ok((u32::from_ne_bytes(words[0]), u32::from_ne_bytes(words[1])))
    };
    for kind in [0, 3] {
        assert_eq!(alloc(pd, kind, [0; 8]), Err(libc::EINVAL));
    }
    assert_eq!(alloc(pd + 50, 1, [0; 8]), Err(libc::ENOENT));
    for byte in [0, 5, 6] {
        let mut driver = [0; 8];
        driver[byte] = 1;
        assert_eq!(alloc(pd, 1, driver), Err(libc::EOPNOTSUPP), "{byte}");
    }
    let (one, first) = alloc(pd, 1, [0; 8]).unwrap();
    let (two, second) = alloc(pd, 2, [0, 0, 0, 0, 9, 0, 0, 0]).unwrap();
    assert_ne!(first, second);
    let destroy = |object, method, handle| context.destroy(object, method, handle);
    assert_eq!(destroy(1, 0, pd), Err(libc::EBUSY));
    assert_eq!((destroy(7, 1, one), destroy(8, 0, pd)), (Err(libc::EINVAL), Err(libc::EINVAL)));
    assert_eq!((destroy(8, 0, one), destroy(8, 0, two)), (Ok(()), Ok(())));
    assert_eq!((destroy(8, 0, one), destroy(1, 0, pd)), (Err(libc::ENOENT), Ok(())));
}

#[test]
fn a_queue_pair_is_made_ready_for_copies_in_init() {
    let Inside = preloaded() else { return };
    const LENGTH: usize = 0x110 + 0xcc;
    let end = End::new();
    let mut good = vec![0; LENGTH];
    good[..2].copy_from_slice(&0x50e_u16.to_be_bytes());
    good[8..12].copy_from_slice(&(0x8000_0000 | end.qpn).to_be_bytes());
    (good[0x10f], good[0x110]) = (8, 0x20);
    let ask = |input: &[u8]| end.context.command(end.qp, input);
    assert_eq!(ask(&good), Err(libc::EREMOTEIO), "in RESET");
    end.context.modify(end.qp, 0x39, 1, 0).unwrap();
    assert_eq!(ask(&good), Ok(()));
    for length in [0x108, 0x110] {
        assert_eq!(ask(&good[..length]), Err(libc::EREMOTEIO), "{length:#x} bytes");
    }
    let mut bad = good.clone();
    bad[0x10f] = 9;
    assert_eq!(ask(&bad), Err(libc::EREMOTEIO), "something else besides");
    good[0x10f] = 0;
    assert_eq!(ask(&good), Ok(()), "nothing of it");
}

/// The kernel refuses further queries of a program that does not read its answers, until the program has read
/// them.
#[test]
fn answers_wait_until_they_are_read() {
    let Inside = preloaded() else { return };
    let end = End::new();
    let channel = end.context.answers();
    let mut input = [0_u8; 16];
    input[..2].copy_from_slice(&0x50b_u16.to_be_bytes());
    input[8..12].copy_from_slice(&end.qpn.to_be_bytes());
    let ask =
        |handle, channel, length, number| end.context.query_later(handle, &input, channel, (length, number));
    assert_eq!(ask(end.qp, channel + 50, 16, 1), Err(libc::EBADF), "no channel");
    assert_eq!(ask(end.qp, end.context.0, 16, 1), Err(libc::EBADF), "a context");
    let events = crate::event_channel(&end.context);
    assert_eq!(ask(end.qp, events, 16, 1), Err(libc::EBADF), "a channel of events");
    assert_eq!(ask(99, channel, 16, 1), Err(libc::ENOENT));
    assert_eq!(ask(end.qp, channel, 1 << 17, 1), Err(libc::EINVAL));
    let asked = (0..10_000).take_while(|number| ask(end.qp, channel, 8192, *number).is_ok()).count();
    assert!((8..10_000).contains(&asked), "{asked}");
    assert_eq!(ask(end.qp, channel, 8192, 1), Err(libc::EAGAIN));
    for number in 0..asked as u64 {
        assert_eq!(crate::verbs::message(channel)[..8], number.to_ne_bytes());
    }
    assert_eq!(ask(end.qp, channel, 120, 77), Ok(()));
    let answer = crate::verbs::message(channel);
    assert_eq!((answer.len(), &answer[..9]), (128, &[77, 0, 0, 0, 0, 0, 0, 0, 0][..]));
}

/// A query for an unknown kind of capabilities is refused. The capabilities of a known but missing feature
/// are zeros.
#[test]
fn capabilities_of_what_is_not_there_are_zeros() {
    let Inside = preloaded() else { return };
    let context = Context::new();
    let query = |kind: u16| {
        let mut output = vec![0xff; 0x1010];
        let mut input = [0_u8; 16];
        input[..2].copy_from_slice(&0x100_u16.to_be_bytes());
        input[6..8].copy_from_slice(&(kind << 1 | 1).to_be_bytes());
        context.other(&input, &mut output).map(|()| output.iter().all(|byte| *byte == 0))
    };
    assert_eq!((query(0xc), query(0)), (Ok(true), Ok(false)));
    assert_eq!(query(0xa), Err(libc::EREMOTEIO));
}
