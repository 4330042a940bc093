//! Tests of deliberate faults, as a program sees them.

use crate::verbs::{Attribute, Context, End, Pages, call, command, open};
use crate::{DONE, REQUEST_FAILED, connected, event_channel, hear, pair, say};
use mlx5_faults::{Incident, Rule, emulator};
use mlx5_testing::preload::{
    Side::{self, Inside},
    built, preloaded_with, prepared,
};
use std::path::Path;
use std::process::Command;

/// Runs the calling test in a separate program whose device follows the plan of faults in `words`.
fn with_faults(words: &str) -> Side {
    preloaded_with(&[("MLX5_UVERBS_FAULTS", words)])
}

#[test]
fn words_that_are_no_faults_are_no_device() {
    let Inside = with_faults("call@1=tea") else { return };
    assert_eq!(open(), Err(libc::EINVAL));
}

#[test]
fn calls_fail_as_the_plan_says() {
    // The plan comes into force when the device's file is opened, so GET_CONTEXT of `Context::new` is the
    // first counted call.
    let words = "call@2=EINTR,call@4=unheard,call@5=status:9,end@1=EBUSY";
    let Inside = with_faults(words) else { return };
    let context = Context::new();
    let page = Pages::new(4096);
    let pd = || command(context.0, 3, &[0; 8], &mut [0; 4], &mut [0; 4]);
    assert_eq!([pd().map(drop), pd().map(drop)], [Err(libc::EINTR), Ok(())]);
    let register = || context.register(0, page.0, 4096, 1);
    assert_eq!(register().map(drop), Err(libc::ETIMEDOUT));
    assert_eq!(register().map(drop), Err(libc::EREMOTEIO));
    let (mr, _) = register().unwrap();
    let destroy = || context.destroy(7, 1, mr);
    assert_eq!([destroy(), destroy()], [Err(libc::EBUSY), Ok(())]);
}

#[test]
fn completions_come_twice_late_or_never() {
    let words = "completion@1=twice,completion@2=late,completion@4=dropped";
    let Inside = with_faults(words) else { return };
    let mut end = End::loopback();
    end.write(8, end.data.0 + 64, end.key);
    assert_eq!([end.poll().0, end.poll().0], [DONE, DONE], "twice");
    assert_eq!(end.write_once(), DONE, "late");
    assert_eq!(end.write_once(), DONE);
    end.write(8, end.data.0 + 64, end.key);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!end.has_completion(), "dropped");
    assert_eq!(end.write_once(), DONE);
}

#[test]
fn a_removed_device_is_gone_until_it_is_opened_anew() {
    let Inside = with_faults("completion@2=removed") else { return };
    let mut end = End::new();
    let channel = event_channel(&end.context);
    let (region, _) = end.context.register(0, end.data.0, 4096, 1).unwrap();
    end.connect(end.qpn);
    assert_eq!([end.write_once(), end.write_once()], [DONE; 2]);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(crate::verbs::read(channel), Err(libc::EIO), "its channels have ended");
    let registered = || end.context.register(0, end.data.0, 4096, 1);
    assert_eq!(registered(), Err(libc::EIO));
    let destroyed = || end.context.destroy(7, 1, region);
    assert_eq!([destroyed(), destroyed()], [Ok(()), Err(libc::ENOENT)], "once");
    end.write(8, end.data.0 + 64, end.key);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!end.has_completion());
    let mut other = End::loopback();
    assert_eq!(other.write_once(), DONE);
}

#[test]
fn a_file_has_the_words_of_a_plan() {
    let prepare = |command: &mut Command, directory: &Path| {
        let file = directory.join("faults");
        std::fs::write(&file, "# The first protection domain is refused.\ncall:ALLOC_PD@1=ENOMEM\n").unwrap();
        command.env("MLX5_UVERBS_FAULTS", format!("@{}", file.display()));
    };
    let Inside = prepared(prepare) else { return };
    let context = Context::new();
    let pd = || command(context.0, 3, &[0; 8], &mut [0; 4], &mut [0; 4]).map(drop);
    assert_eq!([pd(), pd()], [Err(libc::ENOMEM), Ok(())]);
}

#[test]
fn a_port_is_down_when_the_device_is_opened() {
    let Inside = with_faults("now=port-down") else { return };
    let context = Context::new();
    let state = || {
        let mut port = [0; 48];
        call(context.0, 0, 2, &mut [Attribute::Number(0, 1), Attribute::Out(1, &mut port)]).unwrap();
        port[26]
    };
    assert_eq!(state(), 1, "down");
    emulator::add(&[Rule::Now(Incident::PortUp)]).unwrap();
    assert_eq!(state(), 4, "active");
}

#[test]
fn the_peer_of_a_port_that_is_down_is_unreachable() {
    let Some(role) = pair() else { return };
    let (mut end, rkey, address) = connected();
    if role == "first" {
        end.write_and_succeed(5, address, rkey);
        say("go");
        assert_eq!(hear(), "down");
        end.write(5, address, rkey);
        assert_eq!(end.poll(), (REQUEST_FAILED, 0x15));
        say("done");
    } else {
        assert_eq!(hear(), "go");
        emulator::add(&[Rule::Now(Incident::PortDown)]).unwrap();
        say("down");
        assert_eq!(hear(), "done");
    }
}

/// The C program `failures.c` checks all failures of `mlx5_faults.h`, and the results of the header's
/// functions without an emulator. The header also compiles as C++.
#[test]
fn c_programs_see_each_failure() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_there = |path: &str| Path::new(path).exists();
    if !is_there("/usr/bin/g++") || !is_there("/usr/include/infiniband/verbs.h") {
        println!("SKIPPED: g++ or the headers of libibverbs are missing");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("failures");
    let compile = |compiler: &str, language: &[&str], more: &[&str]| {
        let mut command = Command::new(compiler);
        command.args(language).args(["-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]).arg("-I");
        command.arg(root.join("../faults/include")).args(more).arg("-o").arg(&program);
        assert!(command.status().unwrap().success(), "{compiler}");
    };
    let header = folder.path().join("header.cc");
    std::fs::write(&header, "#include <mlx5_faults.h>\nint main() { return mlx5_faults_is_emulated(); }\n")
        .unwrap();
    compile("g++", &["-std=c++11", "-pedantic"], &[&header.display().to_string()]);
    assert!(Command::new(&program).status().unwrap().success());
    let source = root.join("tests/failures.c").display().to_string();
    compile("gcc", &["-std=c11", "-pedantic"], &[&source, "-libverbs"]);
    let run = |more: &dyn Fn(&mut Command)| {
        let mut command = Command::new(&program);
        more(&mut command);
        assert!(command.status().unwrap().success());
    };
    run(&|command| _ = command.arg("absent"));
    run(&|command| {
        command.env("LD_PRELOAD", built().join("libmlx5_uverbs.so")).env("MLX5_UVERBS_DIR", folder.path());
        command.env("MLX5_UVERBS_NETDEV", "lo");
    });
}
