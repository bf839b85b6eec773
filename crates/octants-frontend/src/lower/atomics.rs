//! Built-in functions for shared memory accesses: `atomic_add` and the other atomics, `atomic_cas`, `volatile_load`,
//! `get_addr`.

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{AtomicOp, Op, Scalar, ValueId};

use super::Lowerer;
use super::builtins::Call;
use crate::arith;
use crate::arith::type_name;
use crate::value::{Place, Value};

impl Lowerer<'_> {
    pub(super) fn lower_atomic(&mut self, op: AtomicOp, call: Call) -> Result<Value> {
        let name = &call.name;
        let [x, y] = &call.args[..] else {
            let message =
                format!("`{name}` takes two arguments: an element of a field or array, or a variable; and a value");
            return self.err(Code::Type, message);
        };
        let Some(place) = self.place(x) else { return self.not_a_place(name, x) };
        let ty = self.b.pointee(place.addr).clone();
        let Some(scalar) = ty.scalar() else {
            return self.err(Code::Type, format!("`{name}` does not support type {ty}", ty = type_name(&ty)));
        };
        if !op.domain().contains(scalar) {
            return self.err(Code::Type, format!("'{name}' requires integer operands, got {ty}", ty = type_name(&ty)));
        }
        self.warn_of_lost_precision(&format!("Atomic {}", op.name()), &ty, y);
        let v = self.operand_for(y, &ty)?;
        if let Some(given) = self.b.ty(v).scalar().filter(|given| given.is_float() && !op.domain().contains(*given)) {
            return self.err(Code::Type, format!("'{name}' requires integer operands, got {given}"));
        }
        let v = arith::assign_cast(&mut self.b, v, &ty)?;
        if place.global {
            return Ok(Value::Rt(self.b.push(Op::Atomic(op, place.addr, v), ty)));
        }
        let old = self.local_update(place, |l, old| match op.binary() {
            Some(binary) => arith::combine(&mut l.b, &l.options, binary, binary.symbol(), old, v),
            None => Ok(v),
        })?;
        Ok(Value::Rt(old))
    }

    /// Old value, new value stored: an atomic operation on a local.
    fn local_update(
        &mut self,
        place: Place,
        update: impl FnOnce(&mut Self, ValueId) -> Result<ValueId>,
    ) -> Result<ValueId> {
        let ty = self.b.pointee(place.addr).clone();
        let old = self.b.load(place.addr);
        let new = update(self, old)?;
        let new = arith::assign_cast(&mut self.b, new, &ty)?;
        self.b.store(place.addr, new);
        Ok(old)
    }

    pub(super) fn lower_compare_and_swap(&mut self, call: Call) -> Result<Value> {
        let (x, expected, desired) = (&call.args[0], &call.args[1], &call.args[2]);
        let Some(place) = self.place(x) else { return self.not_a_place(&call.name, x) };
        self.refuse_packed(&call.name, place)?;
        let ty = self.b.pointee(place.addr).clone();
        let e = self.value_for(expected, &ty)?;
        let d = self.value_for(desired, &ty)?;
        Ok(Value::Rt(self.b.push(Op::AtomicCas(place.addr, e, d), ty)))
    }

    pub(super) fn lower_volatile_load(&mut self, call: Call) -> Result<Value> {
        let x = &call.args[0];
        let place = self.place(x);
        if place.is_some_and(|place| !place.global) {
            let message = "qd.volatile_load() requires a global lvalue (field / ndarray subscript): other threads \
                           cannot see a local variable";
            return self.err(Code::Type, message);
        }
        let Some(place) = place else {
            let what = self.describe(x);
            let message = match self.as_array(x) {
                Ok(Some(_)) => String::from(
                    "cannot pass a Field directly to 'qd.volatile_load'; index it first (e.g. `field[None]`)",
                ),
                _ => format!("qd.volatile_load() requires a global lvalue (field / ndarray subscript), not {what}"),
            };
            return self.err(Code::Syntax, message);
        };
        self.refuse_packed("volatile_load", place)?;
        let ty = self.b.pointee(place.addr).clone();
        Ok(Value::Rt(self.b.push(Op::VolatileLoad(place.addr), ty)))
    }

    pub(super) fn lower_address(&mut self, call: Call) -> Result<Value> {
        let (array, index) = (&call.args[0], &call.args[1]);
        // The placement of a field in its tree denotes the field.
        let field = match array {
            Value::Obj(obj) => self.world.attribute(*obj, "_placed_field").map_err(|e| self.host_error(e))?,
            _ => None,
        };
        let field = field.map_or_else(|| array.clone(), Value::Obj);
        let (field, index) = match self.index_in_memory(&field, std::slice::from_ref(index))? {
            Some((field, index)) => (field, Value::tuple(index)),
            None => (field, index.clone()),
        };
        let Some(buffer) = self.as_array(&field)? else {
            let what = self.describe(array);
            return self.err(Code::Type, format!("`get_addr` takes a field or an array, not {what}"));
        };
        let element = self.element(buffer, &[index])?;
        let Some(place) = self.place(&element) else { return self.not_a_place("get_addr", array) };
        self.refuse_packed("get_addr", place)?;
        Ok(Value::Rt(self.b.push(Op::AddressBits(place.addr), Scalar::U64.into())))
    }

    /// An element of a quantized type has no address.
    fn refuse_packed(&self, name: &str, place: Place) -> Result<()> {
        if !self.is_packed(place.addr) {
            return Ok(());
        }
        let message = format!("`{name}` does not support elements of quantized types, which share a word with others");
        Err(Diagnostic::new(Code::Type, self.b.span, message)
            .with_hint("use a field of a primitive type such as `qd.i32`"))
    }

    fn not_a_place<T>(&mut self, name: &str, v: &Value) -> Result<T> {
        let what = self.describe(v);
        let message = match self.as_array(v) {
            Ok(Some(_)) => format!(
                "cannot use a Field directly as the first operand of '{name}'; index it first (e.g. `field[None]`)"
            ),
            _ => format!("cannot use a non-writable target as the first operand of '{name}': {what}"),
        };
        Err(Diagnostic::new(Code::Syntax, self.b.span, message)
            .with_hint("the first argument must be an element of an array or field, or a variable"))
    }
}
