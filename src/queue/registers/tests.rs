use super::*;
use crate::queue::ring::Ring;

#[test]
fn the_clock_has_two_halves() {
    let registers = [0x0102_0304_u32, 0xa5b6_c7d8].map(u32::to_be);
    // SAFETY: the array outlives the clock.
    let clock = unsafe { DeviceClock::new(NonNull::from(&registers).cast()) };
    assert_eq!(clock.ticks(), 0x0102_0304_a5b6_c7d8);
}

/// The low half of the clock overflows after the first read of the high half: in the first case before the
/// low half is read, in the second case after.
#[test]
fn a_high_half_that_moves_on_is_read_again_with_the_low_one() {
    for low in [3, u32::MAX] {
        let mut values = [(0, 1), (1, low), (0, 2), (0, 2), (1, 5)].into_iter();
        let joined = joined(|at| {
            let (half, value) = values.next().unwrap();
            assert_eq!(at, half);
            value
        });
        assert_eq!((joined, values.next()), (2 << 32 | 5, None));
    }
}

/// Returns the request in the blocks from `begin` on, up to the block before `end`. The number of its first
/// block comes from the control segment in the ring. Without `alone`, the same doorbell also publishes an
/// earlier request.
fn last<'q>(ring: &'q Ring<'q, Wqebb>, begin: u64, end: u64, alone: bool) -> LastRequest<'q> {
    let control = ring.peek(begin).read_u64::<0>();
    LastRequest { ring, control, published: begin.wrapping_sub((!alone).into()), end }
}

#[test]
fn eight_bytes_reach_the_register_as_they_stand_in_memory() {
    let mut page = [0_u64; 2];
    let register = NonNull::from(&mut page).cast::<u64>();
    // SAFETY: the array outlives the doorbell and is not used meanwhile.
    let mut doorbell = unsafe { UarDoorbell::new(register) };
    let mut blocks = [Wqebb::ZERO; 2];
    let [first, second] = &mut blocks;
    first.0[..8].copy_from_slice(b"f\0\0first");
    second.0[..8].copy_from_slice(b"s\0\x01econd");
    let ring = Ring::new(&mut blocks, "blocks", 2).unwrap();
    doorbell.ring(&last(&ring, 0, 1, true));
    doorbell.ring(&last(&ring, 1, 2, true));
    assert!(last(&ring, 1, 3, true).blocks().map(|block| block.0[0]).eq(*b"sf"));
    assert_eq!(page.map(u64::to_ne_bytes), [*b"s\0\x01econd", [0; 8]]);
}

#[test]
fn whole_requests_reach_the_halves_in_turn() {
    #[repr(align(64))]
    struct Page([u64; 2 * 16]);
    // Each half of the register has 128 bytes.
    let mut page = Page([0; 32]);
    let register = NonNull::from(&mut page.0).cast::<u64>();
    // SAFETY: the page outlives the doorbell and is not used meanwhile.
    let mut doorbell = unsafe { BlueFlame::new(register, 128) };
    let mut blocks: [Wqebb; 4] = core::array::from_fn(|block| Wqebb([block as u8 + 1; 64]));
    // The sizes of the requests in octowords: 4, 1, and 8 for a request of two blocks.
    for (number, (block, octowords)) in blocks.iter_mut().zip([4, 1, 8, 8]).enumerate() {
        block.0[1..3].copy_from_slice(&(number as u16).to_be_bytes());
        block.0[7] = octowords;
    }
    let expected = blocks;
    let ring = Ring::new(&mut blocks, "blocks", 4).unwrap();
    let mut rung = |begin, end, alone| {
        // SAFETY: the page outlives the pointer, and the doorbell writes to the page only when it is rung.
        unsafe { register.cast::<[u64; 32]>().write([0; 32]) };
        doorbell.ring(&last(&ring, begin, end, alone));
        // SAFETY: the page outlives the pointer, and the doorbell has finished writing.
        let words = unsafe { register.cast::<[u64; 32]>().read_volatile() };
        words.map(u64::to_ne_bytes).as_flattened().to_vec()
    };
    let nothing = [0; 128];
    let eight = |block: usize| [&expected[block].0[..8], &nothing[8..]].concat();
    let one = [&expected[0].0[..], &nothing[64..]].concat();
    let two = [expected[2].0, expected[3].0].concat();
    let over_the_end = [expected[3].0, expected[0].0].concat();
    assert_eq!(rung(0, 1, true), [&one[..], &nothing].concat());
    assert_eq!(rung(1, 2, true), [&nothing[..], &eight(1)].concat(), "one octoword");
    assert_eq!(rung(2, 4, true), [&two[..], &nothing].concat());
    assert_eq!(rung(2, 4, false), [&nothing[..], &eight(2)].concat(), "others are before it");
    assert_eq!(rung(3, 5, true), [&over_the_end[..], &nothing].concat());
    assert_eq!(rung(2, 5, true), [&nothing[..], &eight(2)].concat(), "it does not fit");
}

#[test]
fn arm_word_and_number_reach_the_register() {
    let mut page = [0_u64; 8];
    let uar_page = NonNull::from(&mut page).cast::<u64>();
    // SAFETY: the array outlives the doorbell and is not used meanwhile.
    let mut doorbell = unsafe { UarCqDoorbell::new(uar_page, Cqn::from_low_bits(0x0012_3456)) };
    doorbell.ring([0x31, 7, 8, 9]);
    let mut expected = [[0; 8]; 8];
    expected[4] = [0x31, 7, 8, 9, 0, 0x12, 0x34, 0x56];
    assert_eq!(page.map(u64::to_ne_bytes), expected);
}
