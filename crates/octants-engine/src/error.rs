//! The errors of a session.

use std::fmt;

use octants_diag::{Diagnostic, Sources};
use octants_runtime::Race;

/// An error of configuration, of the device, or of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// No such option.
    UnknownOption {
        /// As the user wrote it.
        name: String,
        /// The most similar known name.
        suggestion: Option<&'static str>,
    },
    /// The option exists, the value does not fit it.
    BadOption {
        /// The option.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The option cannot be changed while the program runs.
    FixedOption(String),
    /// The requested architecture is not on this machine or not in this build.
    Unavailable(String),
    /// An operation of the device failed.
    Device(String),
    /// Memory could not be allocated.
    OutOfMemory {
        /// The requested target, and the available ones.
        message: String,
    },
    /// An assertion in a kernel failed.
    Assertion(String),
    /// Accesses with no order between them, at least one; and all of them as text.
    Races(Vec<Race>, String),
    /// Code generation refused the program.
    Codegen(String),
    /// A mistake of the user that a pass has found, with the sources.
    Refused(Box<Diagnostic>, Sources),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownOption { name, suggestion } => {
                write!(f, "Unrecognized keyword argument(s) for qd.init: {name}")?;
                match suggestion {
                    Some(s) => write!(f, " (did you mean `{s}`?)"),
                    None => Ok(()),
                }
            }
            Error::BadOption { name, reason } => write!(f, "option `{name}`: {reason}"),
            Error::FixedOption(name) => {
                write!(f, "qd.cfg.{name} cannot be changed while the program runs: pass {name}=... to qd.init()")
            }
            Error::Unavailable(what)
            | Error::Device(what)
            | Error::Assertion(what)
            | Error::Races(_, what)
            | Error::Codegen(what) => f.write_str(what),
            Error::OutOfMemory { message } => f.write_str(message),
            Error::Refused(diagnostic, sources) => f.write_str(&diagnostic.render(sources)),
        }
    }
}

impl std::error::Error for Error {}

/// A kernel could not be compiled.
#[derive(Debug, Clone)]
pub enum CompileError {
    /// The user's mistakes, at least one.
    User(Vec<Diagnostic>, Sources),
    /// The back end or the device refused.
    Other(Error),
}

impl From<Error> for CompileError {
    fn from(e: Error) -> Self {
        CompileError::Other(e)
    }
}
