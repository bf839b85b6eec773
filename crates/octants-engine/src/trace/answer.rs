//! The questions to a [`World`], as data, and their answers.

use octants_artifact::{Lookup, Made};
use octants_frontend::{Entity, FuncSource, HostValue, Obj, World, WorldResult};
use octants_ir::Scalar;

/// An answer of a world.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Entity(Entity),
    Object(WorldResult<Obj>),
    Perhaps(WorldResult<Option<Obj>>),
    Truth(WorldResult<bool>),
    Objects(WorldResult<Vec<Obj>>),
    Text(WorldResult<String>),
    Source(WorldResult<FuncSource>),
}

/// Evaluates the question.
pub(super) fn ask(world: &dyn World, lookup: &Lookup) -> Answer {
    match lookup {
        Lookup::Entity(obj) => Answer::Entity(world.entity(Obj(*obj))),
        Lookup::Global(func, name) => Answer::Perhaps(world.global(Obj(*func), name)),
        Lookup::Attribute(obj, name) => Answer::Perhaps(world.attribute(Obj(*obj), name)),
        Lookup::Subscript(obj, key) => Answer::Object(world.subscript(Obj(*obj), Obj(*key))),
        Lookup::Call { function, args, named } => {
            let named: Vec<_> = named.iter().map(|(name, obj)| (name.clone(), Obj(*obj))).collect();
            Answer::Object(world.call(Obj(*function), &objects(args), &named))
        }
        Lookup::Binary(op, left, right) => Answer::Object(world.binary(op, Obj(*left), Obj(*right))),
        Lookup::Unary(op, operand) => Answer::Object(world.unary(op, Obj(*operand))),
        Lookup::Truth(obj) => Answer::Truth(world.truth(Obj(*obj))),
        Lookup::Iterate(obj) => Answer::Objects(world.iterate(Obj(*obj))),
        Lookup::Format(obj, spec) => Answer::Text(world.format(Obj(*obj), spec)),
        Lookup::Dtype(name) => {
            let scalar = Scalar::from_name(name).expect("compiler bug: a trace with an unknown scalar type");
            Answer::Object(Ok(world.dtype(scalar)))
        }
        Lookup::Make(made) => Answer::Object(Ok(world.make(value(made)))),
        Lookup::Source(func) => Answer::Source(world.source(Obj(*func))),
        Lookup::Freeze(obj) => Answer::Object(Ok(world.freeze(Obj(*obj)))),
        Lookup::TensorMethod(name) => Answer::Perhaps(Ok(world.tensor_method(name))),
        Lookup::TypeName(obj) => Answer::Text(Ok(world.type_name(Obj(*obj)))),
    }
}

/// The objects whose code may run for this question, and so may change the answers to other questions. Empty if no code
/// runs. Computed attributes are assumed to have no effects.
pub(super) fn runs_code_of(lookup: &Lookup) -> Vec<Obj> {
    match lookup {
        Lookup::Call { function, args, named } => {
            let named = named.iter().map(|(_, obj)| obj);
            std::iter::once(function).chain(args).chain(named).copied().map(Obj).collect()
        }
        Lookup::Subscript(a, b) | Lookup::Binary(_, a, b) => vec![Obj(*a), Obj(*b)],
        Lookup::Unary(_, obj) | Lookup::Truth(obj) | Lookup::Iterate(obj) | Lookup::Format(obj, _) => vec![Obj(*obj)],
        Lookup::Entity(_)
        | Lookup::Global(..)
        | Lookup::Attribute(..)
        | Lookup::Dtype(_)
        | Lookup::Make(_)
        | Lookup::Source(_)
        | Lookup::Freeze(_)
        | Lookup::TensorMethod(_)
        | Lookup::TypeName(_) => Vec::new(),
    }
}

/// Whether the known facts about an object imply that its code has no side effects.
pub(super) fn is_inert(entity: &Entity) -> bool {
    matches!(
        entity,
        Entity::None
            | Entity::Bool(_)
            | Entity::Int(_)
            | Entity::Float(_)
            | Entity::Str(_)
            | Entity::Dtype(_)
            | Entity::Builtin(_)
    )
}

fn objects(numbers: &[u32]) -> Vec<Obj> {
    numbers.iter().copied().map(Obj).collect()
}

fn value(made: &Made) -> HostValue {
    let object = |o: &Option<u32>| o.map(Obj);
    match made {
        Made::None => HostValue::None,
        Made::Bool(b) => HostValue::Bool(*b),
        Made::Int(i) => HostValue::Int(*i),
        Made::Float(bits) => HostValue::Float(f64::from_bits(*bits)),
        Made::Str(s) => HostValue::Str(s.clone()),
        Made::Tuple(items) => HostValue::Tuple(objects(items)),
        Made::List(items) => HostValue::List(objects(items)),
        Made::IntVector(items) => HostValue::IntVector(items.clone()),
        Made::Dict(items) => HostValue::Dict(items.iter().map(|(k, v)| (Obj(*k), Obj(*v))).collect()),
        Made::Slice(a, b, c) => HostValue::Slice(object(a), object(b), object(c)),
    }
}

/// A value to be made, as data.
pub(super) fn made(value: &HostValue) -> Made {
    let numbers = |items: &[Obj]| items.iter().map(|o| o.0).collect();
    let number = |o: &Option<Obj>| o.map(|o| o.0);
    match value {
        HostValue::None => Made::None,
        HostValue::Bool(b) => Made::Bool(*b),
        HostValue::Int(i) => Made::Int(*i),
        HostValue::Float(x) => Made::Float(x.to_bits()),
        HostValue::Str(s) => Made::Str(s.clone()),
        HostValue::Tuple(items) => Made::Tuple(numbers(items)),
        HostValue::List(items) => Made::List(numbers(items)),
        HostValue::IntVector(items) => Made::IntVector(items.clone()),
        HostValue::Dict(items) => Made::Dict(items.iter().map(|(k, v)| (k.0, v.0)).collect()),
        HostValue::Slice(a, b, c) => Made::Slice(number(a), number(b), number(c)),
    }
}
