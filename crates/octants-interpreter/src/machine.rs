//! [`Machine`]: the shared state of all threads of a run. [`Fault`]: why a run cannot continue.

use std::fmt;
use std::rc::Rc;

use octants_ir::{Body, Buffer, ForLoop, Function, LocalId, Op, Scalar, ThreadScope, ValueId, print_inst};

use crate::memory::{Memory, read_bytes, write_bytes};
use crate::random::random_key;
use crate::scalar::float;
use crate::thread::{Iterations, Thread};
use crate::thread_memory::{Access, Accessor, ThreadMemory};
use crate::value::{Address, Base, Region, Value};
use crate::{Grid, Interpreter, Order};

/// Why a run cannot continue: undefined behavior, or code that the interpreter does not support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The description of the fault.
    pub what: String,
    /// The body: `body`, a function or a task by name.
    pub place: String,
    /// The instruction, printed.
    pub instruction: String,
    /// The block and the thread in it.
    pub thread: (u32, u32),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (block, thread) = self.thread;
        write!(f, "{} in {}, thread {thread} of block {block}: {}", self.instruction, self.place, self.what)
    }
}

/// The program of a run, and its state.
pub(crate) struct Machine<'a> {
    pub settings: &'a Interpreter,
    pub buffers: &'a [Buffer],
    pub functions: &'a [Function],
    /// Functions that do something only threads of a grid do.
    pub functions_of_threads: Vec<bool>,
    pub memory: &'a mut Memory,
    pub params: Vec<Value>,
    pub frame: Vec<Vec<u64>>,
    /// The number of the task, for random numbers.
    pub task: u32,
    /// The block that runs.
    pub block: BlockState,
    pub printed: Vec<String>,
    pub failure: Option<String>,
    pub finite: bool,
    pub steps: u64,
    pub key: [u32; 2],
}

/// The state that threads of a block share.
#[derive(Debug, Clone, Default)]
pub(crate) struct BlockState {
    pub shared: ThreadMemory,
    /// Number of barriers that each subgroup has passed.
    pub barriers: Vec<u64>,
    pub grid: Grid,
    pub index: u32,
    /// Its threads share the iterations of each parallel loop that they reach.
    pub shares_loops: bool,
}

impl BlockState {
    /// Leaves a thread its share of a loop's iterations.
    pub fn share(&self, left: &mut Iterations, thread: u32) {
        let threads = u64::from(self.grid.block_size);
        left.at = u64::from(self.index) * threads + u64::from(thread);
        left.stride = u64::from(self.grid.blocks) * threads;
    }
}

impl<'a> Machine<'a> {
    pub fn new(
        settings: &'a Interpreter,
        buffers: &'a [Buffer],
        functions: &'a [Function],
        memory: &'a mut Memory,
        params: Vec<Value>,
    ) -> Self {
        memory.add_buffers(buffers);
        let mut machine = Machine {
            settings,
            buffers,
            functions,
            functions_of_threads: vec![false; functions.len()],
            memory,
            params,
            frame: Vec::new(),
            task: 0,
            block: BlockState::default(),
            printed: Vec::new(),
            failure: None,
            finite: true,
            steps: 0,
            key: random_key(settings.seed, settings.launch),
        };
        // Functions may call later ones: until nothing changes.
        loop {
            let now: Vec<bool> = functions.iter().map(|f| machine.is_of_threads(&f.body, f.body.root)).collect();
            if now == machine.functions_of_threads {
                return machine;
            }
            machine.functions_of_threads = now;
        }
    }

    /// Code that only means something to threads of a grid.
    pub fn is_of_threads(&self, body: &Body, block: octants_ir::BlockId) -> bool {
        let mut found = false;
        body.visit(block, &mut |_, inst| {
            found |= match &inst.op {
                Op::Grid(_) | Op::FragmentIndex(_) | Op::Barrier(_) | Op::BlockCount(_) | Op::Subgroup(..) => true,
                Op::BufferAddr(b, _) => self.buffers[b.index()].space.is_temporary(),
                Op::Call(f, _) => self.functions_of_threads[f.index()],
                _ => false,
            }
        });
        found
    }

    /// A permutation of `0..count` for work whose order is unspecified. `None` stands for ascending order.
    pub fn order(&self, count: u64) -> Option<Rc<[u64]>> {
        let Order::Shuffled(seed) = self.settings.order else { return None };
        let mut order: Vec<u64> = (0..count).collect();
        let mut state = seed ^ self.steps;
        for i in (1..order.len()).rev() {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            order.swap(i, (state >> 33) as usize % (i + 1));
        }
        Some(order.into())
    }

    /// A fault at an instruction of a thread.
    pub fn fault(&self, thread: &Thread<'a>, v: ValueId, what: String) -> Fault {
        let here = thread.here();
        Fault {
            what,
            place: here.place.clone(),
            instruction: print_inst(here.body, v),
            thread: (self.block.index, thread.index),
        }
    }

    /// Notes floats that are infinite or NaN.
    pub fn look_at(&mut self, leaves: &[u64], s: Option<Scalar>) {
        if let Some(s) = s.filter(|s| s.is_float()) {
            self.finite &= leaves.iter().all(|x| float(*x, s).is_finite());
        }
    }

    /// Reads leaves, the first at the address; `None` if one was never written.
    pub fn read(
        &mut self,
        t: &mut Thread<'a>,
        a: &Address,
        scalars: &[Scalar],
        access: Access,
    ) -> Result<Option<Vec<u64>>, String> {
        let here = match &a.base {
            Base::Local(depth, local) => &t.activations[*depth].locals[local.index()],
            Base::Frame(slot) => &self.frame[slot.index()],
            Base::Outside(what) => return Err(what.to_string()),
            Base::Element(..) | Base::Components(_) => {
                let places = places(a, scalars);
                return places.zip(scalars).map(|(p, s)| self.read_place(t, p?, *s, access)).collect();
            }
        };
        Ok(Some(here[a.leaf..a.leaf + scalars.len()].to_vec()))
    }

    /// Reads a scalar of global memory or of the frame, outside of any thread.
    pub fn read_between_tasks(&self, base: &Base, s: Scalar) -> Result<u64, String> {
        match base {
            Base::Frame(slot) => Ok(self.frame[slot.index()][0]),
            Base::Element(region @ (Region::Root(_) | Region::Array(_)), offset) => {
                read_bytes(self.memory.region(*region), *offset, s)
            }
            Base::Components(all) => read_bytes(self.memory.region(all[0].0), all[0].1, s),
            Base::Outside(what) => Err(what.to_string()),
            other => Err(format!("{other:?} is not memory that tasks share")),
        }
    }

    /// Writes leaves, the first at the address.
    pub fn write(
        &mut self,
        t: &mut Thread<'a>,
        a: &Address,
        scalars: &[Scalar],
        leaves: &[u64],
        access: Access,
    ) -> Result<(), String> {
        let here = match &a.base {
            Base::Local(depth, local) => &mut t.activations[*depth].locals[local.index()],
            Base::Frame(slot) => &mut self.frame[slot.index()],
            Base::Outside(what) => return Err(what.to_string()),
            Base::Element(..) | Base::Components(_) => {
                for ((place, s), bits) in places(a, scalars).zip(scalars).zip(leaves) {
                    self.write_place(t, place?, *s, *bits, access)?;
                }
                return Ok(());
            }
        };
        here[a.leaf..a.leaf + leaves.len()].copy_from_slice(leaves);
        Ok(())
    }

    fn accessor(&self, t: &Thread<'a>) -> Accessor {
        let subgroup = t.index / self.settings.grid.subgroup_size;
        Accessor { thread: t.index, subgroup, barriers: self.block.barriers[subgroup as usize] }
    }

    /// Reads a scalar at a byte, if it was ever written.
    pub fn read_place(
        &mut self,
        t: &mut Thread<'a>,
        (region, offset): (Region, u64),
        s: Scalar,
        access: Access,
    ) -> Result<Option<u64>, String> {
        match region {
            Region::Root(_) | Region::Array(_) => read_bytes(self.memory.region(region), offset, s).map(Some),
            Region::Shared(root) => {
                let by = self.accessor(t);
                self.block.shared.read(root, offset, s, Some(by), access)
            }
            Region::Private(root) => t.private.read(root, offset, s, None, access),
        }
    }

    /// Writes a scalar at a byte.
    pub fn write_place(
        &mut self,
        t: &mut Thread<'a>,
        (region, offset): (Region, u64),
        s: Scalar,
        bits: u64,
        access: Access,
    ) -> Result<(), String> {
        match region {
            Region::Root(_) | Region::Array(_) => write_bytes(self.memory.region_mut(region), offset, s, bits),
            Region::Shared(root) => {
                let by = self.accessor(t);
                self.block.shared.write(root, offset, s, bits, Some(by), access)
            }
            Region::Private(root) => t.private.write(root, offset, s, bits, None, access),
        }
    }

    /// The accesses that a barrier orders. One of a subgroup orders accesses of its own threads.
    pub fn pass_barrier(&mut self, scope: ThreadScope, subgroup: u32) {
        match scope {
            ThreadScope::Subgroup => self.block.barriers[subgroup as usize] += 1,
            ThreadScope::Block | ThreadScope::Device => self.block.shared.order_accesses(),
        }
    }

    /// Locals that are zero at the start of an iteration: those that no code outside of the loop names.
    pub fn fresh_locals(&self, body: &Body, l: &ForLoop) -> Vec<LocalId> {
        let count = |blocks: Vec<octants_ir::BlockId>| {
            let mut counts: Vec<u32> = vec![0; body.locals.len()];
            for block in blocks {
                body.visit(block, &mut |_, inst| {
                    if let Op::LocalAddr(l) = inst.op {
                        counts[l.index()] += 1;
                    }
                });
            }
            counts
        };
        let (all, inside) = (count(vec![body.root]), count(l.blocks().collect()));
        let is_fresh = |l: &LocalId| all[l.index()] == inside[l.index()];
        (0..body.locals.len() as u32).map(LocalId).filter(is_fresh).collect()
    }
}

/// The bytes of the leaves at an address in a buffer.
fn places<'b>(
    a: &'b Address,
    scalars: &'b [Scalar],
) -> impl Iterator<Item = Result<(Region, u64), String>> + 'b + use<'b> {
    (a.leaf..).zip(scalars).map(move |(leaf, s)| match &a.base {
        Base::Element(region, offset) => Ok((*region, offset + leaf as u64 * u64::from(s.bytes()))),
        Base::Components(all) => all.get(leaf).copied().ok_or_else(|| format!("component {leaf} is outside")),
        other => Err(format!("{other:?} is not a buffer")),
    })
}
