//! What is fuzzed, by name: the one list, for the program that libFuzzer drives and for `cargo xtask fuzz`, which starts it.

/// What executions are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Of the library.
    Core,
    /// Of what its tests stand on.
    Bench,
    /// Of the stand-in for the kernel.
    StandIn,
}

/// Something to fuzz.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// What is fuzzed, in words.
    pub what: &'static str,
    /// What its executions count for.
    pub part: Part,
    /// The longest input, in bytes.
    pub longest: usize,
}

/// All targets.
pub static ALL: [Target; 8] = [
    Target {
        name: "inspect",
        what: "rings and completion entries back in words",
        part: Part::Core,
        longest: 1024,
    },
    Target {
        name: "completions",
        what: "completion queues that another thread writes",
        part: Part::Core,
        longest: 256,
    },
    Target { name: "replies", what: "commands: replies, mailboxes", part: Part::Core, longest: 4352 },
    Target {
        name: "command-queue",
        what: "the command queue of a hostile device",
        part: Part::Core,
        longest: 4352,
    },
    Target {
        name: "calls",
        what: "sequences of calls against a naive model",
        part: Part::Core,
        longest: 1024,
    },
    Target {
        name: "device",
        what: "the software device: rings, contexts, BSFs, messages",
        part: Part::Bench,
        longest: 4096,
    },
    Target {
        name: "parsers",
        what: "vectors, recordings, boards.toml, runners' protocol, hex dumps, fault plans, options",
        part: Part::Bench,
        longest: 16384,
    },
    Target {
        name: "standin",
        what: "the stand-in's ioctl and write interface",
        part: Part::StandIn,
        longest: 2048,
    },
];
