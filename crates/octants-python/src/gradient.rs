//! A kernel's gradient, a kernel bound to an object, and the scope of a thread in which launches are differentiated or recorded.

use std::cell::{Cell, RefCell};

use octants_engine::ir::AutodiffMode;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::inspection::Inspection;
use crate::kernel::Kernel;

/// What launches on a thread do beside running, while a scope is open.
pub enum Scope {
    /// They compute tangents.
    Forward,
    /// They are handed to `record(kernel, arguments)` when they have run.
    Record {
        /// The tape's method.
        record: Py<PyAny>,
        /// They check what their gradient will rely on.
        validation: bool,
    },
}

thread_local! {
    // Beside the scope itself, for the hot path.
    static OPEN: Cell<bool> = const { Cell::new(false) };
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// This thread differentiates or records its launches.
#[inline]
pub fn in_scope() -> bool {
    OPEN.with(Cell::get)
}

/// What is to be done with a launch: its mode, and who is told of it.
#[cold]
pub fn scope(py: Python<'_>) -> (AutodiffMode, Option<Py<PyAny>>) {
    SCOPE.with(|s| match &*s.borrow() {
        None => (AutodiffMode::None, None),
        Some(Scope::Forward) => (AutodiffMode::Forward, None),
        Some(Scope::Record { record, validation }) => {
            let mode = if *validation { AutodiffMode::Validation } else { AutodiffMode::None };
            (mode, Some(record.clone_ref(py)))
        }
    })
}

/// Whether this thread differentiates or records its launches.
#[pyfunction]
pub fn in_autodiff_scope() -> bool {
    in_scope()
}

/// Opens a scope for this thread, in place of the one it is in: "forward", or "record" with the function that is told of launches;
/// `None` closes it. Returns nothing: the package keeps what it opened.
#[pyfunction]
#[pyo3(signature = (kind, record = None, validation = false))]
pub fn set_autodiff_scope(kind: Option<&str>, record: Option<Py<PyAny>>, validation: bool) -> PyResult<()> {
    let scope = match (kind, record) {
        (None, _) => None,
        (Some("forward"), _) => Some(Scope::Forward),
        (Some("record"), Some(record)) => Some(Scope::Record { record, validation }),
        (Some(other), _) => {
            return Err(pyo3::exceptions::PyValueError::new_err(format!("no autodiff scope {other:?}")));
        }
    };
    OPEN.with(|o| o.set(scope.is_some()));
    let old = SCOPE.with(|s| std::mem::replace(&mut *s.borrow_mut(), scope));
    // Outside the borrow: dropping Python objects may run Python code.
    drop(old);
    Ok(())
}

/// `kernel.grad`: takes the kernel's arguments and runs its gradient.
#[pyclass(module = "octants._octants", frozen, weakref)]
pub struct KernelGradient {
    kernel: Py<Kernel>,
    instance: Option<Py<PyAny>>,
}

impl KernelGradient {
    /// Of a kernel.
    pub fn new(kernel: &Bound<'_, Kernel>) -> KernelGradient {
        KernelGradient { kernel: kernel.clone().unbind(), instance: None }
    }
}

#[pymethods]
impl KernelGradient {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let instance = self.instance.as_ref().map(|i| i.bind(py));
        Kernel::call(self.kernel.bind(py), instance, args, kwargs, AutodiffMode::Reverse)
    }

    /// What a call with these arguments would be compiled from, for a look at its code.
    #[pyo3(signature = (*args, **kwargs))]
    fn _inspect<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Inspection> {
        let instance = self.instance.as_ref().map(|i| i.bind(py).clone());
        let args: Vec<_> = instance.into_iter().chain(args.iter()).collect();
        Kernel::inspect(self.kernel.bind(py), &args, kwargs, AutodiffMode::Reverse)
    }

    /// Compiles for a call with these arguments.
    #[pyo3(signature = (*args, **kwargs))]
    fn _compile<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        let instance = self.instance.as_ref().map(|i| i.bind(py).clone());
        let args: Vec<_> = instance.into_iter().chain(args.iter()).collect();
        Kernel::compile_ahead(self.kernel.bind(py), &args, kwargs, AutodiffMode::Reverse)
    }

    /// The kernel.
    #[getter]
    fn kernel(&self, py: Python<'_>) -> Py<Kernel> {
        self.kernel.clone_ref(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.kernel)?;
        visit.call(&self.instance)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<gradient of {}>", self.kernel.bind(py).get().description())
    }
}

// A kernel that is a method, bound to an object. No documentation of the class: that of an object is the kernel's.
#[allow(missing_docs)]
#[pyclass(module = "octants._octants", frozen, weakref)]
pub struct BoundKernel {
    kernel: Py<Kernel>,
    instance: Py<PyAny>,
}

impl BoundKernel {
    /// A kernel and the object that is its first argument.
    pub fn new(kernel: &Bound<'_, Kernel>, instance: &Bound<'_, PyAny>) -> BoundKernel {
        BoundKernel { kernel: kernel.clone().unbind(), instance: instance.clone().unbind() }
    }

    /// The kernel and the object.
    pub fn parts<'py>(&self, py: Python<'py>) -> (Bound<'py, PyAny>, Bound<'py, PyAny>) {
        (self.kernel.bind(py).clone().into_any(), self.instance.bind(py).clone())
    }
}

#[pymethods]
impl BoundKernel {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        Kernel::call(self.kernel.bind(py), Some(self.instance.bind(py)), args, kwargs, AutodiffMode::None)
    }

    /// What a call with these arguments would be compiled from, for a look at its code.
    #[pyo3(signature = (*args, **kwargs))]
    fn _inspect<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Inspection> {
        let args: Vec<_> = [self.instance.bind(py).clone()].into_iter().chain(args.iter()).collect();
        Kernel::inspect(self.kernel.bind(py), &args, kwargs, AutodiffMode::None)
    }

    /// Compiles for a call with these arguments.
    #[pyo3(signature = (*args, **kwargs))]
    fn _compile<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        let args: Vec<_> = [self.instance.bind(py).clone()].into_iter().chain(args.iter()).collect();
        Kernel::compile_ahead(self.kernel.bind(py), &args, kwargs, AutodiffMode::None)
    }

    /// The gradient, bound to the same object.
    #[getter]
    fn grad(&self, py: Python<'_>) -> KernelGradient {
        KernelGradient { kernel: self.kernel.clone_ref(py), instance: Some(self.instance.clone_ref(py)) }
    }

    /// The kernel.
    #[getter]
    fn __func__(&self, py: Python<'_>) -> Py<Kernel> {
        self.kernel.clone_ref(py)
    }

    /// The object.
    #[getter]
    fn __self__(&self, py: Python<'_>) -> Py<PyAny> {
        self.instance.clone_ref(py)
    }

    fn __getattr__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, pyo3::types::PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.kernel.bind(py).getattr(name)
    }

    /// What `inspect` and the like read of a function.
    #[getter]
    fn __doc__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.kernel.bind(py).getattr("__doc__")
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let Ok(other) = other.cast::<BoundKernel>() else { return false };
        let other = other.get();
        self.kernel.is(&other.kernel) && self.instance.is(&other.instance)
    }

    fn __hash__(&self) -> usize {
        (self.kernel.as_ptr() as usize).wrapping_mul(31) ^ self.instance.as_ptr() as usize
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.kernel)?;
        visit.call(&self.instance)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<bound {}>", self.kernel.bind(py).get().description())
    }
}
