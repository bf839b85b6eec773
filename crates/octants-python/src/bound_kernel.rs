//! Objects that represent a kernel: [`BoundKernel`], bound to an instance, and [`KernelGradient`].

use octants_engine::ir::AutodiffMode;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::kernel::Kernel;

/// `kernel.grad`: takes the kernel's arguments and runs its gradient.
#[pyclass(module = "octants._octants", frozen, weakref)]
pub struct KernelGradient {
    kernel: Py<Kernel>,
    instance: Option<Py<PyAny>>,
}

impl KernelGradient {
    /// The gradient of a kernel.
    pub fn new(kernel: &Bound<'_, Kernel>) -> KernelGradient {
        KernelGradient { kernel: kernel.clone().unbind(), instance: None }
    }

    /// The kernel, and the object if it is bound to one.
    pub fn parts<'py>(&self, py: Python<'py>) -> (&Bound<'py, Kernel>, Option<&Bound<'py, PyAny>>) {
        (self.kernel.bind(py), self.instance.as_ref().map(|i| i.bind(py)))
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
        let (kernel, instance) = self.parts(py);
        Kernel::call(kernel, instance, args, kwargs, AutodiffMode::Reverse)
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

// A kernel that is a method, bound to an object. The class has no docstring, because an object has that of its kernel.
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
    pub fn parts<'py>(&self, py: Python<'py>) -> (&Bound<'py, Kernel>, &Bound<'py, PyAny>) {
        (self.kernel.bind(py), self.instance.bind(py))
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
        let (kernel, instance) = self.parts(py);
        Kernel::call(kernel, Some(instance), args, kwargs, AutodiffMode::None)
    }

    #[pyo3(signature = (*args, from_checkpoint, **kwargs))]
    fn resume<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        from_checkpoint: &Bound<'py, PyAny>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let (kernel, instance) = self.parts(py);
        Kernel::resume_from(kernel, Some(instance), args, from_checkpoint, kwargs)
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

    /// What `inspect` and similar read of a function.
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
