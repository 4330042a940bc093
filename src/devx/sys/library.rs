//! Loads libibverbs and libmlx5 and looks up their functions.

#![allow(unsafe_code)]

use super::super::abi::{
    ClockInfoRaw, CommandChannelRaw, ContextAttr, DevxObj, DevxUar, DevxUmem, DevxUmemIn, EventChannelRaw,
    IbvAh, IbvAhAttr, IbvContext, IbvDevice, IbvMr, IbvPd, IbvPortAttr, IbvQp, IbvQpAttr, Mlx5dvContext,
    Mlx5dvObj,
};
use crate::devx::error::{DevxError, LibraryError};
use core::ffi::{c_char, c_int, c_void};
use core::mem::ManuallyDrop;
use std::string::ToString;
use std::sync::OnceLock;

/// The first version of rdma-core that has all functions which this library requires.
const VERSION: u8 = 25;

/// Looks up a function that rdma-core has since the version `version`.
///
/// # Safety
/// The caller ensures that `F` is the type of the function.
unsafe fn find<F: Copy>(
    library: &libloading::Library,
    file: &'static str,
    name: &'static str,
    version: u8,
) -> Result<F, LibraryError> {
    // SAFETY: the caller ensures that `F` is the type of the function.
    match unsafe { library.get(name.as_bytes()) } {
        Ok(function) => Ok(*function),
        Err(error) => Err(LibraryError::outdated(file, name, version, &error.to_string())),
    }
}

/// Declares the functions to look up in each library. A function that is marked `[since version]` may be
/// missing: then only its callers fail.
macro_rules! api {
    ($($library:ident = $file:literal {
        $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)+
        $([since $version:literal] $later:ident: fn($($later_argument:ty),*) -> $later_result:ty;)*
    })+) => {
        pub(super) struct Api {
            $($(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+)+
            $($(
                pub(super) $later:
                    Result<unsafe extern "C" fn($($later_argument),*) -> $later_result, LibraryError>,
            )*)+
            // The libraries are never unloaded, because threads and exit handlers of libibverbs may still run
            // its code.
            _libraries: ManuallyDrop<[libloading::Library; 2]>,
        }

        impl Api {
            fn load() -> Result<Self, LibraryError> {
                $(
                    // SAFETY: loading runs the constructors of the library; both libraries are written to be
                    // loaded by programs.
                    let $library = unsafe { libloading::Library::new($file) }
                        .map_err(|error| LibraryError::missing($file, &error.to_string()))?;
                )+
                Ok(Self {
                    // SAFETY: the signatures are those of the library's public header. They are the same in
                    // all versions of the library with this shared object name (`.so.1`).
                    $($($name: unsafe { find(&$library, $file, stringify!($name), VERSION)? },)+)+
                    // SAFETY: the signatures are those of the library's public header.
                    $($($later: unsafe { find(&$library, $file, stringify!($later), $version) },)*)+
                    _libraries: ManuallyDrop::new([$($library),+]),
                })
            }
        }
    };
}

api! {
    verbs = "libibverbs.so.1" {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut IbvDevice;
        ibv_free_device_list: fn(*mut *mut IbvDevice);
        ibv_get_device_name: fn(*mut IbvDevice) -> *const c_char;
        ibv_close_device: fn(*mut IbvContext) -> c_int;
        ibv_query_port: fn(*mut IbvContext, u8, *mut IbvPortAttr) -> c_int;
        ibv_query_gid: fn(*mut IbvContext, u8, c_int, *mut [u8; 16]) -> c_int;
        ibv_create_ah: fn(*mut IbvPd, *mut IbvAhAttr) -> *mut IbvAh;
        ibv_destroy_ah: fn(*mut IbvAh) -> c_int;
        ibv_alloc_pd: fn(*mut IbvContext) -> *mut IbvPd;
        ibv_dealloc_pd: fn(*mut IbvPd) -> c_int;
        ibv_reg_mr: fn(*mut IbvPd, *mut c_void, usize, c_int) -> *mut IbvMr;
        ibv_dereg_mr: fn(*mut IbvMr) -> c_int;
        ibv_modify_qp: fn(*mut IbvQp, *mut IbvQpAttr, c_int) -> c_int;
        [since 34] ibv_reg_dmabuf_mr: fn(*mut IbvPd, u64, usize, u64, c_int, c_int) -> *mut IbvMr;
    }
    mlx5 = "libmlx5.so.1" {
        mlx5dv_is_supported: fn(*mut IbvDevice) -> bool;
        mlx5dv_open_device: fn(*mut IbvDevice, *mut ContextAttr) -> *mut IbvContext;
        mlx5dv_query_device: fn(*mut IbvContext, *mut Mlx5dvContext) -> c_int;
        mlx5dv_get_clock_info: fn(*mut IbvContext, *mut ClockInfoRaw) -> c_int;
        mlx5dv_init_obj: fn(*mut Mlx5dvObj, u64) -> c_int;
        mlx5dv_devx_general_cmd: fn(*mut IbvContext, *const c_void, usize, *mut c_void, usize) -> c_int;
        mlx5dv_devx_obj_create: fn(*mut IbvContext, *const c_void, usize, *mut c_void, usize) -> *mut DevxObj;
        mlx5dv_devx_obj_query: fn(*mut DevxObj, *const c_void, usize, *mut c_void, usize) -> c_int;
        mlx5dv_devx_obj_modify: fn(*mut DevxObj, *const c_void, usize, *mut c_void, usize) -> c_int;
        mlx5dv_devx_obj_destroy: fn(*mut DevxObj) -> c_int;
        mlx5dv_devx_qp_query: fn(*mut IbvQp, *const c_void, usize, *mut c_void, usize) -> c_int;
        mlx5dv_devx_qp_modify: fn(*mut IbvQp, *const c_void, usize, *mut c_void, usize) -> c_int;
        mlx5dv_devx_umem_reg: fn(*mut IbvContext, *mut c_void, usize, u32) -> *mut DevxUmem;
        mlx5dv_devx_umem_dereg: fn(*mut DevxUmem) -> c_int;
        mlx5dv_devx_alloc_uar: fn(*mut IbvContext, u32) -> *mut DevxUar;
        mlx5dv_devx_free_uar: fn(*mut DevxUar);
        mlx5dv_devx_query_eqn: fn(*mut IbvContext, u32, *mut u32) -> c_int;
        mlx5dv_devx_create_event_channel: fn(*mut IbvContext, c_int) -> *mut EventChannelRaw;
        mlx5dv_devx_destroy_event_channel: fn(*mut EventChannelRaw);
        mlx5dv_devx_subscribe_devx_event:
            fn(*mut EventChannelRaw, *mut DevxObj, u16, *const u16, u64) -> c_int;
        mlx5dv_devx_get_event: fn(*mut EventChannelRaw, *mut c_void, usize) -> isize;
        mlx5dv_devx_create_cmd_comp: fn(*mut IbvContext) -> *mut CommandChannelRaw;
        mlx5dv_devx_destroy_cmd_comp: fn(*mut CommandChannelRaw);
        mlx5dv_devx_obj_query_async:
            fn(*mut DevxObj, *const c_void, usize, usize, u64, *mut CommandChannelRaw) -> c_int;
        mlx5dv_devx_get_async_cmd_comp: fn(*mut CommandChannelRaw, *mut c_void, usize) -> c_int;
        [since 35] mlx5dv_devx_umem_reg_ex: fn(*mut IbvContext, *mut DevxUmemIn) -> *mut DevxUmem;
    }
}

pub(super) fn api() -> Result<&'static Api, DevxError> {
    static API: OnceLock<Result<Api, LibraryError>> = OnceLock::new();
    API.get_or_init(Api::load).as_ref().map_err(|error| DevxError::Library(error.clone()))
}
