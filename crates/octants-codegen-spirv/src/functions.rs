//! Functions: one SPIR-V function for each form in which an IR function is called, and the module's own functions.
//!
//! Parameters are flattened: the random-number variables if the function draws, then the leaves of each value and the
//! pointers of each reference. A reference to a variable is the variable and an element index, because SPIR-V passes
//! no pointers to elements.

use std::rc::Rc;

use octants_ir::{FuncId, Function, Op, Scalar};
use rspirv::spirv::StorageClass;

use crate::emit::{Emitter, Id};
use crate::lowering::{BodyKind, Helper, InstanceKey, Lowering, RandomState, Unit, Val};
use crate::place::{Memory, Place, Pointer};

/// The type of a pointer to a variable of the thread.
fn local_pointer(e: &Emitter, scalar: Scalar, count: u32) -> Id {
    e.pointer_type(StorageClass::Function, e.array_type(e.scalar(scalar), count))
}

impl<'p> Unit<'p> {
    /// The types that a function returns: its leaves, and whether it failed.
    pub fn result_types(&self, f: FuncId) -> Vec<Id> {
        let function = &self.facts.program.functions[f.index()];
        let fails = self.facts.schedule.functions[f.index()].behavior.fails;
        let leaves = function.ret.leaves().into_iter().map(|s| self.e.scalar(s));
        leaves.chain(fails.then(|| self.e.bool())).collect()
    }

    fn result_type(&self, f: FuncId) -> Id {
        match self.result_types(f).as_slice() {
            [] => self.e.void(),
            [one] => *one,
            many => self.e.struct_type(many),
        }
    }

    /// The function for a way of calling, and the type of its result; its code follows.
    pub fn instance(&self, f: FuncId, refs: Vec<Option<crate::place::PlaceShape>>) -> (Id, Id) {
        let key = InstanceKey { function: f, refs };
        let ret = self.result_type(f);
        if let Some(function) = self.instances.borrow().get(&key) {
            return (*function, ret);
        }
        let (id, functions) = (self.e.id(), &self.facts.program.functions);
        let name = &functions[f.index()].name;
        if is_recursive(functions, f) {
            self.e.refuse(format!("the function `{name}` is recursive, which Vulkan does not allow"));
        }
        self.e.name(id, name);
        self.instances.borrow_mut().insert(key.clone(), id);
        self.pending.borrow_mut().push((key, id));
        (id, ret)
    }

    /// A function of the module's own; its code follows.
    pub fn helper(&self, of: Helper) -> Id {
        *self.helpers.borrow_mut().entry(of).or_insert_with(|| self.e.id())
    }

    /// Lowers the bodies of functions called so far, and of those that they call.
    pub fn lower_pending(&self) {
        loop {
            let next = self.pending.borrow_mut().pop();
            let Some((key, id)) = next else { break };
            self.lower_function(&key, id);
        }
        let helpers: Vec<(Helper, Id)> = self.helpers.borrow().iter().map(|(of, id)| (*of, *id)).collect();
        let mut helpers = helpers;
        helpers.sort_by_key(|(_, id)| *id);
        for (of, id) in helpers {
            match of {
                Helper::Power(s) => self.lower_power(id, s),
                Helper::Philox => self.lower_philox(id),
                Helper::Reserve | Helper::Claim => self.lower_room(id, of),
            }
        }
    }

    fn lower_function(&self, key: &InstanceKey, id: Id) {
        let e = &self.e;
        let function = &self.facts.program.functions[key.function.index()];
        let schedule = &self.facts.schedule.functions[key.function.index()];
        let behavior = schedule.behavior;
        let mut types = Vec::new();
        if behavior.draws {
            types.extend([Scalar::U64, Scalar::U32].map(|s| local_pointer(e, s, 1)));
        }
        for (ty, shape) in function.params.iter().zip(&key.refs) {
            match shape {
                None => types.extend(ty.leaves().into_iter().map(|s| e.scalar(s))),
                Some(shape) => {
                    for memory in &shape.memory {
                        match memory {
                            Memory::Global => types.push(e.u64()),
                            Memory::Local { scalar, count } => {
                                types.extend([local_pointer(e, *scalar, *count), e.u32()]);
                            }
                            Memory::Shared { .. } => types.push(e.u32()),
                        }
                    }
                }
            }
        }
        let params = e.begin_function(id, self.result_type(key.function), &types);
        let mut params = params.into_iter();
        let mut next = || params.next().expect("compiler bug: a parameter is missing");
        let kind = BodyKind::Function { fails: behavior.fails };
        let mut l = Lowering::start(self, (&function.body, &schedule.body), kind, &function.ret);
        if behavior.draws {
            l.rng = Some(RandomState { linear: next(), draws: next() });
        }
        for (ty, shape) in function.params.iter().zip(&key.refs) {
            let param = match shape {
                None => Val::Leaves((0..ty.leaf_count()).map(|_| next()).collect()),
                Some(shape) => {
                    let pointer = |memory: &Memory| match memory {
                        Memory::Global => Pointer::Address(next()),
                        Memory::Local { .. } => {
                            let variable = next();
                            Pointer::Element(variable, Some(next()))
                        }
                        Memory::Shared { variable, .. } => Pointer::Element(*variable, Some(next())),
                    };
                    Val::Place(Place {
                        ptrs: shape.memory.iter().map(pointer).collect(),
                        shape: Rc::new(shape.clone()),
                    })
                }
            };
            l.params.push(param);
        }
        l.prepare_locals(|_, _| true);
        l.block(function.body.root);
        l.end_of_body();
        e.end_function();
    }

    /// `a ** b` on integers by repeated squaring.
    fn lower_power(&self, id: Id, s: Scalar) {
        let (e, bits) = (&self.e, s.bits());
        let ty = e.scalar(s);
        let params = e.begin_function(id, ty, &[ty, ty]);
        let (base, exponent) = (params[0], params[1]);
        let (zero, one, minus_one) = (e.int(bits, 0), e.int(bits, 1), e.int(bits, -1));
        if s.is_signed() {
            // Negative exponents: 1 for 1, +-1 for -1, 0 otherwise.
            let selection = e.begin_if(e.slt(exponent, zero), false);
            let odd = e.ine(e.and(exponent, one), zero);
            let unit = e.select(e.ieq(base, minus_one), e.select(odd, minus_one, one), zero);
            e.ret_value(e.select(e.ieq(base, one), one, unit));
            e.end_if(selection);
        }
        let (l, counters) = e.begin_loop(&[one, base, exponent]);
        let [result, square, rest] = counters[..] else { panic!("compiler bug: fewer than three counters") };
        e.loop_while(&l, e.ine(rest, zero));
        e.end_body(&l);
        let odd = e.ine(e.and(rest, one), zero);
        let next = [e.select(odd, e.mul(result, square), result), e.mul(square, square), e.lshr(rest, one)];
        e.end_loop(&l, &next);
        e.ret_value(result);
        e.end_function();
    }
}

/// Whether a function calls itself, directly or through others. SPIR-V has no recursion.
fn is_recursive(functions: &[Function], f: FuncId) -> bool {
    let mut reached = vec![false; functions.len()];
    let mut open = vec![f];
    while let Some(at) = open.pop() {
        let body = &functions[at.index()].body;
        body.visit(body.root, &mut |_, inst| {
            if let Op::Call(callee, _) = inst.op
                && !std::mem::replace(&mut reached[callee.index()], true)
            {
                open.push(callee);
            }
        });
    }
    reached[f.index()]
}
