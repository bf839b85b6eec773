//! Cooperative matrix products of a subgroup: loops over rows and columns of the fragments, in the memory that holds
//! the values of the threads.
//!
//! In the plain layout, a component of all threads forms consecutive whole rows of a fragment. The innermost loop runs
//! over the columns and is vectorized.

use octants_ir::matrix_product::SIDE;
use octants_ir::{BinaryOp, CodeSizeHint, LoopHints, ProductKind, Scalar, Type, ValueId};

use super::emit::Emitter;
use super::rates::Rate;

/// The location of a fragment for a matrix product.
#[derive(Debug, Clone, Copy)]
enum Fragment {
    /// All threads have the same components.
    Same(ValueId),
    /// A value, and the index of the storage of the subgroup's first thread.
    ValueStorage(ValueId, ValueId),
}

impl Emitter<'_> {
    /// Forms the product `v` of kept fragments, and keeps it.
    pub fn product(&mut self, v: ValueId, kind: ProductKind, operands: [ValueId; 3]) {
        let size = self.rates.width;
        assert!(size == self.code.subgroup_size, "compiler bug: a matrix product in a partial subgroup");
        let [left, right, sums] = operands.map(|u| self.fragment(u));
        let result = self.fragment(v);
        let rows = size / SIDE;
        let components = SIDE / rows;
        let (row_count, column_count) = (self.b.int(rows.into(), Scalar::I32), self.b.int(SIDE.into(), Scalar::I32));
        let in_order = LoopHints::default();
        let columns = LoopHints { independent: true, code_size: CodeSizeHint::VectorsFirst, ..in_order };
        let sum = kind.accumulator();
        self.counted(row_count, in_order, |e, row| {
            let side = e.b.int(SIDE.into(), Scalar::I32);
            let first = e.b.binary(BinaryOp::Mul, row, side);
            e.counted(column_count, columns, |e, column| {
                let own = e.b.binary(BinaryOp::Add, first, column);
                let of_right: Vec<ValueId> = (0..SIDE)
                    .map(|k| {
                        let lane = e.plus(column, (k % rows * SIDE).into());
                        let value = e.component(right, lane, k / rows);
                        e.b.cast(value, sum)
                    })
                    .collect();
                for i in 0..components {
                    let mut total = e.component(sums, own, i);
                    for (k, factor) in of_right.iter().enumerate() {
                        let lane = e.plus(first, k as i64);
                        let value = e.component(left, lane, i);
                        let value = e.b.cast(value, sum);
                        let product = e.b.binary(BinaryOp::Mul, value, *factor);
                        total = e.b.binary(BinaryOp::Add, total, product);
                    }
                    let address = e.component_address(result, own, i);
                    e.b.store(address, total);
                }
            });
        });
    }

    /// The location of a fragment, or its value if it is the same in all threads.
    fn fragment(&mut self, v: ValueId) -> Fragment {
        let v = self.code.locals.source(v);
        if self.rates.varies[v.index()] <= Rate::Subgroup {
            return Fragment::Same(self.value(v));
        }
        Fragment::ValueStorage(v, self.first_element(v))
    }

    /// A component of the thread with an index in the subgroup.
    fn component(&mut self, of: Fragment, lane: ValueId, component: u32) -> ValueId {
        match of {
            Fragment::Same(v) => self.b.extract(v, component),
            Fragment::ValueStorage(..) => {
                let address = self.component_address(of, lane, component);
                self.b.load(address)
            }
        }
    }

    fn component_address(&mut self, of: Fragment, lane: ValueId, component: u32) -> ValueId {
        let Fragment::ValueStorage(v, first) = of else { panic!("compiler bug: a matrix product without storage") };
        let slots = self.slots;
        let index = self.b.binary(BinaryOp::Add, first, lane);
        let ty: &Type = self.code.body.ty(v);
        let address = slots.values[&v].tree.address(&mut self.b, index, ty);
        let component = self.b.int(component.into(), Scalar::I32);
        self.b.element_addr(address, vec![component])
    }
}
