//! Functions: one LLVM function for each form in which an IR function is called.
//!
//! The forms differ in what references point to: a local, an element of a buffer, scattered components. Parameters are
//! flattened: the context, the random-number state if the function draws, then the leaves of each value and the
//! pointers of each reference.

use std::rc::Rc;

use octants_ir::{FuncId, Type};

use crate::emit::{T, V};
use crate::lowering::{BodyKind, Lowering, Val};
use crate::place::{Place, PlaceShape};
use crate::unit::{InstanceKey, Unit};

impl Unit<'_> {
    /// The LLVM function for a way of calling; its code follows when [`Unit::lower_pending`] runs.
    pub fn instance(&self, f: FuncId, refs: Vec<Option<PlaceShape>>) -> V {
        let key = InstanceKey { function: f, refs };
        if let Some(function) = self.instances.borrow().get(&key) {
            return *function;
        }
        let e = &self.e;
        let function = &self.program.functions[f.index()];
        let schedule = &self.facts.schedule.functions[f.index()];
        let behavior = schedule.behavior;
        let mut params = vec![self.target.context_type(e)];
        if behavior.draws {
            params.push(e.ptr);
        }
        for (ty, shape) in function.params.iter().zip(&key.refs) {
            match shape {
                None => params.extend(ty.leaves().into_iter().map(|s| e.scalar(s))),
                Some(shape) => params.extend(std::iter::repeat_n(e.ptr, pointer_count(shape))),
            }
        }
        let mut results: Vec<T> = function.ret.leaves().into_iter().map(|s| e.scalar(s)).collect();
        if behavior.fails {
            results.push(e.i1);
        }
        let ret = match results.as_mut_slice() {
            [] => e.void,
            [one] => *one,
            many => e.struct_type(many),
        };
        let number = self.instances.borrow().len();
        let value = e.add_function(&format!("{}.f{number}", function.name), e.function_type(ret, &mut params));
        e.set_internal(value);
        e.set_fast_call(value, false);
        self.target.describe_context(e, value, 0);
        if schedule.is_inlined {
            e.function_attribute(value, "alwaysinline", 0);
        }
        self.instances.borrow_mut().insert(key.clone(), value);
        self.pending.borrow_mut().push((key, value));
        value
    }

    /// Lowers the bodies of functions called so far, and of those that they call.
    pub fn lower_pending(&self) {
        loop {
            let next = self.pending.borrow_mut().pop();
            let Some((key, value)) = next else { return };
            self.lower_function(&key, value);
        }
    }

    fn lower_function(&self, key: &InstanceKey, value: V) {
        let e = &self.e;
        let function = &self.program.functions[key.function.index()];
        let schedule = &self.facts.schedule.functions[key.function.index()];
        let behavior = schedule.behavior;
        let kind = BodyKind::Function { fails: behavior.fails };
        let mut l = Lowering::start(self, (&function.body, &schedule.body), kind, value, e.param(value, 0));
        let start = e.block();
        if behavior.runs_long && !schedule.is_inlined {
            l.mark_polled();
        }
        l.form.ret = &function.ret;
        let mut at = 1;
        let mut next = || {
            at += 1;
            e.param(value, at - 1)
        };
        if behavior.draws {
            l.parallel.rng = Some(next());
        }
        for (ty, shape) in function.params.iter().zip(&key.refs) {
            let param = match shape {
                None => Val::Leaves((0..ty.leaf_count()).map(|_| next()).collect()),
                Some(shape) => {
                    let ptrs = (0..pointer_count(shape)).map(|_| next()).collect();
                    let Type::Ref(pointee) = ty else {
                        panic!("compiler bug: an address passed for a value parameter")
                    };
                    debug_assert_eq!(**pointee, shape.ty);
                    Val::Place(Place { ptrs, shape: Rc::new(shape.clone()) })
                }
            };
            l.params.push(param);
        }
        l.prepare_locals(|_, _| true);
        l.block(function.body.root);
        l.end_of_body();
        l.finish(start);
    }
}

fn pointer_count(shape: &PlaceShape) -> usize {
    shape.leaves.iter().map(|l| l.ptr as usize + 1).max().unwrap_or(1)
}
