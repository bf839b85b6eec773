//! Blocks of threads: each thread runs to its next collective operation, and waits there for the others.
//!
//! A subgroup's operation executes when all of its threads that have not ended wait at the same instruction, a block's
//! when all threads of the block do. `all_here` and `is_whole` query which threads are present: those that wait at one
//! of them when no other thread can proceed.

use octants_ir::{LoopConfig, MemorySpace, Op, SubgroupOp, ThreadScope, ValueId};

use crate::Grid;
use crate::control::{Step, int_value};
use crate::machine::{BlockState, Fault, Machine};
use crate::products::matrix_product;
use crate::scalar::truth;
use crate::thread::{Activation, Repeats, Thread};
use crate::thread_memory::ThreadMemory;
use crate::value::Value;

impl<'a> Machine<'a> {
    /// Runs a body on one thread, and those parallel loops that contain thread operations on grids. Returns its result.
    pub(crate) fn run_body(&mut self, outermost: Activation<'a>) -> Result<Option<Vec<u64>>, Fault> {
        let private = ThreadMemory::new(self.buffers, MemorySpace::Private);
        let grid = Grid { block_size: 1, blocks: 1, ..self.settings.grid };
        self.start_block(grid, 0);
        let mut threads = vec![Thread::new(0, outermost, private)];
        self.run_block(&mut threads)?;
        Ok(threads.pop().and_then(|t| t.result))
    }

    /// Runs a body on each thread of a grid; its parallel loops share their iterations among them.
    pub(crate) fn run_grid_task(&mut self, outermost: &Activation<'a>, config: &LoopConfig) -> Result<(), Fault> {
        let grid = self.grid_of(config);
        for index in 0..grid.blocks {
            self.start_block(grid, index);
            self.block.shares_loops = true;
            let thread = |t| Thread::new(t, outermost.clone(), ThreadMemory::new(self.buffers, MemorySpace::Private));
            let mut threads: Vec<Thread<'a>> = (0..grid.block_size).map(thread).collect();
            self.run_block(&mut threads)?;
        }
        Ok(())
    }

    fn grid_of(&self, config: &LoopConfig) -> Grid {
        if config.serialize {
            return Grid { block_size: 1, blocks: 1, ..self.settings.grid };
        }
        Grid { block_size: config.block_dim.unwrap_or(self.settings.grid.block_size), ..self.settings.grid }
    }

    fn start_block(&mut self, grid: Grid, index: u32) {
        let subgroups = grid.block_size.div_ceil(grid.subgroup_size) as usize;
        let shared = ThreadMemory::new(self.buffers, MemorySpace::Shared);
        self.block = BlockState { shared, barriers: vec![0; subgroups], grid, index, shares_loops: false };
    }

    /// Runs a parallel loop as a grid-stride loop.
    fn run_grid(&mut self, main: &Thread<'a>, v: ValueId) -> Result<(), Fault> {
        let outside = self.block.clone();
        let body = main.here().body;
        let Op::For(l) = &body.inst(v).op else { panic!("compiler bug: {v} is not a loop") };
        let all = self.iterations(main, v);

        let known = all.fresh.as_ref().map_or(0, |f| f.len());
        if known < body.locals.len() {
            let what = "threads of a grid share locals with the surrounding code: split the kernel into tasks first";
            return Err(self.fault(main, v, what.into()));
        }
        let grid = self.grid_of(&l.parallel.clone().unwrap_or_default());
        let blocks = self.order(u64::from(grid.blocks));
        for k in 0..grid.blocks {
            let block = blocks.as_ref().map_or(k, |o| o[k as usize] as u32);
            self.start_block(grid, block);
            let mut threads = Vec::new();
            for index in 0..grid.block_size {
                let private = ThreadMemory::new(self.buffers, MemorySpace::Private);
                let mut t = Thread::new(index, main.here().clone(), private);
                t.here_mut().cursors.clear();
                let mut left = all.clone();
                self.block.share(&mut left, index);
                t.has_ended = left.at >= left.count;
                t.enter(l.body, Repeats::For(Box::new(left)));
                if !t.has_ended {
                    t.start_iteration();
                }
                threads.push(t);
            }
            self.run_block(&mut threads)?;
        }
        self.block = outside;
        Ok(())
    }

    fn run_block(&mut self, threads: &mut [Thread<'a>]) -> Result<(), Fault> {
        let order = self.order(threads.len() as u64);
        loop {
            for k in 0..threads.len() {
                let t = &mut threads[order.as_ref().map_or(k, |o| o[k] as usize)];
                while !t.has_ended && t.waits_at.is_none() {
                    if let Step::Grid(v) = self.step(t)? {
                        self.run_grid(t, v)?;
                        if self.failure.is_some() {
                            t.has_ended = true;
                        }
                    }
                }
            }
            if threads.iter().all(|t| t.has_ended) {
                return Ok(());
            }
            self.meet(threads)?;
        }
    }

    /// Executes collective operations of waiting threads; a fault if none can proceed.
    fn meet(&mut self, threads: &mut [Thread<'a>]) -> Result<(), Fault> {
        let size = self.block.grid.subgroup_size as usize;
        let mut met = false;
        for (subgroup, threads) in threads.chunks_mut(size).enumerate() {
            met |= self.meet_in_subgroup(subgroup as u32, threads)?;
        }
        if met || self.meet_in_block(threads) {
            return Ok(());
        }
        for threads in threads.chunks_mut(size) {
            met |= self.release_opportunistic(threads);
        }
        if met { Ok(()) } else { Err(self.missing_thread_fault(threads)) }
    }

    fn meet_in_subgroup(&mut self, subgroup: u32, threads: &mut [Thread<'a>]) -> Result<bool, Fault> {
        let Some(first) = threads.iter().find(|t| !t.has_ended) else { return Ok(false) };
        let Some(here) = place(first) else { return Ok(false) };
        if threads.iter().any(|t| !t.has_ended && place(t) != Some(here)) {
            return Ok(false);
        }
        match &operation(first) {
            Op::Barrier(ThreadScope::Subgroup) if threads.iter().all(|t| !t.has_ended) => {
                self.pass_barrier(ThreadScope::Subgroup, subgroup);
                threads.iter_mut().for_each(|t| self.resume(t, Value::Unit));
            }
            Op::Subgroup(op, operands) if !is_opportunistic(*op) => {
                let values = self.exchange(*op, operands, threads).map_err(|(lane, what)| {
                    let v = threads[lane].waits_at.expect("it waits");
                    self.fault(&threads[lane], v, what)
                })?;
                let waiting = threads.iter_mut().filter(|t| !t.has_ended);
                waiting.zip(values).for_each(|(t, value)| self.resume(t, value));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The result of an exchange for each thread of a subgroup that has not ended.
    fn exchange(
        &self,
        op: SubgroupOp,
        operands: &[ValueId],
        threads: &[Thread<'a>],
    ) -> Result<Vec<Value>, (usize, String)> {
        let size = i64::from(self.block.grid.subgroup_size);
        let live = || threads.iter().enumerate().filter(|(_, t)| !t.has_ended);
        let from = |lane: usize, t: &Thread<'a>, other: i64| {
            // There is no thread beyond the last lane of the block.
            let other = usize::try_from(other).ok().filter(|o| (*o as i64) < size && *o < threads.len());
            let source = &threads[other.unwrap_or(lane)];
            if source.has_ended {
                return Err((lane, format!("reads a value of thread {}, which has ended", source.index)));
            }
            let source = if other.is_some() { source } else { t };
            Ok(source.value(operands[0]).clone())
        };
        let holds = |t: &Thread<'a>| t.holds(operands[0]);
        let vote = |yes: bool| Ok(live().map(|_| Value::One(truth(yes))).collect());
        match op {
            SubgroupOp::Shuffle => live().map(|(lane, t)| from(lane, t, t.int(operands[1]))).collect(),
            SubgroupOp::ShuffleXor => live().map(|(lane, t)| from(lane, t, lane as i64 ^ t.int(operands[1]))).collect(),
            SubgroupOp::ShuffleUp => live().map(|(lane, t)| from(lane, t, lane as i64 - t.int(operands[1]))).collect(),
            SubgroupOp::ShuffleDown => {
                live().map(|(lane, t)| from(lane, t, lane as i64 + t.int(operands[1]))).collect()
            }
            SubgroupOp::Ballot => {
                let mask = live().map(|(lane, t)| truth(holds(t)) << lane).sum();
                Ok(live().map(|_| Value::One(mask)).collect())
            }
            SubgroupOp::Any => vote(live().any(|(_, t)| holds(t))),
            SubgroupOp::All => vote(live().all(|(_, t)| holds(t))),
            SubgroupOp::AllHere | SubgroupOp::IsWhole => {
                panic!("compiler bug: threads wait at an instruction that does not synchronize")
            }
            SubgroupOp::ProductF16 | SubgroupOp::ProductTf32 | SubgroupOp::ProductF32 | SubgroupOp::ProductF64 => {
                if threads.len() as i64 != size || threads.iter().any(|t| t.has_ended) {
                    return Err((0, "a matrix product needs all threads of the subgroup".into()));
                }
                let kind = op.product().expect("it is a product");
                let fragments = |i: usize| threads.iter().map(|t| t.leaves(operands[i])).collect::<Vec<_>>();
                Ok(matrix_product(kind, [0, 1, 2].map(fragments)))
            }
        }
    }

    fn meet_in_block(&mut self, threads: &mut [Thread<'a>]) -> bool {
        let Some(here) = place(&threads[0]) else { return false };
        if threads.iter().any(|t| t.has_ended || place(t) != Some(here)) {
            return false;
        }
        let value = match operation(&threads[0]) {
            Op::Barrier(ThreadScope::Block) => Value::Unit,
            Op::BlockCount(c) => int_value(threads.iter().filter(|t| t.holds(*c)).count()),
            _ => return false,
        };
        self.pass_barrier(ThreadScope::Block, 0);
        threads.iter_mut().for_each(|t| self.resume(t, value.clone()));
        true
    }

    /// Resumes the threads of a subgroup that wait at the same `all_here` or `is_whole`.
    fn release_opportunistic(&mut self, threads: &mut [Thread<'a>]) -> bool {
        let size = self.block.grid.subgroup_size as usize;
        let chance = |t: &&Thread<'a>| matches!(operation_of(t), Some(Op::Subgroup(op, _)) if is_opportunistic(*op));
        let Some(first) = threads.iter().find(chance) else { return false };
        let (here, op) = (place(first), operation(first));
        let together = || threads.iter().filter(|t| !t.has_ended && place(t) == here);
        let value = match op {
            Op::Subgroup(SubgroupOp::AllHere, operands) => together().all(|t| t.holds(operands[0])),
            _ => together().count() == size,
        };
        for t in threads.iter_mut().filter(|t| !t.has_ended && place(t) == here) {
            self.resume(t, Value::One(truth(value)));
        }
        true
    }

    /// The fault of a waiting thread. It names a thread that never arrives.
    fn missing_thread_fault(&self, threads: &[Thread<'a>]) -> Fault {
        let waits = threads.iter().find(|t| t.waits_at.is_some()).expect("a thread has not ended");
        let here = place(waits);
        let other = threads.iter().find(|t| t.has_ended || place(t) != here);
        let what = match other.map(|t| (t, t.waits_at)) {
            Some((t, Some(v))) if !t.has_ended => {
                let inst = octants_ir::print_inst(t.here().body, v);
                format!("thread {} does not arrive: it waits at {inst}", t.index)
            }
            Some((t, _)) => format!("thread {} does not arrive: it has ended", t.index),
            None => "deadlock: every thread waits".to_string(),
        };
        self.fault(waits, waits.waits_at.expect("it waits"), what)
    }
}

/// Threads may diverge before it.
fn is_opportunistic(op: SubgroupOp) -> bool {
    matches!(op, SubgroupOp::AllHere | SubgroupOp::IsWhole)
}

/// The instruction that a thread waits at, by its body and number.
fn place(t: &Thread<'_>) -> Option<(usize, ValueId)> {
    t.waits_at.map(|v| (std::ptr::from_ref(t.here().body) as usize, v))
}

fn operation_of<'a>(t: &Thread<'a>) -> Option<&'a Op> {
    t.waits_at.map(|v| &t.here().body.inst(v).op)
}

fn operation<'a>(t: &Thread<'a>) -> &'a Op {
    operation_of(t).expect("the thread waits")
}
