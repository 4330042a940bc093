//! Tests of the files by which programs find the device, and of the messages without a device.
#![allow(unsafe_code)]

use crate::verbs::{Attribute, Context, Pages, call, command, in_child, write_command};
use mlx5_testing::preload::{DIRECTORY, Side::Inside, built, preloaded, prepared};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CLASS: &str = "/sys/class/infiniband";
const DEVICE: &CStr = c"/dev/infiniband/uverbs0";
const PORT: &CStr = c"/sys/class/infiniband/mlx5_0/ports/1/state";
const NOWHERE: &CStr = c"/sys/class/infiniband/mlx5_1";

/// Calls all functions that return 0 if a file exists. Returns the name and the result of each. A function of
/// older C libraries can only be found by its name.
fn looks(path: &CStr) -> Vec<(&'static str, c_int)> {
    // SAFETY: the C library declares the function with this signature.
    unsafe extern "C" {
        fn euidaccess(path: *const c_char, mode: c_int) -> c_int;
    }
    type Old = unsafe extern "C" fn(c_int, *const c_char, *mut c_void) -> c_int;
    let (path, mut room) = (path.as_ptr(), [0_u64; 64]);
    let out = room.as_mut_ptr();
    // SAFETY: `path` is a string, and `room` is larger than each result. Both live until the calls are over.
    // The old function has the arguments of `Old`, with 1 for the version on 64-bit machines.
    unsafe {
        let old = libc::dlsym(libc::RTLD_DEFAULT, c"__xstat".as_ptr());
        assert!(!old.is_null());
        let old = std::mem::transmute::<*mut c_void, Old>(old);
        vec![
            ("access", libc::access(path, libc::R_OK)),
            ("eaccess", libc::eaccess(path, libc::R_OK)),
            ("euidaccess", euidaccess(path, libc::R_OK)),
            ("faccessat", libc::faccessat(libc::AT_FDCWD, path, libc::R_OK, 0)),
            ("stat", libc::stat(path, out.cast())),
            ("stat64", libc::stat64(path, out.cast())),
            ("lstat", libc::lstat(path, out.cast())),
            ("fstatat", libc::fstatat(libc::AT_FDCWD, path, out.cast(), 0)),
            ("statx", libc::statx(libc::AT_FDCWD, path, 0, libc::STATX_BASIC_STATS, out.cast())),
            (
                "__xstat",
                if cfg!(target_arch = "x86_64") {
                    old(1, path, out.cast())
                } else {
                    old(0, path, out.cast())
                },
            ),
        ]
    }
}

#[test]
fn the_device_is_among_files_whichever_way_one_looks() {
    let Inside = preloaded() else { return };
    for (path, outcome) in [(DEVICE, 0), (PORT, 0), (NOWHERE, -1), (c"/dev/infiniband/uverbs1", -1)] {
        for (function, found) in looks(path) {
            assert_eq!(found, outcome, "{function} {}", path.to_string_lossy());
        }
    }
    assert!(fs::metadata("/dev/infiniband/uverbs0").unwrap().file_type().is_char_device());
    let listed = |path: &str| -> Vec<String> {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect()
    };
    assert_eq!(
        (listed(CLASS), listed("/sys/class/infiniband/")),
        (vec!["mlx5_0".into()], vec!["mlx5_0".into()])
    );
    assert!(listed("/sys/class/infiniband_verbs").contains(&"uverbs0".into()));
    assert_eq!(scanned(c"/sys/class/infiniband"), 3, "with itself and its parent");
    assert_eq!(read(PORT), "4: ACTIVE\n");
    assert_eq!(fs::read_to_string(PORT.to_str().unwrap()).unwrap(), "4: ACTIVE\n");
}

/// Returns the number of entries that `scandir` finds.
fn scanned(path: &CStr) -> c_int {
    // SAFETY: the C library declares the function like this, with function pointers that are null here.
    unsafe extern "C" {
        fn scandir(
            path: *const c_char,
            list: *mut *mut c_void,
            select: *const c_void,
            order: *const c_void,
        ) -> c_int;
    }
    let mut list = std::ptr::null_mut();
    // SAFETY: the path is a string, and the list's place lives until the call is over. Nothing is selected or
    // sorted. The list is never freed.
    unsafe { scandir(path.as_ptr(), &raw mut list, std::ptr::null(), std::ptr::null()) }
}

/// Returns the content of a file, read as a stream.
fn read(path: &CStr) -> String {
    let mut line = [0_u8; 64];
    // SAFETY: both arguments are strings. The stream is closed once, and the line's buffer has the given
    // length.
    let length = unsafe {
        let stream = libc::fopen(path.as_ptr(), c"r".as_ptr());
        assert!(!stream.is_null());
        let length = libc::fread(line.as_mut_ptr().cast(), 1, line.len(), stream);
        libc::fclose(stream);
        length
    };
    String::from_utf8(line[..length].to_vec()).unwrap()
}

/// Paths may be relative to an open directory above the device's directories, and to the working directory.
#[test]
fn the_device_is_below_directories_that_are_open() {
    let Inside = preloaded() else { return };
    let whole = fs::read_to_string(PORT.to_str().unwrap()).unwrap();
    let read = |directory: c_int, path: &CStr| {
        let mut bytes = [0_u8; 64];
        // SAFETY: the path is a string, and the bytes have the given length. The file is closed once.
        let length = unsafe {
            let file = libc::openat(directory, path.as_ptr(), libc::O_RDONLY);
            let length = libc::read(file, bytes.as_mut_ptr().cast(), bytes.len());
            libc::close(file);
            length
        };
        String::from_utf8(bytes[..usize::try_from(length).unwrap_or(0)].to_vec()).unwrap()
    };
    let state = c"infiniband/mlx5_0/ports/1/state";
    let sys = File::open("/sys").unwrap();
    assert_eq!(read(sys.as_raw_fd(), c"class/infiniband/mlx5_0/ports/1/state"), whole);
    assert_eq!(read(sys.as_raw_fd(), c"./class/infiniband/mlx5_0/ports/1/state"), whole);
    let class = File::open("/sys/class").unwrap();
    assert_eq!(read(class.as_raw_fd(), state), whole);
    let own = File::open(CLASS).unwrap();
    assert_eq!(read(own.as_raw_fd(), c"mlx5_0/ports/1/state"), whole);
    std::env::set_current_dir("/sys/class").unwrap();
    assert_eq!(read(libc::AT_FDCWD, state), whole);
    assert_eq!(fs::read_to_string(state.to_str().unwrap()).unwrap(), whole);
    std::env::set_current_dir("/dev").unwrap();
    assert!(fs::metadata("infiniband/uverbs0").unwrap().file_type().is_char_device());
    std::env::set_current_dir("/").unwrap();
    assert_eq!(read(libc::AT_FDCWD, state), "", "another directory");
}

/// The resolved link of the device is two directories below the PCI function, where UCX looks for it.
#[test]
fn the_link_of_the_device_leads_into_its_pci_function() {
    let Inside = preloaded() else { return };
    let link = fs::read_link("/sys/class/infiniband/mlx5_0").unwrap();
    assert!(link.ends_with("0000:c1:00.0/infiniband/mlx5_0"), "{}", link.display());
    let real = fs::canonicalize("/sys/class/infiniband/mlx5_0").unwrap();
    let function = real.ancestors().nth(2).unwrap();
    assert_eq!(fs::read_to_string(function.join("vendor")).unwrap(), "0x15b3\n");
    let again = fs::canonicalize("/sys/class/infiniband/mlx5_0/device").unwrap();
    assert_eq!(again, function);
}

/// Returns the path of the file that receives this program's standard error.
fn said() -> PathBuf {
    Path::new(&std::env::var_os(DIRECTORY).unwrap()).join("said")
}

#[test]
fn what_is_not_there_is_named_once() {
    let prepare = |command: &mut Command, directory: &Path| {
        command.stderr(File::create(directory.join("said")).unwrap());
    };
    let Inside = prepared(prepare) else { return };
    let (context, page) = (Context::new(), Pages::new(4096));
    let pd = context.pd();
    assert_eq!(fs::read_to_string(said()).unwrap(), "", "nothing for what is there");
    for _ in 0..2 {
        for number in [30, 37] {
            assert_eq!(command(context.0, number, &[0; 24], &mut [0; 8], &mut []), Err(libc::EOPNOTSUPP));
        }
        assert_eq!(context.register(pd, page.0, 4096, 1 << 6), Err(libc::EOPNOTSUPP));
        let (flow, memory) = ((9, 1), (14, 0));
        for (object, method) in [flow, memory] {
            assert_eq!(call(context.0, object, method, &mut []), Err(libc::EPROTONOSUPPORT));
        }
        for (kind, driver_flags) in [(8, 0), (0xff, 1_u32 << 4)] {
            assert_eq!(queue_pair(&context, kind, driver_flags), Err(libc::EOPNOTSUPP));
        }
    }
    ask_for_an_infiniband_address();
    // The child uses its parent's device, like a daemon that opens the device before it forks.
    assert!(in_child(|| {
        (0..2).all(|_| call(context.0, 0x10, 0, &mut [Attribute::New(0)]) == Err(libc::EIO))
    }));
    let (mut unknown, mut output) = ([0; 16], [0; 16]);
    unknown[..2].copy_from_slice(&[0x07, 0x55]);
    assert_eq!(context.other(&unknown, &mut output), Err(libc::EINVAL));
    assert_eq!(context.other(&unknown, &mut output), Err(libc::EINVAL));
    let said = fs::read_to_string(said()).unwrap();
    let (said, last) = said.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(last, "mlx5-uverbs: Linux lets the command 0x755 through to no device in this way");
    let names: Vec<_> = said
        .lines()
        .map(|line| line.strip_prefix("mlx5-uverbs: ").unwrap().split(" is not there: ").next())
        .collect();
    let expected = ["multicast", "XRC", "ODP", "steering", "device memory", "raw packets", "DC", "AF_IB"];
    assert_eq!(names, expected.into_iter().chain(["forked devices"]).map(Some).collect::<Vec<_>>());
}

/// Binds an `rdma_cm_id` to an address of InfiniBand by BIND_IP (2). At its start, librdmacm tries the family
/// by BIND (20), which must not be reported.
fn ask_for_an_infiniband_address() {
    let file = OpenOptions::new().read(true).write(true).open("/dev/infiniband/rdma_cm").unwrap();
    let said_so_far = fs::read_to_string(said()).unwrap();
    for (number, told) in [(20_u32, false), (2, true), (2, true)] {
        let mut bytes = [&number.to_ne_bytes()[..], &136_u16.to_ne_bytes(), &[0; 2 + 8]].concat();
        bytes.extend([27, 0]);
        bytes.resize(8 + 136, 0);
        assert_eq!(write_command(file.as_raw_fd(), &bytes), Err(libc::EAFNOSUPPORT));
        assert_eq!(fs::read_to_string(said()).unwrap() != said_so_far, told);
    }
}

/// Tests a daemon: a process opens the device and exits, and its child continues. The child gets a message
/// why the device does not work, and can open a device of its own.
#[test]
fn a_child_whose_parent_has_exited_is_told() {
    let prepare = |command: &mut Command, directory: &Path| {
        command.stderr(File::create(directory.join("said")).unwrap());
    };
    let Inside = prepared(prepare) else { return };
    let (mut ends, mut answers) = ([0; 2], [0_u8; 1]);
    // SAFETY: `ends` has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    assert!(in_child(|| {
        let context = Context::new();
        let parent = std::process::id();
        // SAFETY: the child only runs the code below, and ends without returning.
        if unsafe { libc::fork() } == 0 {
            while std::os::unix::process::parent_id() == parent {
                std::thread::yield_now();
            }
            let refused =
                (0..2).all(|_| call(context.0, 0x10, 0, &mut [Attribute::New(0)]) == Err(libc::EIO));
            let own = Context::new().pd() != u32::MAX;
            // SAFETY: one byte that lives until the call is over; then the process ends at once.
            unsafe {
                libc::write(ends[1], [u8::from(refused && own)].as_ptr().cast(), 1);
                libc::_exit(0);
            }
        }
        true
    }));
    // SAFETY: the array has room for one byte.
    assert_eq!(unsafe { libc::read(ends[0], answers.as_mut_ptr().cast(), 1) }, 1);
    assert_eq!(answers, [1]);
    let said = fs::read_to_string(said()).unwrap();
    let told = "mlx5-uverbs: forked devices is not there: a device that the parent opened answers EIO";
    assert!(said.starts_with(told) && said.lines().count() == 1, "{said}");
}

/// Requests a queue pair of a kind (`enum ib_uverbs_qp_type`).
fn queue_pair(context: &Context, kind: u64, driver_flags: u32) -> Result<u32, i32> {
    let mut driver = [0; 56];
    driver[28..32].copy_from_slice(&driver_flags.to_ne_bytes());
    let mut room = ([0; 20], [0; 4]);
    let mut attributes = [
        Attribute::New(0),
        Attribute::Number(7, 0),
        Attribute::In(8, &[0; 20]),
        Attribute::Number(9, kind),
        Attribute::Out(13, &mut room.0),
        Attribute::Out(14, &mut room.1),
        Attribute::In(0x1000, &driver),
    ];
    call(context.0, 4, 0, &mut attributes)
}

/// Runs a program that lists the devices, with the library preloaded. The library writes its files below
/// `directory`.
fn listing(directory: &Path) -> Output {
    let library = built().join("libmlx5_uverbs.so");
    let mut command = Command::new("ls");
    command.args([CLASS, CLASS]).env("LD_PRELOAD", library).env(DIRECTORY, directory);
    command.output().unwrap()
}

#[test]
fn why_there_is_no_device_is_said_once() {
    let own = tempfile::tempdir().unwrap();
    let own = own.path();
    assert!(listing(own).stderr.is_empty());
    fs::write(own.join("file"), "").unwrap();
    let too_long = own.join("x".repeat(120));
    for (place, why) in
        [(own.join("file/below"), "cannot be used: "), (too_long, "is too long: sockets in it")]
    {
        let output = listing(&place);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.matches("mlx5-uverbs: ").count(), 1, "{said}");
        assert!(said.contains(&place.display().to_string()) && said.contains(why), "{said}");
        assert!(!output.status.success());
    }
    // A program that never looks for a device gets no message.
    let mut other = Command::new("ls");
    other
        .arg("/")
        .env("LD_PRELOAD", built().join("libmlx5_uverbs.so"))
        .env(DIRECTORY, own.join("file/below"));
    assert!(other.output().unwrap().stderr.is_empty());
}
