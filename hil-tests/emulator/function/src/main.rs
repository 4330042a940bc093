//! Serves the PCI function over a socket: the program behind `cargo xtask function`.

use mlx5_function::{Function, Model, Network, Repeats, check_places, json, serve, words};
use mlx5_plan::Plan;
use mlx5_record::context;
use mlx5_softdev::{CryptoMode, DeviceProfile, Port};
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
cargo xtask function --socket PATH [--device NAME] [--port NAME] [--crypto KIND]
                     [--signatures none] [--fabric DIR [--pcap FILE]] [--log]
                     [--log-json FILE] [--faults WORDS] [--times FILE]

Serves the software device as a PCI function over vfio-user, to one client after the other.
QEMU 10.1 and later takes it, with guest memory of `memory-backend-memfd,share=on`:
  -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"PATH\"}}'

  --socket PATH         where clients meet it; a socket that is there already is replaced
  --device NAME         bluefield2, bluefield3 (the default), connectx6dx or connectx7; the last two
                        have no requests that copy memory, and the AES-XTS engine of bluefield2 and
                        connectx6dx takes single data units
  --port NAME           ethernet (the default) or infiniband
  --crypto none         without AES-XTS; plaintext (the default) takes keys as they are
  --signatures none     does not announce block signatures, hence Linux uses none
  --fabric DIR          joins the emulated devices of a directory: other functions, and programs
                        under cargo xtask emulate --dir DIR; the port is Ethernet
  --pcap FILE           writes to FILE, for Wireshark, all packets from and to other ports: frames
                        of the network interface, and messages of queue pairs (RoCE)
  --log                 prints commands, requests and completions, to standard error
  --log-json FILE       appends to FILE a line of JSON for each of them: time, words, bytes, and the
                        cause of a failure; cargo xtask decode reads it
  --faults WORDS        has the device fail on purpose, in the words of cargo xtask emulate --help:
                        call (a command) and end (of an object): status:N, unheard, and call: late;
                        completion and signature: late, twice, dropped, stranger, overrun; all:
                        removed (reads return ones), fatal (until the function is reset)
  --times FILE          writes to FILE how many send doorbells came, and the time from the arrival
                        of each at the function to the end of its execution
";

/// The GID of the function's port, unless the function joins a network: link-local, with an interface
/// identifier that no NVIDIA device has.
const GID: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0xff, 0xfe, 0, 0, 1];

struct Options {
    socket: PathBuf,
    model: Model,
    profile: DeviceProfile,
    log: bool,
    log_json: Option<PathBuf>,
    faults: Option<Plan>,
    times: Option<PathBuf>,
    network: Option<Network>,
}

fn options() -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::*;
    let (mut socket, mut log, mut log_json, mut faults, mut times) = (None, false, None, None, None);
    let (mut model, mut profile) =
        (Model::default(), DeviceProfile { port_gid: GID, ..DeviceProfile::default() });
    let (mut fabric, mut pcap): (Option<PathBuf>, Option<PathBuf>) = (None, None);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("help") | Short('h') => return Ok(None),
            Long("socket") => socket = Some(PathBuf::from(arguments.value()?)),
            Long("device") => {
                let name = arguments.value()?.string()?;
                model = Model::named(&name).ok_or_else(|| format!("there is no device `{name}`"))?;
            }
            Long("port") => {
                profile.port = match arguments.value()?.string()?.as_str() {
                    "ethernet" => Port::Ethernet,
                    "infiniband" => Port::InfiniBand,
                    name => return Err(format!("there is no port of `{name}`").into()),
                };
            }
            Long("crypto") => {
                profile.crypto = match arguments.value()?.string()?.as_str() {
                    "none" => CryptoMode::None,
                    "plaintext" => CryptoMode::Plaintext,
                    name => return Err(format!("keys are not imported by `{name}`").into()),
                };
            }
            Long("signatures") => {
                profile.signatures = match arguments.value()?.string()?.as_str() {
                    "none" => false,
                    name => return Err(format!("there are no signatures of `{name}`").into()),
                };
            }
            Long("fabric") => fabric = Some(arguments.value()?.into()),
            Long("pcap") => pcap = Some(arguments.value()?.into()),
            Long("log") => log = true,
            Long("log-json") => log_json = Some(PathBuf::from(arguments.value()?)),
            Long("faults") => {
                let plan = Plan::parse(&arguments.value()?.string()?)?;
                check_places(&plan)?;
                faults = Some(plan);
            }
            Long("times") => times = Some(PathBuf::from(arguments.value()?)),
            other => return Err(other.unexpected()),
        }
    }
    let socket = socket.ok_or("--socket is missing")?;
    let mut network = fabric.map(|directory| Network::join(&directory)).transpose()?;
    if let Some(path) = &pcap {
        let network = network.as_mut().ok_or("--pcap needs --fabric")?;
        network.capture(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(network) = &network {
        if profile.port != Port::Ethernet {
            return Err("--fabric needs the Ethernet port".into());
        }
        profile.port_gid = network.gid();
    }
    let profile = model.profile(profile);
    Ok(Some(Options { socket, model, profile, log, log_json, faults, times, network }))
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<(), String> {
    let lost = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = match &options.log_json {
        Some(path) => {
            let opened = File::options().append(true).create(true).open(path);
            Some(opened.map_err(|error| lost(path, error))?)
        }
        None => None,
    };
    // An earlier process may have left its socket, with which `bind` would fail.
    let _ = std::fs::remove_file(&options.socket);
    let listener = UnixListener::bind(&options.socket).map_err(|error| lost(&options.socket, error))?;
    let mut function = Function::new(options.model, options.profile);
    if let Some(network) = options.network {
        function.join(network);
    }
    if let Some(plan) = options.faults {
        function.plan(plan, |fault| eprintln!("{fault}"));
    }
    if let Some(path) = &options.times {
        function.time_doorbells(File::create(path).map_err(|error| lost(path, error))?);
    }
    let start = Instant::now();
    let device = function.device_mut();
    device.set_clock(move || start.elapsed().as_nanos() as u64);
    if options.log || file.is_some() {
        let context = context(device.profile());
        let mut repeats = Repeats::default();
        device.set_tap(move |seen| {
            let line = words(seen, context).filter(|_| options.log);
            if let Some(text) = line.and_then(|line| repeats.join(line)) {
                eprintln!("{text}");
            }
            // A line that cannot be written, for example to a full disk, is lost.
            if let Some(file) = &mut file
                && let Some(line) = json(seen, context)
            {
                let _ = file.write_all(line.as_bytes());
            }
        });
    }
    serve(&listener, &mut function).map_err(|error| lost(&options.socket, error))
}
