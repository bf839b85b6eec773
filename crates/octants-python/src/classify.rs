//! Classifies Python objects for the compiler.
//!
//! The package's classes declare their kind with the class attribute `_octants_entity`. Built-in functions and classes
//! carry `_octants_builtin`. Everything else is classified by its type.

use octants_engine::Config;
use octants_engine::frontend::{
    BitRange, Entity, FieldDesc, FuncKind, Obj, PackedComponent, PackedDigits, PackedNumber,
};
use octants_engine::ir::{ComponentLayout, Type};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyFunction, PyInt, PyList, PyString, PyTuple, PyType};

use crate::annotation::{dataclass_fields, scalar_type, value_type};
use crate::bound_kernel::BoundKernel;
use crate::element_types::{element_type, scalar_by_name, scalar_of};
use crate::func::Func;
use crate::kernel::Kernel;
use crate::level_tree::Cells;
use crate::names::{Known, marker, text_attribute};
use crate::ndarray::Ndarray;
use crate::placement::Placement;

/// The services that classification needs.
pub trait Handles<'py> {
    /// The handle of an object.
    fn handle(&self, object: Bound<'py, PyAny>) -> Obj;
}

/// Classifies an object. Errors are those of attributes that the package itself should have.
pub fn classify<'py>(object: &Bound<'py, PyAny>, world: &impl Handles<'py>, config: &Config) -> PyResult<Entity> {
    if object.is_none() {
        return Ok(Entity::None);
    }
    if object.is_instance_of::<PyBool>() {
        return Ok(Entity::Bool(object.is_truthy()?));
    }
    if let Some(plain) = number_or_text(object)? {
        return Ok(match plain {
            Entity::Opaque => Entity::Opaque,
            plain if is_enum_member(object)? => Entity::Member(Box::new(plain)),
            plain => plain,
        });
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return Ok(Entity::Tuple(tuple.iter().map(|o| world.handle(o)).collect()));
    }
    if let Ok(list) = object.cast::<PyList>() {
        return Ok(Entity::List(list.iter().map(|o| world.handle(o)).collect()));
    }
    if let Some(entity) = function(object, world)? {
        return Ok(entity);
    }
    if object.is_instance_of::<PyType>() {
        return class(object, world, config);
    }
    if let Some(kind) = marker(object)
        && let Some(entity) = marked(&kind, object, world, config)?
    {
        return Ok(entity);
    }
    let known = Known::get(object.py())?;
    if let Some(name) = known.builtin(object) {
        return Ok(Entity::Builtin(name.to_string()));
    }
    if let Ok(array) = object.cast::<Ndarray>() {
        return Ok(Entity::Ndarray(array.get().desc()));
    }
    if let Some(entity) = numpy_constant(object, known, config)? {
        return Ok(entity);
    }
    if object.is_instance(known.partial.bind(object.py()).as_any())? {
        let args = object.getattr(pyo3::intern!(object.py(), "args"))?;
        return Ok(Entity::Partial {
            func: world.handle(object.getattr(pyo3::intern!(object.py(), "func"))?),
            args: args.cast::<PyTuple>()?.iter().map(|o| world.handle(o)).collect(),
            keywords: members(&object.getattr(pyo3::intern!(object.py(), "keywords"))?, world)?,
        });
    }
    Ok(builtin_name(object).map_or(Entity::Opaque, Entity::Builtin))
}

/// An integer, float or string, or an object of a class derived from these.
fn number_or_text(object: &Bound<'_, PyAny>) -> PyResult<Option<Entity>> {
    if object.is_instance_of::<PyInt>() {
        return Ok(Some(object.extract::<i128>().map_or(Entity::Opaque, Entity::Int)));
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(Some(Entity::Float(object.extract()?)));
    }
    let text = object.cast::<PyString>().ok();
    Ok(text.map(|text| text.to_str().map_or(Entity::Opaque, |t| Entity::Str(t.to_string()))))
}

fn is_enum_member(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_plain = object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyString>();
    let py = object.py();
    Ok(!is_plain && object.is_instance(&py.import("enum")?.getattr(pyo3::intern!(py, "Enum"))?)?)
}

fn builtin_name(object: &Bound<'_, PyAny>) -> Option<String> {
    text_attribute(object, pyo3::intern!(object.py(), "_octants_builtin"))
}

fn function<'py>(object: &Bound<'py, PyAny>, world: &impl Handles<'py>) -> PyResult<Option<Entity>> {
    let py = object.py();
    if let Ok(func) = object.cast::<Func>() {
        return Ok(Some(match builtin_name(object) {
            Some(name) => Entity::Builtin(name),
            None => Entity::Func(func.get().kind()),
        }));
    }
    if object.is_instance_of::<Kernel>() {
        return Ok(Some(Entity::Func(FuncKind::Kernel)));
    }
    if object.is_instance_of::<PyFunction>() {
        return Ok(Some(match builtin_name(object) {
            Some(name) => Entity::Builtin(name),
            None => Entity::Func(FuncKind::Plain),
        }));
    }
    if let Ok(bound) = object.cast::<BoundKernel>() {
        let (kernel, instance) = bound.get().parts(py);
        return Ok(Some(Entity::Method(world.handle(kernel.clone().into_any()), world.handle(instance.clone()))));
    }
    // SAFETY: only the type of a live object is read.
    let is_method = unsafe { pyo3::ffi::Py_TYPE(object.as_ptr()) == &raw mut PyMethod_Type };
    if is_method {
        let function = object.getattr(pyo3::intern!(py, "__func__"))?;
        let receiver = object.getattr(pyo3::intern!(py, "__self__"))?;
        return Ok(Some(Entity::Method(world.handle(function), world.handle(receiver))));
    }
    Ok(None)
}

// Part of CPython's C API, but not among the declarations of `pyo3::ffi`.
unsafe extern "C" {
    static mut PyMethod_Type: pyo3::ffi::PyTypeObject;
}

fn class<'py>(object: &Bound<'py, PyAny>, world: &impl Handles<'py>, config: &Config) -> PyResult<Entity> {
    let py = object.py();
    let known = Known::get(py)?;
    if let Some(name) = known.builtin(object) {
        return Ok(Entity::Builtin(name.to_string()));
    }
    if known.np_scalar(object).is_some() {
        return Ok(scalar_type(object, config)?.map_or(Entity::Opaque, Entity::Dtype));
    }
    if let Some(name) = builtin_name(object) {
        return Ok(Entity::Builtin(name));
    }
    if let Some(fields) = dataclass_fields(object)? {
        return Ok(Entity::DataclassType(fields.into_iter().map(|(n, t)| (n, world.handle(t))).collect()));
    }
    Ok(Entity::Opaque)
}

fn marked<'py>(
    kind: &str,
    object: &Bound<'py, PyAny>,
    world: &impl Handles<'py>,
    config: &Config,
) -> PyResult<Option<Entity>> {
    let py = object.py();
    Ok(Some(match kind {
        "dtype" => scalar_type(object, config)?.map_or(Entity::Opaque, Entity::Dtype),
        "quant_type" => {
            scalar_type(&object.getattr(pyo3::intern!(py, "compute"))?, config)?.map_or(Entity::Opaque, Entity::Dtype)
        }
        "tensor_type" => match value_type(object, config)? {
            Some(ty) if object.getattr(pyo3::intern!(py, "any_scalar"))?.is_truthy()? => Entity::AnyTensorType(ty),
            Some(ty) => Entity::TensorType(ty),
            None => Entity::Opaque,
        },
        "struct_type" => Entity::StructType {
            name: text_attribute(object, pyo3::intern!(py, "name")).unwrap_or_else(|| "struct".to_string()),
            members: members(&object.getattr(pyo3::intern!(py, "members"))?, world)?,
        },
        "tensor" => {
            let dtype = object.getattr_opt(pyo3::intern!(py, "dtype"))?.filter(|d| !d.is_none());
            let scalar = match dtype {
                Some(d) => scalar_type(&d, config)?,
                None => None,
            };
            let array = object.call_method0(pyo3::intern!(py, "to_numpy"))?;
            let Some(Entity::TensorConst { ty, values, .. }) = numpy_constant(&array, Known::get(py)?, config)? else {
                return Ok(None);
            };
            let ty = match scalar {
                Some(s) => Type::tensor(s, &ty.shape()),
                None => ty,
            };
            Entity::TensorConst { ty, values, is_numpy: false }
        }
        "struct" => {
            let ty = object.getattr_opt(pyo3::intern!(py, "struct_type"))?.filter(|t| !t.is_none());
            Entity::StructConst {
                ty: ty.map(|t| world.handle(t)),
                members: members(&object.getattr(pyo3::intern!(py, "entries"))?, world)?,
            }
        }
        "field" => Entity::Field(field(object, world)?),
        "sparse_cells" => Entity::SparseCells {
            state: world.handle(object.getattr(pyo3::intern!(py, "state"))?),
            index: object.getattr(pyo3::intern!(py, "cells"))?.cast::<Cells>()?.get().index().clone(),
        },
        "reordered_field" => Entity::ReorderedField {
            field: world.handle(object.getattr(pyo3::intern!(py, "_stored"))?),
            positions: world.handle(object.getattr(pyo3::intern!(py, "_positions"))?),
        },
        "mesh_elements" => Entity::MeshElements {
            kind: object.getattr(pyo3::intern!(py, "_kind"))?.extract()?,
            count: object.getattr(pyo3::intern!(py, "_count"))?.extract()?,
        },
        "struct_field" => Entity::StructField(members(&object.getattr(pyo3::intern!(py, "field_dict"))?, world)?),
        _ => return Ok(None),
    }))
}

fn members<'py>(dict: &Bound<'py, PyAny>, world: &impl Handles<'py>) -> PyResult<Vec<(String, Obj)>> {
    dict.cast::<PyDict>()?.iter().map(|(k, v)| Ok((k.extract()?, world.handle(v)))).collect()
}

fn field<'py>(object: &Bound<'py, PyAny>, world: &impl Handles<'py>) -> PyResult<FieldDesc> {
    let py = object.py();
    let root = object.getattr(pyo3::intern!(py, "_root"))?;
    // Lays out the tree; raises if its program has ended.
    root.getattr(pyo3::intern!(py, "buffer"))?;
    let root = world.handle(root).0;
    let scalar = scalar_by_name(&object.getattr(pyo3::intern!(py, "_dtype_name"))?.extract::<String>()?)?;
    let element: Vec<u32> = object.getattr(pyo3::intern!(py, "_element_shape"))?.extract()?;
    let shape: Vec<u64> = object.getattr(pyo3::intern!(py, "_shape"))?.extract()?;
    let offset = object.getattr(pyo3::intern!(py, "_offset"))?;
    let offset: Vec<i64> = if offset.is_none() { Vec::new() } else { offset.extract()? };
    let placements = object.call_method0(pyo3::intern!(py, "_placed"))?;
    let placements: Vec<PyRef<'_, Placement>> = placements.extract()?;
    let components = placements.iter().map(|p| ComponentLayout { root, place: p.get().clone() }).collect();
    let name = text_attribute(object, pyo3::intern!(py, "_name")).unwrap_or_default();
    let offset = if offset.is_empty() { vec![0; shape.len()] } else { offset };
    let is_sparse = object.getattr(pyo3::intern!(py, "_sparse_levels"))?.is_truthy()?;
    let is_metadata = object.getattr(pyo3::intern!(py, "_is_metadata"))?.is_truthy()?;
    let packed = packed_components(object)?;
    let elem = element_type(scalar, &element)?;
    Ok(FieldDesc { name, elem, shape, offset, components, is_sparse, is_metadata, packed })
}

/// The placements of the components of a field of a quantized type: `Field._packed`, which describes the tuples.
fn packed_components(field: &Bound<'_, PyAny>) -> PyResult<Vec<PackedComponent>> {
    let py = field.py();
    let found = field.getattr(pyo3::intern!(py, "_packed"))?;
    if found.is_none() {
        return Ok(Vec::new());
    }
    found.try_iter()?.map(|each| packed_component(&each?)).collect()
}

fn packed_component<'py>(part: &Bound<'py, PyAny>) -> PyResult<PackedComponent> {
    let py = part.py();
    let get = |name: &Bound<'py, PyString>| part.getattr(name);
    let words: PyRef<'_, Placement> = get(pyo3::intern!(py, "words"))?.extract()?;
    let digits = digits_of(&get(pyo3::intern!(py, "digits"))?)?;
    let range = |of: &Bound<'_, PyAny>| -> PyResult<BitRange> {
        let (first, bits) = of.extract()?;
        Ok(BitRange { first, bits })
    };
    let (scale, exponent) = (get(pyo3::intern!(py, "scale"))?, get(pyo3::intern!(py, "exponent"))?);
    let shared = get(pyo3::intern!(py, "shared"))?;
    let number = if !scale.is_none() {
        PackedNumber::Fixed(scale.extract::<f64>()?.to_bits())
    } else if exponent.is_none() {
        PackedNumber::Integer
    } else if shared.is_none() {
        PackedNumber::Float(range(&exponent)?)
    } else {
        let all = shared.try_iter()?.map(|each| digits_of(&each?)).collect::<PyResult<_>>()?;
        PackedNumber::SharedExponent(range(&exponent)?, all)
    };
    let root = 0; // The front end sets it to the field's.
    Ok(PackedComponent {
        words: ComponentLayout { root, place: words.get().clone() },
        word: scalar_by_name(&get(pyo3::intern!(py, "word"))?.extract::<String>()?)?,
        shape: words.get().shape(),
        axes: get(pyo3::intern!(py, "axes"))?.extract()?,
        within: get(pyo3::intern!(py, "within"))?.extract()?,
        digits,
        number,
    })
}

/// The lowest bit, the number of bits, and whether it is signed.
fn digits_of(value: &Bound<'_, PyAny>) -> PyResult<PackedDigits> {
    let (first, bits, is_signed) = value.extract()?;
    Ok(PackedDigits { range: BitRange { first, bits }, is_signed })
}

/// Numpy scalars, and arrays of at most two axes.
fn numpy_constant(object: &Bound<'_, PyAny>, known: &Known, config: &Config) -> PyResult<Option<Entity>> {
    let py = object.py();
    if object.is_instance(known.np_generic.bind(py).as_any())? {
        let item = object.call_method0(pyo3::intern!(py, "item"))?;
        return Ok(number(&item));
    }
    if !object.is_instance(known.np_ndarray.bind(py).as_any())? {
        return Ok(None);
    }
    let shape: Vec<u32> = object.getattr(pyo3::intern!(py, "shape"))?.extract()?;
    let dtype = object.getattr(pyo3::intern!(py, "dtype"))?.getattr(pyo3::intern!(py, "type"))?;
    let Some(scalar) = scalar_type(&dtype, config)? else { return Ok(None) };
    let list = object.call_method0(pyo3::intern!(py, "tolist"))?;
    if shape.is_empty() {
        return Ok(number(&list));
    }
    if shape.len() > 2 {
        return Ok(None);
    }
    let mut values = Vec::new();
    for row in list.try_iter()? {
        let row = row?;
        if shape.len() == 1 {
            values.extend(number(&row));
            continue;
        }
        for item in row.try_iter()? {
            values.extend(number(&item?));
        }
    }
    let ty = element_type(scalar, &shape)?;
    debug_assert_eq!(scalar_of(&ty), scalar);
    Ok(Some(Entity::TensorConst { ty, values, is_numpy: true }))
}

fn number(item: &Bound<'_, PyAny>) -> Option<Entity> {
    if item.is_instance_of::<PyBool>() {
        return item.is_truthy().ok().map(Entity::Bool);
    }
    if item.is_instance_of::<PyInt>() {
        return item.extract().ok().map(Entity::Int);
    }
    item.extract().ok().map(Entity::Float)
}
