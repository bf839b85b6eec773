//! Compile-time evaluation: numbers here, everything else by the host (`world`).

use octants_diag::{Code, Diagnostic, Result};

use super::Lowerer;
use crate::ast::{Comparison, Operator, UnaryOperator};
use crate::value::Value;
use crate::world::{Entity, HostValue};

/// Below it an f64 holds every integer.
const EXACT: f64 = 9007199254740992.0;

impl Lowerer<'_> {
    fn host_foldable(&self, v: &Value) -> bool {
        match v {
            Value::Obj(o) => !matches!(
                self.world.entity(*o),
                Entity::TensorConst { .. }
                    | Entity::StructConst { .. }
                    | Entity::Field(_)
                    | Entity::ReorderedField { .. }
                    | Entity::Ndarray(_)
            ),
            v => v.is_compile_time(),
        }
    }

    /// Operators on arrays of numpy are numpy's own.
    fn is_numpy_operand(&self, v: &Value) -> bool {
        matches!(v, Value::Obj(o) if self.is_numpy_array(*o))
    }

    pub(super) fn fold_unary(&mut self, op: UnaryOperator, a: &Value) -> Result<Option<Value>> {
        if let Some(value) = self.unary_by_method(op, a)? {
            return Ok(Some(value));
        }
        Ok(Some(match (op, a) {
            (UnaryOperator::Neg, Value::Int(i)) if *i != i128::MIN => Value::Int(-i),
            (UnaryOperator::Neg, Value::Float(f)) => Value::Float(-f),
            (UnaryOperator::Pos, Value::Int(_) | Value::Float(_)) => a.clone(),
            (UnaryOperator::Invert, Value::Int(i)) => Value::Int(!i),
            (UnaryOperator::Not, _) if self.host_foldable(a) => {
                Value::Bool(!self.compile_time_truth(a, "the operand of `not`")?)
            }
            _ if self.host_foldable(a) || self.is_numpy_operand(a) => {
                let Some(obj) = self.to_host(a) else { return Ok(None) };
                let v = self.world.unary(op.symbol(), obj).map_err(|e| self.host_error(e))?;
                self.lift(v)
            }
            _ => return Ok(None),
        }))
    }

    pub(super) fn fold_binary(&mut self, op: Operator, l: &Value, r: &Value) -> Result<Option<Value>> {
        if let Some(value) = self.binary_by_method(op, l, r)? {
            return Ok(Some(value));
        }
        if [l, r].iter().any(|v| !self.host_foldable(v) && !self.is_numpy_operand(v)) {
            if let (Operator::Mod, Value::Str(pattern)) = (op, l) {
                return Ok(Some(self.format_percent(&pattern.clone(), r)?));
            }
            // Lists of run-time values still concatenate and repeat.
            if let (Operator::Add, Value::List(a), Value::List(b)) = (op, l, r) {
                return Ok(Some(Value::list(a.iter().chain(b.iter()).cloned().collect())));
            }
            if let (Operator::Add, Value::Tuple(a), Value::Tuple(b)) = (op, l, r) {
                return Ok(Some(Value::tuple(a.iter().chain(b.iter()).cloned().collect())));
            }
            if let (Operator::Mul, Value::Int(count), items) | (Operator::Mul, items, Value::Int(count)) = (op, l, r) {
                return Ok(repeated(items, *count));
            }
            return Ok(None);
        }
        let float = |v: &Value| match v {
            Value::Int(i) => Some(*i as f64),
            Value::Float(f) => Some(*f),
            _ => None,
        };
        let folded = match (op, l, r) {
            (Operator::Add, Value::Int(a), Value::Int(b)) => a.checked_add(*b).map(Value::Int),
            (Operator::Sub, Value::Int(a), Value::Int(b)) => a.checked_sub(*b).map(Value::Int),
            (Operator::Mul, Value::Int(a), Value::Int(b)) => a.checked_mul(*b).map(Value::Int),
            (Operator::BitAnd, Value::Int(a), Value::Int(b)) => Some(Value::Int(a & b)),
            (Operator::BitOr, Value::Int(a), Value::Int(b)) => Some(Value::Int(a | b)),
            (Operator::BitXor, Value::Int(a), Value::Int(b)) => Some(Value::Int(a ^ b)),
            (Operator::FloorDiv, Value::Int(a), Value::Int(b)) if *b != 0 => {
                Some(Value::Int(a.div_euclid(*b) - i128::from(*b < 0 && a.rem_euclid(*b) != 0)))
            }
            (Operator::Mod, Value::Int(a), Value::Int(b)) if *b != 0 => {
                let m = a.rem_euclid(*b);
                Some(Value::Int(if *b < 0 && m != 0 { m + b } else { m }))
            }
            (Operator::Shl, Value::Int(a), Value::Int(b)) if (0..100).contains(b) && a.unsigned_abs() < 1 << 26 => {
                Some(Value::Int(a << b))
            }
            (Operator::Shr, Value::Int(a), Value::Int(b)) if (0..127).contains(b) => Some(Value::Int(a >> b)),
            _ => None,
        };
        if folded.is_some() {
            return Ok(folded);
        }
        if let (Some(a), Some(b)) = (float(l), float(r)) {
            let both_int = matches!((l, r), (Value::Int(_), Value::Int(_)));
            // Python rounds the quotient of integers once.
            let rounded_once = !both_int || a.abs().max(b.abs()) < EXACT;
            let v = match op {
                Operator::Add if !both_int => Some(a + b),
                Operator::Sub if !both_int => Some(a - b),
                Operator::Mul if !both_int => Some(a * b),
                Operator::Div if b != 0.0 && rounded_once => Some(a / b),
                _ => None,
            };
            if let Some(v) = v {
                return Ok(Some(Value::Float(v)));
            }
        }
        let (Some(a), Some(b)) = (self.to_host(l), self.to_host(r)) else { return Ok(None) };
        let v = self.world.binary(op.symbol(), a, b).map_err(|e| {
            let mut d = Diagnostic::new(Code::Type, self.b.span, e.message);
            d.cause = e.cause;
            d
        })?;
        Ok(Some(self.lift(v)))
    }

    pub(super) fn fold_compare(&mut self, op: Comparison, l: &Value, r: &Value) -> Result<Option<Value>> {
        if let Some(value) = self.compare_by_method(op, l, r)? {
            return Ok(Some(value));
        }
        if matches!(op, Comparison::Is | Comparison::IsNot) {
            // Identity with `None` is decided for run-time values too: they are not `None`.
            if matches!(l, Value::None) != matches!(r, Value::None) {
                return Ok(Some(Value::Bool(op == Comparison::IsNot)));
            }
        }
        if let (Value::Int(a), Value::Int(b)) = (l, r) {
            let v = match op {
                Comparison::Eq => a == b,
                Comparison::Ne => a != b,
                Comparison::Lt => a < b,
                Comparison::Le => a <= b,
                Comparison::Gt => a > b,
                Comparison::Ge => a >= b,
                Comparison::Is => a == b,
                Comparison::IsNot => a != b,
                _ => {
                    let message =
                        format!("the right side of `{}` must be a container such as a list, not an int", op.symbol());
                    return self.err(Code::Type, message);
                }
            };
            return Ok(Some(Value::Bool(v)));
        }
        let is_identity = matches!(op, Comparison::Is | Comparison::IsNot | Comparison::In | Comparison::NotIn);
        if !is_identity && (!self.host_foldable(l) || !self.host_foldable(r)) {
            return Ok(None);
        }
        let (Some(a), Some(b)) = (self.to_host(l), self.to_host(r)) else { return Ok(None) };
        let v = self.world.binary(op.symbol(), a, b).map_err(|e| self.host_error(e))?;
        Ok(Some(match self.lift(v) {
            Value::Bool(b) => Value::Bool(b),
            other => Value::Bool(self.compile_time_truth(&other, "a comparison")?),
        }))
    }

    /// The error about a comparison that is made at compile time only.
    pub(super) fn undecided(&self, op: Comparison) -> Box<Diagnostic> {
        let text = format!("`{}` needs values known at compile time", op.symbol());
        let error = Diagnostic::new(Code::Type, self.b.span, text);
        match op {
            Comparison::In | Comparison::NotIn => error.with_hint(
                "keep the list at compile time: `a = qd.static([1, 2])`; the items of `a = [1, 2]` are variables",
            ),
            _ => error,
        }
    }

    /// `bool(v)` at compile time.
    pub(super) fn compile_time_truth(&mut self, v: &Value, what: &str) -> Result<bool> {
        Ok(match v {
            Value::None => false,
            Value::Bool(b) => *b,
            Value::Int(i) => *i != 0,
            Value::Float(f) => *f != 0.0,
            Value::Str(s) => !s.is_empty(),
            Value::Tuple(items) | Value::List(items) | Value::Static(items) => !items.is_empty(),
            Value::Dict(items) => !items.is_empty(),
            Value::Obj(o) => self.world.truth(*o).map_err(|e| self.host_error(e))?,
            Value::Array(_) | Value::Dataclass(_) | Value::Members(_) => true,
            _ => {
                return Err(Diagnostic::new(
                    Code::Type,
                    self.b.span,
                    format!("{what} must be a compile-time constant, but this value is known only at run time"),
                )
                .with_hint("remove `qd.static`, or pass the value as a `qd.Template` argument"));
            }
        })
    }

    /// The items that a compile-time loop visits.
    pub(super) fn compile_time_items(&mut self, v: &Value) -> Result<Vec<Value>> {
        match v {
            Value::Tuple(items) | Value::List(items) | Value::Static(items) => Ok(items.to_vec()),
            Value::Dict(items) => Ok(items.iter().map(|(k, _)| k.clone()).collect()),
            Value::Str(s) => Ok(s.chars().map(|c| Value::str(c.encode_utf8(&mut [0; 4]))).collect()),
            Value::Range(bounds) => {
                let (Value::Int(a), Value::Int(b)) = (&bounds.0, &bounds.1) else {
                    let bound = if matches!(bounds.0, Value::Int(_)) { &bounds.1 } else { &bounds.0 };
                    return self.not_compile_time(bound);
                };
                Ok((*a..*b).map(Value::Int).collect())
            }
            Value::Ndrange(n) => Ok(self.ndrange_items(n)?.into_iter().map(|t| Value::tuple(ints(&t))).collect()),
            Value::Grouped(inner) => match &**inner {
                Value::Ndrange(n) => {
                    let items = self.ndrange_items(n)?;
                    // Without axes there is one index, which has no components: no vector is empty.
                    let as_index = |t: Vec<i128>| match t.is_empty() {
                        true => Value::tuple(Vec::new()),
                        false => Value::Obj(self.world.make(HostValue::IntVector(t))),
                    };
                    Ok(items.into_iter().map(as_index).collect())
                }
                other => {
                    let other = other.clone();
                    self.compile_time_items(&other)
                }
            },
            Value::Obj(o) => {
                if let Entity::TensorConst { .. } = self.world.entity(*o) {
                    return self.unpack(v);
                }
                let items = self.host_items(*o)?;
                Ok(items.into_iter().map(|o| self.lift(o)).collect())
            }
            _ => match self.runtime_type(v) {
                Some(octants_ir::Type::Vector(..)) => self.unpack(v),
                Some(octants_ir::Type::Matrix(_, n, _)) => {
                    (0..n).map(|i| self.subscript(v, vec![Value::Int(i128::from(i))])).collect()
                }
                _ => self.not_compile_time(v),
            },
        }
    }

    /// The items of a host object. Generators are refused: the next compilation would find them exhausted.
    pub(super) fn host_items(&mut self, obj: crate::world::Obj) -> Result<Vec<crate::world::Obj>> {
        if self.world.type_name(obj) == "generator" {
            return Err(Diagnostic::new(
                Code::Value,
                self.b.span,
                "a generator cannot be used in a kernel, because it can be iterated only once",
            )
            .with_hint("convert it to a list"));
        }
        self.world.iterate(obj).map_err(|e| self.host_error(e))
    }

    fn not_compile_time<T>(&mut self, v: &Value) -> Result<T> {
        if let Some(name) = self.live_name(v) {
            let message = format!(
                "'{name}' is a primitive member of a @qd.data_oriented(template_primitives=False) object, so it is a \
                 runtime kernel argument and cannot be used inside qd.static()"
            );
            return Err(Diagnostic::new(Code::Syntax, self.b.span, message)
                .with_hint("use plain @qd.data_oriented, which makes such members compile-time constants"));
        }
        Err(Diagnostic::new(Code::Type, self.b.span, "the items of this iterable must be known at compile time")
            .with_hint("use a run-time `for` over `range(...)` or `qd.ndrange(...)`"))
    }

    fn ndrange_items(&mut self, n: &crate::value::Ndrange) -> Result<Vec<Vec<i128>>> {
        let mut bounds = Vec::new();
        for d in &n.dims {
            let (Value::Int(a), Value::Int(b)) = d else { return self.not_compile_time(&d.1) };
            bounds.push((*a, *b));
        }
        let mut all: Vec<Vec<i128>> = vec![vec![0; bounds.len()]];
        for &axis in &n.order {
            all = all
                .iter()
                .flat_map(|t| {
                    (bounds[axis].0..bounds[axis].1).map(move |i| {
                        let mut t = t.clone();
                        t[axis] = i;
                        t
                    })
                })
                .collect();
        }
        Ok(all)
    }
}

fn ints(t: &[i128]) -> Vec<Value> {
    t.iter().map(|i| Value::Int(*i)).collect()
}

/// A list or tuple with its items `count` times, as `[x] * 3` means in Python.
fn repeated(items: &Value, count: i128) -> Option<Value> {
    let count = usize::try_from(count.max(0)).ok()?;
    match items {
        Value::List(v) => Some(Value::list(v.iter().cycle().take(v.len() * count).cloned().collect())),
        Value::Tuple(v) => Some(Value::tuple(v.iter().cycle().take(v.len() * count).cloned().collect())),
        _ => None,
    }
}
