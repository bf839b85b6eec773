//! [`PreparedCall`]: compiles for a call, or inspects its code, without making the call.

use octants_engine::ir::AutodiffMode;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::Kernel;
use super::bind_arguments::Arguments;
use crate::bound_kernel::{BoundKernel, KernelGradient};
use crate::errors;
use crate::inspection::Inspection;
use crate::specialization::Slots;
use crate::world::PyWorld;

/// A kernel, or its gradient, with the arguments of a call.
#[pyclass(module = "octants._octants", frozen)]
pub struct PreparedCall {
    kernel: Py<Kernel>,
    mode: AutodiffMode,
    /// With the object that a bound kernel is bound to.
    args: Py<PyTuple>,
    kwargs: Option<Py<PyDict>>,
}

impl PreparedCall {
    /// The arguments in the order of the parameters.
    fn bind<'py>(&self, py: Python<'py>) -> PyResult<Arguments<'py>> {
        let kwargs = self.kwargs.as_ref().map(|k| k.bind(py));
        self.kernel.get().bind(py, self.args.bind(py).as_slice(), kwargs)
    }
}

#[pymethods]
impl PreparedCall {
    #[new]
    #[pyo3(signature = (callee, args, kwargs = None))]
    fn new(
        callee: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<Bound<'_, PyDict>>,
    ) -> PyResult<PreparedCall> {
        let py = callee.py();
        let (kernel, instance, mode) = if let Ok(kernel) = callee.cast::<Kernel>() {
            (kernel, None, AutodiffMode::None)
        } else if let Ok(bound) = callee.cast::<BoundKernel>() {
            let (kernel, instance) = bound.get().parts(py);
            (kernel, Some(instance), AutodiffMode::None)
        } else if let Ok(gradient) = callee.cast::<KernelGradient>() {
            let (kernel, instance) = gradient.get().parts(py);
            (kernel, instance, AutodiffMode::Reverse)
        } else {
            let text = format!("expected a function decorated with @qd.kernel, got {}", callee.repr()?);
            return Err(errors::exception(py, "OctantsTypeError", text));
        };
        let args: Vec<_> = instance.into_iter().chain(args.as_slice()).collect();
        let (args, kwargs) = (PyTuple::new(py, args)?.unbind(), kwargs.map(Bound::unbind));
        Ok(PreparedCall { kernel: kernel.clone().unbind(), mode, args, kwargs })
    }

    /// Compiles for the call, unless that was done.
    fn compile(&self, py: Python<'_>) -> PyResult<()> {
        let (kernel, args) = (self.kernel.bind(py), self.bind(py)?);
        let this = kernel.get();
        let (prepared, _) = this.prepared(py)?;
        let mut gathered = this.gather(&prepared, &args, self.mode)?;
        Kernel::find_or_compile(kernel, &prepared, &mut gathered, &args, &mut Slots::new(), self.mode).map(drop)
    }

    /// The input of the call's compilation.
    fn inspect(&self, py: Python<'_>) -> PyResult<Inspection> {
        let (kernel, args) = (self.kernel.bind(py), self.bind(py)?);
        let this = kernel.get();
        let (prepared, _) = this.prepared(py)?;
        let gathered = this.gather(&prepared, &args, self.mode)?;
        let world = PyWorld::new(py, prepared.program.session.config());
        let described = this.describe(&prepared, &args, &world)?;
        let call = (&gathered, &*args, self.mode);
        let (lowering, alias) = Kernel::lower(kernel, &prepared, call, &described, (&world, &world))?;
        Ok(Inspection::new(&this.name, &prepared.program, &lowering, alias))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.kernel)?;
        visit.call(&self.args)?;
        visit.call(&self.kwargs)
    }
}
