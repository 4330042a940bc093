//! The list of fuzz targets, for `cargo xtask fuzz` and for the program that contains them.

/// The part of the project that a target tests. Calls are counted for each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The library.
    Core,
    /// Code that tests the library: the software device, its PCI function and its network, and the parsers.
    Bench,
    /// The stand-in for the kernel.
    StandIn,
}

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The target's name on the command line.
    pub name: &'static str,
    /// A description of the code under test, for the list of targets.
    pub what: &'static str,
    /// The part that the target belongs to.
    pub part: Part,
    /// The longest input, in bytes.
    pub longest: usize,
}

/// All targets.
pub static ALL: [Target; 12] = [
    Target {
        name: "inspect",
        what: "the decoder of rings and completion entries",
        part: Part::Core,
        longest: 1024,
    },
    Target {
        name: "completions",
        what: "completion queues in memory that another thread writes",
        part: Part::Core,
        longest: 256,
    },
    Target { name: "replies", what: "replies and mailboxes of commands", part: Part::Core, longest: 4352 },
    Target {
        name: "command-queue",
        what: "the command queue of a hostile device",
        part: Part::Core,
        longest: 4352,
    },
    Target {
        name: "calls",
        what: "sequences of calls, compared with a simple model",
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
        name: "function",
        what: "the PCI function: BAR 0, configuration space, commands, DMA",
        part: Part::Bench,
        longest: 4096,
    },
    Target {
        name: "fabric",
        what: "the gateway of the fabric, with a hostile member",
        part: Part::Bench,
        longest: 1024,
    },
    Target {
        name: "rings",
        what: "rings between processes, with a hostile process",
        part: Part::Bench,
        longest: 1024,
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
    Target { name: "rdma-cm", what: "commands to the rdma_cm file", part: Part::StandIn, longest: 1024 },
];
