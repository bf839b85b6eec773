//! [`Symbols`]: those functions of a GPU driver's library that have the same form for all vendors, under different
//! names ([`Names`]). [`crate::own_functions`] declares the functions that a vendor's crate has in another form.
//!
//! Results are plain integers, because a newer library may return codes that are in no enumeration here. Each
//! parameter has a named type where the vendors' headers have one, so that declarations can be checked against the
//! headers with [`Names::signatures`].

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;

/// A device by its number.
pub type RawDevice = c_int;
/// A stream.
pub type RawStream = *mut c_void;
/// An event.
pub type RawEvent = *mut c_void;
/// A module.
pub type RawModule = *mut c_void;
/// A function of a module.
pub type RawFunction = *mut c_void;
/// A graph that some library has described.
pub type RawGraphHandle = *mut c_void;
/// A graph that is ready to be launched.
pub type RawGraphExec = *mut c_void;
/// A memory pool.
pub type RawPool = *mut c_void;
/// An address in the device's memory.
pub type Address = u64;
/// Memory of the host that is only read.
pub type Source = *const c_void;
/// Device attributes.
pub type DeviceAttribute = c_int;
/// Function attributes.
pub type FunctionAttribute = c_int;
/// Memory pool attributes.
pub type PoolAttribute = c_int;
/// Capture modes.
pub type CaptureMode = c_int;
/// Whether a stream is captured.
pub type CaptureStatus = c_int;
/// Options of the driver's assembler.
pub type JitOption = c_int;

/// Flags and attributes that all vendors share.
pub mod number {
    #![allow(missing_docs)]
    pub const FUNCTION_MAX_THREADS_PER_BLOCK: i32 = 0;
    pub const FUNCTION_LOCAL_SIZE_BYTES: i32 = 3;
    pub const STREAM_DEFAULT: u32 = 0;
    pub const STREAM_NON_BLOCKING: u32 = 1;
    pub const EVENT_DEFAULT: u32 = 0;
    pub const EVENT_DISABLE_TIMING: u32 = 2;
    pub const HOST_PORTABLE: u32 = 1;
    pub const HOST_DEVICE_MAPPED: u32 = 2;
    pub const CAPTURE_MODE_RELAXED: i32 = 2;
    pub const POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES: i32 = 3;
    pub const POOL_RELEASE_THRESHOLD: i32 = 4;
    pub const JIT_INFO_LOG_BUFFER: i32 = 3;
    pub const JIT_INFO_LOG_BUFFER_SIZE: i32 = 4;
    pub const JIT_ERROR_LOG_BUFFER: i32 = 5;
    pub const JIT_ERROR_LOG_BUFFER_SIZE: i32 = 6;
}

/// Codes that all vendors share.
pub mod code {
    #![allow(missing_docs)]
    pub const SUCCESS: i32 = 0;
    pub const OUT_OF_MEMORY: i32 = 2;
    pub const NO_DEVICE: i32 = 100;
    pub const NOT_READY: i32 = 600;
    pub const TOO_MANY_RESIDENT_BLOCKS: i32 = 720;
}

/// The properties of a new memory pool.
#[repr(C)]
#[derive(Debug)]
pub struct PoolProperties {
    /// 1: memory that is not migrated.
    pub allocation: c_uint,
    /// 0: not to be shared with other processes.
    pub handles: c_uint,
    /// 1: on a device.
    pub location: c_uint,
    /// Its number.
    pub device: c_int,
    /// For Windows.
    pub security: *mut c_void,
    /// Maximum size, 0 for the driver's limit; then reserved fields.
    pub rest: [u64; 8],
}

const _: () = assert!(size_of::<PoolProperties>() == 88);

/// How a device may access the memory of a pool.
#[repr(C)]
#[derive(Debug)]
pub struct PoolAccess {
    /// 1: a device.
    pub location: c_uint,
    /// Its number.
    pub device: c_int,
    /// 3: read and write.
    pub flags: c_uint,
}

/// A function as declared, with types as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// The exported name.
    pub symbol: &'static str,
    /// Types of the parameters.
    pub parameters: &'static [&'static str],
    /// Type of the result.
    pub result: &'static str,
}

impl Signature {
    /// A function whose result is a code.
    pub const fn new(symbol: &'static str, parameters: &'static [&'static str]) -> Signature {
        Signature { symbol, parameters, result: "c_int" }
    }
}

macro_rules! functions {
    (
        required { $($(#[$doc:meta])* $name:ident($($arg:ty),*);)* }
        optional { $($(#[$odoc:meta])* $oname:ident($($oarg:ty),*);)* }
    ) => {
        /// The library's functions.
        #[derive(Debug)]
        pub struct Symbols {
            $($(#[$doc])* pub $name: unsafe extern "C" fn($($arg),*) -> c_int,)*
            $($(#[$odoc])* pub $oname: Option<unsafe extern "C" fn($($oarg),*) -> c_int>,)*
        }

        /// The exported name of each function.
        #[derive(Debug, Clone)]
        #[allow(missing_docs)]
        pub struct Names {
            $(pub $name: &'static str,)*
            $(pub $oname: &'static str,)*
        }

        impl Names {
            /// All functions as declared, required ones first.
            pub fn signatures(&self) -> Vec<Signature> {
                vec![
                    $(Signature::new(self.$name, &[$(stringify!($arg)),*]),)*
                    $(Signature::new(self.$oname, &[$(stringify!($oarg)),*]),)*
                ]
            }
        }

        #[cfg(test)]
        impl Symbols {
            /// Functions that do nothing and return what `outcome` says of their name.
            pub fn that_return(outcome: fn(&str) -> c_int) -> Symbols {
                thread_local! {
                    static OUTCOME: std::cell::Cell<fn(&str) -> c_int> = const { std::cell::Cell::new(|_| 0) };
                }
                OUTCOME.set(outcome);
                Symbols {
                    $($name: {
                        unsafe extern "C" fn stand_in($(_: $arg),*) -> c_int { OUTCOME.get()(stringify!($name)) }
                        stand_in
                    },)*
                    $($oname: {
                        unsafe extern "C" fn stand_in($(_: $oarg),*) -> c_int { OUTCOME.get()(stringify!($oname)) }
                        Some(stand_in)
                    },)*
                }
            }
        }

        #[cfg(test)]
        impl Names {
            /// Each function under the name of its field.
            pub const OF_FIELDS: Names =
                Names { $($name: stringify!($name),)* $($oname: stringify!($oname),)* };
        }

        impl Symbols {
            /// Looks all functions up. The error is the name of one that is missing.
            ///
            /// # Safety
            /// The names are those of the library's functions of these types, and it stays loaded as long as the
            /// functions are used.
            pub unsafe fn find(library: &Library, names: &Names) -> Result<Symbols, &'static str> {
                // SAFETY: the contract above.
                unsafe {
                    Ok(Symbols {
                        $($name: *library.get(names.$name).map_err(|_| names.$name)?,)*
                        $($oname: library.get(names.$oname).ok().map(|f| *f),)*
                    })
                }
            }
        }
    };
}

functions! {
    required {
        /// Starts the library.
        init(c_uint);
        /// The version that the driver supports.
        driver_version(*mut c_int);
        /// Number of devices.
        device_count(*mut c_int);
        /// A device by its ordinal.
        device_get(*mut RawDevice, c_int);
        /// A device's name.
        device_name(*mut c_char, c_int, RawDevice);
        /// A device's attribute.
        device_attribute(*mut c_int, DeviceAttribute, RawDevice);
        /// A device's memory.
        device_memory(*mut usize, RawDevice);
        /// Waits for everything on the thread's device.
        synchronize_all();
        /// Range of priorities.
        priority_range(*mut c_int, *mut c_int);
        /// Free and total memory.
        memory_info(*mut usize, *mut usize);
        /// Memory, synchronously.
        allocate(*mut Address, usize);
        /// Gives it back.
        free(Address);
        /// Pinned memory.
        host_allocate(*mut *mut c_void, usize, c_uint);
        /// Gives it back.
        host_free(*mut c_void);
        /// Sets bytes.
        memset(Address, u8, usize, RawStream);
        /// Sets groups of two bytes.
        memset16(Address, u16, usize, RawStream);
        /// Sets groups of four bytes.
        memset32(Address, c_int, usize, RawStream);
        /// Host to device.
        copy_to_device(Address, Source, usize, RawStream);
        /// Device to host.
        copy_to_host(*mut c_void, Address, usize, RawStream);
        /// Device to device.
        copy_on_device(Address, Address, usize, RawStream);
        /// A new stream.
        stream_create(*mut RawStream, c_uint, c_int);
        /// Gives it back.
        stream_destroy(RawStream);
        /// Waits for a stream.
        stream_synchronize(RawStream);
        /// Whether its work is done.
        stream_query(RawStream);
        /// Makes it wait for an event.
        stream_wait(RawStream, RawEvent, c_uint);
        /// Whether it is being captured.
        stream_capturing(RawStream, *mut CaptureStatus);
        /// Exchanges the thread's capture mode.
        capture_mode(*mut CaptureMode);
        /// A new event.
        event_create(*mut RawEvent, c_uint);
        /// Gives it back.
        event_destroy(RawEvent);
        /// Records it.
        event_record(RawEvent, RawStream);
        /// Waits for it.
        event_synchronize(RawEvent);
        /// Whether it is done.
        event_query(RawEvent);
        /// Time between two.
        event_elapsed(*mut f32, RawEvent, RawEvent);
        /// Loads code.
        module_load(*mut RawModule, *const c_void, c_uint, *mut JitOption, *mut *mut c_void);
        /// Unloads it.
        module_unload(RawModule);
        /// A function by its name.
        module_function(*mut RawFunction, RawModule, *const c_char);
        /// A function's property.
        function_attribute(*mut c_int, FunctionAttribute, RawFunction);
        /// Resident blocks per multiprocessor.
        occupancy(*mut c_int, RawFunction, c_int, usize);
        /// Launches a kernel.
        launch(
            RawFunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
            RawStream, *mut *mut c_void, *mut *mut c_void);
    }
    optional {
        /// Launches a kernel whose blocks are resident all at the same time.
        launch_resident(
            RawFunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
            RawStream, *mut *mut c_void);
        /// Creates a memory pool.
        pool_create(*mut RawPool, *const PoolProperties);
        /// Gives it back.
        pool_destroy(RawPool);
        /// Sets an attribute of a pool.
        pool_set(RawPool, PoolAttribute, *mut c_void);
        /// Releases cached memory of a pool.
        pool_trim(RawPool, usize);
        /// Lets other devices access its memory.
        pool_access(RawPool, *const PoolAccess, usize);
        /// Allocates in stream order.
        pool_allocate(*mut Address, usize, RawPool, RawStream);
        /// Gives it back.
        pool_free(Address, RawStream);
        /// Instantiates a graph.
        graph_instantiate(*mut RawGraphExec, RawGraphHandle, c_ulonglong);
        /// Launches it.
        graph_launch(RawGraphExec, RawStream);
        /// Gives it back.
        graph_exec_destroy(RawGraphExec);
        /// Records later work of a stream instead of queueing it.
        capture_begin(RawStream, CaptureMode);
        /// Ends that. Returns a graph of the work.
        capture_end(RawStream, *mut RawGraphHandle);
        /// Gives it back.
        graph_destroy(RawGraphHandle);
    }
}

/// Declares a vendor's own functions: a struct of functions that is looked up like [`Symbols`], all required.
#[macro_export]
macro_rules! own_functions {
    ($(#[$about:meta])* $own:ident {
        $($(#[$doc:meta])* $name:ident = $symbol:literal ($($arg:ty),*) $(-> $ret:ty)?;)*
    }) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $own {
            $($(#[$doc])* pub $name: unsafe extern "C" fn($($arg),*) -> $crate::own_functions!(@result $($ret)?),)*
        }

        impl $own {
            /// All functions as declared.
            pub const SIGNATURES: &'static [$crate::symbols::Signature] = &[$(
                $crate::symbols::Signature {
                    symbol: $symbol,
                    parameters: &[$(stringify!($arg)),*],
                    result: $crate::own_functions!(@result_text $($ret)?),
                },
            )*];

            /// Looks all functions up. The error is the name of one that is missing.
            ///
            /// # Safety
            /// The library is the vendor's, and stays loaded as long as the functions are used.
            pub unsafe fn find(library: &$crate::libloading::Library) -> Result<$own, &'static str> {
                // SAFETY: the contract above.
                unsafe { Ok($own { $($name: *library.get($symbol).map_err(|_| $symbol)?,)* }) }
            }
        }
    };
    (@result $ret:ty) => { $ret };
    (@result) => { std::ffi::c_int };
    (@result_text $ret:ty) => { stringify!($ret) };
    (@result_text) => { "c_int" };
}
