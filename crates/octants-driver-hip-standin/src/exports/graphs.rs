//! Captures and graphs.

#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // HIP's names; its contract is its documentation.

use std::ffi::{c_int, c_ulonglong};
use std::sync::Arc;

use super::{Handle, finish, give, queue};
use crate::capture::{exchange_mode, mode};
use crate::lock::lock;
use crate::outcome::{Outcome, code};
use crate::state::state;
use crate::work::Work;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamBeginCapture(stream: Handle, mode: c_int) -> c_int {
    finish(state().stream("hipStreamBeginCapture", stream as u64).and_then(|stream| {
        if !(mode::GLOBAL..=mode::RELAXED).contains(&mode) {
            return Err(code::INVALID_VALUE);
        }
        lock(&state().captures).begin(&stream, mode)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamEndCapture(stream: Handle, graph: *mut Handle) -> c_int {
    finish(state().stream("hipStreamEndCapture", stream as u64).and_then(|stream| {
        let captured = lock(&state().captures).end(&stream)?;
        let handle = state().handle();
        lock(&state().graphs).insert(handle, Arc::new(captured));
        // SAFETY: HIP's contract.
        unsafe { give(graph, handle as Handle) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamIsCapturing(stream: Handle, status: *mut c_int) -> c_int {
    finish(state().stream("hipStreamIsCapturing", stream as u64).and_then(|stream| {
        let answer = lock(&state().captures).status(stream.handle);
        // SAFETY: HIP's contract.
        unsafe { give(status, answer) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    if mode.is_null() {
        return code::INVALID_VALUE;
    }
    // SAFETY: HIP's contract.
    unsafe {
        if !(mode::GLOBAL..=mode::RELAXED).contains(&*mode) {
            return code::INVALID_VALUE;
        }
        *mode = exchange_mode(*mode);
    }
    code::SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphInstantiateWithFlags(ready: *mut Handle, graph: Handle, flags: c_ulonglong) -> c_int {
    finish(state().find("hipGraphInstantiateWithFlags", "graph", &state().graphs, graph as u64).and_then(|known| {
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        let handle = state().handle();
        lock(&state().ready_graphs).insert(handle, known);
        // SAFETY: HIP's contract.
        unsafe { give(ready, handle as Handle) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphLaunch(ready: Handle, stream: Handle) -> c_int {
    const CALL: &str = "hipGraphLaunch";
    queue(CALL, stream, |_| {
        let graph = state().find(CALL, "graph", &state().ready_graphs, ready as u64)?;
        for node in graph.iter() {
            if let Work::Launch { function, .. } = &node.work {
                // Unloaded code is a fault.
                state().find(CALL, "module", &state().modules, function.owner)?;
            }
        }
        Ok(Work::Graph { graph })
    })
}

fn destroy<T>(call: &str, of: &std::sync::Mutex<std::collections::HashMap<u64, Arc<T>>>, handle: Handle) -> c_int {
    let known: Outcome<Arc<T>> = state().find(call, "graph", of, handle as u64);
    finish(known.map(|_| {
        lock(of).remove(&(handle as u64));
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphDestroy(graph: Handle) -> c_int {
    destroy("hipGraphDestroy", &state().graphs, graph)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphExecDestroy(ready: Handle) -> c_int {
    destroy("hipGraphExecDestroy", &state().ready_graphs, ready)
}
