//! One step of a thread: an instruction, or the end of a block.

use std::rc::Rc;

use octants_ir::{FuncId, Op, ThreadScope, Type, ValueId};

use crate::machine::{Fault, Machine};
use crate::operations::text;
use crate::scalar::int_bits;
use crate::thread::{Activation, Iterations, Repeats, Thread, iterations_of, pieces_of};
use crate::value::Value;

/// The result of a step.
pub(crate) enum Step {
    /// The thread continues.
    Next,
    /// It waits for other threads, or has ended.
    Stops,
    /// It is before a parallel loop that threads of a grid run.
    Grid(ValueId),
}

impl<'a> Machine<'a> {
    /// Executes the next instruction of a thread.
    pub(crate) fn step(&mut self, t: &mut Thread<'a>) -> Result<Step, Fault> {
        let Some(cursor) = t.here_mut().cursors.last_mut() else {
            t.leave_body(Value::Unit);
            return Ok(if t.has_ended { Step::Stops } else { Step::Next });
        };
        let (block, next) = (cursor.block, cursor.next);
        cursor.next += 1;
        let Some(&v) = t.here().body.block(block).get(next) else { return Ok(self.end_block(t)) };
        self.steps += 1;
        if self.steps > self.settings.most_steps {
            return Err(self.fault(
                t,
                v,
                format!("{} instructions were executed: the code may not terminate", self.steps - 1),
            ));
        }
        // The body at the time: an instruction may leave it.
        let fault_at = t.activations.len() - 1;
        self.execute(t, v).map_err(|what| {
            t.activations.truncate(fault_at + 1);
            self.fault(t, v, what)
        })
    }

    fn end_block(&mut self, t: &mut Thread<'a>) -> Step {
        // A failure in a loop ends the task. In a grid, its threads continue after the loop.
        let failed = self.failure.is_some() && !self.block.shares_loops;
        let cursors = &mut t.here_mut().cursors;
        let Some(cursor) = cursors.last_mut() else { return Step::Next };
        match &mut cursor.repeats {
            Repeats::Once => {
                cursors.pop();
            }
            Repeats::Forever => cursor.next = 0,
            Repeats::For(left) => {
                left.at = left.at.saturating_add(left.stride);
                if left.at < left.count {
                    t.start_iteration();
                } else if left.fresh.is_some() && failed {
                    // A task follows, which is not executed any more.
                    t.has_ended = true;
                    return Step::Stops;
                } else {
                    cursors.pop();
                }
            }
        }
        Step::Next
    }

    fn execute(&mut self, t: &mut Thread<'a>, v: ValueId) -> Result<Step, String> {
        let body = t.here().body;
        let inst = body.inst(v);
        if let Some(value) = self.compute(t, v)? {
            t.set(v, value);
            return Ok(Step::Next);
        }
        match &inst.op {
            Op::If(c, yes, no) => t.enter(if t.holds(*c) { *yes } else { *no }, Repeats::Once),
            Op::Loop(inner) => t.enter(*inner, Repeats::Forever),
            Op::For(_) => return self.enter_loop(t, v),
            Op::Break => t.jump(true),
            Op::Continue => t.jump(false),
            Op::Return(value) => {
                let value = value.map_or(Value::Unit, |v| t.value(v).clone());
                t.leave_body(value);
                return Ok(if t.has_ended { Step::Stops } else { Step::Next });
            }
            Op::Call(f, args) => self.call(t, v, *f, args)?,
            Op::Reduce(slot, x) => self.reduce(t, *slot, *x)?,
            Op::Assert(c, parts) => {
                if !t.holds(*c) {
                    self.failure.get_or_insert_with(|| text(t, parts));
                    t.end_iteration();
                    return Ok(if t.has_ended { Step::Stops } else { Step::Next });
                }
            }
            Op::Barrier(ThreadScope::Subgroup | ThreadScope::Block) | Op::BlockCount(_) | Op::Subgroup(..) => {
                t.waits_at = Some(v);
                return Ok(Step::Stops);
            }
            op => return Err(format!("`{}` cannot be interpreted", op.word())),
        }
        Ok(Step::Next)
    }

    fn enter_loop(&mut self, t: &mut Thread<'a>, v: ValueId) -> Result<Step, String> {
        let body = t.here().body;
        let Op::For(l) = &body.inst(v).op else { return Err("no loop".into()) };
        let shares = l.parallel.is_some() && self.block.shares_loops;
        if l.parallel.is_some() && !shares && self.is_of_threads(body, l.body) {
            return Ok(Step::Grid(v));
        }
        let mut left = self.iterations(t, v);
        if shares {
            self.block.share(&mut left, t.index);
        } else if l.is_parallel() {
            left.order = self.order(left.count);
        }
        if left.at < left.count {
            t.enter(l.body, Repeats::For(Box::new(left)));
            t.start_iteration();
        }
        Ok(Step::Next)
    }

    /// The iterations of a loop, from the first one on.
    pub(crate) fn iterations(&self, t: &Thread<'a>, v: ValueId) -> Iterations {
        let body = t.here().body;
        let Op::For(l) = &body.inst(v).op else { panic!("compiler bug: {v} is not a loop") };
        let bounds: Vec<(i64, i64)> = l.dims.iter().map(|r| (t.int(r.begin), t.int(r.end))).collect();
        let pieces = (!l.groups.is_empty()).then(|| pieces_of(&bounds, l));
        let count = pieces.as_ref().map_or_else(|| iterations_of(&bounds), |p| p.len() as u64);
        let fresh = l.parallel.is_some().then(|| self.fresh_locals(body, l).into());
        Iterations { inst: v, bounds, at: 0, stride: 1, count, order: None, pieces, fresh }
    }

    fn call(&mut self, t: &mut Thread<'a>, v: ValueId, f: FuncId, args: &[ValueId]) -> Result<(), String> {
        if t.activations.len() > 200 {
            return Err("the call stack is too deep".into());
        }
        let function = &self.functions[f.index()];
        let params: Rc<[Value]> = args.iter().map(|a| t.value(*a).clone()).collect();
        let place = format!("function {}", function.name);
        t.activations.push(Activation::new(place, &function.body, params, Some(v)));
        Ok(())
    }

    fn reduce(&mut self, t: &mut Thread<'a>, slot: u32, x: ValueId) -> Result<(), String> {
        let a = t.here();
        let is_parallel = |c: &&crate::thread::Cursor| matches!(&c.repeats, Repeats::For(l) if l.fresh.is_some());
        let around = a.cursors.iter().rev().find(is_parallel).map(|c| &c.repeats);
        let Some(Repeats::For(left)) = around else { return Err("no loop is around a reduction".into()) };
        let Op::For(l) = &a.body.inst(left.inst).op else { return Err("no loop".into()) };
        let reduction = &l.reductions[slot as usize];
        let Type::Ref(target) = a.body.ty(reduction.target) else { return Err("no address".into()) };
        let (address, scalars) = (t.address(reduction.target), target.leaves());
        let x = t.leaves(x).to_vec();
        self.update(t, &address, &scalars, reduction.op, &x).map(|_| ())
    }

    /// Sets a value that threads have found together.
    pub(crate) fn resume(&mut self, t: &mut Thread<'a>, value: Value) {
        if let Some(v) = t.waits_at.take() {
            t.set(v, value);
        }
    }
}

/// An i32 as a value.
pub(crate) fn int_value(i: usize) -> Value {
    Value::One(int_bits(i as i128, octants_ir::Scalar::I32))
}
