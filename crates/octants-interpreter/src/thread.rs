//! A thread: its position in the code as data, so that it can stop at a barrier and resume; and control flow.

use std::rc::Rc;

use octants_ir::{BlockId, Body, ForLoop, GroupPlacement, LocalId, Type, ValueId};

use crate::random::Draws;
use crate::thread_memory::ThreadMemory;
use crate::value::{Address, Value};

/// An execution of a body that has not ended.
#[derive(Debug, Clone)]
pub(crate) struct Activation<'a> {
    /// The body's name, for messages.
    pub place: String,
    pub body: &'a Body,
    pub values: Vec<Value>,
    pub locals: Vec<Vec<u64>>,
    pub params: Rc<[Value]>,
    pub cursors: Vec<Cursor>,
    /// The call in the activation below.
    pub call: Option<ValueId>,
}

/// A place in a block.
#[derive(Debug, Clone)]
pub(crate) struct Cursor {
    pub block: BlockId,
    pub next: usize,
    pub repeats: Repeats,
}

/// What happens at the end of a block.
#[derive(Debug, Clone)]
pub(crate) enum Repeats {
    Once,
    Forever,
    For(Box<Iterations>),
}

/// Iterations of a `For` that are left.
#[derive(Debug, Clone)]
pub(crate) struct Iterations {
    pub inst: ValueId,
    pub bounds: Vec<(i64, i64)>,
    /// The current iteration, the distance to the next one, and the end.
    pub at: u64,
    pub stride: u64,
    pub count: u64,
    /// The iteration of each number.
    pub order: Option<Rc<[u64]>>,
    /// For a loop with groups, each run of the body or of a group's body, by its first iteration.
    pub pieces: Option<Rc<[(u64, BlockId)]>>,
    /// For a parallel loop, the locals that are zero at the start of each iteration.
    pub fresh: Option<Rc<[LocalId]>>,
}

impl Iterations {
    /// The number of the current one, or the first one of a group.
    pub fn linear(&self) -> u64 {
        let number = self.order.as_ref().map_or(self.at, |o| o[self.at as usize]);
        self.pieces.as_ref().map_or(number, |pieces| pieces[number as usize].0)
    }

    /// The group's body that runs, if one does.
    pub fn block(&self) -> Option<BlockId> {
        let number = self.order.as_ref().map_or(self.at, |o| o[self.at as usize]);
        self.pieces.as_ref().map(|pieces| pieces[number as usize].1)
    }

    /// The index of each axis, the last one fastest.
    pub fn index(&self) -> Vec<u64> {
        let mut rest = self.linear();
        let mut index = vec![0; self.bounds.len()];
        for (i, (begin, end)) in index.iter_mut().zip(&self.bounds).rev() {
            let extent = end.wrapping_sub(*begin) as u64;
            *i = begin.wrapping_add((rest % extent) as i64) as u64;
            rest /= extent;
        }
        index
    }
}

/// How many iterations a box of indices has.
pub(crate) fn iterations_of(bounds: &[(i64, i64)]) -> u64 {
    bounds.iter().map(|(a, b)| if a < b { b.wrapping_sub(*a) as u64 } else { 0 }).fold(1, u64::saturating_mul)
}

/// The executions of a loop's bodies: along the last axis, groups take as many adjacent iterations as possible, the
/// largest first. Iterations before the first aligned group run in the loop's own body.
pub(crate) fn pieces_of(bounds: &[(i64, i64)], l: &ForLoop) -> Rc<[(u64, BlockId)]> {
    let row = bounds.last().map_or(0, |b| iterations_of(std::slice::from_ref(b)));
    let start = bounds.last().map_or(0, |b| b.0);
    let mut pieces = Vec::new();
    for first in (0..iterations_of(bounds)).step_by(row.max(1) as usize) {
        let mut at = 0;
        for group in &l.groups {
            if group.placement != GroupPlacement::Consecutive {
                let before = start.wrapping_neg().rem_euclid(i64::from(group.factor)) as u64;
                pieces.extend((0..before.min(row)).map(|i| (first + i, l.body)));
                at = before.min(row);
            }
            while row - at >= u64::from(group.factor) {
                pieces.push((first + at, group.body));
                at += u64::from(group.factor);
            }
        }
        pieces.extend((at..row).map(|i| (first + i, l.body)));
    }
    pieces.into()
}

/// A thread of a block.
#[derive(Debug, Clone)]
pub(crate) struct Thread<'a> {
    /// In its block.
    pub index: u32,
    pub activations: Vec<Activation<'a>>,
    pub private: ThreadMemory,
    pub draws: Draws,
    /// The instruction at which it waits for others.
    pub waits_at: Option<ValueId>,
    pub has_ended: bool,
    pub result: Option<Vec<u64>>,
    /// Some value is, or was, undefined.
    pub has_undefined: bool,
}

/// Zeros for a local or a result.
pub(crate) fn zeros(ty: &Type) -> Vec<u64> {
    vec![0; ty.leaf_count()]
}

impl<'a> Activation<'a> {
    pub fn new(place: String, body: &'a Body, params: Rc<[Value]>, call: Option<ValueId>) -> Self {
        let cursors = vec![Cursor { block: body.root, next: 0, repeats: Repeats::Once }];
        let values = vec![Value::Unit; body.insts.len()];
        let locals = body.locals.iter().map(|l| zeros(&l.ty)).collect();
        Activation { place, body, values, locals, params, cursors, call }
    }
}

impl<'a> Thread<'a> {
    pub fn new(index: u32, outermost: Activation<'a>, private: ThreadMemory) -> Self {
        Thread {
            index,
            activations: vec![outermost],
            private,
            draws: Draws::default(),
            waits_at: None,
            has_ended: false,
            result: None,
            has_undefined: false,
        }
    }

    pub fn here(&self) -> &Activation<'a> {
        self.activations.last().expect("a thread that runs is in a body")
    }

    pub fn here_mut(&mut self) -> &mut Activation<'a> {
        self.activations.last_mut().expect("a thread that runs is in a body")
    }

    pub fn value(&self, v: ValueId) -> &Value {
        &self.here().values[v.index()]
    }

    pub fn leaves(&self, v: ValueId) -> &[u64] {
        self.value(v).leaves()
    }

    /// The only leaf of a scalar.
    pub fn bits(&self, v: ValueId) -> u64 {
        self.leaves(v)[0]
    }

    /// A scalar integer.
    pub fn int(&self, v: ValueId) -> i64 {
        let s = self.here().body.ty(v).scalar().expect("an index is a scalar");
        crate::scalar::integer(self.bits(v), s) as i64
    }

    pub fn holds(&self, condition: ValueId) -> bool {
        self.bits(condition) != 0
    }

    pub fn address(&self, v: ValueId) -> Address {
        match self.value(v) {
            Value::Address(a) => a.clone(),
            other => panic!("{v} is {other:?}, not an address"),
        }
    }

    /// The value of a load of memory that was never written.
    pub fn undefined(&mut self, load: ValueId) -> Value {
        self.has_undefined = true;
        Value::Undefined(load)
    }

    pub fn set(&mut self, v: ValueId, value: Value) {
        self.here_mut().values[v.index()] = value;
    }

    pub fn enter(&mut self, block: BlockId, repeats: Repeats) {
        self.here_mut().cursors.push(Cursor { block, next: 0, repeats });
    }

    /// Starts the iteration that the innermost cursor is at.
    pub fn start_iteration(&mut self) {
        let a = self.activations.last_mut().expect("a thread that runs is in a body");
        let Some(Cursor { next, block, repeats: Repeats::For(left) }) = a.cursors.last_mut() else { return };
        *next = 0;
        *block = left.block().unwrap_or(*block);
        a.values[left.inst.index()] = Value::Many(left.index().into());
        let (linear, fresh) = (left.linear(), left.fresh.clone());
        if let Some(fresh) = fresh {
            for l in fresh.iter() {
                a.locals[l.index()].fill(0);
            }
            self.draws = Draws { linear, drawn: 0 };
        }
    }

    /// Leaves the blocks up to the innermost loop, which is left too, or ends its iteration.
    pub fn jump(&mut self, leaves_loop: bool) {
        let a = self.here_mut();
        while let Some(Cursor { repeats: Repeats::Once, .. }) = a.cursors.last() {
            a.cursors.pop();
        }
        if leaves_loop {
            a.cursors.pop();
        } else {
            let body = a.body;
            if let Some(c) = a.cursors.last_mut() {
                c.next = body.block(c.block).len();
            }
        }
    }

    /// Ends the innermost activation.
    pub fn leave_body(&mut self, value: Value) {
        let Some(left) = self.activations.pop() else { return };
        match left.call {
            Some(call) => self.set(call, value),
            None => {
                self.has_ended = true;
                self.result = Some(value.leaves().to_vec());
            }
        }
    }

    /// Ends the iteration of the enclosing parallel loop, or the thread if there is none.
    pub fn end_iteration(&mut self) {
        self.activations.truncate(1);
        let a = self.here_mut();
        let is_parallel = |c: &Cursor| matches!(&c.repeats, Repeats::For(left) if left.fresh.is_some());
        match a.cursors.iter().rposition(is_parallel) {
            Some(at) => {
                a.cursors.truncate(at + 1);
                a.cursors[at].next = a.body.block(a.cursors[at].block).len();
            }
            None => self.has_ended = true,
        }
    }
}
