//! Assembles device code from the texts of an artifact, several at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use octants_artifact::{Artifact, CodeTarget, TaskMeta};

use crate::driver::Driver;

/// The artifact with machine code instead of text, including its wide forms, if the driver provides an assembler. Up to
/// `threads` threads work on it.
pub(crate) fn assemble(driver: &dyn Driver, artifact: &Artifact, threads: usize) -> Option<Artifact> {
    if driver.code_target() == CodeTarget::Host {
        return None;
    }
    fn wide(task: &mut TaskMeta) -> Option<&mut Vec<u8>> {
        Some(&mut task.parallel.as_mut()?.wide.as_mut()?.code).filter(|code| !code.is_empty())
    }
    let mut assembled = artifact.clone();
    let (modules, tasks) = (assembled.modules.iter_mut(), assembled.tasks.iter_mut());
    let texts: Vec<_> = modules.map(|m| (m, true)).chain(tasks.filter_map(wide).map(|w| (w, false))).collect();
    let others = threads.min(texts.len()).saturating_sub(1);
    let (texts, missing) = (Mutex::new(texts.into_iter()), AtomicBool::new(false));
    let work = || {
        while !missing.load(Ordering::Relaxed) {
            let next = texts.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((text, needed)) = next else { return };
            match driver.assemble(text) {
                Some(code) => *text = code,
                // A wide form stays text, which the driver takes too. A module is useless without the others.
                None => _ = missing.fetch_or(needed, Ordering::Relaxed),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..others {
            // If no thread can be created, the calling thread does all the work.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    (!missing.into_inner()).then_some(assembled)
}
