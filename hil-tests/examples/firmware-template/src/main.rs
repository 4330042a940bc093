//! The firmware image: start-up code, log, clock, and the service, whose memory the linker script sets aside.
//!
//! In this template the queue pair exists in memory only: QEMU's machine `virt` has no mlx5 device. On a
//! board, the guide's steps 1 and 2 (`guide::bare_metal`) create mkey and queue pair before `Service::new`,
//! and `DOORBELL` is the register at `UarDoorbell::OFFSET` of a mapped UAR page.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![allow(unsafe_code)]

#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod clock;
#[cfg(target_os = "none")]
mod log;
#[cfg(target_os = "none")]
mod memory;

#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
use program::start;

#[cfg(target_os = "none")]
mod program {
    use crate::{clock::GenericTimer, memory};
    use core::ptr::NonNull;
    use firmware::{OwnMemory, Service};
    use mlx5_mkey::inspect::{DeviceContext, Requests};
    use mlx5_mkey::mkey::{KlmEntry, Mkey};
    use mlx5_mkey::queue::UarDoorbell;
    use mlx5_mkey::types::{Key, Qpn};
    use mlx5_mkey::wqe::Remote;
    use spin::Mutex;

    /// Stands for the doorbell register, which is in a UAR page of a real device.
    static mut DOORBELL: u64 = 0;

    /// The first Rust function. The start-up code has set up the stack, address translation and caches.
    pub(crate) extern "C" fn start() -> ! {
        match run() {
            Ok(()) => defmt::info!("done"),
            Err(reason) => defmt::error!("{=str}", reason),
        }
        power_off()
    }

    fn run() -> Result<(), &'static str> {
        let device = memory::for_device().ok_or("the memory of the device is taken")?;
        let mut own = OwnMemory::default();
        let register = NonNull::new(&raw mut DOORBELL).ok_or("no doorbell")?;
        // SAFETY: the word is 8-byte aligned, lives forever, and nobody else writes it. No device executes
        // the requests. For the register of a board, the documentation of `UarDoorbell::new` lists the
        // conditions.
        let doorbell = unsafe { UarDoorbell::new(register) };
        let (qpn, mkey) = (Qpn::new(0x77).map_err(|_| "number")?, Mkey::plain(Key::from_raw(0x1234_00), 4));
        let service = Service::new(qpn, device, &mut own, doorbell, mkey).map_err(|error| {
            defmt::error!("{}", error);
            "no service"
        })?;
        // The mutex shows how interrupt handlers and other cores would share the queue.
        let service = Mutex::new(service);
        let piece = |address| KlmEntry { address, length: 64, key: Key::from_raw(0x5600) };
        let remote = Remote { address: 0x7000, rkey: Key::from_raw(0x5700) };
        service.lock().write(1, &[piece(0x1000), piece(0x9000)], remote).map_err(|error| {
            defmt::error!("{}", error);
            "refused"
        })?;
        show(&service.lock());
        match service.lock().finish(&mut GenericTimer) {
            Ok(completion) => defmt::info!("completion: {}", completion),
            Err(error) => defmt::info!("no completion: {} (this machine has no device)", error),
        }
        Ok(())
    }

    /// Logs the posted requests in words.
    fn show(service: &Service<'_, UarDoorbell>) {
        let mut bytes = [[0; 64]; firmware::BLOCKS];
        let posted = (service.posted() as usize).min(firmware::BLOCKS);
        for (index, block) in bytes.iter_mut().enumerate().take(posted) {
            *block = service.block(index as u32).0;
        }
        for (_, request) in Requests::new(bytes.as_flattened().get(..posted * 64).unwrap_or_default()) {
            defmt::info!("{}", defmt::Display2Format(&request.summary(DeviceContext::UNKNOWN)));
        }
    }

    /// Switches the machine off: calls SYSTEM_OFF of PSCI, which QEMU and the firmware of most boards
    /// support.
    fn power_off() -> ! {
        // SAFETY: the call does not return, so its effects on registers and memory do not matter.
        unsafe { core::arch::asm!("hvc #0", in("x0") 0x8400_0008_u64, options(nostack)) };
        loop {
            core::hint::spin_loop();
        }
    }

    #[panic_handler]
    fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
        defmt::error!("{}", defmt::Display2Format(info));
        power_off()
    }

    /// Logs an exception, then switches the machine off. The exception vectors call this function, with the
    /// number of the vector, the cause (ESR_EL1), the address of the instruction (ELR_EL1) and the address
    /// that it accessed (FAR_EL1).
    pub(crate) extern "C" fn exception(vector: u64, cause: u64, program: u64, address: u64) -> ! {
        defmt::error!(
            "exception {=u64}: ESR_EL1 {=u64:#x}, ELR_EL1 {=u64:#x}, FAR_EL1 {=u64:#x}",
            vector,
            cause,
            program,
            address
        );
        power_off()
    }
}

#[cfg(target_os = "none")]
use program::exception;
