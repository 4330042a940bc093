//! Tests of the barrier check, with right and with wrong code.

use super::*;

const GOOD: &str = "\
0000000000000000 <entry>:
   0:\tmov\tx25, x0
   4:\tstr\tw8, [x25, #1112]
   8:\tdmb\toshst
   c:\tldr\tx9, [x0, #1088]
  10:\tstrh\tw8, [x9, #6]
  14:\tdsb\tst
  18:\tstr\tx8, [x9, x10]
  1c:\tstr\tx8, [x25, #1080]
  20:\tdsb\tst
  24:\tldp\tx20, x19, [sp, #192]
  28:\tret

0000000000000000 <other>:
";

fn doorbell_of(text: &str) -> Result<(), String> {
    let (name, body) = functions(text).next().unwrap();
    assert_eq!(name, "entry");
    doorbell(&steps(name, body).steps)
}

#[test]
fn the_order_of_a_doorbell() {
    assert_eq!(doorbell_of(GOOD), Ok(()));
    for (from, to) in [
        ("dmb\toshst", "dmb\tishst"),
        ("dsb\tst\n  18", "dmb\toshst\n  18"),
        ("  14:\tdsb\tst\n", ""),
        ("  20:\tdsb\tst\n", ""),
        ("strh\tw8, [x9, #6]", "str\tw8, [x9]"),
        ("str\tx8, [x9, x10]", "str\tw8, [x9, x10]"),
        ("str\tw8, [x25, #1112]\n   8:\tdmb\toshst", "dmb\toshst\n   8:\tstr\tw8, [x9]"),
        ("  24:", "  22:\tstr\tx8, [x9, x10]\n  24:"),
        ("  18:", "  16:\tcbz\tx9, 28 <entry+0x28>\n  18:"),
    ] {
        let bad = GOOD.replace(from, to);
        assert!(bad != GOOD && doorbell_of(&bad).is_err(), "{bad}");
    }
    // Loads of the doorbell's eight bytes and of their address are allowed.
    let read = GOOD.replace("  18:", "  15:\tldr\tx12, [x13]\n  16:\tldr\tx8, [x12, x11]\n  18:");
    assert!(read != GOOD && doorbell_of(&read) == Ok(()));
    // The compiler places rarely used code after the return. This code stores, and then jumps back to
    // publish.
    let behind = |lines: &str| GOOD.replace("  28:\tret\n", &format!("  28:\tret\n{lines}"));
    let (write, back) = ("  2c:\tstr\tx9, [x10]\n", "  30:\tb\t8 <entry+0x8>\n");
    assert_eq!(doorbell_of(&behind(&format!("{write}{back}"))), Ok(()));
    for bad in [
        write.to_owned(),
        format!("{write}  30:\tb\tc <entry+0xc>\n"),
        format!("{write}  30:\tb\t0 <other>\n"),
        format!("{write}  30:\tb\t0 <entry_of_another>\n"),
        format!("{write}  2e:\tcbz\tx9, 28 <entry+0x28>\n{back}"),
        format!("{write}  2e:\tret\n{back}"),
        format!("{write}  2e:\tdmb\toshst\n{back}"),
    ] {
        assert!(doorbell_of(&behind(&bad)).is_err(), "{bad}");
    }
    // A jump to code before the barrier is allowed, unless a branch there may bypass the barrier.
    let around = behind(&format!("{write}  30:\tb\t0 <entry>\n"));
    assert_eq!(doorbell_of(&around), Ok(()));
    let around = around.replace("str\tw8, [x25, #1112]", "cbz\tx9, 28 <entry+0x28>");
    assert!(doorbell_of(&around).is_err(), "{around}");
}

#[test]
fn an_entry_is_read_behind_its_owner_bit() {
    let of = |lines: &[&str]| entry(&steps("entry", &lines.join("\n")).steps);
    let (owner, barrier, body) = ("0:\tldr\tx12, [x9, #56]", "4:\tdmb\toshld", "8:\tldp\tx1, x2, [x9]");
    assert_eq!(of(&[owner, barrier, body]), Ok(()));
    for bad in
        [&[owner, body, barrier][..], &[owner, body], &[owner, barrier], &[owner, "4:\tdmb\tishld", body]]
    {
        assert!(of(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_path_to_completions_has_both_barriers() {
    let path = Path { entry: "entry_wait", method: "4wait" };
    let (taken, released) = ("0:\tdmb\toshld\n", "4:\tdmb\tosh\n");
    let (both, wait) = (format!("{taken}{released}"), "15CompletionQueue4wait");
    for good in [
        &[("entry_wait", both.as_str())][..],
        &[("entry_wait", ""), (wait, &both)],
        &[("entry_wait", released), ("15CompletionQueue12next_success", taken)],
    ] {
        assert_eq!(path.check(good), Ok(()), "{good:?}");
    }
    for bad in [
        &[("entry_poll", both.as_str())][..],
        &[("entry_wait", taken)],
        &[("entry_wait", released)],
        &[("entry_wait", taken), ("15CompletionQueue12next_success", released)],
        &[("entry_wait", taken), ("15CompletionQueue4poll", released)],
    ] {
        assert!(path.check(bad).is_err(), "{bad:?}");
    }
}

/// The code of a function that takes a CQE and gives its slot back.
const POLL: &str = "\
   0:\tldr\tx9, [x0]
   4:\tadd\tx9, x9, x10
   8:\tldr\tx11, [x9, #56]
   c:\tcbz\tx11, 30 <entry_poll+0x30>
  10:\tdmb\toshld
  14:\tldr\tx12, [x9, #40]
  18:\tand\tw13, w13, #0xffffff
  1c:\tdmb\tosh
  20:\tldr\tx14, [x0, #24]
  24:\trev\tw13, w13
  28:\tstr\tw13, [x14]
  30:\tret
";

#[test]
fn a_barrier_that_is_missing_is_noticed_and_its_function_named() {
    let arm = "0:\tdmb\tosh\n0:\tstr\tw1, [x2]\n0:\tstr\tw3, [x2, #4]\n0:\tdsb\tst\n0:\tblr\tx4\n\
               0:\tdsb\tst\n0:\tret\n";
    let cancel = "0:\tcbz\tx1, c <cancel>\n0:\tstr\tw1, [x2, x3]\n0:\tdmb\toshst\n0:\tret\n\
         0:\tdmb\toshst\n0:\tret\n";
    let (_, bell) = functions(GOOD).next().unwrap();
    for (name, body, barriers) in [
        ("entry_poll", POLL, 2),
        ("entry_ring_doorbell", bell, 3),
        ("mlx5_mkey15CompletionQueue3arm", arm, 3),
        ("mlx5_mkey8SendRing6cancel", cancel, 2),
    ] {
        assert_eq!(check_function(name, body), Ok(()));
        let deletions = deletions(body);
        assert_eq!(deletions.len(), barriers);
        for (line, rest) in deletions {
            let error = check_function(name, &rest).expect_err(line);
            assert!(error.starts_with(name), "{error}");
        }
    }
}

#[test]
fn a_struct_is_no_entry_and_a_reset_no_progress() {
    for good in [
        // In this variant the base address is no sum of registers: the loads read a struct instead of a CQE,
        // and need no barrier.
        POLL.replace("add\tx9, x9, x10", "ldr\tx9, [x9, #8]").replace("  10:\tdmb\toshld\n", ""),
        // The loads after the owner bit read another CQE, so they need no barrier.
        POLL.replace("dmb\toshld", "add\tx9, x9, x15"),
        POLL.replace("  1c:\tdmb\tosh\n", "").replace("str\tw13, [x14]", "str\twzr, [x14]"),
        POLL.replace("  1c:\tdmb\tosh\n", "").replace("[x14]", "[x14, #8]"),
    ] {
        assert_eq!(check_function("entry_poll", &good), Ok(()), "{good}");
    }
    let counter = POLL.replace("  1c:\tdmb\tosh\n", "").replace("str\tw13, [x14]", "strh\tw20, [x14, #6]");
    assert!(check_function("entry_poll", &counter).is_err());
}

#[test]
fn a_queue_of_a_table_reads_where_its_record_and_doorbell_are() {
    let of = |lines: [&str; 7]| {
        let code: String = lines.map(|line| format!("0:\t{}\n", line.replacen(' ', "\t", 1))).concat();
        orders(&steps("entry", &code))
    };
    let lines = [
        "dmb oshst",
        "ldr x12, [x9, #1608]",
        "strh w11, [x12, #6]",
        "dsb st",
        "ldr x9, [x9, #1616]",
        "str x10, [x9]",
        "dsb st",
    ];
    assert_eq!(of(lines), Ok(()));
    // Faults: the store goes to another word of the doorbell record, the doorbell has four bytes, the barrier
    // is weaker.
    for (at, line) in [(2, "strh w11, [x12, #2]"), (5, "str w10, [x9]"), (3, "dmb oshst")] {
        let mut bad = lines;
        bad[at] = line;
        assert!(of(bad).is_err(), "{line}");
    }
}

#[test]
fn barriers_stand_in_known_orders() {
    let of = |lines: &[&str]| {
        let lines: Vec<String> =
            lines.iter().map(|line| format!("0:\t{}", line.replacen(' ', "\t", 1))).collect();
        orders(&steps("entry", &lines.join("\n")))
    };
    let bell = ["dmb oshst", "strh w8, [x9, #6]", "dsb st", "str x8, [x9, x10]", "dsb st"];
    let [publish, record, complete, _, flush] = bell;
    let (queue, first) = ("ldr x9, [x0, #16]", "str w8, [x9]");
    let arm = ["dmb osh", first, "str w7, [x9, #4]", complete, "ldr x6, [x1]", "str x5, [x6]", flush];
    let (owner, fresh, body) = ("ldr x8, [x9, #56]", "dmb oshld", "ldr x8, [x9, #40]");
    for good in [
        // Other stores may follow, such as the release of a lock.
        &[&bell[..], &["stlrb wzr, [x0]", first, "ret"]].concat()[..],
        &[publish, record, complete, flush],
        &[publish, queue, first],
        &arm,
        &["mov x22, x0", "ldr x0, [x22]", "bl 0 <other>", "dmb osh", "ldr x9, [x22, #16]", first],
        &[owner, "b.hi 78 <entry+0x78>", fresh, body, owner, fresh, body],
        &["ldr x8, [x9, #56]", "ldr x10, [x20, #8]", fresh, body],
        &["mov x19, x8", "and w8, w2, #0xffff", publish, "str x23, [x19, #8]", "ldr x19, [sp], #16", "ret"],
        &["ldp x8, x0, [sp, #8]", "dmb osh", "ldr x9, [x0, #24]", first],
        &["dmb osh", "ldr x8, [x1, #24]", "ldr w9, [x1, #32]", "str w9, [x8]"],
        &["dmb osh", "ldr w9, [x1, #32]", "ldr x8, [x1, #24]", "str w9, [x8]"],
        &["sub sp, sp, #0x50", "dmb osh", "str x8, [sp, #16]", queue, first],
        &["isb", "ldrb w10, [x0]", "cbnz w10, 0 <entry>"],
    ] {
        assert_eq!(of(good), Ok(()), "{good:?}");
    }
    for bad in [
        &["dmb ish", first][..],
        &["dsb sy"],
        &[publish],
        &[publish, record],
        &[publish, record, complete],
        &[publish, record, "isb", flush],
        &["dmb osh", record],
        // Each of these arm sequences has a fault: the arm word at a wrong offset; no barrier before or after
        // the doorbell; a doorbell of four bytes.
        &["dmb osh", first, "str w7, [x8, #4]", complete, "str x5, [x6]", flush],
        &["dmb osh", first, "str w7, [x9, #4]", "str x5, [x6]", flush],
        &["dmb osh", first, "str w7, [x9, #4]", complete, "str x5, [x6]"],
        &["dmb osh", first, "str w7, [x9, #4]", complete, "str w5, [x6]", flush],
        &["dmb osh", first, "str w7, [x9, #4]", "dmb oshst", "str x5, [x6]", flush],
        &["dmb osh", body, first],
        &["dmb osh", "ldr x8, [x1, #24]", "ldr w7, [x1, #32]", "str w9, [x8]"],
        &["dmb osh", "cbz x9, 0 <entry>", first],
        &[body, fresh, body],
        &[owner, fresh],
        &[owner, body, fresh, body],
        &["ldr x0, [x16, #48]", fresh, "ldr x0, [x16, #40]"],
        &["ldr x0, [x15, #56]", fresh, "ldr x0, [x16, #40]"],
        // The last store uses a register that no longer points to the queue or to the result. A device can
        // therefore see the store.
        &["and w8, w2, #0xffff", publish, "str x23, [x8, #8]", "ret"],
        &["bl 0 <other>", publish, "str x23, [x0, #8]", "ret"],
    ] {
        assert!(of(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn functions_are_told_apart() {
    let names: Vec<_> = functions(GOOD).map(|(name, _)| name).collect();
    assert_eq!(names, ["entry", "other"]);
}
