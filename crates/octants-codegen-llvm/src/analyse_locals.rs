//! What is known about a body's locals and functions before lowering: which need no zero, which need no memory.
//!
//! A local whose first use in program order is a store that dominates all other uses needs no zero at the start. If that
//! store is the only one and every other use is a load of the whole, each load is the stored value: such a local gets no
//! memory at all, and indices computed through it stay visible to address arithmetic.

use std::collections::{BTreeSet, HashMap};

use octants_ir::{BlockId, Body, Effect, FuncId, LocalId, Op, ValueId};

/// Facts about the locals of a body.
#[derive(Debug, Default)]
pub(crate) struct LocalFacts {
    /// Per local.
    locals: Vec<LocalUse>,
    /// Loads that are the value of an earlier instruction.
    forwarded: HashMap<ValueId, ValueId>,
}

#[derive(Debug, Default, Clone)]
struct LocalUse {
    first: Option<usize>,
    last: usize,
    first_store: Option<(ValueId, BlockId)>,
    stores: usize,
    others: usize,
    loads: Vec<ValueId>,
    dominated: bool,
    used_before_loop: bool,
}

impl LocalFacts {
    /// Analyses a body; `parallel_body` is the body of the task's parallel loop, if it has one.
    pub fn of(body: &Body, parallel_body: Option<BlockId>) -> LocalFacts {
        let mut walk =
            Walk { body, clock: 0, locals: vec![LocalUse::default(); body.locals.len()], ends: HashMap::new() };
        walk.block(body.root);
        let Walk { locals: mut uses, ends, .. } = walk;
        let loop_start = parallel_body.and_then(|b| ends.get(&b)).map(|r| r.0);
        let mut forwarded = HashMap::new();
        for l in &mut uses {
            if let (Some((_, block)), Some(_)) = (l.first_store, l.first) {
                let (_, end) = ends[&block];
                l.dominated = l.last < end;
            }
            l.used_before_loop = l.first.is_some_and(|f| loop_start.is_some_and(|s| f < s));
            if let (true, 1, 0, Some((value, _))) = (l.dominated, l.stores, l.others, l.first_store) {
                forwarded.extend(l.loads.iter().map(|load| (*load, value)));
            }
        }
        LocalFacts { locals: uses, forwarded }
    }

    /// The value that a load yields without reading memory.
    pub fn forwarded(&self, load: ValueId) -> Option<ValueId> {
        self.forwarded.get(&load).copied()
    }

    /// The instruction whose value `v` is, seen through loads of locals that hold one value.
    pub fn source(&self, v: ValueId) -> ValueId {
        let mut v = v;
        while let Some(stored) = self.forwarded(v) {
            v = stored;
        }
        v
    }

    /// The local has no memory: all its loads are forwarded.
    pub fn is_value(&self, l: LocalId) -> bool {
        let l = &self.locals[l.index()];
        l.dominated && l.stores == 1 && l.others == 0
    }

    /// The local is never mentioned.
    pub fn is_unused(&self, l: LocalId) -> bool {
        self.locals[l.index()].first.is_none()
    }

    /// Its zero at the start can be seen.
    pub fn needs_zero(&self, l: LocalId) -> bool {
        !self.locals[l.index()].dominated
    }

    /// Mentioned before the task's parallel loop starts.
    pub fn is_used_before_loop(&self, l: LocalId) -> bool {
        self.locals[l.index()].used_before_loop
    }
}

struct Walk<'a> {
    body: &'a Body,
    clock: usize,
    locals: Vec<LocalUse>,
    ends: HashMap<BlockId, (usize, usize)>,
}

impl Walk<'_> {
    fn local_of(&self, v: ValueId) -> Option<usize> {
        match self.body.inst(v).op {
            Op::LocalAddr(l) => Some(l.index()),
            _ => None,
        }
    }

    fn block(&mut self, b: BlockId) {
        let start = self.clock;
        for &v in self.body.block(b) {
            self.clock += 1;
            let at = self.clock;
            let op = &self.body.inst(v).op;
            let touch = |walk: &mut Self, l: usize| {
                walk.locals[l].first.get_or_insert(at);
                walk.locals[l].last = at;
            };
            match op {
                Op::Load(a) => {
                    if let Some(l) = self.local_of(*a) {
                        touch(self, l);
                        self.locals[l].loads.push(v);
                    }
                }
                Op::Store(a, value) => {
                    if let Some(l) = self.local_of(*a) {
                        if self.locals[l].first.is_none() {
                            self.locals[l].first_store = Some((*value, b));
                        }
                        touch(self, l);
                        self.locals[l].stores += 1;
                    }
                }
                _ => op.for_each_operand(|a| {
                    if let Some(l) = self.local_of(a) {
                        touch(self, l);
                        self.locals[l].others += 1;
                    }
                }),
            }
            for nested in op.blocks() {
                self.block(nested);
            }
        }
        self.clock += 1;
        self.ends.insert(b, (start, self.clock));
    }
}

/// What a function does beyond computing, directly or through its calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// May end by a failed assertion.
    pub fails: bool,
    /// Draws random numbers.
    pub draws: bool,
    /// Its threads exchange what they do.
    pub balances: bool,
    /// Updates memory atomically: instructions that do, those of callees included.
    pub atomics: usize,
    /// Instructions, those of callees included.
    pub size: usize,
}

/// A body by itself.
#[derive(Debug)]
pub(crate) struct Own {
    /// What it does without the functions it calls.
    pub effects: Effects,
    /// The functions it calls, once for each call.
    pub calls: Vec<FuncId>,
}

impl Own {
    /// Looks at a body.
    pub fn of(body: &Body) -> Own {
        let mut own = Own { effects: Effects::default(), calls: Vec::new() };
        let effects = &mut own.effects;
        body.visit(body.root, &mut |_, inst| {
            effects.size += 1 + inst.ty.clone().leaf_count_or_one() / 4;
            match inst.op.effect() {
                Effect::Assert => effects.fails = true,
                Effect::Draw => effects.draws = true,
                Effect::Exchange => effects.balances = true,
                Effect::Update(_) => effects.atomics += 1,
                Effect::For(l) => effects.atomics += usize::from(!l.reductions.is_empty()),
                Effect::Call(f, _) => own.calls.push(f),
                Effect::Pure
                | Effect::Index
                | Effect::Read(_)
                | Effect::ReadVolatile(_)
                | Effect::Write(_)
                | Effect::Reduce
                | Effect::Branch(..)
                | Effect::Loop(_)
                | Effect::Leave
                | Effect::Print => {}
            }
        });
        own
    }

    /// All functions that it reaches, which may call themselves; `functions` are the program's.
    pub fn reached(&self, functions: &[Own]) -> Vec<FuncId> {
        let mut seen = vec![false; functions.len()];
        let (mut found, mut calls) = (Vec::new(), self.calls.clone());
        while let Some(f) = calls.pop() {
            if !std::mem::replace(&mut seen[f.index()], true) {
                found.push(f);
                calls.extend(&functions[f.index()].calls);
            }
        }
        found
    }

    /// The functions that it calls itself, each once.
    pub fn called(&self) -> impl Iterator<Item = FuncId> {
        self.calls.iter().copied().collect::<BTreeSet<_>>().into_iter()
    }

    /// Its effects, and those of functions with these.
    pub fn with(&self, functions: impl IntoIterator<Item = Effects>) -> Effects {
        functions.into_iter().fold(self.effects, |mut all, callee| {
            all.fails |= callee.fails;
            all.draws |= callee.draws;
            all.balances |= callee.balances;
            all.atomics += callee.atomics;
            all.size += callee.size;
            all
        })
    }
}

/// The instructions of each function as if all its calls were inlined; very many for those that call themselves.
pub(crate) fn inlined_sizes(functions: &[Own]) -> Vec<usize> {
    fn size(f: FuncId, functions: &[Own], known: &mut Vec<Option<usize>>) -> usize {
        if let Some(size) = known[f.index()] {
            return size;
        }
        known[f.index()] = Some(usize::MAX / 2);
        let Own { effects, calls } = &functions[f.index()];
        let size = calls.iter().fold(effects.size, |sum, callee| sum.saturating_add(size(*callee, functions, known)));
        known[f.index()] = Some(size);
        size
    }
    let mut known = vec![None; functions.len()];
    (0..functions.len() as u32).map(|i| size(FuncId(i), functions, &mut known)).collect()
}

trait LeafCountOrOne {
    fn leaf_count_or_one(self) -> usize;
}

impl LeafCountOrOne for octants_ir::Type {
    fn leaf_count_or_one(self) -> usize {
        self.leaf_count().max(1)
    }
}
