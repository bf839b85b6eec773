//! Checks array arguments against their annotations.

use octants_engine::ir::{Scalar, Type};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::Place;
use crate::annotation::ArrayKind;
use crate::array;
use crate::array_view::{ArrayView, Original};
use crate::element_types::{element_type, scalar_of};
use crate::names::{Known, is_field, marker, unwrap_tensor};
use crate::ndarray::Ndarray;
use crate::{errors, exchange_table, program};

/// The view of an array argument, checked against its annotation.
pub fn array_argument(wanted: &ArrayKind, value: &Bound<'_, PyAny>, place: &Place<'_>) -> PyResult<ArrayView> {
    if wanted.view && !is_view(value) {
        let kind = value.get_type().name().map_or_else(|_| "?".to_string(), |n| n.to_string());
        let text = format!(
            "Argument {} expects a BufferView, got {kind}: pass a slice such as `data[0:n]` (kernel `{}`)",
            place.path(),
            place.kernel
        );
        return Err(errors::exception(value.py(), "OctantsRuntimeTypeError", text));
    }
    let mut view = array::view_or_copy(value)?;
    let mut own = value.is_instance_of::<Ndarray>();
    if view.is_none() {
        let unwrapped = unwrap_tensor(value.clone())?;
        if !unwrapped.is(value) {
            view = array::view_or_copy(&unwrapped)?;
            own = unwrapped.is_instance_of::<Ndarray>();
        }
    }
    let Some(mut view) = view else { return Err(not_an_array(value, place)) };
    let mut elem = wanted.elem.clone();
    // Another library's array of vectors has its own scalar type: numpy's default is f64.
    if let (true, Some(vector)) = (!own || wanted.any_scalar, &elem)
        && !vector.shape().is_empty()
    {
        elem = Some(Type::tensor(scalar_of(&view.elem), &vector.shape()));
    }
    if let Some(rank) = wanted.rank {
        let scalar = elem.as_ref().map_or_else(|| scalar_of(&view.elem), scalar_of);
        elem = Some(element_of_rank(&view, scalar, rank as usize, own, place)?);
    }
    if let Some(elem) = &elem {
        let mut folded = own || view.fold_elements(elem);
        if !folded
            && view.ends_with(&elem.shape())
            && let Some(copy) = row_major_copy(value, &view)?
        {
            view = copy;
            folded = view.fold_elements(elem);
        }
        if !folded || view.elem != *elem {
            return Err(wrong_elements(&view, elem, wanted.ndim, own, place));
        }
    }
    if wanted.needs_grad == Some(false) {
        view.needs_grad = false;
    }
    if own && wanted.needs_grad == Some(true) && !view.needs_grad {
        let (name, kernel) = (place.path(), place.kernel);
        return Err(PyValueError::new_err(format!(
            "Invalid value for argument {name} - required needs_grad=True, but False is provided (kernel `{kernel}`)"
        )));
    }
    match wanted.ndim {
        Some(ndim) if ndim as usize != view.extents.len() => Err(wrong_ndim(&view, ndim, own, place)),
        _ => Ok(view),
    }
}

/// A copy of a numpy array, which a launch copies back. `None` if elements of the array share memory: it would be
/// ambiguous which of them holds the result.
#[cold]
fn row_major_copy(value: &Bound<'_, PyAny>, view: &ArrayView) -> PyResult<Option<ArrayView>> {
    let py = value.py();
    if !value.is_instance(Known::get(py)?.np_ndarray.bind(py))? || view.overlaps_itself() {
        return Ok(None);
    }
    let copy = py.import("numpy")?.call_method1(pyo3::intern!(py, "ascontiguousarray"), (value,))?;
    let original = Original { array: value.clone().unbind(), span: view.span(), is_foreign: false };
    Ok(array::view(&copy)?.map(|made| ArrayView {
        readonly: view.readonly,
        owner: Some(copy.unbind()),
        original: Some(original),
        ..made
    }))
}

/// Whether an argument of a `qd.Tensor` parameter is an array, ours or another library's, and not a field.
pub fn is_array(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if value.is_instance_of::<Ndarray>() || exchange_table::has_described(value) {
        return Ok(true);
    }
    // Fields export themselves to other libraries too.
    if value.is_none() || is_field(value)? {
        return Ok(false);
    }
    let py = value.py();
    Ok(marker(value).is_none()
        && (value.is_instance(Known::get(py)?.np_ndarray.bind(py))?
            || value.hasattr(pyo3::intern!(py, "__dlpack__"))?
            || program::array_protocol().is_some_and(|name| value.hasattr(name).unwrap_or(false))))
}

/// Whether it is a `qd.BufferView`.
pub fn is_view(value: &Bound<'_, PyAny>) -> bool {
    marker(value).as_deref() == Some("buffer_view")
}

/// The element type if the annotation gives only its number of axes: its extents are the array's last ones.
fn element_of_rank(view: &ArrayView, scalar: Scalar, rank: usize, own: bool, place: &Place<'_>) -> PyResult<Type> {
    let (name, kernel) = (place.path(), place.kernel);
    if own {
        let shape = view.elem.shape();
        return if shape.len() == rank {
            Ok(Type::tensor(scalar, &shape))
        } else {
            Err(PyValueError::new_err(format!(
                "Invalid value for argument {name} - required element type: a {} of any size, but {} is provided \
                 (kernel `{kernel}`)",
                if rank == 1 { "vector" } else { "matrix" },
                type_text(&view.elem)
            )))
        };
    }
    let Some(at) = view.extents.len().checked_sub(rank) else {
        return Err(PyValueError::new_err(format!(
            "Invalid value for argument {name} - required array has element_dim={rank}, array with {} dimensions is \
             provided (kernel `{kernel}`)",
            view.extents.len()
        )));
    };
    let shape = view.extents[at..].iter().map(|&n| u32::try_from(n)).collect::<Result<Vec<_>, _>>();
    let shape =
        shape.map_err(|_| PyValueError::new_err(format!("argument {name}: an element has too many components")))?;
    element_type(scalar, &shape)
}

fn not_an_array(value: &Bound<'_, PyAny>, place: &Place<'_>) -> PyErr {
    let shown = value.repr().map_or_else(|_| "?".to_string(), |r| r.to_string());
    errors::exception(
        value.py(),
        "OctantsRuntimeTypeError",
        format!("Invalid type for argument {}, got {shown}: kernel `{}` expects an array", place.path(), place.kernel),
    )
}

fn wrong_elements(view: &ArrayView, elem: &Type, ndim: Option<u32>, own: bool, place: &Place<'_>) -> PyErr {
    let (name, kernel) = (place.path(), place.kernel);
    if own && !elem.shape().is_empty() {
        return PyValueError::new_err(format!(
            "Invalid value for argument {name} - required element type: {}, but {} is provided (kernel `{kernel}`)",
            type_text(elem),
            type_text(&view.elem)
        ));
    }
    if own {
        return PyTypeError::new_err(format!(
            "Expect element type {} for argument {name}, but get {} (kernel `{kernel}`)",
            element_text(elem),
            element_text(&view.elem)
        ));
    }
    let (want, got) = (scalar_of(elem), scalar_of(&view.elem));
    if want != got {
        return PyValueError::new_err(format!(
            "Invalid value for argument {name} - required array has dtype={want}, array with dtype={got} is provided \
             (kernel `{kernel}`)"
        ));
    }
    let (rank, given) = (elem.shape().len(), view.extents.len());
    if given < rank || ndim.is_some_and(|n| n as usize + rank != given) {
        let wanted = ndim.map_or_else(String::new, |n| format!("ndim={n} "));
        return PyValueError::new_err(format!(
            "Invalid value for argument {name} - required array has {wanted}element_dim={rank}, array with {given} \
             dimensions is provided (kernel `{kernel}`)"
        ));
    }
    let last = &view.extents[given - rank..];
    if last.iter().zip(&elem.shape()).any(|(&a, &b)| a != u64::from(b)) {
        return PyValueError::new_err(format!(
            "Invalid value for argument {name} - required element_shape={}, array with element shape of {} is \
             provided: the last axes of an array of shape {} are its elements (kernel `{kernel}`)",
            tuple_text(&elem.shape()),
            tuple_text(last),
            tuple_text(&view.extents)
        ));
    }
    PyValueError::new_err(format!(
        "Invalid value for argument {name} - the components of each element must be contiguous in memory: pass \
         `tensor.contiguous()` or `numpy.ascontiguousarray(array)` (kernel `{kernel}`)"
    ))
}

/// A shape as Python writes it.
fn tuple_text<T: std::fmt::Display>(items: &[T]) -> String {
    let texts: Vec<String> = items.iter().map(T::to_string).collect();
    format!("({}{})", texts.join(", "), if items.len() == 1 { "," } else { "" })
}

/// An element's type in words.
fn element_text(ty: &Type) -> String {
    let shape: Vec<String> = ty.shape().iter().map(u32::to_string).collect();
    let scalar = scalar_of(ty);
    if shape.is_empty() { scalar.to_string() } else { format!("[Tensor ({}) {scalar}]", shape.join(", ")) }
}

/// A type object as Python shows it.
fn type_text(ty: &Type) -> String {
    let scalar = scalar_of(ty);
    match ty.shape()[..] {
        [n] => format!("VectorType[{n}, {scalar}]"),
        [n, m] => format!("MatrixType[{n},{m}, {scalar}]"),
        _ => scalar.to_string(),
    }
}

fn wrong_ndim(view: &ArrayView, ndim: u32, own: bool, place: &Place<'_>) -> PyErr {
    let (name, kernel, got) = (place.path(), place.kernel, view.extents.len());
    let rank = view.elem.shape().len();
    let elements = if rank == 0 { String::new() } else { format!(" element_dim={rank}") };
    PyValueError::new_err(if own {
        format!(
            "Invalid value for argument {name} - required ndim={ndim}, but {got}d ndarray with shape {} is provided \
             (kernel `{kernel}`)",
            tuple_text(&view.extents)
        )
    } else {
        format!(
            "Invalid value for argument {name} - required array has ndim={ndim}{elements}, array with {} dimensions \
             is provided (kernel `{kernel}`)",
            got + rank
        )
    })
}
