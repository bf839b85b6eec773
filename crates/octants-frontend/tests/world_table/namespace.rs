//! The names in a module's scope: `qd` with its types, fields and arrays, `math`, and Python's built-in functions.

use octants_frontend::{Entity, FieldDesc, NdarrayDesc, Obj, Reach, World, WorldResult};
use octants_ir::{ComponentLayout, Digit, Placement, Scalar, Type};

use super::{Annotation, Record, Table, number, raise};

const PYTHON: &str = "range len min max abs int float bool print isinstance tuple list zip enumerate getattr hasattr \
                      type round pow sum any all reversed";

const QD: &str = "static static_assert static_print ndrange grouped loop_config stream_parallel cast bit_cast random zero \
                  one Vector Matrix Struct select sin cos tan asin acos atan sinh cosh tanh exp exp2 log log2 sqrt rsqrt floor \
                  ceil round trunc isnan isinf popcnt clz ffs abs min max atan2 pow raw_div raw_mod bit_shr logical_and \
                  logical_or logical_not rcp frexp sgn bit_and bit_or bit_xor bit_not atomic_add atomic_sub atomic_mul \
                  atomic_min atomic_max atomic_and atomic_or atomic_xor atomic_exchange atomic_cas block_local \
                  assume_in_range volatile_load add sub mul truediv floordiv mod neg matmul";

pub fn fill(t: &Table) {
    for name in PYTHON.split_whitespace() {
        t.set_global(name, t.builtin(name));
    }
    let qd = t.opaque("module", Vec::new());
    for name in QD.split_whitespace() {
        let obj = t.find_global(name).unwrap_or_else(|| t.builtin(name));
        t.set_attribute(qd, name, obj);
    }
    for s in Scalar::ALL {
        let dtype = t.dtype(s);
        t.set_attribute(dtype, "_octants_entity", t.str("dtype"));
        t.set_attribute(qd, s.name(), dtype);
    }
    let template = t.host("template", |t, _, _| Ok(annotation(t, Annotation::Template)));
    t.set_attribute(qd, "template", template);
    t.set_attribute(qd, "Template", annotation(t, Annotation::Template));
    t.set_attribute(qd, "field", t.host("field", |t, args, kw| field(t, scalar_type(t, args[0])?, kw)));
    t.set_attribute(qd, "ndarray", t.host("ndarray", |t, args, kw| ndarray(t, scalar_type(t, args[0])?, kw)));
    for (owner, axes) in [("Vector", 1), ("Matrix", 2)] {
        let Ok(Some(class)) = t.attribute(qd, owner) else { panic!("no {owner}") };
        let field = t.host("field", move |t, args, kw| field(t, tensor_type(t, args, axes)?, kw));
        let ndarray = t.host("ndarray", move |t, args, kw| ndarray(t, tensor_type(t, args, axes)?, kw));
        t.set_attribute(class, "field", field);
        t.set_attribute(class, "ndarray", ndarray);
    }
    let types = t.opaque("module", Vec::new());
    for (name, axes) in [("vector", 1), ("matrix", 2)] {
        let f = t.host(name, move |t, args, _| {
            let entity: fn(Type) -> Entity;
            let ty = if args.len() > axes {
                entity = Entity::TensorType;
                tensor_type(t, args, axes)?
            } else {
                entity = Entity::AnyTensorType;
                Type::tensor(Scalar::F32, &shape(t, &args[..axes]))
            };
            let obj = t.add(Record::new(entity(ty.clone()), "TensorType"));
            // In Python scope the type makes a constant: one number fills it.
            let host = move |t: &Table, args: &[Obj], _: &[(String, Obj)]| {
                let value = t.record(args[0]).entity;
                let values = vec![value; ty.leaf_count()];
                Ok(t.value(Entity::TensorConst { ty: ty.clone(), values, is_numpy: false }))
            };
            t.edit(obj, |r| r.host = Some(std::rc::Rc::new(host)));
            Ok(obj)
        });
        t.set_attribute(types, name, f);
    }
    t.set_attribute(
        types,
        "struct",
        t.host("struct", |t, _, kw| Ok(struct_type(t, "struct", kw.to_vec(), Vec::new()))),
    );
    t.set_attribute(types, "ndarray", t.host("ndarray", ndarray_annotation));
    t.set_attribute(qd, "types", types);
    t.set_attribute(qd, "opaque", t.host("opaque", |t, _, kw| Ok(t.opaque("Thing", kw.to_vec()))));
    let pi = t.value(Entity::Float(std::f64::consts::PI));
    t.set_global("math", t.opaque("module", vec![("pi".into(), pi)]));
    t.set_global("qd", qd);
}

fn annotation(t: &Table, a: Annotation) -> Obj {
    t.add(Record { annotation: Some(a), ..Record::new(Entity::Opaque, "annotation") })
}

fn scalar_type(t: &Table, obj: Obj) -> WorldResult<Type> {
    match t.is_type(obj) {
        Some(ty) => Ok(ty),
        None => raise("TypeError: not a type"),
    }
}

fn tensor_type(t: &Table, args: &[Obj], axes: usize) -> WorldResult<Type> {
    let Some(Type::Scalar(s)) = t.is_type(args[axes]) else { return raise("TypeError: not a scalar type") };
    Ok(Type::tensor(s, &shape(t, &args[..axes])))
}

fn shape(t: &Table, extents: &[Obj]) -> Vec<u32> {
    extents.iter().map(|o| as_int(t, *o) as u32).collect()
}

fn as_int(t: &Table, obj: Obj) -> i128 {
    match t.record(obj).entity {
        Entity::Int(i) => i,
        other => panic!("not an int: {other:?}"),
    }
}

fn keyword(kw: &[(String, Obj)], name: &str) -> Option<Obj> {
    kw.iter().find(|(n, _)| n == name).map(|(_, o)| *o)
}

fn ints(t: &Table, obj: Option<Obj>) -> Vec<i128> {
    match obj.map(|o| t.record(o).entity) {
        None => Vec::new(),
        Some(Entity::Tuple(items) | Entity::List(items)) => items.iter().map(|o| as_int(t, *o)).collect(),
        Some(Entity::Int(i)) => vec![i],
        Some(other) => panic!("not a shape: {other:?}"),
    }
}

fn field_desc(t: &Table, name: &str, elem: Type, kw: &[(String, Obj)]) -> FieldDesc {
    let shape: Vec<u64> = ints(t, keyword(kw, "shape")).into_iter().map(|n| n as u64).collect();
    let mut offset: Vec<i64> = ints(t, keyword(kw, "offset")).into_iter().map(|n| n as i64).collect();
    offset.resize(shape.len(), 0);
    let width = u64::from(elem.scalar().map_or(4, Scalar::bytes));
    let count = elem.leaf_count() as u64;
    let root = t.new_root();
    let mut stride = width * count;
    let mut axes: Vec<Vec<Digit>> = Vec::new();
    for &extent in shape.iter().rev() {
        axes.insert(0, vec![Digit { extent, stride }]);
        stride *= extent;
    }
    let components = (0..count)
        .map(|c| ComponentLayout { root, place: Placement { base: c * width, axes: axes.clone() } })
        .collect();
    FieldDesc {
        name: name.into(),
        elem,
        shape,
        offset,
        components,
        is_sparse: false,
        is_metadata: false,
        packed: Vec::new(),
    }
}

fn field(t: &Table, elem: Type, kw: &[(String, Obj)]) -> WorldResult<Obj> {
    let dtype = t.dtype(elem.scalar().unwrap_or(Scalar::F32));
    let desc = field_desc(t, "", elem, kw);
    let obj = t.add(Record::new(Entity::Field(desc), "Field"));
    t.set_attribute(obj, "dtype", dtype);
    Ok(obj)
}

fn ndarray(t: &Table, elem: Type, kw: &[(String, Obj)]) -> WorldResult<Obj> {
    let extents: Vec<u64> = ints(t, keyword(kw, "shape")).into_iter().map(|n| n as u64).collect();
    let (ndim, reach) = (extents.len() as u32, Reach::of(&extents, u64::MAX));
    Ok(t.add(Record::new(
        Entity::Ndarray(NdarrayDesc {
            elem,
            ndim,
            contiguous: true,
            reach,
            clamped: false,
            needs_grad: false,
            needs_dual: false,
            is_view: false,
            split_axis: None,
        }),
        "Ndarray",
    )))
}

fn ndarray_annotation(t: &Table, args: &[Obj], kw: &[(String, Obj)]) -> WorldResult<Obj> {
    let dtype = args.first().copied().or_else(|| keyword(kw, "dtype"));
    let elem = scalar_type(t, dtype.unwrap_or_else(|| t.dtype(Scalar::F32)))?;
    let ndim = args.get(1).copied().or_else(|| keyword(kw, "ndim")).map_or(1, |o| as_int(t, o) as u32);
    let contiguous = keyword(kw, "strided").is_none();
    let reach = ["short", "wide"].map(|word| keyword(kw, word).is_some());
    let reach = match reach {
        [true, _] => Reach::Short,
        [_, true] => Reach::Wide,
        _ => Reach::Long,
    };
    let clamped = keyword(kw, "boundary").is_some();
    Ok(annotation(
        t,
        Annotation::Ndarray(NdarrayDesc {
            elem,
            ndim,
            contiguous,
            reach,
            clamped,
            needs_grad: false,
            needs_dual: false,
            is_view: false,
            split_axis: None,
        }),
    ))
}

/// A struct type with methods, and `.field(shape=)`.
pub fn struct_type(t: &Table, name: &str, members: Vec<(String, Obj)>, methods: Vec<(String, Obj)>) -> Obj {
    let ty = t.add(Record::new(Entity::StructType { name: name.into(), members: members.clone() }, "StructType"));
    let methods = methods.into_iter().map(|(n, o)| (t.str(&n), o)).collect();
    let methods = t.add(Record { items: Some(methods), ..Record::new(Entity::Opaque, "dict") });
    t.set_attribute(ty, "methods", methods);
    let all = members.clone();
    let field = t.host("field", move |t, _, kw| Ok(struct_field(t, Some(ty), &all, kw)));
    t.set_attribute(ty, "field", field);
    // In Python scope the type makes a constant.
    let host = move |t: &Table, args: &[Obj], kw: &[(String, Obj)]| {
        let zero = t.int(0);
        let members = members
            .iter()
            .enumerate()
            .map(|(i, (n, _))| (n.clone(), args.get(i).copied().or_else(|| keyword(kw, n)).unwrap_or(zero)))
            .collect();
        Ok(t.add(Record::new(Entity::StructConst { ty: Some(ty), members }, "Struct")))
    };
    t.edit(ty, |r| r.host = Some(std::rc::Rc::new(host)));
    ty
}

fn struct_field(t: &Table, ty: Option<Obj>, members: &[(String, Obj)], kw: &[(String, Obj)]) -> Obj {
    let items = members
        .iter()
        .map(|(n, m)| {
            let obj = match t.record(*m).entity {
                Entity::StructType { members, .. } => struct_field(t, Some(*m), &members, kw),
                _ => {
                    let elem = t.is_type(*m).expect("a member's type");
                    t.add(Record::new(Entity::Field(field_desc(t, n, elem, kw)), "Field"))
                }
            };
            (n.clone(), obj)
        })
        .collect();
    let obj = t.add(Record::new(Entity::StructField(items), "StructField"));
    if let Some(ty) = ty {
        t.set_attribute(obj, "struct_type", ty);
    }
    obj
}

/// A name that the compiler resolves, called with compile-time values.
pub fn call_builtin(t: &Table, name: &str, args: &[Obj]) -> WorldResult<Obj> {
    let entities: Vec<Entity> = args.iter().map(|o| t.record(*o).entity).collect();
    match (name, &entities[..]) {
        ("Vector" | "Matrix", [Entity::List(items)]) => return Ok(tensor_const(t, items)),
        ("len", [Entity::Str(s)]) => return Ok(t.int(s.chars().count() as i128)),
        ("sum", [Entity::List(items) | Entity::Tuple(items)]) => {
            return items.iter().try_fold(t.int(0), |a, b| {
                let (x, y) = (t.record(a).entity, t.record(*b).entity);
                match (x, y) {
                    (Entity::Int(x), Entity::Int(y)) => Ok(t.int(x + y)),
                    _ => t.binary("+", a, *b),
                }
            });
        }
        ("min" | "max", [Entity::Int(a), Entity::Int(b)]) => {
            return Ok(t.int(if name == "min" { *a.min(b) } else { *a.max(b) }));
        }
        ("abs", [Entity::Int(a)]) => return Ok(t.int(a.abs())),
        ("isinstance", [value, Entity::Builtin(ty)]) => {
            let hit = matches!(
                (value, ty.as_str()),
                (Entity::Int(_), "int") | (Entity::Float(_), "float") | (Entity::Bool(_), "bool")
            );
            return Ok(t.value(Entity::Bool(hit)));
        }
        _ => {}
    }
    let numbers: Vec<f64> = entities.iter().filter_map(number).collect();
    if numbers.len() != args.len() {
        return raise(format!("TypeError: {name}: bad argument"));
    }
    let float = |f: f64| Ok(t.value(Entity::Float(f)));
    match (name, &numbers[..]) {
        ("int", [a]) => Ok(t.int(a.trunc() as i128)),
        ("bool", [a]) => Ok(t.value(Entity::Bool(*a != 0.0))),
        ("float", [a]) => float(*a),
        ("abs", [a]) => float(a.abs()),
        ("sqrt", [a]) => float(a.sqrt()),
        ("sin", [a]) => float(a.sin()),
        ("cos", [a]) => float(a.cos()),
        ("min", [a, b]) => float(a.min(*b)),
        ("max", [a, b]) => float(a.max(*b)),
        _ => raise(format!("TypeError: {name} cannot be called here")),
    }
}

fn tensor_const(t: &Table, items: &[Obj]) -> Obj {
    let mut values = Vec::new();
    let mut shape = vec![items.len() as u32];
    for item in items {
        match t.record(*item).entity {
            Entity::List(row) => {
                shape.truncate(1);
                shape.push(row.len() as u32);
                values.extend(row.iter().map(|o| t.record(*o).entity));
            }
            e => values.push(e),
        }
    }
    let float = values.iter().any(|v| matches!(v, Entity::Float(_)));
    let s = if float { Scalar::F32 } else { Scalar::I32 };
    t.value(Entity::TensorConst { ty: Type::tensor(s, &shape), values, is_numpy: false })
}
