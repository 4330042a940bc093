//! `cargo xtask lab`: tests `cargo xtask hil` with two boards of a lab. labgrid's coordinator, which lends
//! the boards, and its exporter, which describes them, run on this machine.

use crate::labgrid;
use crate::vdpu::Machine;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use tempfile::TempDir;
use xtask::run::{At, Ends};
use xtask::{host, run};

pub(crate) const HELP: &str = "\
cargo xtask lab [--virtual-dpus]

Tests `cargo xtask hil` with boards of a lab: labgrid's coordinator and exporter run on this
machine, with two places. Boards run at the same time, with one report. More boards than places run
in turn.
A board that hangs is reset by its power. All places are given back at the end.

  --virtual-dpus        the boards are machines in QEMU (default: processes of this machine, with a
                        script instead of ssh)
  --help                print this text
";

const PLACES: [&str; 2] = ["one", "two"];
/// The filter for cases, and the case in which a board hangs.
const CASES: &str = "r012_";
const HANGS: &str = "r012_the_peer_invalidates";

/// Replaces `ssh`: runs the remote script on this machine, in a folder that is named after the user of the
/// SSH address. Each board waits until the other has started too, so the test fails if boards run one after
/// the other.
const SSH: &str = "#!/bin/sh
while [ \"$1\" != -- ]; do shift; done
place=${2%@*}
cd \"$LAB/$place\" || exit 255
case \"$3\" in *'exec '*)
    : > ../$place.runs
    for wait in $(seq 250); do [ -e ../one.runs ] && [ -e ../two.runs ] && break; sleep 0.1; done
    [ -e ../one.runs ] && [ -e ../two.runs ] || { echo 'the other board does not run' >&2; exit 1; }
esac
exec sh -c \"$3\"
";

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let tried = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Lab::of_processes(),
        ["--virtual-dpus"] => Lab::of_machines(),
        ["--help" | "-h"] => return run::print(HELP, 0),
        _ => return run::misuse(&format!("unexpected arguments\n\n{HELP}")),
    };
    run::status(tried.and_then(|lab| lab.check()))
}

/// The lab. Dropping this value ends the processes of the lab.
struct Lab {
    folder: TempDir,
    coordinator: Daemon,
    _exporter: Daemon,
    power: Power,
    /// Device and program of the boards, in the syntax of boards.toml.
    program: String,
    /// The SSH keys of each board, in the syntax of boards.toml. Empty if the boards are processes.
    keys: Vec<String>,
    /// The time limit of a case, in seconds.
    patience: u32,
}

impl Lab {
    fn of_processes() -> Result<Self, String> {
        let program = host::executes("hil")?;
        let board = format!("device = 'softdev', program = {{ file = '{}' }}", program.display());
        Self::new(Power::start(vec![])?, board, vec![], 2, |place| {
            format!("{{address: 127.0.0.1, username: {place}}}")
        })
    }

    /// Makes a lab whose boards are machines that QEMU emulates.
    fn of_machines() -> Result<Self, String> {
        let mut machines = [Machine::new(false)?, Machine::new(false)?];
        machines.iter_mut().try_for_each(Machine::start)?;
        let [ports, keys] = [
            machines.each_ref().map(|machine| machine.port().to_string()),
            machines.each_ref().map(|machine| {
                let (key, hosts) = (machine.key(), machine.known_hosts());
                format!("key = '{}', known-hosts = '{}', ", key.display(), hosts.display())
            }),
        ];
        let board = "device = 'uverbs', program = 'bluefield2'".into();
        Self::new(Power::start(machines.into())?, board, keys.into(), 30, |place| {
            let port = if place == PLACES[0] { &ports[0] } else { &ports[1] };
            format!("{{address: 127.0.0.1, username: root, port: {port}}}")
        })
    }

    fn new(
        power: Power,
        program: String,
        keys: Vec<String>,
        patience: u32,
        service: impl Fn(&str) -> String,
    ) -> Result<Self, String> {
        let folder = run::temporary("lab")?;
        let (mut places, mut resources) = (String::new(), String::new());
        for (index, name) in PLACES.iter().enumerate() {
            // This text describes a place, in labgrid's own file format. The coordinator reads the file at
            // its start.
            let _ = writeln!(
                places,
                "{name}: {{aliases: [], comment: '', tags: {{pool: here}}, created: 0.0, changed: 0.0, \
                 matches: [{{exporter: lab, group: {name}, cls: '*', name: null, rename: null}}]}}"
            );
            let _ = writeln!(
                resources,
                "{name}:\n  NetworkService: {}\n  NetworkPowerPort: {{model: simplerest, index: {index}, \
                 host: 'http://127.0.0.1:{}/{{index}}/{{value}}'}}",
                service(name),
                power.port
            );
            fs::create_dir(folder.path().join(name)).map_err(|error| error.to_string())?;
        }
        write(folder.path(), "places.yaml", &places)?;
        write(folder.path(), "resources.yaml", &resources)?;
        write(folder.path(), "ssh", SSH)?;
        let coordinator =
            Daemon::start(folder.path(), &["coordinator", "-l", "127.0.0.1:0"], "listening on ")?;
        let at = coordinator.address.as_str();
        let exporter =
            ["exporter", "--coordinator", at, "--name", "lab", "--hostname", "127.0.0.1", "resources.yaml"];
        let exporter = Daemon::start(folder.path(), &exporter, "Exporter ready")?;
        Ok(Self { folder, coordinator, _exporter: exporter, power, program, keys, patience })
    }

    fn is_of_processes(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the description of a board. If the lab has SSH keys, the description selects the place
    /// `number`, because each place has another key. Otherwise it selects any place.
    fn board(&self, name: &str, number: usize, more: &str) -> String {
        let (key, tags) = match self.keys.get(number).zip(PLACES.get(number)) {
            Some((key, place)) => (key.as_str(), format!("name = '{place}'")),
            None => ("", "pool = 'here'".into()),
        };
        let (coordinator, program, patience) = (&self.coordinator.address, &self.program, self.patience);
        format!(
            "[board.{name}]
             reach = {{ kind = 'labgrid', coordinator = '{coordinator}', tags = {{ {tags} }},
                        wait-seconds = 120, {key}{program}{more} }}
             reset = {{ kind = 'power', boot-seconds = 300 }}
             seconds = {{ start = 120, case = {patience} }}
             capabilities = ['signature', 'xts', 'xts-many']\n"
        )
    }

    fn check(&self) -> Result<(), String> {
        self.boards_at_once()?;
        self.a_board_that_hangs()?;
        println!("two boards of a lab: used at once and in turn, reset by power, given back");
        Ok(())
    }

    /// Tests that boards run at the same time, and that a board waits if all places are in use.
    fn boards_at_once(&self) -> Result<(), String> {
        let boards =
            if self.is_of_processes() { &["first", "second", "third"][..] } else { &["first", "second"] };
        let text = boards.iter().enumerate().map(|(number, name)| self.board(name, number, ""));
        let [junit, html] = ["junit.xml", "report.html"].map(|name| self.folder.path().join(name));
        let mut hil = self.hil(boards, &text.collect::<String>())?;
        hil.args(["--require-board", "--junit"]).arg(&junit).arg("--html").arg(&html);
        let out = ended(hil, 0)?;
        for name in boards {
            expect(&out, &format!("{name}: passed   {HANGS}"))?;
        }
        let [junit, html] = [junit, html].map(|file| fs::read_to_string(file).unwrap_or_default());
        for name in boards {
            expect(&junit, &format!("<testsuite name=\"{name}\""))?;
            expect(&html, &format!("<h2>{name}</h2>"))?;
        }
        for place in PLACES {
            expect(&html, &format!(" at {}: {place}</p>", self.coordinator.address))?;
        }
        self.all_is_given_back()
    }

    /// Tests a board that hangs: the lab switches its power off and on. Also tests that a board without a
    /// place runs no program.
    fn a_board_that_hangs(&self) -> Result<(), String> {
        let hangs = self.board("hangs", 0, &format!(", environment = {{ HIL_HANG = '{HANGS}' }}"));
        let nowhere = self.board("nowhere", PLACES.len(), "").replace("pool = 'here'", "pool = 'there'");
        let out = ended(self.hil(&["hangs", "nowhere"], &format!("{hangs}{nowhere}"))?, 1)?;
        let reset = format!("hangs: reset    the board hung: no event for {} s, in {HANGS}", self.patience);
        for line in [
            &reset,
            "0 failed, 0 skipped, 1 hung, 1 reset\n",
            "board nowhere: SKIPPED: no place has the tags ",
        ] {
            expect(&out, line)?;
        }
        let switched = self.power.switched();
        if !matches!(switched[..], [(off, false), (on, true)] if off == on) {
            return Err(format!("wrong use of the power switch: {switched:?}"));
        }
        self.all_is_given_back()
    }

    /// Returns a command that runs the cases on these boards. `text` is the content of boards.toml.
    fn hil(&self, boards: &[&str], text: &str) -> Result<Command, String> {
        let folder = self.folder.path();
        write(folder, "boards.toml", text)?;
        let mut hil =
            run::program(&run::itself()?.to_string_lossy(), &["hil", "--at-once", "--filter", CASES]);
        hil.arg("--boards")
            .arg(folder.join("boards.toml"))
            .args(boards.iter().flat_map(|name| ["--board", name]));
        if self.is_of_processes() {
            let path = std::env::var("PATH").unwrap_or_default();
            hil.env("LAB", folder).env("PATH", format!("{}:{path}", folder.display()));
        }
        Ok(here(hil))
    }

    fn all_is_given_back(&self) -> Result<(), String> {
        for question in [&["places", "--acquired"][..], &["reservations"]] {
            let mut client = labgrid::python()?;
            client.args(["-m", "labgrid.remote.client", "-x", &self.coordinator.address]).args(question);
            let left = run::answer(here(client))?;
            if !left.is_empty() {
                return Err(format!("not given back: {left}"));
            }
        }
        Ok(())
    }
}

/// Lets a command connect to this machine directly, without an HTTP proxy.
fn here(mut command: Command) -> Command {
    command.env("no_proxy", "127.0.0.1").env("NO_PROXY", "127.0.0.1");
    command
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let file = folder.join(name);
    let written =
        fs::write(&file, text).and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o700)));
    written.at(&file)
}

/// Runs a command and checks its exit status. Prints its output, and returns it.
fn ended(mut command: Command, status: i32) -> Result<String, String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{out}");
    if output.status.code() == Some(status) {
        Ok(out)
    } else {
        Err(format!("hil ended with {}, not {status}", output.status))
    }
}

fn expect(text: &str, part: &str) -> Result<(), String> {
    if text.contains(part) { Ok(()) } else { Err(format!("`{part}` is missing in\n{text}")) }
}

/// A process of labgrid.
struct Daemon {
    _process: Ends,
    /// The coordinator's address, from the line in which it reports that it is ready. Empty for the exporter.
    address: String,
}

impl Daemon {
    /// Starts a module of labgrid, and waits until it prints a line that begins with `ready`.
    fn start(folder: &Path, words: &[&str], ready: &str) -> Result<Self, String> {
        let (module, arguments) = words.split_first().ok_or("no module")?;
        let python = labgrid::python()?;
        // `setpriv` ends the child process even if this process is killed.
        let mut command = run::program("setpriv", &["--pdeathsig", "KILL"]);
        command.arg(python.get_program()).args(["-m", &format!("labgrid.remote.{module}")]).args(arguments);
        command.envs(python.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let log =
            fs::File::create(folder.join(module).with_extension("log")).map_err(|error| error.to_string())?;
        let mut command = here(command);
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().map_err(|error| format!("labgrid cannot be run: {error}"))?;
        let lines = BufReader::new(child.stdout.take().ok_or("labgrid has no output")?).lines();
        let mut daemon = Self { _process: Ends(child), address: String::new() };
        let mut lines = lines.map_while(Result::ok);
        let Some(address) = lines.find_map(|line| Some(line.strip_prefix(ready)?.to_owned())) else {
            let log = fs::read_to_string(folder.join(module).with_extension("log")).unwrap_or_default();
            return Err(format!("labgrid's {module} did not start: {log}"));
        };
        daemon.address = address;
        // A thread reads further output, so that the pipe does not fill up.
        thread::spawn(move || lines.for_each(drop));
        Ok(daemon)
    }
}

/// The requests to the power switch since its start: the index of the place, and whether its power was
/// switched on (`true`) or off.
type Switched = Arc<Mutex<Vec<(usize, bool)>>>;

/// A power switch with a port for each board. It answers `GET /INDEX/0` and `/1` (labgrid's model
/// `simplerest`).
struct Power {
    port: u16,
    switched: Switched,
    _machines: Arc<Vec<Mutex<Machine>>>,
}

impl Power {
    fn start(machines: Vec<Machine>) -> Result<Self, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let machines: Arc<Vec<_>> = Arc::new(machines.into_iter().map(Mutex::new).collect());
        let (switched, known) = (Switched::default(), Arc::downgrade(&machines));
        let all = switched.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // If `serve` fails, the client gets no answer, and reports the failure itself.
                let _ = serve(stream, &known, &all);
            }
        });
        Ok(Self { port, switched, _machines: machines })
    }

    fn switched(&self) -> Vec<(usize, bool)> {
        self.switched.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(stream: TcpStream, machines: &Weak<Vec<Mutex<Machine>>>, switched: &Switched) -> Option<()> {
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let request = lines.next()?;
    lines.find(|line| line.is_empty())?;
    let (index, value) = request.strip_prefix("GET /")?.split_once(' ')?.0.split_once('/')?;
    let (index, on): (usize, _) = (index.parse().ok()?, value == "1");
    switched.lock().unwrap_or_else(PoisonError::into_inner).push((index, on));
    if let Some(machine) = machines.upgrade()?.get(index) {
        let mut machine = machine.lock().unwrap_or_else(PoisonError::into_inner);
        match on {
            true => machine.start().ok()?,
            false => machine.stop(),
        }
    }
    (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok()
}
