//! [`Library`]: a driver's library, with checked versions of those functions that need no current device. An error
//! names the call that failed, its code, and the operation.

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use octants_runtime::{DeviceError, ErrorKind, Result};

use crate::last_launches::LastLaunches;
use crate::symbols::{CaptureMode, DeviceAttribute, Names, RawDevice, RawStream, Symbols, code};
use crate::vendor::{Called, Facts, Place, Vendor};

/// A driver's functions, as used for one device.
#[derive(Debug)]
pub struct Library {
    /// Functions that need a device are called by [`crate::calls`] only.
    pub(crate) symbols: Symbols,
    pub(crate) names: &'static Names,
    pub(crate) vendor: Box<dyn Vendor>,
    /// The error that lost the device.
    lost: OnceLock<String>,
    /// The last kernels, which that error names.
    pub last: LastLaunches,
    /// Number of graphs.
    pub graphs: AtomicUsize,
}

/// Calls `$library.symbols.$name` and checks the result.
macro_rules! call {
    ($library:expr, $name:ident($($arg:expr),*), $doing:expr) => {
        // SAFETY: the contract of the function around this.
        $library.check($library.names.$name, unsafe { ($library.symbols.$name)($($arg),*) }, None, || $doing.into())
    };
    ($library:expr, $name:ident($($arg:expr),*), on $stream:expr, $doing:expr) => {
        // SAFETY: as above.
        $library.check($library.names.$name, unsafe { ($library.symbols.$name)($($arg),*) }, $stream, || $doing.into())
    };
    ($library:expr, $name:ident?($($arg:expr),*), $doing:expr) => {
        match $library.symbols.$name {
            // SAFETY: as above.
            Some(f) => $library.check($library.names.$name, unsafe { f($($arg),*) }, None, || $doing.into()),
            None => Err($library.missing($library.names.$name)),
        }
    };
}
pub(crate) use call;

impl Library {
    /// Wraps the functions.
    pub fn new(symbols: Symbols, names: &'static Names, vendor: Box<dyn Vendor>) -> Library {
        Library {
            symbols,
            names,
            vendor,
            lost: OnceLock::new(),
            last: LastLaunches::default(),
            graphs: AtomicUsize::new(0),
        }
    }

    /// Numbers and words of the vendor.
    pub fn facts(&self) -> &'static Facts {
        self.vendor.facts()
    }

    /// True after an error from which the device does not recover.
    pub fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// The vendor's name and description of a code.
    pub fn describe(&self, c: i32) -> String {
        self.vendor.describe(c)
    }

    pub(crate) fn missing(&self, name: &str) -> DeviceError {
        ErrorKind::Misuse { message: self.vendor.explain_missing(name) }.into()
    }

    #[inline]
    pub(crate) fn check(
        &self,
        call: &'static str,
        c: c_int,
        stream: Option<RawStream>,
        doing: impl FnOnce() -> String,
    ) -> Result<()> {
        if c == code::SUCCESS { Ok(()) } else { Err(self.error(call, c, stream, doing())) }
    }

    /// Checks the result of a vendor-specific function.
    #[inline]
    pub(crate) fn check_own<T>(&self, called: Called<T>, doing: &str) -> Result<T> {
        called.map_err(|(call, c)| self.error(call, c, None, doing.into()))
    }

    #[cold]
    fn error(&self, call: &'static str, c: c_int, stream: Option<RawStream>, doing: String) -> DeviceError {
        self.vendor.forget_error();
        let name = self.describe(c);
        if !self.facts().final_codes.contains(&c) {
            return ErrorKind::Call { call, code: c.into(), name, doing }.into();
        }
        if let Some(cause) = self.lost.get() {
            return ErrorKind::Lost { cause: cause.clone() }.into();
        }
        let suspects = self.last.suspects(stream).join(", ");
        let suspects = if suspects.is_empty() { String::new() } else { format!("; launched last: {suspects}") };
        let cause = format!("{call} failed with code {c} ({name}) while {doing}{suspects}");
        let _ = self.lost.set(cause);
        let doing = format!("{doing}{suspects}. The GPU is lost to this process: restart it to use the GPU again");
        ErrorKind::Call { call, code: c.into(), name, doing }.into()
    }

    /// Converts the result of a query: whether the work is done.
    pub(crate) fn is_done(&self, call: &'static str, c: c_int, stream: Option<RawStream>, what: &str) -> Result<bool> {
        if c == code::NOT_READY {
            self.vendor.forget_error();
            return Ok(false);
        }
        self.check(call, c, stream, || format!("querying whether {what} is done")).map(|()| true)
    }

    /// Initializes the library. Returns only the code: the caller words the reason.
    pub fn init(&self) -> i32 {
        // SAFETY: the flags must be zero.
        unsafe { (self.symbols.init)(0) }
    }

    /// The version that the driver supports, as the vendor writes it.
    pub fn driver_version(&self) -> Result<i32> {
        let mut version = 0;
        call!(self, driver_version(&mut version), "querying the driver version").map(|()| version)
    }

    /// How many devices there are, or the code.
    pub fn device_count(&self) -> std::result::Result<i32, i32> {
        let mut count = 0;
        // SAFETY: the pointer is to a variable.
        match unsafe { (self.symbols.device_count)(&mut count) } {
            code::SUCCESS => Ok(count),
            c => Err(c),
        }
    }

    /// A device.
    pub fn device(&self, ordinal: u32) -> Result<RawDevice> {
        let mut device = 0;
        let doing = || format!("looking for GPU {ordinal}");
        call!(self, device_get(&mut device, ordinal as c_int), doing()).map(|()| device)
    }

    /// Its name.
    pub fn device_name(&self, device: RawDevice) -> Result<String> {
        let mut name = [0u8; 128];
        call!(self, device_name(name.as_mut_ptr().cast(), 127, device), "querying the GPU's name")?;
        let text = CStr::from_bytes_until_nul(&name).map(|t| t.to_string_lossy().into_owned());
        Ok(text.unwrap_or_default())
    }

    /// Its capabilities.
    pub fn device_attribute(&self, device: RawDevice, attribute: DeviceAttribute) -> Result<i32> {
        let mut value = 0;
        call!(self, device_attribute(&mut value, attribute, device), "querying GPU attributes").map(|()| value)
    }

    /// Its memory.
    pub fn device_memory(&self, device: RawDevice) -> Result<u64> {
        let mut bytes = 0;
        call!(self, device_memory(&mut bytes, device), "querying the GPU's memory size").map(|()| bytes as u64)
    }

    /// Makes a device usable.
    pub(crate) fn open(&self, device: RawDevice) -> Result<Place> {
        self.check_own(self.vendor.open(device), "creating the GPU's context")
    }

    /// This thread's current device.
    #[inline]
    pub(crate) fn current(&self) -> Result<Place> {
        self.check_own(self.vendor.current(), "querying the current device")
    }

    /// Makes `to` this thread's current device. True if that must be undone.
    pub(crate) unsafe fn switch(&self, from: Place, to: Place) -> Result<bool> {
        // SAFETY: the contract is the vendor's.
        self.check_own(unsafe { self.vendor.switch(from, to) }, "setting the current device")
    }

    /// Exchanges this thread's capture mode.
    #[inline]
    pub(crate) fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        let mut mode = mode;
        call!(self, capture_mode(&mut mode), "setting the capture mode").map(|()| mode)
    }

    /// Whether the driver has stream-ordered memory.
    pub fn has_pools(&self) -> bool {
        let s = &self.symbols;
        s.pool_create.is_some() && s.pool_allocate.is_some() && s.pool_free.is_some() && s.pool_set.is_some()
    }

    /// Whether the driver lets other devices access a pool.
    pub fn shares_pools(&self) -> bool {
        self.symbols.pool_access.is_some()
    }
}
