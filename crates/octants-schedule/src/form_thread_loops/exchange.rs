//! Exchanges between threads: votes become counting loops, and shuffles become loads from the memory that holds the
//! value of each thread.
//!
//! A value that is shuffled has a subgroup's width of unused elements before and after the others. A shuffle by a fixed
//! distance is then a load at a fixed distance, which LLVM vectorizes, and a select drops values of threads that do not
//! exist.

use octants_ir::{BinaryOp, Op, Scalar, SubgroupOp, Type, ValueId};

use super::emit::{Emitter, Fill};
use super::rates::Rate;

impl Emitter<'_> {
    /// For how many threads of the block a condition holds, i32.
    pub fn count_threads(&mut self, condition: ValueId) -> ValueId {
        let count = self.b.body.add_local("count", Type::I32);
        let zero = self.b.int(0, Scalar::I32);
        self.b.store_local(count, zero);
        self.in_subgroups(|e| {
            e.in_lanes(true, |e| {
                let holds = e.value(condition);
                let one = e.b.cast(holds, Scalar::I32);
                e.b.update_local(count, |b, old| b.binary(BinaryOp::Add, old, one));
            });
        });
        self.b.load_local(count)
    }

    /// An operation of a subgroup with the same result for all of its threads.
    pub fn exchange_once(&mut self, op: SubgroupOp, operands: &[ValueId]) -> ValueId {
        match op {
            SubgroupOp::Ballot => self.ballot(operands[0]),
            SubgroupOp::Any | SubgroupOp::All => {
                let votes = self.ballot(operands[0]);
                let wanted = if op == SubgroupOp::Any { self.b.int(0, Scalar::U64) } else { self.everyone() };
                let compare = if op == SubgroupOp::Any { BinaryOp::Ne } else { BinaryOp::Eq };
                self.b.binary(compare, votes, wanted)
            }
            SubgroupOp::AllHere | SubgroupOp::IsWhole => {
                panic!("compiler bug: a query of the active threads on a machine without a grid")
            }
            _ if self.varies(operands[0]) <= Rate::Subgroup => self.value(operands[0]),
            _ => {
                let lane = self.code.known(operands[1]).expect("compiler bug: a broadcast without a source lane");
                let index = self.first_element(operands[0]);
                let index = self.plus(index, lane);
                self.element(operands[0], index)
            }
        }
    }

    fn varies(&self, v: ValueId) -> Rate {
        self.rates.varies[self.code.locals.source(v).index()]
    }

    /// A bit for each thread of the subgroup, u64.
    fn ballot(&mut self, condition: ValueId) -> ValueId {
        let votes = self.b.body.add_local("votes", Scalar::U64.into());
        let none = self.b.int(0, Scalar::U64);
        self.b.store_local(votes, none);
        self.in_lanes(true, |e| {
            let holds = e.value(condition);
            let bit = e.b.cast(holds, Scalar::U64);
            let lane = e.lane();
            let lane = e.b.cast(lane, Scalar::U64);
            let bit = e.b.binary(BinaryOp::Shl, bit, lane);
            e.b.update_local(votes, |b, old| b.binary(BinaryOp::Or, old, bit));
        });
        self.b.load_local(votes)
    }

    /// The bits of all threads of the subgroup.
    fn everyone(&mut self) -> ValueId {
        let (_, threads) = self.here.subgroup.expect("compiler bug: a vote outside a loop over subgroups");
        let all = self.b.int(-1, Scalar::U64);
        let bits = self.b.int(64, Scalar::I32);
        let rest = self.b.binary(BinaryOp::Sub, bits, threads);
        let rest = self.b.cast(rest, Scalar::U64);
        self.b.binary(BinaryOp::UShr, all, rest)
    }

    /// A thread's part in an exchange: the value of another one.
    pub fn exchange(&mut self, op: SubgroupOp, operands: &[ValueId]) -> ValueId {
        if self.varies(operands[0]) <= Rate::Subgroup {
            return self.value(operands[0]);
        }
        let known = self.code.known(operands[1]).filter(|n| (0..=i64::from(self.rates.width)).contains(n));
        match (op, known) {
            (SubgroupOp::ShuffleUp, Some(n)) => self.at_distance(operands[0], -n),
            (SubgroupOp::ShuffleDown, Some(n)) => self.at_distance(operands[0], n),
            (SubgroupOp::ShuffleXor, Some(bit)) if bit.count_ones() == 1 => self.across(operands[0], bit),
            _ => self.anywhere(op, operands),
        }
    }

    /// The value of the thread at a fixed distance, or the own one.
    fn at_distance(&mut self, value: ValueId, distance: i64) -> ValueId {
        let lane = self.lane();
        let other = self.plus(lane, distance);
        let is_there = self.is_thread(other);
        let other = self.at_offset(value, distance);
        self.chosen(is_there, other, value)
    }

    /// The value of the thread whose index differs in a bit, or the own one.
    fn across(&mut self, value: ValueId, bit: i64) -> ValueId {
        let lane = self.lane();
        let bits = self.b.int(bit, Scalar::I32);
        let is_set = self.b.binary(BinaryOp::And, lane, bits);
        let none = self.b.int(0, Scalar::I32);
        let is_set = self.b.binary(BinaryOp::Ne, is_set, none);
        let [below, above] = [-bit, bit].map(|distance| self.at_offset(value, distance));
        let ty = self.b.ty(below).clone();
        let other = self.b.push(Op::Select(is_set, below, above), ty);
        let size = i64::from(self.rates.width);
        if self.fill == Fill::Whole && size % (2 * bit) == 0 && i64::from(self.code.block_dim) % size == 0 {
            return other;
        }
        let number = self.b.binary(BinaryOp::Xor, lane, bits);
        let is_there = self.is_thread(number);
        self.chosen(is_there, other, value)
    }

    /// The value of a thread whose index is known at run time, or this thread's own value.
    fn anywhere(&mut self, op: SubgroupOp, operands: &[ValueId]) -> ValueId {
        let (lane, by) = (self.lane(), self.value(operands[1]));
        let other = match op {
            SubgroupOp::ShuffleXor => self.b.binary(BinaryOp::Xor, lane, by),
            SubgroupOp::ShuffleUp => self.b.binary(BinaryOp::Sub, lane, by),
            SubgroupOp::ShuffleDown => self.b.binary(BinaryOp::Add, lane, by),
            _ => by,
        };
        let is_there = self.is_thread(other);
        let from = self.b.push(Op::Select(is_there, other, lane), Type::I32);
        let index = self.first_element(operands[0]);
        let index = self.b.binary(BinaryOp::Add, index, from);
        self.element(operands[0], index)
    }

    /// Whether a number is the index of a thread of the subgroup. As an unsigned number, a negative index is also
    /// beyond the last one.
    fn is_thread(&mut self, number: ValueId) -> ValueId {
        let (_, threads) = self.here.subgroup.expect("compiler bug: an exchange outside a loop over subgroups");
        let [number, threads] = [number, threads].map(|v| self.b.cast(v, Scalar::U32));
        self.b.binary(BinaryOp::Lt, number, threads)
    }

    fn chosen(&mut self, is_there: ValueId, other: ValueId, own: ValueId) -> ValueId {
        let own = self.value(own);
        let ty = self.b.ty(own).clone();
        self.b.push(Op::Select(is_there, other, own), ty)
    }

    /// The element of the thread at a distance from this one, in the memory that stores a value.
    fn at_offset(&mut self, value: ValueId, distance: i64) -> ValueId {
        let slots = self.slots;
        let slot = &slots.values[&self.code.locals.source(value)];
        let index = self.slot_index(slot);
        let index = self.plus(index, distance);
        self.element(value, index)
    }

    /// The index of the element of the subgroup's first thread.
    pub fn first_element(&mut self, value: ValueId) -> ValueId {
        let slots = self.slots;
        let slot = &slots.values[&self.code.locals.source(value)];
        let lane = self.here.lane.take();
        let index = self.slot_index(slot);
        self.here.lane = lane;
        index
    }

    fn element(&mut self, value: ValueId, index: ValueId) -> ValueId {
        let v = self.code.locals.source(value);
        let slots = self.slots;
        slots.values[&v].tree.load(&mut self.b, index, self.code.body.ty(v))
    }
}
