//! Kernel results: converts slots to Python values, with the type objects of the return annotation.

use octants_engine::ir::Type;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::errors;
use crate::scalar::slot_to_python;

/// How a kernel's result is rebuilt.
pub enum ResultKind {
    /// `None`.
    Nothing,
    /// One value.
    One(Type, Py<PyAny>),
    /// Several.
    Tuple(Vec<(Type, Py<PyAny>)>),
    /// A tuple of the slots, for the package's own use.
    Words,
}

impl ResultKind {
    /// From the kernel's type and its return annotations.
    pub fn new(ret: &Type, annotations: Vec<Py<PyAny>>, tuple: bool) -> ResultKind {
        match ret {
            Type::Unit => ResultKind::Nothing,
            Type::Struct(s) if tuple => {
                ResultKind::Tuple(s.members.iter().map(|(_, t)| t.clone()).zip(annotations).collect())
            }
            other => match annotations.into_iter().next() {
                Some(a) if tuple => ResultKind::Tuple(vec![(other.clone(), a)]),
                Some(a) => ResultKind::One(other.clone(), a),
                None => ResultKind::Nothing,
            },
        }
    }

    /// Shows the collector the annotations.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            ResultKind::Nothing | ResultKind::Words => Ok(()),
            ResultKind::One(_, annotation) => visit.call(annotation),
            ResultKind::Tuple(parts) => parts.iter().try_for_each(|(_, annotation)| visit.call(annotation)),
        }
    }

    /// The Python value of a launch's slots.
    pub fn build(&self, py: Python<'_>, slots: &[u64]) -> PyResult<Py<PyAny>> {
        let mut rest = slots;
        match self {
            ResultKind::Nothing => Ok(py.None()),
            ResultKind::Words => Ok(PyTuple::new(py, slots)?.into_any().unbind()),
            ResultKind::One(ty, annotation) => Ok(value(annotation.bind(py), ty, &mut rest)?.unbind()),
            ResultKind::Tuple(parts) => {
                let items: Vec<_> =
                    parts.iter().map(|(ty, a)| value(a.bind(py), ty, &mut rest)).collect::<PyResult<_>>()?;
                Ok(PyTuple::new(py, items)?.into_any().unbind())
            }
        }
    }
}

fn take(py: Python<'_>, rest: &mut &[u64]) -> PyResult<u64> {
    let (first, tail) = rest
        .split_first()
        .ok_or_else(|| errors::runtime_error(py, "compiler bug: a launch returned too few values"))?;
    *rest = tail;
    Ok(*first)
}

fn value<'py>(annotation: &Bound<'py, PyAny>, ty: &Type, rest: &mut &[u64]) -> PyResult<Bound<'py, PyAny>> {
    let py = annotation.py();
    match ty {
        Type::Unit | Type::Ref(_) => Ok(py.None().into_bound(py)),
        Type::Scalar(s) => slot_to_python(py, *s, take(py, rest)?),
        Type::Vector(s, n) => {
            let items: Vec<_> = (0..*n).map(|_| slot_to_python(py, *s, take(py, rest)?)).collect::<PyResult<_>>()?;
            annotation.call1((PyList::new(py, items)?,))
        }
        Type::Matrix(s, n, m) => {
            let mut rows = Vec::new();
            for _ in 0..*n {
                let row: Vec<_> = (0..*m).map(|_| slot_to_python(py, *s, take(py, rest)?)).collect::<PyResult<_>>()?;
                rows.push(PyList::new(py, row)?);
            }
            annotation.call1((PyList::new(py, rows)?,))
        }
        Type::Struct(s) => {
            let members = annotation.getattr(pyo3::intern!(py, "members"))?;
            let values = PyDict::new(py);
            for (name, ty) in &s.members {
                values.set_item(name, value(&members.get_item(name)?, ty, rest)?)?;
            }
            annotation.call((), Some(&values))
        }
    }
}
