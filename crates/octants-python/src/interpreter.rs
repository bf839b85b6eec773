//! [`Interpreter`]: the runtime's view of a thread that launches or waits. It releases the interpreter, and polls for
//! interrupts by the user.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use octants_engine::runtime::Caller;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::call_site::call_site;
use crate::detached;
use crate::held::{Held, HoldLater};

/// Interval between polls. Each poll takes the interpreter briefly.
const BETWEEN: Duration = Duration::from_millis(50);

/// A thread that holds the interpreter until it is about to wait or run for long.
pub struct Interpreter<'a, 'py, L: HoldLater + ?Sized = ()> {
    saved: Cell<*mut ffi::PyThreadState>,
    /// When to poll next; `None` before the first poll.
    next: Cell<Option<Instant>>,
    /// This is the main thread, which handles signals; `deaf` if another one is. Both are false before the first poll.
    main: Cell<bool>,
    deaf: Cell<bool>,
    raised: RefCell<Option<PyErr>>,
    /// The provider of objects that nothing else keeps alive while the interpreter is released, and those objects once
    /// it is.
    later: &'a L,
    held: RefCell<Held<'py>>,
    py: Python<'py>,
}

impl<'py> Interpreter<'static, 'py> {
    /// For a thread that holds the interpreter.
    pub fn held(py: Python<'py>) -> Interpreter<'static, 'py> {
        Interpreter::of_launch(py, &())
    }
}

impl<'a, 'py, L: HoldLater + ?Sized> Interpreter<'a, 'py, L> {
    /// For a thread that launches a kernel whose arguments other threads might free.
    pub fn of_launch(py: Python<'py>, later: &'a L) -> Interpreter<'a, 'py, L> {
        Interpreter {
            saved: Cell::new(std::ptr::null_mut()),
            next: Cell::new(None),
            main: Cell::new(false),
            deaf: Cell::new(false),
            raised: RefCell::new(None),
            later,
            held: RefCell::default(),
            py,
        }
    }

    /// Reacquires the interpreter. Returns an exception that a signal handler has raised meanwhile.
    pub fn take(self) -> Option<PyErr> {
        self.raised.take()
    }

    /// Runs Python code. `None` if it raises; the launch then ends as if interrupted.
    pub fn attached<T>(&self, run: impl FnOnce(Python<'_>) -> PyResult<T>) -> Option<T> {
        let was_released = !self.saved.get().is_null();
        if was_released {
            self.reacquire();
        }
        // SAFETY: this thread has the interpreter.
        let end = run(unsafe { Python::assume_attached() });
        if was_released {
            self.release();
        }
        end.map_err(|raised| *self.raised.borrow_mut() = Some(raised)).ok()
    }

    fn release(&self) {
        // SAFETY: this thread holds the interpreter.
        self.saved.set(unsafe { ffi::PyEval_SaveThread() });
        detached::begin_wait();
    }

    fn reacquire(&self) {
        detached::end_wait();
        // SAFETY: saved by this thread above.
        unsafe { ffi::PyEval_RestoreThread(self.saved.replace(std::ptr::null_mut())) }
    }

    /// Lets signals be handled, as the interpreter does between two statements.
    #[cold]
    fn look(&self) -> bool {
        self.reacquire();
        // SAFETY: this thread has just taken the interpreter.
        let py = unsafe { Python::assume_attached() };
        // Running Python code, as `is_main_thread` does, handles signals too.
        let end = py.check_signals().and_then(|()| if self.main.get() { Ok(true) } else { is_main_thread(py) });
        match end {
            Ok(main) => {
                self.main.set(main);
                self.deaf.set(!main);
            }
            Err(raised) => *self.raised.borrow_mut() = Some(raised),
        }
        self.release();
        self.raised.borrow().is_some()
    }
}

/// Signals are handled only there.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    main.eq(threading.call_method0("get_ident")?)
}

impl<L: HoldLater + ?Sized> Caller for Interpreter<'_, '_, L> {
    fn will_block(&self) {
        if self.saved.get().is_null() {
            // From here on other threads may free them.
            self.later.hold(self.py, &mut self.held.borrow_mut());
            self.release();
        }
    }

    fn call_site(&self) -> Option<String> {
        if self.saved.get().is_null() {
            return call_site(self.py).ok().flatten();
        }
        self.reacquire();
        // SAFETY: this thread has just taken the interpreter.
        let site = call_site(unsafe { Python::assume_attached() }).ok().flatten();
        self.release();
        site
    }

    fn can_be_interrupted(&self) -> bool {
        !self.deaf.get()
    }

    fn is_interrupted(&self) -> bool {
        if self.saved.get().is_null() || self.deaf.get() {
            return false;
        }
        if self.raised.borrow().is_some() {
            return true;
        }
        let now = Instant::now();
        match self.next.get() {
            Some(next) if now < next => return false,
            None => {
                self.next.set(Some(now + BETWEEN));
                return false;
            }
            Some(_) => {}
        }
        let interrupted = self.look();
        self.next.set(Some(Instant::now() + BETWEEN));
        interrupted
    }
}

impl<L: HoldLater + ?Sized> Drop for Interpreter<'_, '_, L> {
    fn drop(&mut self) {
        if !self.saved.get().is_null() {
            self.reacquire();
        }
    }
}
