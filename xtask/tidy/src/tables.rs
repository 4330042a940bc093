//! Tables for the rules of `cargo xtask tidy`: imports between modules, words that only some files may
//! contain, and the names in the top folder.

/// Modules, and the modules of their crate that each of them may import, with spaces between the names.
pub(crate) type Row = (&'static str, &'static str);

/// For each crate, its root file and the modules that the root declares, lowest first. A module that imports
/// another one that is not listed for it breaks the rule.
pub(crate) const FLOWS: &[(&str, &[Row])] = &[
    (
        "src/lib.rs",
        &[
            ("types fmt guide", ""),
            ("wire", "fmt types"),
            ("mkey", "types wire"),
            ("wqe", "types wire mkey"),
            ("queue", "fmt types wire mkey wqe"),
            ("inspect command", "fmt types wire mkey"),
            ("hca", "fmt types wire queue command"),
            ("error", "types mkey wqe queue command hca"),
            ("devx", "types wire mkey wqe queue command"),
            ("capi", "types wire mkey wqe queue inspect command devx"),
        ],
    ),
    ("hil-tests/benches/src/lib.rs", &[("publish", ""), ("copy floor ours", "publish")]),
    (
        "hil-tests/emulator/device/src/lib.rs",
        &[
            ("clock faults gids interface_state memory profile refusal signature ruling wiped", ""),
            ("bus", "memory"),
            ("crypto", "wiped"),
            ("capabilities", "profile"),
            ("datagram", "gids profile refusal"),
            ("message", "refusal datagram"),
            ("object", "crypto faults ruling wiped message"),
            ("outbound", "message"),
            ("tap", "refusal message object"),
            ("fetch", "memory refusal datagram message object"),
            ("translate", "faults refusal object"),
            ("transfer", "refusal signature"),
            ("cqe", "refusal signature transfer"),
            ("gate", "refusal ruling cqe"),
            ("transaction", "refusal signature transfer"),
            ("pipeline", "crypto faults profile refusal signature transfer transaction"),
            ("transform", "faults profile refusal signature object transfer transaction pipeline"),
            (
                "data_path",
                "faults memory profile refusal object fetch translate transfer transaction pipeline \
                 transform",
            ),
            (
                "device",
                "gids clock faults interface_state memory profile bus capabilities message object \
                 outbound tap gate",
            ),
            ("completion", "clock memory refusal ruling object tap cqe gate data_path device"),
            (
                "execute",
                "faults memory profile refusal ruling datagram message object tap fetch translate \
                 data_path device",
            ),
            ("factory", "crypto memory device"),
            ("keys", "faults memory profile object device"),
            ("commands", "interface_state profile wiped object device keys"),
            (
                "interface",
                "interface_state memory profile wiped commands data_path translate capabilities cqe gate \
                 gids object outbound tap device keys",
            ),
            ("queue_pair", "memory message object device"),
            ("receive", "memory refusal ruling object fetch device"),
            ("region", "memory object device"),
            ("respond", "faults memory profile refusal message object translate cqe data_path device"),
            ("run", "memory message object tap device"),
            ("unreliable", "memory refusal datagram message object fetch device execute"),
        ],
    ),
    ("hil-tests/emulator/fabric/src/lib.rs", &[("frame secret", ""), ("node", "frame secret")]),
    (
        "hil-tests/emulator/faults/src/lib.rs",
        &[
            ("kinds", ""),
            ("incident status", "kinds"),
            ("word", "kinds incident status"),
            ("rule", "kinds incident word"),
            ("emulator", "rule"),
            ("visits", "incident status word rule"),
        ],
    ),
    (
        "hil-tests/emulator/function/src/lib.rs",
        &[
            ("config memory message words times", ""),
            ("json", "words"),
            ("planned network", "memory"),
            ("function", "config memory network planned times"),
            ("server", "memory message function"),
        ],
    ),
    ("hil-tests/emulator/plan/src/lib.rs", &[("call", ""), ("plan", "call"), ("passage", "plan")]),
    ("hil-tests/emulator/record/src/lib.rs", &[("capture queue", ""), ("line words", "queue")]),
    ("hil-tests/emulator/testing/src/lib.rs", &[("host loopback preload secrets", "")]),
    (
        "hil-tests/emulator/verbs/src/lib.rs",
        &[
            ("ground", ""),
            ("fabric", "ground"),
            ("state", "ground fabric"),
            ("command", "ground fabric state"),
            ("process", "ground fabric state command"),
        ],
    ),
    (
        "hil-tests/firmware/src/lib.rs",
        &[
            ("bench boot exception memory paging", ""),
            ("mmu", "memory paging"),
            ("provoke", "memory"),
            ("image", "bench exception memory mmu provoke"),
        ],
    ),
    (
        "hil-tests/fuzz/src/lib.rs",
        &[
            ("fault input memory", ""),
            ("fabric rings", "input"),
            ("completions", "input memory"),
            ("parsers", "fault"),
            ("values", "input"),
            ("calls", "input memory values"),
            ("command_queue device", "input memory values"),
            ("function inspect replies", "input values"),
        ],
    ),
    (
        "hil-tests/scenarios/src/lib.rs",
        &[
            ("doorbell expected protocol request way", ""),
            ("board options", "way"),
            ("assumption history qp_pair", "board"),
            ("scenarios", "way expected board assumption qp_pair"),
            ("cases", "way protocol board history qp_pair scenarios"),
        ],
    ),
    (
        "hil-tests/src/lib.rs",
        &[("board compile_fail differential model vectors", ""), ("demo", "board"), ("recording", "vectors")],
    ),
    (
        "xtask/artefacts/src/main.rs",
        &[
            ("barriers glibc reach reached size emulated", ""),
            ("files", "glibc"),
            ("packages", "files"),
            ("dist", "emulated files glibc packages"),
            ("panics", "reach"),
            ("planted", "reached"),
        ],
    ),
    (
        "xtask/boards/src/main.rs",
        &[
            ("labgrid machine", ""),
            ("vdpu guest", "machine"),
            ("hil", "guest labgrid machine vdpu"),
            ("lab", "labgrid vdpu"),
        ],
    ),
    ("xtask/capi/src/main.rs", &[("header", ""), ("abi library", "header"), ("test", "abi header library")]),
    ("xtask/device/src/main.rs", &[("decode demo dpdk vectors", "")]),
    ("xtask/firmware/src/main.rs", &[("image", ""), ("check template", "image")]),
    (
        "xtask/mutants/src/main.rs",
        &[
            ("mutant", ""),
            ("results schema stages", "mutant"),
            ("kept", "mutant results"),
            ("tree", "mutant results schema"),
            ("judge", "tree"),
            ("known", "mutant stages tree judge"),
        ],
    ),
    (
        "xtask/parsers/src/lib.rs",
        &[
            ("digits error limits", ""),
            ("boards", "limits"),
            ("log_json row", "digits"),
            ("rows", "digits error row"),
            ("hex", "digits error log_json row rows"),
        ],
    ),
    (
        "xtask/src/lib.rs",
        &[
            ("fuzz_targets html run", ""),
            ("debian host tools", "run"),
            ("emulate", "run debian host"),
            ("toolchain", "run debian"),
            ("build", "run host toolchain"),
            ("qemu_user", "debian toolchain build"),
        ],
    ),
    (
        "xtask/src/main.rs",
        &[
            ("audit differential empty_machine fuzz outcome package peer sanitize storage", ""),
            ("bench", "outcome peer"),
            ("chaos", "storage"),
            ("versions", "package"),
            ("test", "differential fuzz outcome package peer sanitize storage bench chaos versions"),
        ],
    ),
    ("xtask/tidy/src/main.rs", &[("source tables width", ""), ("examples formats modules", "source")]),
];

/// Words that only some files may contain.
pub(crate) struct Words {
    pub(crate) words: &'static [&'static str],
    /// The files that may contain the words. A name that ends with `/` means all files of a folder.
    pub(crate) files: &'static [&'static str],
    /// The text of the violation in another file.
    pub(crate) fault: &'static str,
}

pub(crate) const WORDS: &[Words] = &[
    // The compiler refuses `unsafe` where no attribute of the file or of a module above it names this lint.
    // Files that may contain these words access memory and registers that a device shares, have barriers or
    // interfaces to C, or are bare-metal programs.
    Words {
        words: &["unsafe_code", "unsafe {", "unsafe impl ", "unsafe extern \"C\" {", "#[unsafe("],
        files: &[
            "hil-tests/benches/src/bin/bench/counter.rs",
            "hil-tests/benches/src/bin/bench/devx.rs",
            "hil-tests/benches/src/bin/bench/libmlx5.rs",
            "hil-tests/benches/src/copy.rs",
            "hil-tests/benches/src/floor.rs",
            "hil-tests/benches/src/publish.rs",
            "hil-tests/copies/src/main.rs",
            "hil-tests/emulator/faults/src/emulator.rs",
            "hil-tests/emulator/function/src/memory.rs",
            "hil-tests/emulator/function/tests/client/lent.rs",
            "hil-tests/emulator/peers/src/copy.rs",
            "hil-tests/emulator/peers/src/ring.rs",
            "hil-tests/emulator/verbs/src/ground/allocator.rs",
            "hil-tests/emulator/verbs/src/ground/direct.rs",
            "hil-tests/emulator/verbs/src/ground/sys.rs",
            "hil-tests/emulator/verbs/src/ground/window.rs",
            "hil-tests/emulator/verbs/src/process/fuzz.rs",
            "hil-tests/emulator/verbs/src/process/interpose/",
            "hil-tests/emulator/verbs/src/process/life.rs",
            "hil-tests/emulator/verbs/src/process/probe.rs",
            "hil-tests/emulator/verbs/tests/devx/bare.rs",
            "hil-tests/emulator/verbs/tests/devx/dmabuf.rs",
            "hil-tests/emulator/verbs/tests/devx/keeping.rs",
            "hil-tests/emulator/verbs/tests/devx/umem.rs",
            "hil-tests/emulator/verbs/tests/devx/verbs.rs",
            "hil-tests/emulator/verbs/tests/devx/verbs_qp.rs",
            "hil-tests/emulator/verbs/tests/preloaded/paths.rs",
            "hil-tests/emulator/verbs/tests/preloaded/signals.rs",
            "hil-tests/emulator/verbs/tests/preloaded/verbs.rs",
            "hil-tests/examples/async_completions.rs",
            "hil-tests/examples/firmware-template/src/clock.rs",
            "hil-tests/examples/firmware-template/src/log.rs",
            "hil-tests/examples/firmware-template/src/main.rs",
            "hil-tests/examples/firmware-template/src/memory.rs",
            "hil-tests/examples/minimal/src/main.rs",
            "hil-tests/examples/nvme_target/cm.rs",
            "hil-tests/firmware/src/bench.rs",
            "hil-tests/firmware/src/boot.rs",
            "hil-tests/firmware/src/memory.rs",
            "hil-tests/firmware/src/mmu.rs",
            "hil-tests/firmware/src/provoke.rs",
            "hil-tests/freestanding/src/commands.rs",
            "hil-tests/freestanding/src/foreign.rs",
            "hil-tests/freestanding/src/lib.rs",
            "hil-tests/fuzz/src/coverage.rs",
            "hil-tests/fuzz/src/main.rs",
            "hil-tests/fuzz/src/memory.rs",
            "hil-tests/fuzz/tests/exhaustive.rs",
            "hil-tests/libmlx5/src/completions.rs",
            "hil-tests/libmlx5/src/lib.rs",
            "hil-tests/peer/sideway/adopted.rs",
            "hil-tests/scenarios/src/board/bare.rs",
            "hil-tests/scenarios/src/board/end.rs",
            "hil-tests/scenarios/src/board/host_memory.rs",
            "hil-tests/scenarios/src/board/softdev.rs",
            "hil-tests/src/board/commands.rs",
            "hil-tests/src/board/devx.rs",
            "hil-tests/src/differential/ffi.rs",
            "hil-tests/src/vectors/blue_flame.rs",
            "src/capi/",
            "src/devx/adopt.rs",
            "src/devx/buffer.rs",
            "src/devx/cq.rs",
            "src/devx/execute.rs",
            "src/devx/memory_region.rs",
            "src/devx/mod.rs",
            "src/devx/protection_domain.rs",
            "src/devx/queue_pair.rs",
            "src/devx/sys/",
            "src/devx/umem.rs",
            "src/hca/registers.rs",
            "src/queue/barrier.rs",
            "src/queue/completion_queue/tests/events.rs",
            "src/queue/registers.rs",
            "src/queue/registers/tests.rs",
            "src/queue/ring.rs",
            "src/queue/send_ring.rs",
            "xtask/parsers/tests/linear.rs",
        ],
        fault: "unsafe is not allowed here",
    },
    Words {
        words: &["#[path"],
        // The examples are programs, and this file tests them.
        files: &["hil-tests/tests/examples.rs"],
        fault: "packages share code by libraries, not by #[path]",
    },
    // The name of a folder for temporary files that others can predict may belong to another user.
    Words {
        words: &["temp_dir()", "/tmp/"],
        // Programs of one user share a folder; the programs refuse a folder of another user.
        files: &["hil-tests/emulator/peers/src/place.rs"],
        fault: "a predictable folder for temporary files; use tempfile",
    },
];

/// The names that the top folder of the repository may contain. Names that begin with a dot are not checked.
pub(crate) const TOP: &[&str] = &[
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "hil-tests",
    "linker",
    "rustfmt.toml",
    "src",
    "target",
    "targets",
    "xtask",
];
