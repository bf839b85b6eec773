//! [`Module`]: loaded code, with its tasks and the graph of all of them.

use std::sync::{Mutex, PoisonError};

use octants_artifact::{Artifact, SiteKind};
use octants_runtime::{DeviceError, ErrorKind, Result};

use crate::context::{Context, Entered};
use crate::graph::Graph;
use crate::loaded_code::LoadedCode;
use crate::loaded_loop::load_loop;
use crate::loaded_task::{load_code, load_task};
use crate::symbols::RawModule;

/// Loaded code.
#[derive(Debug)]
pub struct Module {
    /// In the artifact's order.
    handles: Vec<RawModule>,
    /// What can be launched.
    pub code: LoadedCode,
    /// All of them as one.
    pub graph: Mutex<Graph>,
}

// SAFETY: handles are values; the library may be called from any thread.
unsafe impl Send for Module {}

impl Module {
    /// Loads an artifact's code.
    pub fn load(context: &Context, artifact: &Artifact) -> Result<Module> {
        let refused =
            |message: String| -> DeviceError { ErrorKind::Load { kernel: artifact.kernel.clone(), message }.into() };
        let calls = context.enter_aside()?;
        let kernel = calls.library().last.number_of(&artifact.kernel, artifact.defined_at.as_deref());
        let asserts = artifact.sites.iter().any(|s| s.kind == SiteKind::Assert);
        let (mut handles, mut tasks, mut loops) = (Vec::new(), Vec::with_capacity(artifact.tasks.len()), Vec::new());
        let mut load = || {
            for code in &artifact.modules {
                handles.push(load_code(&calls, code)?);
            }
            for (task, number) in artifact.tasks.iter().zip(0..) {
                let handle = *handles.get(task.module as usize).ok_or("a task's module is missing")?;
                // SAFETY: the module was loaded above.
                let task = unsafe { load_task(context, &calls, handle, task, (number, kernel), asserts) };
                tasks.push(task.map_err(|e| e.to_string())?);
            }
            for of in artifact.loops.iter().filter(|of| of.has_words()) {
                let handle = *handles.get(of.module as usize).ok_or("a loop's module is missing")?;
                // SAFETY: as above.
                loops.extend(unsafe { load_loop(context, &calls, handle, of) }.map_err(|e| e.to_string())?);
            }
            Ok(())
        };
        let loaded: std::result::Result<(), String> = load();
        let code = LoadedCode { tasks: tasks.into_boxed_slice(), loops: loops.into_boxed_slice() };
        let module = Module { handles, code, graph: Mutex::default() };
        if let Err(message) = loaded {
            // SAFETY: nothing has used it.
            unsafe { module.unload(&calls) };
            return Err(refused(message));
        }
        Ok(module)
    }

    /// Unloads the code.
    ///
    /// # Safety
    /// No launch of it is queued or running.
    pub unsafe fn unload(self, calls: &Entered<'_>) {
        // SAFETY: the contract above. At the end of the process it is gone already.
        unsafe {
            self.graph.into_inner().unwrap_or_else(PoisonError::into_inner).destroy(calls);
            for task in &self.code.tasks {
                task.unload(calls);
            }
            for handle in self.handles {
                let _ = calls.unload_module(handle);
            }
        }
    }
}
