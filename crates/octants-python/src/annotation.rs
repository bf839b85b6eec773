//! Parameter annotations: converts the objects that users write after the colon to [`ParamKind`].

use std::sync::Arc;

use octants_engine::Config;
use octants_engine::ir::{Scalar, StructType, Type};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::element_types::element_type;
use crate::evaluate_annotations::{enclosing_locals, evaluate};
use crate::names::{Known, marker, own_marker, text_attribute};

/// How a parameter takes its argument.
pub enum ParamKind {
    /// A number by value.
    Scalar(Scalar),
    /// A vector or matrix by value.
    Tensor(Type),
    /// A struct by value, with its struct type object.
    Struct(Arc<StructType>, Py<PyAny>),
    /// A compile-time value.
    Template,
    /// An array.
    Array(ArrayKind),
    /// An array or a field, decided by the argument (`qd.Tensor`).
    Either,
    /// An instance of a `dataclasses.dataclass`: the class and its members.
    Dataclass(Py<PyType>, Vec<(Py<PyString>, ParamKind)>),
    /// Nothing: the message gives the reason.
    Refused(String),
}

impl ParamKind {
    /// Shows the collector the classes that it names.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            ParamKind::Struct(_, object) => visit.call(object),
            ParamKind::Dataclass(class, members) => {
                visit.call(class)?;
                members.iter().try_for_each(|(_, kind)| kind.traverse(visit))
            }
            _ => Ok(()),
        }
    }
}

/// The requirements of an array annotation.
#[derive(Default)]
pub struct ArrayKind {
    /// Scalar, vector or matrix; a vector or matrix of another length than any is refused.
    pub elem: Option<Type>,
    /// The element is a vector or matrix of any scalar.
    pub any_scalar: bool,
    /// Number of axes of an element of any extents. `elem`, if given, is its scalar type.
    pub rank: Option<u32>,
    /// Axes.
    pub ndim: Option<u32>,
    /// An index outside means the nearest element.
    pub clamped: bool,
    /// A `qd.BufferView`, and nothing else.
    pub view: bool,
    /// `None`, a compile-time value, may be passed instead of the array.
    pub optional: bool,
    /// Whether one of our ndarrays must have a gradient (`needs_grad=True`), or the gradient of an array is not used
    /// (`needs_grad=False`).
    pub needs_grad: Option<bool>,
}

impl ArrayKind {
    /// Any array.
    pub const ANY: ArrayKind = ArrayKind {
        elem: None,
        any_scalar: false,
        rank: None,
        ndim: None,
        clamped: false,
        view: false,
        optional: false,
        needs_grad: None,
    };
}

/// The scalar type that an object names: `qd.f32`, `int`, `float`, `bool`, numpy's scalar types.
pub fn scalar_type(object: &Bound<'_, PyAny>, config: &Config) -> PyResult<Option<Scalar>> {
    let py = object.py();
    let known = Known::get(py)?;
    if let Some(name) = known.builtin(object) {
        return Ok(match name {
            "int" => Some(config.default_ip),
            "float" => Some(config.default_fp),
            "bool" => Some(Scalar::U1),
            _ => None,
        });
    }
    if let Some(name) = known.np_scalar(object) {
        return Ok(Scalar::from_name(name));
    }
    if marker(object).as_deref() == Some("dtype") {
        return Ok(text_attribute(object, pyo3::intern!(py, "name")).and_then(|n| Scalar::from_name(&n)));
    }
    Ok(None)
}

/// The value type that an object names: scalar, vector, matrix or struct.
pub fn value_type(object: &Bound<'_, PyAny>, config: &Config) -> PyResult<Option<Type>> {
    if let Some(scalar) = scalar_type(object, config)? {
        return Ok(Some(Type::Scalar(scalar)));
    }
    let py = object.py();
    match marker(object).as_deref() {
        Some("tensor_type") => {
            let dtype = object.getattr(pyo3::intern!(py, "dtype"))?;
            let shape: Vec<u32> = object.getattr(pyo3::intern!(py, "shape"))?.extract()?;
            let scalar = scalar_type(&dtype, config)?.unwrap_or(config.default_fp);
            element_type(scalar, &shape).map(Some)
        }
        Some("struct_type") => struct_type(object, config).map(|s| s.map(Type::Struct)),
        _ => Ok(None),
    }
}

/// The IR's type of a struct type object.
pub fn struct_type(object: &Bound<'_, PyAny>, config: &Config) -> PyResult<Option<Arc<StructType>>> {
    let py = object.py();
    let name = text_attribute(object, pyo3::intern!(py, "name")).unwrap_or_else(|| "struct".to_string());
    let mut members = Vec::new();
    for (key, ty) in object.getattr(pyo3::intern!(py, "members"))?.cast::<PyDict>()?.iter() {
        let Some(ty) = value_type(&ty, config)? else { return Ok(None) };
        members.push((key.extract::<String>()?, ty));
    }
    Ok(Some(Arc::new(StructType { name, members })))
}

/// A field of a dataclass: name and annotation.
pub type Member<'py> = (String, Bound<'py, PyAny>);

/// The fields of a `dataclasses.dataclass` class: names and annotations, or `None` if the class is not a dataclass.
pub fn dataclass_fields<'py>(class: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Member<'py>>>> {
    let py = class.py();
    if !class.is_instance_of::<PyType>() || !class.hasattr(pyo3::intern!(py, "__dataclass_fields__"))? {
        return Ok(None);
    }
    let mut out = Vec::new();
    for field in py.import("dataclasses")?.call_method1("fields", (class,))?.try_iter()? {
        let field = field?;
        let mut ty = field.getattr("type")?;
        if ty.is_instance_of::<PyString>() {
            ty = evaluated(class, &ty)?;
            // The names in it may not be available later.
            field.setattr("type", &ty)?;
        }
        out.push((field.getattr("name")?.extract()?, ty));
    }
    Ok(Some(out))
}

/// A string annotation of a class's member, by the names of its module and of the scopes around it that are running.
fn evaluated<'py>(class: &Bound<'py, PyAny>, text: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let module = py.import("sys")?.getattr("modules")?.get_item(class.getattr("__module__")?)?;
    let globals = module.getattr("__dict__")?;
    evaluate(text, &globals, &enclosing_locals(class, &globals)?)
}

/// The kind of a parameter, or `None` when the annotation is not one that a kernel can have.
pub fn param_kind(annotation: &Bound<'_, PyAny>, config: &Config) -> PyResult<Option<ParamKind>> {
    let py = annotation.py();
    if let Some(inner) = optional(annotation)? {
        return optional_kind(annotation, &inner, config).map(Some);
    }
    let of_instance = marker(annotation);
    match of_instance.as_deref() {
        Some("template") => return Ok(Some(ParamKind::Template)),
        Some("ndarray_type") => return array_kind(annotation, config).map(|a| Some(ParamKind::Array(a))),
        Some("unpacked_vector") => {
            let message = "a vector declared with unpacked=True can only be the type of a @qd.dataclass member, not of \
                           a parameter: remove unpacked=True";
            return Ok(Some(ParamKind::Refused(String::from(message))));
        }
        Some("struct_type") => {
            return Ok(struct_type(annotation, config)?.map(|s| ParamKind::Struct(s, annotation.clone().unbind())));
        }
        _ => {}
    }
    if annotation.is_instance_of::<PyType>() {
        match own_marker(annotation).as_deref() {
            Some("template") => return Ok(Some(ParamKind::Template)),
            Some("ndarray_type") => {
                return Ok(Some(ParamKind::Array(ArrayKind::default())));
            }
            Some("buffer_view") => {
                return Ok(Some(ParamKind::Array(ArrayKind { ndim: Some(1), view: true, ..ArrayKind::default() })));
            }
            Some("tensor_wrapper") => return Ok(Some(ParamKind::Either)),
            _ => {}
        }
        if let Some(fields) = dataclass_fields(annotation)? {
            let mut members = Vec::new();
            for (name, ty) in fields {
                if ty.is_instance_of::<PyType>() && ty.hasattr(pyo3::intern!(py, "_octants_data_oriented"))? {
                    let message = format!(
                        "field '{name}' of dataclass {} has a @qd.data_oriented type, which cannot be flattened into a \
                         typed-dataclass kernel arg: pass such an object as a separate parameter, annotated \
                         qd.template()",
                        annotation.cast::<PyType>()?.name()?
                    );
                    members.push((PyString::intern(py, &name).unbind(), ParamKind::Refused(message)));
                    continue;
                }
                // A member of another type than a kernel's parameter can have is a compile-time value.
                let kind = param_kind(&ty, config)?.unwrap_or(ParamKind::Template);
                members.push((PyString::intern(py, &name).unbind(), kind));
            }
            return Ok(Some(ParamKind::Dataclass(annotation.clone().cast_into::<PyType>()?.unbind(), members)));
        }
    }
    Ok(match value_type(annotation, config)? {
        Some(Type::Scalar(s)) => Some(ParamKind::Scalar(s)),
        Some(ty) => Some(ParamKind::Tensor(ty)),
        None => None,
    })
}

/// The alternatives of `T | None`, `typing.Optional[T]` and other unions, `None` among them as its type.
fn optional<'py>(annotation: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let py = annotation.py();
    if marker(annotation).as_deref() == Some("optional_ndarray") {
        let inner = annotation.getattr(pyo3::intern!(py, "inner"))?;
        return Ok(Some(vec![inner, py.None().into_bound(py).get_type().into_any()]));
    }
    let typing = py.import("typing")?;
    let origin = typing.call_method1("get_origin", (annotation,))?;
    let is_union = origin.is(&typing.getattr("Union")?) || origin.is(&py.import("types")?.getattr("UnionType")?);
    if !is_union {
        return Ok(None);
    }
    annotation.getattr(pyo3::intern!(py, "__args__"))?.extract().map(Some)
}

/// The kind of a parameter that takes `None` as well.
fn optional_kind(annotation: &Bound<'_, PyAny>, members: &[Bound<'_, PyAny>], config: &Config) -> PyResult<ParamKind> {
    let py = annotation.py();
    let none = py.None().into_bound(py).get_type();
    let mut others = members.iter().filter(|m| !m.is(&none) && !m.is_none());
    let (Some(inner), None, 2) = (others.next(), others.next(), members.len()) else {
        return Ok(ParamKind::Refused(format!(
            "Quadrants kernels only support optional annotations of the form 'T | None', got: {}",
            annotation.repr()?
        )));
    };
    Ok(match param_kind(inner, config)? {
        Some(ParamKind::Array(kind)) if !kind.view => ParamKind::Array(ArrayKind { optional: true, ..kind }),
        Some(kind @ (ParamKind::Either | ParamKind::Template)) => kind,
        _ => ParamKind::Refused(format!(
            "Optional ('T | None') kernel arguments are only supported for qd.Tensor, qd.types.Template and \
             qd.types.NDArray, got: {}",
            inner.repr()?
        )),
    })
}

fn array_kind(annotation: &Bound<'_, PyAny>, config: &Config) -> PyResult<ArrayKind> {
    let py = annotation.py();
    let dtype = annotation.getattr(pyo3::intern!(py, "dtype"))?;
    let ndim: Option<u32> = annotation.getattr(pyo3::intern!(py, "ndim"))?.extract()?;
    let rank: Option<u32> = annotation.getattr(pyo3::intern!(py, "element_dim"))?.extract()?;
    let mut elem = if dtype.is_none() { None } else { value_type(&dtype, config)? };
    let shape = annotation.getattr_opt(pyo3::intern!(py, "element_shape"))?;
    if let (Some(Type::Scalar(s)), Some(shape)) = (&elem, shape)
        && shape.is_instance_of::<PyTuple>()
    {
        elem = Some(element_type(*s, &shape.extract::<Vec<u32>>()?)?);
    }
    // `qd.types.vector(3)`. An element shape next to a scalar refers to that scalar.
    let any_scalar = match marker(&dtype).as_deref() {
        Some("tensor_type") => dtype.getattr(pyo3::intern!(py, "any_scalar"))?.is_truthy()?,
        _ => false,
    };
    let fixed = rank == Some(0) || elem.as_ref().is_some_and(Type::is_tensor);
    let clamped = text_attribute(annotation, pyo3::intern!(py, "boundary")).as_deref() == Some("clamp");
    let view = text_attribute(annotation, pyo3::intern!(py, "of")).as_deref() == Some("views");
    let needs_grad = annotation.getattr(pyo3::intern!(py, "needs_grad"))?;
    let needs_grad = if needs_grad.is_none() { None } else { Some(needs_grad.is_truthy()?) };
    Ok(ArrayKind { elem, any_scalar, rank: rank.filter(|_| !fixed), ndim, clamped, view, optional: false, needs_grad })
}
