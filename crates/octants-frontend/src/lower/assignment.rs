//! Assignment to names, elements, members, swizzles and slices, and the conversion of values to the type of their
//! target.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{AtomicOp, Op, Scalar, StructType, Type, ValueId};

use super::values::holds;
use super::{Binding, Lowerer};
use crate::arith;
use crate::arith::type_name;
use crate::ast::{Expr, ExprKind, Operator};
use crate::syntax_facts::{is_static_call, may_write};
use crate::value::{Members, MeshElement, Place, TileOperand, Value};
use crate::world::Entity;

impl Lowerer<'_> {
    /// The value of an assigned name: run-time values move to fresh locals, compile-time numbers become run-time
    /// variables.
    pub(super) fn settle(&mut self, v: Value) -> Result<Value> {
        Ok(match v {
            Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::Place(_) | Value::Var(_) | Value::Rt(_) => {
                let rt = self.rt(&v)?;
                Value::Var(self.new_local("tmp", rt))
            }
            Value::Tuple(items) => {
                Value::tuple(items.iter().map(|i| self.settle(i.clone())).collect::<Result<Vec<_>>>()?)
            }
            Value::List(items) => {
                Value::list(items.iter().map(|i| self.settle(i.clone())).collect::<Result<Vec<_>>>()?)
            }
            Value::Members(ref m) if !m.is_array => {
                let rt = self.struct_value(m)?;
                Value::Var(self.new_local("tmp", rt))
            }
            other => other,
        })
    }

    pub(super) fn assign(&mut self, target: &Expr, value: Value, is_static: bool) -> Result<()> {
        match &target.kind {
            ExprKind::Name(name) => self.assign_name(name, value, is_static),
            ExprKind::Tuple(targets) | ExprKind::List(targets) => {
                let items = self.unpack(&value)?;
                if items.len() != targets.len() {
                    return self.err(
                        Code::Syntax,
                        format!(
                            "The number of targets is not equal to value length: {} targets, {} values",
                            targets.len(),
                            items.len()
                        ),
                    );
                }
                // All values are read before the first target is written.
                let items = if is_static {
                    items
                } else {
                    items.into_iter().map(|i| self.detach(i)).collect::<Result<Vec<_>>>()?
                };
                for (t, item) in targets.iter().zip(items) {
                    self.assign(t, item, is_static)?;
                }
                Ok(())
            }
            ExprKind::Subscript(..) | ExprKind::Attribute(..) => {
                if is_static {
                    return self.err(Code::Syntax, "Static assign cannot be used on elements in arrays");
                }
                // The value is read before the target's indices may write.
                let value = if may_write(target) { self.detach_deep(value)? } else { value };
                match self.target_place(target)? {
                    (places @ Value::List(_), true) => self.store_slice(&places, &value),
                    (place, _) => {
                        self.check_target(target, &place, "assigned")?;
                        self.store(&place, &value)
                    }
                }
            }
            _ => self.err(Code::Syntax, "this expression cannot be assigned to"),
        }
    }

    /// Reads a place so that a later write to it does not change the value.
    pub(super) fn detach(&mut self, v: Value) -> Result<Value> {
        Ok(match v {
            Value::Var(_) | Value::Place(_) => Value::Rt(self.rt(&v)?),
            Value::Element(ref e) => self.detached_element(e)?,
            other => other,
        })
    }

    /// The items of a tuple, list, vector or struct.
    pub(super) fn unpack(&mut self, value: &Value) -> Result<Vec<Value>> {
        if let Some(items) = value.items() {
            return Ok(items.to_vec());
        }
        match self.runtime_type(value) {
            Some(Type::Vector(_, n)) => {
                let v = self.rt(value)?;
                return Ok((0..n).map(|i| Value::Rt(self.b.extract(v, i))).collect());
            }
            Some(Type::Struct(s)) => {
                let v = self.rt(value)?;
                return Ok((0..s.members.len() as u32).map(|i| Value::Rt(self.b.extract(v, i))).collect());
            }
            Some(Type::Matrix(..)) => {
                return self.err(Code::Value, "Matrices with more than one columns cannot be unpacked");
            }
            _ => {}
        }
        if let Value::Members(m) = value {
            return Ok(m.items.iter().map(|i| i.1.clone()).collect());
        }
        if let Value::Obj(o) = value {
            let items = self.host_items(*o)?;
            return Ok(items.into_iter().map(|o| self.lift(o)).collect());
        }
        let what = self.describe(value);
        self.err(Code::Syntax, format!("Cannot unpack type: {what}"))
    }

    pub(super) fn assign_name(&mut self, name: &str, value: Value, is_static: bool) -> Result<()> {
        if let Some(Binding { value: old, immutable }) = self.lookup(name).cloned() {
            if is_static && !self.is_bound_here(name) && immutable != Some("kernel argument") {
                // The scope that is left gives the outer name its value back.
                self.bind_value(name, value);
                return Ok(());
            }
            if let Some(what) = immutable {
                return Err(Diagnostic::new(
                    Code::Syntax,
                    self.b.span,
                    if what == "kernel argument" {
                        format!(
                            "Kernel argument \"{name}\" is immutable in the kernel. If you want to change its value, \
                             please create a new variable."
                        )
                    } else {
                        format!("the {what} \"{name}\" cannot be assigned")
                    },
                )
                .with_hint(format!("copy it: `{name}_copy = {name}`")));
            }
            if is_static {
                return self.err(Code::Syntax, format!("Recreating variables is not allowed: `{name}` exists already"));
            }
            if !matches!(old, Value::Var(_) | Value::Place(_) | Value::Members(_) | Value::Element(_)) {
                let what = self.describe(&old);
                let message = format!("Variable '{name}' cannot be assigned: it holds {what}; use a new variable");
                return self.err(Code::Syntax, message);
            }
            if matches!(&value, Value::Tile(operand) if matches!(**operand, TileOperand::Slice { .. })) {
                let text = format!("a slice of an array is not a tile that `{name}` can be");
                return Err(Diagnostic::new(Code::Syntax, self.b.span, text)
                    .with_hint(format!("load the slice into the tile: `{name}[:] = a[r0:r1, c0:c1]`")));
            }
            return self.store(&old, &value);
        }
        if is_static {
            self.bind_value(name, value);
            return Ok(());
        }
        let value = self.variable(name, value)?;
        self.bind_value(name, value);
        Ok(())
    }

    /// The value of a new variable: a copy.
    pub(super) fn variable(&mut self, name: &str, value: Value) -> Result<Value> {
        Ok(match value {
            Value::Tile(_) => {
                let text = "cannot store a slice of an array in a new variable: load it into an existing tile, \
                            `t[:] = a[r0:r1, c0:c1]`";
                return self.err(Code::Syntax, text);
            }
            Value::Rt(_) | Value::Var(_) | Value::Place(_) | Value::Int(_) | Value::Float(_) | Value::Bool(_) => {
                let v = self.rt(&value)?;
                if *self.b.ty(v) == Type::Unit {
                    return self
                        .err(Code::Type, "cannot assign the result of this call: the function returns no value");
                }
                Value::Var(self.new_local(name, v))
            }
            Value::Members(ref m) if !m.is_array => {
                let v = self.struct_value(m)?;
                Value::Var(self.new_local(name, v))
            }
            Value::Element(ref e) => {
                let position = self.variable(name, e.position.clone())?;
                Value::Element(Rc::new(MeshElement { elements: e.elements, position }))
            }
            Value::Method(ref m) if matches!(self.runtime_type(&m.0), Some(Type::Scalar(_))) => {
                let what = self.describe(&m.0);
                return self.err(Code::Attribute, format!("{what} has no attribute `{}`", m.1));
            }
            Value::Obj(o) => match self.world.entity(o) {
                Entity::TensorConst { .. } | Entity::StructConst { .. } => {
                    let v = self.rt(&value)?;
                    Value::Var(self.new_local(name, v))
                }
                _ => value,
            },
            Value::Tuple(ref items) => {
                let copy = items.iter().map(|i| self.variable(name, i.clone())).collect::<Result<Vec<_>>>()?;
                self.named_as(items, copy)
            }
            Value::List(ref items) => {
                Value::list(items.iter().map(|i| self.variable(name, i.clone())).collect::<Result<Vec<_>>>()?)
            }
            other => other,
        })
    }

    /// A tuple with the names of another one, if that has any.
    pub(super) fn named_as(&mut self, original: &Rc<Vec<Value>>, items: Vec<Value>) -> Value {
        let items = Rc::new(items);
        let mut named = self.named_tuples.iter().chain(&self.named_variables);
        if let Some((_, obj)) = named.find(|(named, _)| Rc::ptr_eq(named, original)) {
            self.named_variables.push((items.clone(), *obj));
        }
        Value::Tuple(items)
    }

    /// The address of something assignable.
    pub(super) fn place(&mut self, v: &Value) -> Option<Place> {
        match v {
            Value::Var(l) => Some(Place { addr: self.b.local_addr(*l), global: false }),
            Value::Place(p) => Some(*p),
            _ => None,
        }
    }

    /// `target = value`, converting to the target's type.
    pub(super) fn store(&mut self, target: &Value, value: &Value) -> Result<()> {
        if self.assign_tile(target, value)?.is_some() {
            return Ok(());
        }
        if let Value::Element(element) = target {
            return self.store_element(element, value);
        }
        if let Value::Members(m) = target {
            if m.is_array {
                return self.err(
                    Code::Syntax,
                    "a struct field cannot be assigned as a whole in a kernel: assign its elements",
                );
            }
            return self.store_members(m, value);
        }
        if let Some(targets) = target.items().filter(|t| !t.is_empty()) {
            // A slice: its values may be read from the places that are written.
            let values = self.spread(value, targets.len())?;
            for (t, v) in targets.iter().zip(&values) {
                self.store(t, v)?;
            }
            return Ok(());
        }
        let Some(place) = self.place(target) else {
            let what = self.describe(target);
            return self.err(Code::Syntax, format!("{what} cannot be assigned in a kernel"));
        };
        let to = self.b.pointee(place.addr).clone();
        if matches!(to, Type::Struct(_)) && matches!(self.runtime_type(value), Some(Type::Scalar(_))) {
            let what = self.describe(value);
            return self.err(Code::Type, format!("Only dict or Struct can be assigned to a Struct, not {what}"));
        }
        if let (Type::Struct(s), Value::Dict(items)) = (&to, value) {
            return self.store_dict(target, s, items);
        }
        self.warn_of_lost_precision("Assign", &to, value);
        let v = self.value_for(value, &to)?;
        self.b.store(place.addr, v);
        Ok(())
    }

    /// `target = {"a": 1, "b": 2}` where the target is a struct with these members.
    fn store_dict(&mut self, target: &Value, s: &StructType, items: &[(Value, Value)]) -> Result<()> {
        let named = |name: &str| {
            items
                .iter()
                .find(|(key, _)| matches!(key, Value::Str(key) if **key == *name))
                .map(|(_, value)| value.clone())
        };
        if items.len() > s.members.len() {
            return self.err(
                Code::Type,
                format!("the struct has {} members, but the dict has {} keys", s.members.len(), items.len()),
            );
        }
        for (name, _) in &s.members {
            let Some(value) = named(name) else {
                return self.err(Code::Type, format!("the dict has no key `{name}`, which the struct has as a member"));
            };
            let member = self.attribute(target, name)?;
            self.store(&member, &value)?;
        }
        Ok(())
    }

    /// The target of an assignment. The flag is true for the (nested) list of locations that a swizzle or slice
    /// denotes.
    pub(super) fn target_place(&mut self, target: &Expr) -> Result<(Value, bool)> {
        Ok(match &target.kind {
            ExprKind::Attribute(base, name) => {
                let base = self.lower_expr(base)?;
                self.b.span = target.span;
                match self.swizzle_places(&base, name)? {
                    Some(places) => (Value::list(places), true),
                    None => (self.attribute(&base, name)?, false),
                }
            }
            ExprKind::Subscript(base, index) => {
                let base = self.lower_named_array(base)?;
                let index = self.lower_index(index)?;
                self.b.span = target.span;
                self.refuse_item_assignment(&base, target)?;
                match self.slice_places(&base, &index)? {
                    Some(places) => (places, true),
                    None => (self.subscript(&base, index)?, false),
                }
            }
            _ => (self.lower_expr(target)?, false),
        })
    }

    /// Stores into the (nested) list of places of a slice, or into one place.
    pub(super) fn store_slice(&mut self, places: &Value, value: &Value) -> Result<()> {
        let Value::List(items) = places else { return self.store(places, value) };
        if matches!(self.runtime_type(value), Some(Type::Scalar(_))) {
            return items.iter().try_for_each(|p| self.store_slice(p, value));
        }
        let values = match self.runtime_type(value) {
            Some(Type::Matrix(_, n, _)) => {
                (0..n).map(|i| self.subscript(value, vec![Value::Int(i128::from(i))])).collect::<Result<Vec<_>>>()?
            }
            _ => self.unpack(value)?,
        };
        if values.len() != items.len() {
            return self
                .err(Code::Type, format!("cannot assign {} values to a slice of {} items", values.len(), items.len()));
        }
        let values = values.into_iter().map(|v| self.detach(v)).collect::<Result<Vec<_>>>()?;
        items.iter().zip(&values).try_for_each(|(p, v)| self.store_slice(p, v))
    }

    /// A value for each of `n` places: the items of a vector or list, the rows of a matrix, or one number for all.
    pub(super) fn spread(&mut self, value: &Value, n: usize) -> Result<Vec<Value>> {
        let values = match self.runtime_type(value) {
            Some(Type::Scalar(_)) => return Ok(vec![self.detach(value.clone())?; n]),
            Some(Type::Matrix(_, rows, _)) => {
                let m = Value::Rt(self.rt(value)?);
                (0..rows).map(|i| self.subscript(&m, vec![Value::Int(i.into())])).collect::<Result<Vec<_>>>()?
            }
            _ => self.unpack(value)?,
        };
        if values.len() != n {
            return self.err(Code::Type, format!("cannot assign {} values to {n} components", values.len()));
        }
        values.into_iter().map(|v| self.detach_deep(v)).collect()
    }

    pub(super) fn store_members(&mut self, target: &Members, value: &Value) -> Result<()> {
        let values = self.member_values(value)?;
        for (name, member) in &target.items {
            let Some((_, v)) = values.iter().find(|(n, _)| n == name) else {
                return self.err(Code::Type, format!("the assigned struct has no member `{name}`"));
            };
            self.store(member, v)?;
        }
        Ok(())
    }

    /// A value as the run-time type that a variable or element has.
    pub(super) fn value_for(&mut self, value: &Value, to: &Type) -> Result<ValueId> {
        if let (Some(items), Some(s)) = (value.items(), to.scalar())
            && to.is_tensor()
        {
            let v = self.make_tensor(items, Some(s))?;
            return arith::assign_cast(&mut self.b, v, to);
        }
        let to_scalar = to.scalar();
        let v = match (value, to_scalar) {
            // A literal takes the type of its destination, so that no precision is lost.
            (Value::Int(i), Some(s)) if !s.is_float() => {
                if !holds(s, *i) {
                    self.int_literal(*i)?;
                }
                let v = *i as i64;
                self.b.int(if s == Scalar::U1 { i64::from(*i != 0) } else { wrap(v, s) }, s)
            }
            (Value::Int(i), Some(s)) => self.b.float(*i as f64, s),
            (Value::Float(f), Some(s)) if s.is_float() => self.b.float(*f, s),
            _ => self.rt(value)?,
        };
        if let (Type::Struct(s), Type::Scalar(_)) = (to, self.b.ty(v).clone()) {
            // One number is the value of the first member; the others are zero.
            let parts = s
                .members
                .iter()
                .enumerate()
                .map(|(i, (_, t))| if i == 0 { self.value_for(&Value::Rt(v), t) } else { Ok(self.zero(t)) })
                .collect::<Result<Vec<_>>>()?;
            return Ok(self.b.push(Op::MakeStruct(parts), to.clone()));
        }
        if matches!(to, Type::Struct(_)) && self.b.ty(v) != to {
            let (from, to) = (type_name(self.b.ty(v)), type_name(to));
            return self.err(Code::Type, format!("cannot assign a value of type {from} to a variable of type {to}"));
        }
        if to.is_tensor() && !self.b.ty(v).is_tensor() {
            let scalar = self.b.cast(v, to.scalar().unwrap_or(Scalar::F32));
            return Ok(self.b.splat(scalar, to));
        }
        arith::assign_cast(&mut self.b, v, to)
    }

    pub(super) fn annotated_assign(&mut self, target: &Expr, annotation: &Expr, value: Option<&Expr>) -> Result<()> {
        let annotation_value = self.lower_expr(annotation)?;
        let Some(value) = value else {
            return self.err(Code::Syntax, "a variable declaration needs a value, as in `x: qd.f32 = 0.0`")?;
        };
        if is_static_call(value) {
            return self.err(Code::Syntax, "Static assign cannot be used on annotated assignment");
        }
        let v = self.lower_expr(value)?;
        self.b.span = target.span;
        let mut ty = self.type_of_value(&annotation_value)?;
        // The scalar type is that of each component of a vector or matrix.
        if let Type::Scalar(scalar) = ty
            && let Some(found) = self.runtime_type(&v).filter(Type::is_tensor)
        {
            ty = Type::tensor(scalar, &found.shape());
        }
        if let ExprKind::Name(name) = &target.kind {
            if let Some(old) = self.lookup(name).cloned() {
                if old.immutable.is_some() {
                    return self.assign_name(name, v, false);
                }
                if self.runtime_type(&old.value).as_ref() != Some(&ty) {
                    return self.err(Code::Syntax, "Static assign cannot have type overloading");
                }
                return self.store(&old.value, &v);
            }
            let v = self.value_for(&v, &ty)?;
            let local = self.new_local(name, v);
            self.bind_value(name, Value::Var(local));
            return Ok(());
        }
        let place = self.lower_expr(target)?;
        if self.runtime_type(&place).as_ref() != Some(&ty) {
            return self.err(Code::Syntax, "Static assign cannot have type overloading");
        }
        self.store(&place, &v)
    }

    pub(super) fn aug_assign(&mut self, target: &Expr, op: Operator, value: &Expr) -> Result<()> {
        let span = self.b.span;
        if let ExprKind::Name(name) = &target.kind
            && let Some(b) = self.lookup(name)
            && b.immutable.is_some()
        {
            return self.assign_name(name, Value::None, false);
        }
        if self.add_element(target, op, value)? {
            return Ok(());
        }
        // Effects happen in source order. Indices without effects are evaluated last, after the effects of the value.
        let (place, is_slice, v) = if may_write(value) && !may_write(target) {
            let v = self.lower_expr(value)?;
            let (place, is_slice) = self.target_place(target)?;
            (place, is_slice, v)
        } else {
            let (place, is_slice) = self.target_place(target)?;
            (place, is_slice, self.lower_expr(value)?)
        };
        self.b.span = span;
        if self.update_tile(&place, op, &v)?.is_some() {
            return Ok(());
        }
        if let (Value::List(places), true) = (&place, is_slice) {
            return self.aug_store_all(places, op, &v);
        }
        if let Value::Members(m) = &place {
            let values = self.member_values(&v)?;
            for (name, member) in &m.items {
                if let Some((_, v)) = values.iter().find(|(n, _)| n == name) {
                    self.aug_store(member, op, v)?;
                }
            }
            return Ok(());
        }
        self.check_target(target, &place, "updated")?;
        self.aug_store(&place, op, &v)
    }

    pub(super) fn aug_store_all(&mut self, places: &[Value], op: Operator, value: &Value) -> Result<()> {
        let values = self.spread(value, places.len())?;
        for (p, v) in places.iter().zip(&values) {
            match p {
                Value::List(row) => self.aug_store_all(row, op, v)?,
                p => self.aug_store(p, op, v)?,
            }
        }
        Ok(())
    }

    pub(super) fn aug_store(&mut self, target: &Value, op: Operator, value: &Value) -> Result<()> {
        let Some(place) = self.place(target) else {
            let what = self.describe(target);
            return self.err(Code::Syntax, format!("cannot apply `{}=` to {what}", op.symbol()));
        };
        let ty = self.b.pointee(place.addr).clone();
        let atomic = op.operation().and_then(AtomicOp::from_binary);
        match atomic {
            Some(atomic) => self.warn_of_lost_precision(&format!("Atomic {}", atomic.name()), &ty, value),
            None => self.warn_of_lost_precision("Assign", &ty, value),
        }
        let mut v = self.operand_for(value, &ty)?;
        let (to, from) = (ty.scalar(), self.b.ty(v).scalar());
        // `+=` and `-=` convert the operand to the target's type; the others work in the type of `target op value`.
        let converts = match op {
            Operator::Add | Operator::Sub => true,
            Operator::Mul => to.zip(from).is_some_and(|(to, from)| to.promote(from) == to),
            _ => to.is_some_and(|s| !s.is_float()) && from.is_some_and(|s| !s.is_float()),
        };
        if converts && let (Some(_), Some(atomic)) = (from, atomic) {
            v = arith::assign_cast(&mut self.b, v, &ty)?;
            if place.global {
                self.b.push(Op::Atomic(atomic, place.addr, v), ty);
                return Ok(());
            }
        }
        let old = self.b.load(place.addr);
        let new = arith::binary(&mut self.b, &self.options, op, old, v)?;
        let new = arith::assign_cast(&mut self.b, new, &ty)?;
        self.b.store(place.addr, new);
        Ok(())
    }

    /// An operand that meets a value of type `ty`: scalars spread over tensors.
    pub(super) fn operand_for(&mut self, value: &Value, ty: &Type) -> Result<ValueId> {
        let v = match value.items() {
            Some(items) => self.make_tensor(items, None)?,
            None => self.rt(value)?,
        };
        if ty.is_tensor() && !self.b.ty(v).is_tensor() {
            return Ok(self.b.splat(v, ty));
        }
        Ok(v)
    }
}

/// The low bits of `v` as type `s`, sign- or zero-extended.
pub(super) fn wrap(v: i64, s: Scalar) -> i64 {
    match s {
        Scalar::I8 => i64::from(v as i8),
        Scalar::U8 => i64::from(v as u8),
        Scalar::I16 => i64::from(v as i16),
        Scalar::U16 => i64::from(v as u16),
        Scalar::I32 => i64::from(v as i32),
        Scalar::U32 => i64::from(v as u32),
        _ => v,
    }
}
