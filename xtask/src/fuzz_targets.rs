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

const fn target(part: Part, name: &'static str, longest: usize, what: &'static str) -> Target {
    Target { name, what, part, longest }
}

use Part::{Bench, Core, StandIn};

/// All targets.
pub static ALL: [Target; 12] = [
    target(Core, "inspect", 1024, "the decoder of rings and completion entries"),
    target(Core, "completions", 256, "completion queues in memory that another thread writes"),
    target(Core, "replies", 4352, "replies and mailboxes of commands"),
    target(Core, "command-queue", 4352, "the command queue of a hostile device"),
    target(Core, "calls", 1024, "sequences of calls, compared with a simple model"),
    target(Bench, "device", 4096, "the software device: rings, contexts, BSFs, messages"),
    target(Bench, "function", 4096, "the PCI function: BAR 0, configuration space, commands, DMA"),
    target(Bench, "fabric", 1024, "the gateway of the fabric, with a hostile member"),
    target(Bench, "rings", 1024, "rings between processes, with a hostile process"),
    target(
        Bench,
        "parsers",
        16384,
        "vectors, recordings, boards.toml, runners' protocol, hex dumps, fault plans, options",
    ),
    target(StandIn, "standin", 2048, "the stand-in's ioctl and write interface"),
    target(StandIn, "rdma-cm", 1024, "commands to the rdma_cm file"),
];
