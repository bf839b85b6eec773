//! Expands `balance`: the threads of a block exchange numbers, so that the threads of a subgroup get work of similar
//! length. A subgroup takes as long as its longest thread.
//!
//! The threads sort their numbers by weight. They count the numbers of each class of weights, add the counts up to the
//! first position of each class, and take positions in their classes. Classes begin at the powers of two and at three
//! points between. This takes five barriers. Half of the subgroups then take the lighter numbers in ascending order,
//! and the others the heavier ones in descending order. Subgroups that share a scheduler, every fourth on current GPUs,
//! thereby get similar amounts of work.
//!
//! If threads cannot exchange numbers, each keeps its own: on a machine without a grid, in a function, in a task that
//! may fail (a failed thread reaches no barrier), and in a block of unusual size or with idle threads.

use octants_ir::insert_code::push_if;
use octants_ir::{
    AtomicOp, BinaryOp, Body, Buffer, BufferId, Builder, GridValue, Op, Scalar, Scheduled, SubgroupOp, ThreadScope,
    Type, ValueId,
};

use crate::scheduling::Scheduling;
use crate::shared_buffers::{add_shared_buffer, flat_buffer};

/// Bits of a float's fraction that are part of the class.
const FRACTION_BITS: i64 = 2;
/// Classes of weights. Each has a thread, so a block has at least this many threads.
const CLASSES: i64 = 32 << FRACTION_BITS;
/// Maximum size of a block.
const MAX_THREADS: i64 = 256;
/// Maximum number of subgroups in a block.
const MAX_SUBGROUPS: i64 = 32;
/// Offsets of the parts of the shared buffer.
const COUNTS: i64 = 0;
const ORDER: i64 = MAX_THREADS;
const TOTALS: i64 = 2 * MAX_THREADS;

/// Expands `balance` in the variants of tasks and in functions.
pub(crate) fn balance_threads(scheduled: &mut Scheduled, of: &Scheduling) {
    scheduled.program.functions.iter_mut().for_each(|f| drop_balance(&mut f.body));
    let mut words = None;
    for task in 0..scheduled.schedule.tasks.len() {
        let exchanges = of.target.has_grid && !scheduled.schedule.tasks[task].behavior.fails;
        for variant in 0..scheduled.schedule.tasks[task].variants.len() {
            let body = &mut scheduled.schedule.tasks[task].variants[variant].body;
            if !has_balance(body) {
                continue;
            }
            if !exchanges {
                drop_balance(body);
                continue;
            }
            let mut body = std::mem::take(body);
            let words = *words.get_or_insert_with(|| add_shared_buffer(scheduled, of, words_of_block()));
            expand(&mut body, words, of.target.subgroup_size.trailing_zeros());
            scheduled.schedule.tasks[task].variants[variant].body = body;
        }
    }
}

fn words_of_block() -> Buffer {
    flat_buffer("balance", Type::I32, (TOTALS + MAX_SUBGROUPS) as u64)
}

fn has_balance(body: &Body) -> bool {
    let mut found = false;
    body.visit(body.root, &mut |_, inst| found |= matches!(inst.op, Op::Balance { .. }));
    found
}

/// Replaces each `balance` by its number.
fn drop_balance(body: &mut Body) {
    let number = |body: &Body, v: ValueId| match body.inst(v).op {
        Op::Balance { number, .. } => Some(number),
        _ => None,
    };
    if !has_balance(body) {
        return;
    }
    let source = |body: &Body, mut v: ValueId| {
        while let Some(of) = number(body, v) {
            v = of;
        }
        v
    };
    let old = body.clone();
    for inst in &mut body.insts {
        inst.op.map_operands(|v| source(&old, v));
    }
    body.blocks.iter_mut().for_each(|b| b.retain(|v| number(&old, *v).is_none()));
}

fn expand(body: &mut Body, words: BufferId, subgroup_bits: u32) {
    octants_ir::insert_code::rebuild_blocks(body, |b, v| {
        let Op::Balance { number, weight, end, heaviest_first } = b.body.inst(v).op else { return b.place(v) };
        let mut exchange = Exchange { b, words, subgroup_bits };
        let local = exchange.exchange(number, weight, end, heaviest_first);
        let address = b.local_addr(local);
        b.body.inst_mut(v).op = Op::Load(address);
        b.place(v);
    });
}

/// The code of one exchange.
struct Exchange<'a> {
    b: &'a mut Builder,
    words: BufferId,
    /// Binary logarithm of the size of a subgroup.
    subgroup_bits: u32,
}

impl Exchange<'_> {
    /// The local that holds the number that this thread gets.
    fn exchange(
        &mut self,
        number: ValueId,
        weight: ValueId,
        end: ValueId,
        heaviest_first: bool,
    ) -> octants_ir::LocalId {
        let b = &mut *self.b;
        let local = b.body.add_local("balanced", Scalar::I64.into());
        b.store_local(local, number);
        let [own, threads] = [GridValue::Thread, GridValue::BlockSize].map(|g| b.push(Op::Grid(g), Type::I32));
        let [own64, threads64] = [own, threads].map(|v| b.cast(v, Scalar::I64));
        let first = b.binary(BinaryOp::Sub, number, own64);
        let block_end = b.binary(BinaryOp::Add, first, threads64);
        let is_full = b.binary(BinaryOp::Le, block_end, end);
        let [least, most] = [CLASSES, MAX_THREADS].map(|n| b.int(n, Scalar::I32));
        let is_large = b.binary(BinaryOp::Ge, threads, least);
        let is_small = b.binary(BinaryOp::Le, threads, most);
        let is_usual = b.binary(BinaryOp::And, is_large, is_small);
        let exchanges = b.binary(BinaryOp::And, is_full, is_usual);
        let (words, subgroup_bits) = (self.words, self.subgroup_bits);
        push_if(b, exchanges, |b| {
            let other = Exchange { b, words, subgroup_bits }.partner(own, threads, weight, heaviest_first);
            let other = b.cast(other, Scalar::I64);
            let exchanged = b.binary(BinaryOp::Add, first, other);
            b.store_local(local, exchanged);
        });
        local
    }

    /// The thread whose number this thread takes.
    fn partner(&mut self, own: ValueId, threads: ValueId, weight: ValueId, heaviest_first: bool) -> ValueId {
        let zero = self.int(0);
        self.write(COUNTS, own, zero);
        self.barrier();
        let class = self.weight_class(weight);
        let (address, one) = (self.at(COUNTS, class), self.int(1));
        let place = self.b.push(Op::Atomic(AtomicOp::Add, address, one), Type::I32);
        self.barrier();

        // Each thread adds up the counts of the classes before its own: first in its subgroup, then across subgroups.
        let count = self.read(COUNTS, own);
        let lane = self.b.push(Op::Grid(GridValue::Lane), Type::I32);
        let (before, total) = self.prefix_sum(lane, count);
        let bits = self.int(i64::from(self.subgroup_bits));
        let [subgroup, subgroups] = [own, threads].map(|v| self.b.binary(BinaryOp::UShr, v, bits));
        self.write(TOTALS, subgroup, total);
        self.barrier();
        let mut earlier = before;
        for number in 0..CLASSES >> self.subgroup_bits {
            let number = self.int(number);
            let of_other = self.read(TOTALS, number);
            let is_before = self.b.binary(BinaryOp::Lt, number, subgroup);
            let added = self.b.push(Op::Select(is_before, of_other, zero), Type::I32);
            earlier = self.b.binary(BinaryOp::Add, earlier, added);
        }
        self.write(COUNTS, own, earlier);
        self.barrier();

        let start = self.read(COUNTS, class);
        let position = self.b.binary(BinaryOp::Add, start, place);
        self.write(ORDER, position, own);
        self.barrier();
        let one = self.int(1);
        let half = self.b.binary(BinaryOp::UShr, subgroups, one);
        let end = self.b.binary(BinaryOp::Add, subgroups, half);
        let last = self.b.binary(BinaryOp::Sub, end, one);
        let mirrored = self.b.binary(BinaryOp::Sub, last, subgroup);
        let first = self.b.binary(BinaryOp::Shl, mirrored, bits);
        let upper = self.b.binary(BinaryOp::Or, first, lane);
        let is_lower = self.b.binary(BinaryOp::Lt, subgroup, half);
        let mut part = self.b.push(Op::Select(is_lower, own, upper), Type::I32);
        if heaviest_first {
            let last = self.b.binary(BinaryOp::Sub, threads, one);
            part = self.b.binary(BinaryOp::Sub, last, part);
        }
        self.read(ORDER, part)
    }

    /// Sums over the values of a subgroup's threads: of those before this thread, and of all.
    fn prefix_sum(&mut self, lane: ValueId, value: ValueId) -> (ValueId, ValueId) {
        let zero = self.int(0);
        let (mut before, mut all) = (zero, value);
        for bit in 0..self.subgroup_bits {
            let bit = self.int(1 << bit);
            let other = self.b.push(Op::Subgroup(SubgroupOp::ShuffleXor, vec![all, bit]), Type::I32);
            let masked = self.b.binary(BinaryOp::And, lane, bit);
            let follows = self.b.binary(BinaryOp::Ne, masked, zero);
            let added = self.b.push(Op::Select(follows, other, zero), Type::I32);
            before = self.b.binary(BinaryOp::Add, before, added);
            all = self.b.binary(BinaryOp::Add, all, other);
        }
        (before, all)
    }

    /// The class of a weight, below [`CLASSES`]. Heavier weights are in the same class or a higher one.
    fn weight_class(&mut self, weight: ValueId) -> ValueId {
        let b = &mut *self.b;
        let [least, most] = [0, i64::from(u32::MAX >> 1)].map(|n| b.int(n, Scalar::I64));
        let positive = b.binary(BinaryOp::Max, weight, least);
        let bounded = b.binary(BinaryOp::Min, positive, most);
        let narrow = b.cast(bounded, Scalar::I32);
        let float = b.cast(narrow, Scalar::F32);
        let word = b.push(Op::Bitcast(float), Type::I32);
        let shift = b.int(23 - FRACTION_BITS, Scalar::I32);
        let bits = b.binary(BinaryOp::UShr, word, shift);
        // The exponent of one is 127. Classes of weights from one on follow the class of zero.
        let before_one = b.int((127 << FRACTION_BITS) - 1, Scalar::I32);
        let from_one = b.binary(BinaryOp::Sub, bits, before_one);
        let zero = b.int(0, Scalar::I32);
        b.binary(BinaryOp::Max, from_one, zero)
    }

    fn int(&mut self, value: i64) -> ValueId {
        self.b.int(value, Scalar::I32)
    }

    fn barrier(&mut self) {
        self.b.push(Op::Barrier(ThreadScope::Block), Type::Unit);
    }

    /// The address of a word of a part of the shared buffer.
    fn at(&mut self, part: i64, i: ValueId) -> ValueId {
        let mut index = i;
        if part != 0 {
            let part = self.int(part);
            index = self.b.binary(BinaryOp::Add, i, part);
        }
        self.b.push(Op::BufferAddr(self.words, vec![index]), Type::Ref(Box::new(Type::I32)))
    }

    fn read(&mut self, part: i64, i: ValueId) -> ValueId {
        let address = self.at(part, i);
        self.b.load(address)
    }

    fn write(&mut self, part: i64, i: ValueId, value: ValueId) {
        let address = self.at(part, i);
        self.b.store(address, value);
    }
}
