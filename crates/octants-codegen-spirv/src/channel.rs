//! Messages to the host: records in an `octants_artifact::DeviceChannel`, in memory that both can access.

use octants_artifact::DeviceChannel;
use octants_ir::{TextPart, ThreadScope};
use rspirv::dr::Operand;
use rspirv::spirv::{MemoryAccess, MemorySemantics, Op, Scope, StorageClass};

use crate::emit::{Emitter, Id};
use crate::lowering::{Helper, Lowering, Unit};

/// Words of a `DeviceContext`.
const CHANNEL: u32 = 2;
const LAUNCH: u32 = 4;
const KERNEL: u32 = 5;
const TASK: u32 = 6;

const NEXT: u64 = 0;
const FAILED: u64 = 4;
const CAPACITY: u64 = 8;
const LOST: u64 = 12;
const FAILURE: u64 = 16;

impl Lowering<'_, '_> {
    /// Writes a record with the values of a text.
    pub fn record(&self, what: Helper, site: u32, parts: &[TextPart]) {
        let e = self.e;
        let mut words = Vec::new();
        for part in parts {
            if let TextPart::Value(v, _) | TextPart::Choice(v, _) = part {
                let scalars = self.body.ty(*v).leaves();
                words.extend(self.leaves(*v).into_iter().zip(scalars).map(|(x, s)| self.slot_bits(x, s)));
            }
        }
        if what == Helper::Claim {
            words.truncate(DeviceChannel::FAILURE_WORDS - 1);
        }
        let (channel, count) = (self.context_word(CHANNEL), e.u32c(words.len() as u32));
        let helper = self.u.helper(what);
        let start = e.of(Op::FunctionCall, e.u64(), &[helper, channel, count, self.task_in_launch()]);
        let has_room = e.begin_if(e.ine(start, e.u64c(0)), false);
        for (i, word) in words.iter().enumerate() {
            e.channel_store(e.add(start, e.u64c(8 * (i as u64 + 1))), *word);
        }
        // The host may read while other work runs, so the header is written last: a record with a header is complete.
        self.fence(ThreadScope::Device);
        let marked = e.shl(e.add(self.context_word(KERNEL), e.u64c(1)), e.u64c(32));
        e.channel_store(start, e.or(marked, e.u64c(u64::from(site))));
        e.end_if(has_room);
    }

    /// A nonzero number that distinguishes a task of a launch from those of concurrent launches.
    fn task_in_launch(&self) -> Id {
        let e = self.e;
        let number = e.add(e.mul(self.context_word(LAUNCH), e.u64c(0x9E37_79B1)), self.context_word(TASK));
        e.or(e.trunc(number, 32), e.u32c(1 << 31))
    }

    /// Whether an assertion of an earlier task has failed: uniform in a block, whose threads all execute this together.
    pub fn stays_out(&self) -> Id {
        let e = self.e;
        let word = self.u.block_word(0);
        let first = e.begin_if(e.ieq(self.thread(), e.u32c(0)), false);
        let failed = e.channel_load(e.add(self.context_word(CHANNEL), e.u64c(FAILED)), e.u32());
        let is_other = e.both(e.ine(failed, e.u32c(0)), e.ine(failed, self.task_in_launch()));
        e.store_shared(word, e.truth_to_int(is_other, 32));
        e.end_if(first);
        e.block_barrier();
        e.ine(e.load_shared(e.u32(), word), e.u32c(0))
    }
}

impl Emitter {
    fn channel_pointer(&self, address: Id, ty: Id) -> Id {
        self.of(Op::ConvertUToPtr, self.pointer_type(StorageClass::PhysicalStorageBuffer, ty), &[address])
    }

    fn relaxed(&self) -> [Operand; 2] {
        let (scope, order) = (Scope::Device as u32, MemorySemantics::RELAXED.bits());
        [Operand::IdScope(self.u32c(scope)), Operand::IdMemorySemantics(self.u32c(order))]
    }

    fn channel_load(&self, address: Id, ty: Id) -> Id {
        let [scope, order] = self.relaxed();
        self.op(Op::AtomicLoad, ty, vec![Operand::IdRef(self.channel_pointer(address, ty)), scope, order])
    }

    fn channel_add(&self, address: Id, count: Id) -> Id {
        let [scope, order] = self.relaxed();
        let pointer = Operand::IdRef(self.channel_pointer(address, self.u32()));
        self.op(Op::AtomicIAdd, self.u32(), vec![pointer, scope, order, Operand::IdRef(count)])
    }

    fn channel_store(&self, address: Id, value: Id) {
        let pointer = self.channel_pointer(address, self.u64());
        let access = [
            Operand::IdRef(pointer),
            Operand::IdRef(value),
            Operand::MemoryAccess(MemoryAccess::ALIGNED | MemoryAccess::NON_PRIVATE_POINTER),
            Operand::LiteralBit32(8),
        ];
        self.effect(Op::Store, access.to_vec());
    }

    /// Reads a word that threads of a block share.
    pub fn load_shared(&self, ty: Id, pointer: Id) -> Id {
        let mask = Operand::MemoryAccess(MemoryAccess::NON_PRIVATE_POINTER);
        self.op(Op::Load, ty, vec![Operand::IdRef(pointer), mask])
    }

    /// Writes a word that threads of a block share.
    pub fn store_shared(&self, pointer: Id, value: Id) {
        let mask = Operand::MemoryAccess(MemoryAccess::NON_PRIVATE_POINTER);
        self.effect(Op::Store, vec![Operand::IdRef(pointer), Operand::IdRef(value), mask]);
    }
}

impl Unit<'_> {
    /// The function that finds room for a record of a given number of values: its address, or zero.
    pub fn lower_room(&self, id: Id, what: Helper) {
        let e = &self.e;
        let params = e.begin_function(id, e.u64(), &[e.u64(), e.u32(), e.u32()]);
        let [channel, count, task] = params[..] else { panic!("compiler bug: fewer than three parameters") };
        let at = |offset: u64| e.add(channel, e.u64c(offset));
        if what == Helper::Claim {
            let [scope, order] = e.relaxed();
            let pointer = Operand::IdRef(e.channel_pointer(at(FAILED), e.u32()));
            let zero = Operand::IdRef(e.u32c(0));
            let operands = vec![pointer, scope, order.clone(), order, Operand::IdRef(task), zero];
            let found = e.op(Op::AtomicCompareExchange, e.u32(), operands);
            e.ret_value(e.select(e.ieq(found, e.u32c(0)), at(FAILURE), e.u64c(0)));
            return e.end_function();
        }
        let words = e.add(count, e.u32c(1));
        let first = e.channel_add(at(NEXT), words);
        let capacity = e.channel_load(at(CAPACITY), e.u32());
        // In 64 bits, because the count may far exceed the capacity.
        let end = e.add(e.zext(first, 64), e.zext(words, 64));
        let has_room = e.ule(end, e.zext(capacity, 64));
        e.channel_add(at(LOST), e.select(has_room, e.u32c(0), e.u32c(1)));
        let start = e.add(at(DeviceChannel::BYTES), e.mul(e.zext(first, 64), e.u64c(8)));
        e.ret_value(e.select(has_room, start, e.u64c(0)));
        e.end_function();
    }

    /// A word that the threads of a block share, by its number.
    pub fn block_word(&self, number: usize) -> Id {
        let known = &self.block_words[number];
        let word = known.get().unwrap_or_else(|| self.e.global(StorageClass::Workgroup, self.e.u32()));
        known.set(Some(word));
        word
    }
}
