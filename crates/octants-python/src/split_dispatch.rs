//! [`SplitLaunch`]: a launch on arrays that are split over ranks, task by task.
//!
//! A task runs on the rows that this rank has. Rows that need no ghost rows are computed while these arrive. The
//! package is called only for messages and reductions, not for tasks whose ghost rows are valid.

use std::cell::OnceCell;
use std::sync::Arc;

use octants_engine::runtime::{self, Dispatcher, Draw, ErrorKind, Result as RuntimeResult};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;

use crate::held::HoldLater;
use crate::interpreter::Interpreter;
use crate::ndarray::Ndarray;
use crate::split_rows::{GhostExchange, Missing, SplitPlan, SplitRows, TaskPlan};
use crate::stream::{Kind, Stream};

/// A launch on split arrays.
pub struct SplitLaunch {
    /// Its plan.
    pub plan: Arc<SplitPlan>,
    /// The split arrays, and their buffer numbers.
    pub arrays: SmallVec<[(u32, Py<Ndarray>); 8]>,
    /// Its stream, and the program's serial number.
    pub stream: (runtime::Stream, u64),
}

impl SplitLaunch {
    /// This process owns all rows, and no ghost rows need copying.
    pub fn is_whole(&self) -> bool {
        self.plan.tasks.is_none()
    }

    fn rows(&self, array: usize) -> Option<&SplitRows> {
        self.arrays[array].1.get().split_rows()
    }

    fn which_lack(&self, task: &TaskPlan) -> Missing {
        let lacks = |&(array, before, after): &(usize, u32, u32)| {
            self.rows(array).is_some_and(|rows| rows.lacks(before, after))
        };
        task.reads.iter().map(lacks).collect()
    }

    fn forget(&self, arrays: impl Iterator<Item = usize>) {
        arrays.filter_map(|array| self.rows(array)).for_each(SplitRows::forget_ghosts);
    }

    fn make_exchange(&self, task: &TaskPlan, missing: &Missing, py: Python<'_>) -> PyResult<Arc<GhostExchange>> {
        let arrays = PyDict::new(py);
        for (buffer, array) in &self.arrays {
            arrays.set_item(buffer, array)?;
        }
        let made = task.make_exchange.bind(py).call1((PyTuple::new(py, missing)?, arrays))?;
        let (start, inner, left) = made.extract()?;
        let exchange = Arc::new(GhostExchange { start, inner, left });
        task.keep(missing.clone(), exchange.clone());
        Ok(exchange)
    }
}

/// Runs the tasks of such a launch.
pub struct SplitDispatcher<'a, 'b, 'py, L: HoldLater + ?Sized> {
    interpreter: &'a Interpreter<'b, 'py, L>,
    launch: &'a SplitLaunch,
    /// The arguments of the package's functions: the driver's handle of the stream, and the stream.
    args: OnceCell<Py<PyTuple>>,
}

impl<'a, 'b, 'py, L: HoldLater + ?Sized> SplitDispatcher<'a, 'b, 'py, L> {
    /// A thread, and the launch.
    pub fn new(interpreter: &'a Interpreter<'b, 'py, L>, launch: &'a SplitLaunch) -> Self {
        SplitDispatcher { interpreter, launch, args: OnceCell::new() }
    }

    fn attached<T>(&self, run: impl FnOnce(Python<'_>) -> PyResult<T>) -> RuntimeResult<T> {
        Ok(self.interpreter.attached(run).ok_or(ErrorKind::Interrupted)?)
    }

    /// Calls one of the package's functions. `then` handles its result: no object is dropped without the interpreter,
    /// because pyo3 does not know that this thread has released it.
    fn call<T>(&self, function: &Py<PyAny>, then: impl FnOnce(Python<'_>, Py<PyAny>) -> T) -> RuntimeResult<T> {
        self.attached(|py| {
            if self.args.get().is_none() {
                let (stream, serial) = &self.launch.stream;
                let object = Stream::of_program(*serial, stream.clone(), Kind::Wrapped);
                let _ = self.args.set((stream.handle(), object).into_pyobject(py)?.unbind());
            }
            let args = self.args.get().map_or_else(|| PyTuple::empty(py), |args| args.bind(py).clone());
            Ok(then(py, function.call1(py, args)?))
        })
    }

    fn run(
        &self,
        task: &TaskPlan,
        missing: &Missing,
        run: &mut dyn FnMut(i32, i32) -> RuntimeResult<()>,
    ) -> RuntimeResult<()> {
        let exchange = match task.exchange(missing) {
            Some(exchange) => exchange,
            None => self.attached(|py| self.launch.make_exchange(task, missing, py))?,
        };
        if let Some(before) = &task.before {
            self.call(before, |_, end| drop(end))?;
        }
        let start = |start| self.call(start, |py, wait| (!wait.is_none(py)).then_some(wait));
        let pending = exchange.start.as_ref().map(start).transpose()?.flatten();
        let computed = exchange.inner.iter().try_for_each(|&(first, end)| run(first, end));
        if let Some(wait) = pending {
            // Even if the launch has failed: later work on the stream may use the memory that the messages use.
            self.attached(move |py| wait.into_bound(py).call0().map(drop))?;
        }
        computed?;
        exchange.left.iter().try_for_each(|&(first, end)| run(first, end))
    }
}

impl<L: HoldLater + ?Sized> Drop for SplitDispatcher<'_, '_, '_, L> {
    fn drop(&mut self) {
        if let Some(args) = self.args.take() {
            let _ = self.attached(move |_| {
                drop(args);
                Ok(())
            });
        }
    }
}

impl<L: HoldLater + ?Sized> Dispatcher for SplitDispatcher<'_, '_, '_, L> {
    fn dispatch(&self, task: usize, _: Draw, run: &mut dyn FnMut(i32, i32) -> RuntimeResult<()>) -> RuntimeResult<()> {
        let tasks = self.launch.plan.tasks.as_deref().unwrap_or_default();
        let Some(Some(task)) = tasks.get(task) else {
            return Err(ErrorKind::CompilerBug("a task on split arrays has no plan".into()).into());
        };
        let missing = self.launch.which_lack(task);
        let end = self.run(task, &missing, run);
        self.launch.forget(task.changed.iter().copied());
        if end.is_err() {
            self.launch.forget(task.reads.iter().map(|read| read.0));
        }
        end?;
        match &task.after {
            Some(after) => self.call(after, |_, end| drop(end)),
            None => Ok(()),
        }
    }
}
