//! [`Session`]: one device, one configuration, and the way of a kernel from its source to code that runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use octants_frontend::{ArgSpec, Lowered, Obj, World};
use octants_ir::ArgLayout;

use crate::config::{Arch, Config};
use crate::error::{CompileError, Error};

/// A device with the options that programs on it are compiled under.
pub struct Session {
    config: Config,
    notices: Vec<String>,
}

/// Time spent in each stop of a compilation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    /// Source to IR.
    pub frontend: Duration,
    /// Simplification and splitting into tasks.
    pub passes: Duration,
    /// Machine code.
    pub codegen: Duration,
    /// Making the code callable.
    pub load: Duration,
}

/// A kernel after the front end: what [`Session::build`] takes. It holds no handle into the outside world's objects
/// besides numbers, so it may cross threads.
pub struct Lowering {
    /// What the front end made.
    pub lowered: Lowered,
    /// Time it took.
    pub elapsed: Duration,
}

/// Code ready to be launched.
pub struct Executable {
    /// Where each argument goes.
    pub layout: ArgLayout,
    /// How long compiling took.
    pub timings: Timings,
}

/// Memory of the device, zeroed.
pub struct Memory {
    bytes: Box<[u64]>,
    len: u64,
}

impl Memory {
    /// Address on the device; on the host's processor an address of this process.
    pub fn address(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    /// Bytes asked for.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Session {
    /// Opens the device that `config` asks for, or the CPU where it is not available and fallback is allowed.
    pub fn new(mut config: Config) -> Result<Session, Error> {
        let mut notices = Vec::new();
        if config.arch != Arch::Cpu {
            let reason = format!("arch `{}` is not available", config.arch.name());
            if !config.enable_fallback {
                return Err(Error::Unavailable(reason));
            }
            notices.push(format!("{reason}; falling back to the CPU"));
            config.arch = Arch::Cpu;
        }
        Ok(Session { config, notices })
    }

    /// The options in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What the user should be told once, after opening.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Allocates zeroed memory.
    pub fn allocate(&self, bytes: u64) -> Result<Arc<Memory>, Error> {
        Ok(Arc::new(Memory { bytes: vec![0; bytes.div_ceil(8) as usize].into_boxed_slice(), len: bytes }))
    }

    /// Waits for everything launched before.
    pub fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Source to IR. The only stop that asks the outside world anything.
    pub fn lower(&self, _world: &dyn World, _kernel: Obj, _args: &[ArgSpec]) -> Result<Lowering, CompileError> {
        let _start = Instant::now();
        Err(Error::Codegen(String::from("the front end is not connected")).into())
    }

    /// IR to callable code.
    pub fn build(&self, _lowering: &Lowering, _arrays_may_alias: bool) -> Result<Executable, Error> {
        Err(Error::Codegen(String::from("code generation is not connected")))
    }

    /// Runs code: `slots` are the argument slots of its layout, `result` one slot per scalar of its result.
    pub fn launch(&self, _code: &Executable, _slots: &[u64], _result: &mut [u64]) -> Result<(), Error> {
        Err(Error::Device(String::from("launching is not connected")))
    }
}
