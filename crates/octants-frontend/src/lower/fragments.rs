//! Built-in functions for matrix products, `qd.simt.MatrixProduct`: the positions of a fragment's components, and the
//! product. The Python part is a library in the kernel language on top of these.

use octants_diag::Result;
use octants_ir::{FragmentAxis, FragmentElement, FragmentRole, Op, ProductKind, Type};

use super::Lowerer;
use super::builtins::Call;
use crate::value::Value;

impl Lowerer<'_> {
    /// `fragment_index(kind, role, component, axis)`: a row or column.
    pub(super) fn lower_fragment_index(&mut self, call: Call) -> Result<Value> {
        self.check_in_parallel_loop(&call)?;
        let [Value::Str(kind), Value::Str(role), Value::Int(component), Value::Str(axis)] = &call.args[..] else {
            panic!("compiler bug: the index of a fragment needs names");
        };
        let element = FragmentElement {
            kind: named(ProductKind::from_name(kind)),
            role: named(FragmentRole::from_name(role)),
            component: named(u32::try_from(*component).ok()),
            axis: named(FragmentAxis::from_name(axis)),
        };
        Ok(Value::Rt(self.b.push(Op::FragmentIndex(element), Type::I32)))
    }

    /// `product(kind, a, b, c)`: `a @ b + c`.
    pub(super) fn lower_product(&mut self, call: Call) -> Result<Value> {
        self.check_in_parallel_loop(&call)?;
        let [Value::Str(kind), fragments @ ..] = &call.args[..] else {
            panic!("compiler bug: a product has a kind");
        };
        let kind: ProductKind = named(ProductKind::from_name(kind));
        let operands = fragments.iter().map(|v| self.rt(v)).collect::<Result<Vec<_>>>()?;
        let ty = self.b.ty(operands[2]).clone();
        Ok(Value::Rt(self.b.push(Op::Subgroup(kind.operation(), operands), ty)))
    }
}

/// The library passes valid names.
fn named<T>(found: Option<T>) -> T {
    found.expect("compiler bug: the library names kinds of products")
}
