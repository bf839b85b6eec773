//! The common interface of code generators: [`CodegenOptions`] and [`CodegenError`].
//!
//! They are here because code generators and their callers do not depend on one another.

use std::fmt;
use std::path::PathBuf;

/// Code generation options that follow from the user's options and the launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodegenOptions {
    /// Floats may be reassociated, contracted and computed by vector math of a few units in the last place.
    pub fast_math: bool,
    /// 0 to 3.
    pub opt_level: u8,
    /// The processor to compile CPU code for; by default, this machine's.
    pub processor: Option<String>,
    /// Under `fast_math`, call glibc's libmvec in vectorized loops: the loader must find its symbols.
    pub vector_math: bool,
    /// Preferred vector width in bits; by default, the machine's maximum.
    pub vector_bits: Option<u32>,
    /// The vendor's math library for device code.
    pub device_library: DeviceLibrary,
    /// Maximum number of threads that work on one program, at least one. The code is the same with any number.
    pub threads: usize,
}

impl Default for CodegenOptions {
    fn default() -> Self {
        CodegenOptions {
            fast_math: true,
            opt_level: 3,
            processor: None,
            vector_math: true,
            vector_bits: None,
            device_library: DeviceLibrary::default(),
            threads: 1,
        }
    }
}

/// A vendor's math library for device code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceLibrary {
    /// The vendor's library of math functions, in the form that the code generator links.
    pub path: Option<PathBuf>,
}

/// No code could be made: the machine is not supported, or memory ran out. Never a user's mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodegenError {
    message: String,
}

impl CodegenError {
    /// An error with a sentence for the user.
    pub fn new(message: impl Into<String>) -> CodegenError {
        CodegenError { message: message.into() }
    }
}

impl fmt::Display for CodegenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CodegenError {}
