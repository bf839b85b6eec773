//! [`Value`]: the abstract value of an evaluation.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use octants_ir::{BufferId, Const, LocalId, Type};

/// The abstract value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// A scalar.
    Known(Const),
    /// Unknown, but values with the same token are equal.
    Token(u64),
    /// Components or members.
    Parts(Rc<[Value]>),
    /// An address.
    Address(Rc<Address>),
}

/// The target of an address.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub place: Place,
    /// Positions of components and members on the way; `None` if one is unknown.
    pub path: Option<Vec<i64>>,
    /// Equal for addresses of the same location, even if it is unknown.
    pub token: u64,
}

/// The memory that an address is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A local of the frame with this number.
    Local(usize, LocalId),
    /// An element; `None` if an index is unknown.
    Buffer(BufferId, Option<Vec<i64>>),
    /// Other memory.
    Other,
}

/// The token of a value, computed from the tokens of its operands.
pub(super) fn token(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Value {
    /// An integer.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Value::Known(Const::Int(i)) => Some(*i),
            _ => None,
        }
    }

    /// Equal for values that are the same.
    pub fn token(&self) -> u64 {
        match self {
            Value::Known(c) => token(c),
            Value::Token(t) => *t,
            Value::Parts(parts) => token(parts.iter().map(Value::token).collect::<Vec<_>>()),
            Value::Address(a) => a.token,
        }
    }

    /// A component or member.
    pub fn part(&self, i: usize) -> Value {
        match self {
            Value::Parts(parts) if i < parts.len() => parts[i].clone(),
            other => Value::Token(token(("part", other.token(), i))),
        }
    }

    /// The part at the end of a path.
    pub fn at(&self, path: &[i64]) -> Value {
        path.iter().fold(self.clone(), |v, i| v.part(*i as usize))
    }

    /// The value with another one in the place at the end of a path; `None` if a part is unknown.
    pub fn with(&self, path: &[i64], value: Value) -> Option<Value> {
        let Some((first, rest)) = path.split_first() else { return Some(value) };
        let Value::Parts(parts) = self else { return None };
        let mut parts = parts.to_vec();
        let part = parts.get_mut(*first as usize)?;
        *part = part.with(rest, value)?;
        Some(Value::Parts(parts.into()))
    }
}

/// The number of the first scalar of the part at the end of a path.
pub(super) fn first_leaf(ty: &Type, path: &[i64]) -> Option<usize> {
    let Some((first, rest)) = path.split_first() else { return Some(0) };
    let first = usize::try_from(*first).ok()?;
    match ty {
        Type::Vector(..) | Type::Matrix(..) => (rest.is_empty() && first < ty.leaf_count()).then_some(first),
        Type::Struct(of) => {
            let before: usize = of.members.iter().take(first).map(|(_, ty)| ty.leaf_count()).sum();
            Some(before + first_leaf(&of.members.get(first)?.1, rest)?)
        }
        _ => None,
    }
}

/// Applies an operation to a scalar, or to each component.
pub(super) fn map(a: &Value, f: &dyn Fn(Const) -> Option<Const>, name: &impl Hash) -> Value {
    match a {
        Value::Known(c) => f(*c).map_or_else(|| Value::Token(token((name, token(c)))), Value::Known),
        Value::Parts(parts) => Value::Parts(parts.iter().map(|p| map(p, f, name)).collect()),
        other => Value::Token(token((name, other.token()))),
    }
}

/// Applies an operation to two scalars, or to the components of two values.
pub(super) fn map_two(a: &Value, b: &Value, f: &dyn Fn(Const, Const) -> Option<Const>, name: &impl Hash) -> Value {
    let both = || Value::Token(token((name, a.token(), b.token())));
    match (a, b) {
        (Value::Known(x), Value::Known(y)) => f(*x, *y).map_or_else(both, Value::Known),
        (Value::Parts(x), Value::Parts(y)) if x.len() == y.len() => {
            Value::Parts(x.iter().zip(y.iter()).map(|(x, y)| map_two(x, y, f, name)).collect())
        }
        _ => both(),
    }
}
