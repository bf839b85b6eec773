//! [`DeviceError`]: the errors of a device, with the operation that failed.

use std::fmt;

use crate::race::Race;
use crate::report::Failure;

/// Result of this crate's calls.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// An error of a device or of a use of it. One pointer wide, so that results stay small on the hot path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceError(Box<ErrorKind>);

/// The kind of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorKind {
    /// No memory left.
    OutOfMemory {
        /// Name of the device.
        device: String,
        /// Requested bytes.
        requested: u64,
        /// Bytes that the program has allocated.
        in_use: u64,
        /// Free bytes of the device, if known.
        free: Option<u64>,
        /// Total bytes of the device, if known.
        capacity: Option<u64>,
    },
    /// The memory that a launch needs for itself cannot be allocated.
    StoreTooLarge {
        /// The reason, and the remedy.
        message: String,
    },
    /// A driver's or operating system's call failed.
    Call {
        /// The call.
        call: &'static str,
        /// The code it returned.
        code: i64,
        /// The code's name or the system's message.
        name: String,
        /// The operation that failed.
        doing: String,
    },
    /// An earlier error has made the device useless to this process.
    Lost {
        /// That error.
        cause: String,
    },
    /// Compiled code could not be loaded.
    Load {
        /// Name of the kernel.
        kernel: String,
        /// The loader's message.
        message: String,
    },
    /// An `assert` of a kernel, or a check that debug mode adds, failed.
    Assertion(Failure),
    /// Accesses of memory with no order between them, at least one.
    Races(Vec<Race>),
    /// An object was used after its program ended.
    ProgramGone {
        /// What was used.
        what: &'static str,
    },
    /// An object of one device was used with another.
    ForeignDevice {
        /// What was used.
        what: &'static str,
    },
    /// An operation that the stream or event does not support.
    Misuse {
        /// The problem and the remedy.
        message: String,
    },
    /// A range outside a buffer.
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Bytes of the buffer.
        bytes: u64,
    },
    /// The user has interrupted the thread: the work that it waited for continues; its own work may be incomplete.
    Interrupted,
    /// A broken invariant.
    CompilerBug(String),
}

impl DeviceError {
    /// The kind of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }
}

/// Whether the user has interrupted the operation.
pub(crate) fn is_interrupt<T>(end: &Result<T>) -> bool {
    matches!(end, Err(e) if *e.kind() == ErrorKind::Interrupted)
}

impl From<ErrorKind> for DeviceError {
    fn from(kind: ErrorKind) -> DeviceError {
        DeviceError(Box::new(kind))
    }
}

impl std::error::Error for DeviceError {}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            ErrorKind::OutOfMemory { device, requested, in_use, free, capacity } => {
                write!(f, "out of memory: {} requested on {device}", Bytes(*requested))?;
                write!(f, ", this program already uses {}", Bytes(*in_use))?;
                match (free, capacity) {
                    (Some(free), Some(c)) => write!(f, ", {} of the device's {} are free", Bytes(*free), Bytes(*c)),
                    (None, Some(c)) => write!(f, ", the device has {}", Bytes(*c)),
                    (_, None) => Ok(()),
                }
            }
            ErrorKind::StoreTooLarge { message } => f.write_str(message),
            ErrorKind::Call { call, code, name, doing } => {
                write!(f, "{call} failed with code {code} ({name}) while {doing}")
            }
            ErrorKind::Lost { cause } => write!(
                f,
                "the device is lost to this process since an earlier error: restart the process to use it again. That \
                 error was: {cause}"
            ),
            ErrorKind::Load { kernel, message } => write!(f, "cannot load the code of kernel `{kernel}`: {message}"),
            ErrorKind::Assertion(failure) => failure.fmt(f),
            ErrorKind::Races(races) => {
                let texts: Vec<String> = races.iter().map(Race::to_string).collect();
                f.write_str(&texts.join("\n"))
            }
            ErrorKind::ProgramGone { what } => {
                write!(f, "this {what} belongs to a program that has ended (`reset()` or another `init()` was called)")
            }
            ErrorKind::ForeignDevice { what } => write!(f, "this {what} belongs to another device"),
            ErrorKind::Misuse { message } => f.write_str(message),
            ErrorKind::OutOfRange { offset, length, bytes } => {
                write!(f, "bytes {offset}..{} are outside a buffer of {bytes} bytes", offset.saturating_add(*length))
            }
            ErrorKind::Interrupted => f.write_str("interrupted"),
            ErrorKind::CompilerBug(what) => write!(f, "compiler bug: {what}"),
        }
    }
}

/// A number of bytes with a readable unit.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return write!(f, "{} bytes", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_one_pointer_wide() {
        assert_eq!(size_of::<DeviceError>(), size_of::<usize>());
    }

    #[test]
    fn out_of_memory_names_all_amounts() {
        let e = DeviceError::from(ErrorKind::OutOfMemory {
            device: "the CPU".into(),
            requested: 3 << 30,
            in_use: 512,
            free: None,
            capacity: Some(1 << 40),
        });
        assert_eq!(
            e.to_string(),
            "out of memory: 3.0 GiB requested on the CPU, this program already uses 512 bytes, the device has 1.0 TiB"
        );
        let e = DeviceError::from(ErrorKind::OutOfMemory {
            device: "a GPU".into(),
            requested: 3 << 30,
            in_use: 512,
            free: Some(1 << 20),
            capacity: Some(1 << 30),
        });
        assert!(e.to_string().ends_with("1.0 MiB of the device's 1.0 GiB are free"), "{e}");
    }
}
