//! Tests of deliberate faults, as a program sees them.

use crate::verbs::{Attribute, Context, End, Pages, call, command, open};
use crate::{DONE, event_channel};
use mlx5_testing::preload::{preloaded, prepared};
use std::path::Path;
use std::process::Command;

/// Runs `body` in a program whose device follows the plan of faults in `words`.
fn with_faults(name: &str, words: &str, body: impl FnOnce()) {
    let prepare = |command: &mut Command, _: &Path| {
        command.env("MLX5_UVERBS_FAULTS", words);
    };
    prepared(name, prepare, body);
}

#[test]
fn words_that_are_no_faults_are_no_device() {
    with_faults("faults::words_that_are_no_faults_are_no_device", "call@1=tea", || {
        assert_eq!(open(), Err(libc::EINVAL));
    });
}

#[test]
fn calls_fail_as_the_plan_says() {
    // The plan comes into force when the device's file is opened, so GET_CONTEXT of `Context::new` is the
    // first counted call.
    let words = "call@2=EINTR,call@4=unheard,call@5=status:9,end@1=EBUSY";
    with_faults("faults::calls_fail_as_the_plan_says", words, || {
        let context = Context::new();
        let page = Pages::new(4096);
        let pd = || command(context.0, 3, &[0; 8], &mut [0; 4], &mut [0; 4]);
        assert_eq!([pd().map(drop), pd().map(drop)], [Err(libc::EINTR), Ok(())]);
        let register = || context.register(0, page.0, 4096, 1);
        assert_eq!(register().map(drop), Err(libc::ETIMEDOUT));
        assert_eq!(register().map(drop), Err(libc::EREMOTEIO));
        let (mr, _) = register().unwrap();
        let destroy = || call(context.0, 7, 1, &mut [Attribute::Handle(0, mr)]);
        assert_eq!([destroy(), destroy()], [Err(libc::EBUSY), Ok(0)]);
    });
}

#[test]
fn completions_come_twice_late_or_never() {
    let words = "completion@1=twice,completion@2=late,completion@4=dropped";
    with_faults("faults::completions_come_twice_late_or_never", words, || {
        let mut end = End::new();
        end.connect(end.qpn);
        end.write(8, end.data.0 + 64, end.key);
        assert_eq!([end.poll().0, end.poll().0], [DONE, DONE], "twice");
        end.write(8, end.data.0 + 64, end.key);
        assert_eq!(end.poll().0, DONE, "late");
        end.write(8, end.data.0 + 64, end.key);
        assert_eq!(end.poll().0, DONE);
        end.write(8, end.data.0 + 64, end.key);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!end.has_completion(), "dropped");
        end.write(8, end.data.0 + 64, end.key);
        assert_eq!(end.poll().0, DONE);
    });
}

#[test]
fn a_removed_device_is_gone_until_it_is_opened_anew() {
    let words = "completion@2=removed";
    with_faults("faults::a_removed_device_is_gone_until_it_is_opened_anew", words, || {
        let mut end = End::new();
        let channel = event_channel(&end.context);
        let (region, _) = end.context.register(0, end.data.0, 4096, 1).unwrap();
        end.connect(end.qpn);
        for _ in 0..2 {
            end.write(8, end.data.0 + 64, end.key);
            assert_eq!(end.poll().0, DONE);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(crate::verbs::read(channel), Err(libc::EIO), "its channels have ended");
        let registered = || end.context.register(0, end.data.0, 4096, 1);
        assert_eq!(registered(), Err(libc::EIO));
        let destroyed = || call(end.context.0, 7, 1, &mut [Attribute::Handle(0, region)]);
        assert_eq!([destroyed(), destroyed()], [Ok(0), Err(libc::ENOENT)], "once");
        end.write(8, end.data.0 + 64, end.key);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!end.has_completion());
        let mut other = End::new();
        other.connect(other.qpn);
        other.write(8, other.data.0 + 64, other.key);
        assert_eq!(other.poll().0, DONE);
    });
}

#[test]
fn without_a_plan_nothing_fails() {
    preloaded("faults::without_a_plan_nothing_fails", || {
        let mut end = End::new();
        end.connect(end.qpn);
        end.write(8, end.data.0 + 64, end.key);
        assert_eq!(end.poll().0, DONE);
    });
}
