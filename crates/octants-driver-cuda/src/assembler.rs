//! [`DriverAssembler`]: the assembler in NVIDIA's driver, called by name, so that its results can be cached like other
//! code.
//!
//! The driver's library assembles text when it is loaded, with this same assembler. It caches the result, but users
//! may have disabled or limited that cache. On an H200 (driver 580), its code was as fast as that of `ptxas`; that of
//! the linkers, `cuLinkComplete` and nvJitLink, was up to 15 % slower. The functions are those that a toolkit has in a
//! static library. If the driver's library lacks them, text is loaded as it is.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use octants_driver_gpu::{Assembler, libloading, own_functions};

use crate::spare_registers::{relax, request_occupancy, spill};

#[cfg(windows)]
const LIBRARY: &str = "nvptxJitCompiler64.dll";
#[cfg(not(windows))]
const LIBRARY: &str = "libnvidia-ptxjitcompiler.so.1";

/// The oldest interface version used: earlier ones are untested.
const OLDEST: u32 = 12;

own_functions! {
    /// The assembler's functions.
    Functions {
        /// Major and minor version.
        version = "nvPTXCompilerGetVersion"(*mut u32, *mut u32);
        /// Takes text.
        create = "nvPTXCompilerCreate"(*mut *mut c_void, usize, *const c_char);
        /// Assembles it, by options.
        compile = "nvPTXCompilerCompile"(*mut c_void, c_int, *const *const c_char);
        /// Bytes of the result.
        size = "nvPTXCompilerGetCompiledProgramSize"(*mut c_void, *mut usize);
        /// The result.
        get = "nvPTXCompilerGetCompiledProgram"(*mut c_void, *mut c_void);
        /// Bytes of the log.
        log_size = "nvPTXCompilerGetInfoLogSize"(*mut c_void, *mut usize);
        /// The log.
        log = "nvPTXCompilerGetInfoLog"(*mut c_void, *mut c_char);
        /// Releases everything.
        destroy = "nvPTXCompilerDestroy"(*mut *mut c_void);
    }
}

impl Functions {
    /// The functions of the installed driver. It stays loaded, as the driver itself would keep it.
    fn of_driver() -> Option<Functions> {
        // SAFETY: loading NVIDIA's assembler has no effect on anything else; the functions' types are those of its
        // header.
        let functions = unsafe {
            let library = Box::leak(Box::new(libloading::Library::new(LIBRARY).ok()?));
            Functions::find(library).ok()?
        };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the pointers are to variables.
        let told = unsafe { (functions.version)(&mut major, &mut minor) };
        (told == 0 && major >= OLDEST).then_some(functions)
    }

    /// The machine code, and the log.
    fn assemble(&self, text: &[u8], chip: &str) -> Option<(Vec<u8>, String)> {
        let options = [format!("--gpu-name={chip}"), "-O3".into(), "--verbose".into()];
        let options = options.map(|o| CString::new(o).unwrap_or_default());
        let options = options.each_ref().map(|o| o.as_ptr());
        let text = CString::new(text).ok()?;
        let mut work = null_mut();
        // SAFETY: the text and the options end with zeros, and live as long as the work; the buffers are large enough
        // for the results.
        unsafe {
            if (self.create)(&mut work, text.as_bytes().len(), text.as_ptr()) != 0 {
                return None;
            }
            let (mut size, mut log_size) = (0, 0);
            let done = (self.compile)(work, options.len() as c_int, options.as_ptr()) == 0
                && (self.size)(work, &mut size) == 0
                && (self.log_size)(work, &mut log_size) == 0;
            let (mut code, mut log) = (vec![0; size], vec![0; log_size + 1]);
            let done = done
                && (self.get)(work, code.as_mut_ptr().cast()) == 0
                && (log_size == 0 || (self.log)(work, log.as_mut_ptr().cast()) == 0);
            let _ = (self.destroy)(&mut work);
            // The driver reports errors of the text better.
            done.then(|| (code, String::from_utf8_lossy(&log).into_owned()))
        }
    }

    /// The machine code, with register limits for high occupancy without much spilling.
    fn assemble_for_threads(&self, text: &[u8], chip: &str) -> Option<Vec<u8>> {
        let requests = std::str::from_utf8(text).ok().and_then(request_occupancy);
        let Some((lines, requests)) = requests else { return Some(self.assemble(text, chip)?.0) };
        let (code, log) = self.assemble(lines.join("\n").as_bytes(), chip)?;
        let spilling = spill(&log, &requests);
        if spilling.is_empty() {
            return Some(code);
        }
        Some(self.assemble(relax(lines, spilling).as_bytes(), chip)?.0)
    }
}

/// The driver's assembler for one chip, loaded on first use.
#[derive(Debug)]
pub struct DriverAssembler {
    chip: String,
    functions: OnceLock<Option<Functions>>,
}

impl DriverAssembler {
    /// For a chip by the assembler's name.
    pub fn new(chip: &str) -> DriverAssembler {
        DriverAssembler { chip: chip.into(), functions: OnceLock::new() }
    }
}

impl Assembler for DriverAssembler {
    fn assemble(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.functions.get_or_init(Functions::of_driver).as_ref()?.assemble_for_threads(text, &self.chip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_cannot_be_assembled_is_unchanged() {
        // With a driver, because the text is invalid; without one, because there is no assembler.
        let assembler = DriverAssembler::new("sm_90");
        assert_eq!(assembler.assemble(b"nonsense"), None);
        assert_eq!(assembler.assemble(b"a zero \0 within"), None);
    }
}
