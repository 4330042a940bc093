//! Tests that the library brings up the emulated PCI function over vfio-user. The tests run the scenarios
//! that need a bare machine. The client lends its memory to the function.

use crate::lent;
use crate::machine::{BAR, Served};
use embedded_hal::delay::DelayNs;
use hil_scenarios::board::{Bare, BareRings, Board, HostMemory, SoftBoard};
use hil_scenarios::scenarios;
use mlx5_mkey::command::UarPage;
use mlx5_mkey::hca::{CommandMemory, Register, Registers};
use mlx5_mkey::queue::{Doorbell, LastRequest};
use mlx5_softdev::{DeviceProfile, Memory};
use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use vfio_user::Client;

/// A client of the function that lends memory of this process to it.
struct FunctionBare {
    client: Rc<RefCell<Client>>,
    memory: HostMemory,
}

struct Window(Rc<RefCell<Client>>);

impl Registers for Window {
    fn read(&mut self, register: Register) -> u32 {
        let mut bytes = [0; 4];
        self.0.borrow_mut().region_read(BAR, register.offset() as u64, &mut bytes).unwrap();
        u32::from_be_bytes(bytes)
    }

    fn write(&mut self, register: Register, value: u32) {
        let offset = register.offset() as u64;
        self.0.borrow_mut().region_write(BAR, offset, &value.to_be_bytes()).unwrap();
    }
}

struct Page(Rc<RefCell<Client>>, u64);

impl Doorbell for Page {
    fn ring(&mut self, last: &LastRequest<'_>) {
        let mut client = self.0.borrow_mut();
        client.region_write(BAR, self.1 + 0x800, &last.control()).unwrap();
    }
}

struct Sleep;

impl DelayNs for Sleep {
    fn delay_ns(&mut self, time: u32) {
        std::thread::sleep(std::time::Duration::from_nanos(time.into()));
    }
}

impl Bare for FunctionBare {
    fn registers(&mut self) -> Box<dyn Registers> {
        Box::new(Window(self.client.clone()))
    }

    fn doorbell(&mut self, page: UarPage) -> Box<dyn Doorbell> {
        Box::new(Page(self.client.clone(), u64::from(page.get()) * 4096))
    }

    fn delay(&mut self) -> Box<dyn DelayNs> {
        Box::new(Sleep)
    }

    fn command_memory(&mut self) -> (&'static mut CommandMemory<16>, u64) {
        lent::command_memory(&mut self.memory)
    }

    fn rings(&mut self) -> BareRings {
        lent::rings(&mut self.memory)
    }

    fn pages(&mut self, count: u32) -> u64 {
        self.memory.alloc(count as usize * 4096)
    }

    fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read(address, &mut bytes).unwrap();
        bytes
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.memory.write(address, bytes).unwrap();
    }
}

/// Connects a client to a function, and lends memory to the function.
fn bare(socket: &Path) -> Box<dyn Bare> {
    let mut client = Client::new(socket).unwrap();
    let (file, base) = lent::file();
    client.dma_map(0, base, lent::BYTES, file.as_raw_fd()).unwrap();
    let mut command = [0; 2];
    client.region_read(7, 4, &mut command).unwrap();
    client.region_write(7, 4, &[command[0] | 4, command[1]]).unwrap();
    Box::new(FunctionBare { client: Rc::new(RefCell::new(client)), memory: lent::memory() })
}

/// Runs the scenarios that need a bare machine. The machine is a client of the function behind `socket`.
fn run(socket: PathBuf) {
    let mut ran = 0;
    for scenario in scenarios::all().filter(|scenario| scenario.needs.bare) {
        let mut board = SoftBoard::new(DeviceProfile::default());
        let socket = socket.clone();
        board.set_bare(move || bare(&socket));
        assert_eq!((scenario.name, (scenario.run)(&mut board as &mut dyn Board)), (scenario.name, Ok(())));
        ran += 1;
    }
    assert!(ran > 0, "no scenario of a bare machine");
}

#[test]
fn a_bare_machine_brings_the_function_up_with_the_library() {
    let served = Served::here(DeviceProfile::default());
    run(served.socket());
}

#[test]
#[ignore = "cargo xtask test function"]
fn a_bare_machine_brings_the_program_up_with_the_library() {
    let served = Served::program();
    run(served.socket());
}
