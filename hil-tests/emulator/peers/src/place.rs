//! The directory in which processes meet. A slot is the place of one process: the files `slot-N` of a lock, a
//! socket, and two lists, of addresses and of services.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The most processes that share one directory.
pub const SLOTS: u32 = 256;

/// The file that a process keeps locked as long as it has the slot.
pub const LOCK: &str = "lock";
/// The socket at which a slot's process listens.
pub const SOCKET: &str = "socket";
/// The file that shows that the slot's process takes messages by rings.
pub const RINGS: &str = "rings";
/// The addresses of the process's port.
pub const ADDRESSES: &str = "addresses";
/// The services that the process listens for.
pub const SERVICES: &str = "services";

/// The file that a gateway (`mlx5-fabric`) keeps locked as long as it serves the directory.
pub const GATEWAY: &str = "fabric.lock";

/// The environment variable that names the directory.
pub const VARIABLE: &str = "MLX5_UVERBS_DIR";

/// The most bytes that are read of a list of addresses or services.
const LONGEST_LIST: u64 = 1 << 16;

/// The longest name of a socket, in bytes (`sun_path` without its zero).
const SOCKET_NAME: usize = 107;

/// Mode bits that let group and others write.
const OTHERS_WRITE: u32 = 0o022;

/// Returns the directory that the environment names. If it names none, each user has one directory.
pub fn of_environment() -> PathBuf {
    match std::env::var_os(VARIABLE) {
        Some(directory) if !directory.is_empty() => directory.into(),
        _ => std::env::temp_dir().join(format!("mlx5-uverbs-{}", rustix::process::geteuid().as_raw())),
    }
}

/// Makes the directory in which devices meet, for this user alone, and its parent directories.
///
/// # Errors
/// A sentence for the user that says why the directory cannot be used.
pub fn prepare(directory: &Path) -> Result<(), String> {
    let (shown, longest) = (directory.display(), file(directory, SLOTS - 1, SOCKET).as_os_str().len());
    if longest > SOCKET_NAME {
        return Err(format!(
            "the path {shown} is too long: sockets in it have names of up to {longest} bytes, and no more \
             than {SOCKET_NAME} can be had (--dir PATH)"
        ));
    }
    private_directory(directory)
        .map_err(|error| format!("the directory {shown} cannot be used: {error} (--dir PATH)"))
}

fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let metadata = fs::symlink_metadata(path)?;
    let refused = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        refused("it is someone else's")
    } else if metadata.mode() & OTHERS_WRITE != 0 {
        refused("others may write to it")
    } else {
        Ok(())
    }
}

/// Returns the path of a file of a slot.
pub fn file(directory: &Path, slot: u32, kind: &str) -> PathBuf {
    directory.join(format!("slot-{slot}.{kind}"))
}

/// Makes a file, and locks it. Returns `None` if another process has locked it.
///
/// # Errors
/// The system's error, if the file cannot be made.
pub fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    Ok(file.try_lock().is_ok().then_some(file))
}

/// Makes the socket of a slot. The last process of this slot may have left its socket behind.
///
/// # Errors
/// The system's error.
pub fn listen(directory: &Path, slot: u32) -> io::Result<UnixListener> {
    let socket = file(directory, slot, SOCKET);
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(socket)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to the socket of a slot, and never waits for the slot's process. The returned stream does not
/// block.
///
/// # Errors
/// The system's error. `EAGAIN` if the process accepts no connections at the moment.
pub fn connect(directory: &Path, slot: u32) -> rustix::io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(file(directory, slot, SOCKET))?)?;
    Ok(stream.into())
}

/// Returns a list of a slot, unless its file is missing.
pub fn list(directory: &Path, slot: u32, kind: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file(directory, slot, kind)).ok()?.take(LONGEST_LIST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Replaces a list of a slot. A failure is ignored. Without the list, other processes do not find the slot's
/// process.
pub fn replace(directory: &Path, slot: u32, kind: &str, list: impl AsRef<[u8]>) {
    let draft = directory.join(format!("draft-{slot}.{kind}"));
    let _ = fs::write(&draft, list).and_then(|()| fs::rename(&draft, file(directory, slot, kind)));
}
