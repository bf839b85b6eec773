//! The shadow word of a scalar, and the functions that record an access in it.
//!
//! From the highest bit, a word holds: the epoch (20), whether several iterations touched the scalar (1), whether it
//! was updated atomically, written or read (3), a site that wrote or updated it (6), a site that read it (6), bits of a
//! hash of the value written (10), and the iteration (18). Larger iteration numbers are hashed, so some conflicts
//! between iterations with equal hashes are missed. While a single iteration has touched the scalar, the word records
//! all its accesses. For several iterations it records compatible accesses: all read, all updated, or all wrote the
//! same value. Anything else is a race. A store of the current value to a scalar that was not written counts as a read.
//!
//! In a word for the accesses within a block, the iteration consists of the thread and, above `own_bits`, the phase
//! between barriers. Accesses in different phases are not compared. Such a word has 26 bits for the iteration and 2 for
//! the hash.

use octants_ir::insert_code::push_if;
use octants_ir::{AtomicOp, BinaryOp, BufferId, Builder, FuncId, Function, Kernel, Layout, Op, Scalar, Type, ValueId};

use super::site::{Access, BufferShape, MOST_SITES, Shapes};

/// Bits of an epoch.
pub const EPOCH_BITS: u32 = 20;
pub const EPOCH_SHIFT: u32 = 44;
const MANY: u64 = 1 << 43;
const KIND_SHIFT: u32 = 40;
const READ: u64 = 1;
const WRITE: u64 = 2;
const UPDATE: u64 = 4;
const WRITE_SITE_SHIFT: u32 = 34;
const READ_SITE_SHIFT: u32 = 28;
const SITE_MASK: u64 = MOST_SITES as u64 - 1;
const VALUE_SHIFT: u32 = 18;
const VALUE_MASK: u64 = 0x3ff;
pub const OWNER_BITS: u32 = 18;
const OWNER_MASK: u64 = (1 << OWNER_BITS) - 1;
/// The same of words that tell phases apart, which have only two bits of a hash.
const PHASED_OWNER_BITS: u32 = 26;
const PHASED_OWNER_MASK: u64 = (1 << PHASED_OWNER_BITS) - 1;

/// The note of a race: from the highest bit on, the lower and the higher site, and the scalar, all inverted, so that
/// the maximum is the record of the first sites and scalar.
pub const FIRST_SITE_SHIFT: u32 = 52;
pub const SECOND_SITE_SHIFT: u32 = 40;
pub const NOTED_SITE_MASK: u64 = 0xfff;
pub const SCALAR_MASK: u64 = (1 << SECOND_SITE_SHIFT) - 1;

/// Operations on words.
pub struct Words<'b> {
    pub b: &'b mut Builder,
}

impl Words<'_> {
    pub fn c(&mut self, value: u64) -> ValueId {
        self.b.int(value as i64, Scalar::U64)
    }

    pub fn op(&mut self, op: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
        self.b.binary(op, x, y)
    }

    pub fn and(&mut self, x: ValueId, mask: u64) -> ValueId {
        let mask = self.c(mask);
        self.op(BinaryOp::And, x, mask)
    }

    pub fn or(&mut self, x: ValueId, y: ValueId) -> ValueId {
        self.op(BinaryOp::Or, x, y)
    }

    pub fn or_bits(&mut self, x: ValueId, bits: u64) -> ValueId {
        let bits = self.c(bits);
        self.or(x, bits)
    }

    pub fn shl(&mut self, x: ValueId, by: u32) -> ValueId {
        let by = self.c(u64::from(by));
        self.op(BinaryOp::Shl, x, by)
    }

    fn shr(&mut self, x: ValueId, by: u32) -> ValueId {
        let by = self.c(u64::from(by));
        self.op(BinaryOp::UShr, x, by)
    }

    /// The field of a word.
    pub fn field(&mut self, x: ValueId, shift: u32, mask: u64) -> ValueId {
        let x = self.shr(x, shift);
        self.and(x, mask)
    }

    fn is(&mut self, x: ValueId, value: u64) -> ValueId {
        let value = self.c(value);
        self.op(BinaryOp::Eq, x, value)
    }

    pub fn has(&mut self, x: ValueId, bits: u64) -> ValueId {
        let (found, zero) = (self.and(x, bits), self.c(0));
        self.op(BinaryOp::Ne, found, zero)
    }

    pub fn not(&mut self, x: ValueId) -> ValueId {
        self.b.unary(octants_ir::UnaryOp::LogicNot, x)
    }

    pub fn select(&mut self, condition: ValueId, yes: ValueId, no: ValueId) -> ValueId {
        let ty = self.b.ty(yes).clone();
        self.b.push(Op::Select(condition, yes, no), ty)
    }
}

/// The epoch and the iteration number, as the part of a word that identifies the accessor.
pub fn push_accessor_bits(b: &mut Builder, epoch: ValueId, number: ValueId) -> ValueId {
    let mut w = Words { b };
    let above = w.shr(number, OWNER_BITS);
    let factor = w.c(0x9e37_79b9_7f4a_7c15);
    let mixed = w.op(BinaryOp::Mul, above, factor);
    let mixed = w.shr(mixed, 64 - OWNER_BITS);
    let number = w.op(BinaryOp::Xor, number, mixed);
    let owner = w.and(number, OWNER_MASK);
    let epoch = w.shl(epoch, EPOCH_SHIFT);
    w.or(epoch, owner)
}

/// The accessor in a word that tells phases apart: with the epoch of another one. The highest bits of a phase are
/// dropped.
pub fn push_phased_bits(b: &mut Builder, accessor: ValueId, number: ValueId) -> ValueId {
    let mut w = Words { b };
    let epoch = w.and(accessor, u64::MAX << EPOCH_SHIFT);
    let number = w.and(number, PHASED_OWNER_MASK);
    w.or(epoch, number)
}

/// The memory that the functions for one buffer access.
#[derive(Debug, Clone, Copy)]
pub struct Watching {
    /// Its shadow words.
    pub words: BufferId,
    /// Their number, if known.
    pub count: Option<u64>,
    /// The notes of races.
    pub notes: BufferId,
    /// Which of them.
    pub group: u64,
    /// The number in the kernel of the first site of its memory.
    pub base: u32,
    /// The lowest bits of the iteration that tell accessors apart. If the others differ, the accesses are not compared.
    pub own_bits: u32,
}

/// The part of a word that a function checks.
struct Seen {
    word: ValueId,
    kinds: ValueId,
    /// Whether the word is of another epoch.
    fresh: ValueId,
}

/// The update of a word.
struct Next {
    fresh: ValueId,
    own: ValueId,
    /// Accesses of several iterations go together.
    together: ValueId,
    /// The site that the access conflicts with, if they do not.
    other_site: ValueId,
}

impl Watching {
    /// Adds a function to the kernel that takes the scalar's number (i64), the accessing iteration, the site's number
    /// among those of the memory, and for a store, bits of the value and whether memory already has it; all u64.
    pub fn add_function(&self, kernel: &mut Kernel, access: Access) -> FuncId {
        let mut params: Vec<Type> = vec![Scalar::I64.into(), Scalar::U64.into(), Scalar::U64.into()];
        if access == Access::Write {
            params.extend([Scalar::U64, Scalar::U64].map(Type::from));
        }
        let mut b = Builder::new();
        let args: Vec<ValueId> =
            params.iter().enumerate().map(|(i, ty)| b.push(Op::Param(i as u32), ty.clone())).collect();
        // An element out of bounds has no word.
        let extent = match self.count {
            Some(count) => b.int(count as i64, Scalar::I64),
            None => b.push(Op::Shape(self.words, 0), Scalar::I64.into()),
        };
        let [scalar, extent] = [args[0], extent].map(|v| b.cast(v, Scalar::U64));
        let inside = b.binary(BinaryOp::Lt, scalar, extent);
        let zero = b.int(0, Scalar::U64);
        let somebody = b.binary(BinaryOp::Ne, args[1], zero);
        let watches = b.binary(BinaryOp::And, inside, somebody);
        push_if(&mut b, watches, |b| self.push_change(b, access, &args, scalar));
        b.push(Op::Return(None), Type::Unit);
        let what = format!("{access:?}").to_lowercase();
        let phases = if self.has_phases() { "_in_phases" } else { "" };
        let name = format!("watch_{what}_{}_{}_{}{phases}", self.words.0, self.group, self.base);
        kernel.functions.push(Function { name, params, ret: Type::Unit, body: b.body });
        FuncId(kernel.functions.len() as u32 - 1)
    }

    fn has_phases(&self) -> bool {
        self.own_bits != OWNER_BITS
    }

    fn owner_mask(&self) -> u64 {
        if self.has_phases() { PHASED_OWNER_MASK } else { OWNER_MASK }
    }

    /// Where the bits of a hash are, and their mask.
    fn value_field(&self) -> (u32, u64) {
        match self.has_phases() {
            true => (PHASED_OWNER_BITS, (1 << (READ_SITE_SHIFT - PHASED_OWNER_BITS)) - 1),
            false => (VALUE_SHIFT, VALUE_MASK),
        }
    }

    /// Changes the word by compare and swap until that succeeds, or notes a race.
    fn push_change(&self, b: &mut Builder, access: Access, args: &[ValueId], scalar: ValueId) {
        let word_type = Type::Ref(Box::new(Scalar::U64.into()));
        let address = b.push(Op::BufferAddr(self.words, vec![args[0]]), word_type);
        let inner = b.body.add_block();
        b.push(Op::Loop(inner), Type::Unit);
        let back = b.set_cursor(inner);
        let word = b.push(Op::VolatileLoad(address), Scalar::U64.into());
        let mut w = Words { b };
        let differs = w.op(BinaryOp::Xor, word, args[1]);
        let kinds = w.field(word, KIND_SHIFT, 7);
        let own_mask = (1 << self.own_bits) - 1;
        let (other_epoch, untouched) = (
            w.has(differs, u64::MAX << EPOCH_SHIFT | PHASED_OWNER_MASK & !own_mask & self.owner_mask()),
            w.is(kinds, 0),
        );
        let fresh = w.or(other_epoch, untouched);
        let (others, several) = (w.has(differs, own_mask), w.has(word, MANY));
        let not_own = w.or(others, several);
        let own = w.not(not_own);
        let seen = Seen { word, kinds, fresh };
        let next = match access {
            Access::Read => next_of_read(&mut w, &seen, args),
            Access::Write => next_of_write(&mut w, &seen, args, self.value_field()),
            Access::Update => next_of_update(&mut w, &seen, args),
        };
        let one = w.or(fresh, own);
        let harmless = w.or(one, next.together);
        let many = w.or_bits(word, MANY);
        let old_epoch = w.select(own, next.own, many);
        let new = w.select(fresh, next.fresh, old_epoch);
        let (goes_on, races) = (w.b.body.add_block(), w.b.body.add_block());
        w.b.push(Op::If(harmless, goes_on, races), Type::Unit);
        w.b.set_cursor(goes_on);
        let unchanged = w.op(BinaryOp::Eq, new, word);
        push_if(w.b, unchanged, |b| _ = b.push(Op::Break, Type::Unit));
        let found = w.b.push(Op::AtomicCas(address, word, new), Scalar::U64.into());
        let swapped = w.op(BinaryOp::Eq, found, word);
        push_if(w.b, swapped, |b| _ = b.push(Op::Break, Type::Unit));
        w.b.set_cursor(races);
        push_note(&mut w, (self.notes, self.group), self.base, [args[2], next.other_site], scalar);
        w.b.push(Op::Break, Type::Unit);
        w.b.set_cursor(back);
    }
}

/// Notes a race between two sites of memory whose first site is `base`, if it comes before the one that is noted.
pub fn push_note(
    w: &mut Words<'_>,
    (notes, group): (BufferId, u64),
    base: u32,
    [site, other]: [ValueId; 2],
    scalar: ValueId,
) {
    let first = w.op(BinaryOp::Min, site, other);
    let second = w.op(BinaryOp::Max, site, other);
    let base = w.c(u64::from(base));
    let [first, second] = [first, second].map(|s| w.op(BinaryOp::Add, s, base));
    let first = w.shl(first, FIRST_SITE_SHIFT);
    let second = w.shl(second, SECOND_SITE_SHIFT);
    let scalar = w.and(scalar, SCALAR_MASK);
    let key = w.or(first, second);
    let key = w.or(key, scalar);
    let key = w.b.unary(octants_ir::UnaryOp::BitNot, key);
    let note = super::push_note(w.b, notes, 2 * group + 1);
    let noted = w.b.push(Op::VolatileLoad(note), Scalar::U64.into());
    let is_before = w.op(BinaryOp::Gt, key, noted);
    push_if(w.b, is_before, |b| _ = b.push(Op::Atomic(AtomicOp::Max, note, key), Scalar::U64.into()));
}

/// The part of a word for an iteration's accesses.
fn part(w: &mut Words<'_>, kind: u64, site: ValueId, shift: u32) -> ValueId {
    let site = w.shl(site, shift);
    w.or_bits(site, kind << KIND_SHIFT)
}

fn next_of_read(w: &mut Words<'_>, seen: &Seen, args: &[ValueId]) -> Next {
    let read = part(w, READ, args[2], READ_SITE_SHIFT);
    let fresh = w.or(args[1], read);
    let (was_read, with) = (w.has(seen.kinds, READ), w.or(seen.word, read));
    let own = w.select(was_read, seen.word, with);
    let together = w.is(seen.kinds, READ);
    let other_site = w.field(seen.word, WRITE_SITE_SHIFT, SITE_MASK);
    Next { fresh, own, together, other_site }
}

fn next_of_write(w: &mut Words<'_>, seen: &Seen, args: &[ValueId], (value_shift, value_mask): (u32, u64)) -> Next {
    let [_, accessor, site, value, is_there] = *args else {
        panic!("compiler bug: a store check with fewer than five arguments")
    };
    let written = part(w, WRITE, site, WRITE_SITE_SHIFT);
    let value = if value_mask == VALUE_MASK { value } else { w.and(value, value_mask) };
    let value_bits = w.shl(value, value_shift);
    let written = w.or(written, value_bits);
    let read = part(w, READ, site, READ_SITE_SHIFT);
    let was_written = w.has(seen.kinds, WRITE);
    let not_fresh = w.not(seen.fresh);
    let was_written = w.op(BinaryOp::And, was_written, not_fresh);
    let never_written = w.not(was_written);
    let is_there = w.has(is_there, 1);
    let changes_nothing = w.op(BinaryOp::And, is_there, never_written);
    let done = w.select(changes_nothing, read, written);
    let fresh = w.or(accessor, done);
    let rest = w.and(seen.word, !(SITE_MASK << WRITE_SITE_SHIFT | value_mask << value_shift));
    let own_written = w.or(rest, written);
    let (was_read, with) = (w.has(seen.kinds, READ), w.or(seen.word, read));
    let own_read = w.select(was_read, seen.word, with);
    let own = w.select(changes_nothing, own_read, own_written);
    let other_value = w.field(seen.word, value_shift, value_mask);
    let same_value = w.op(BinaryOp::Eq, other_value, value);
    let all_write = w.is(seen.kinds, WRITE);
    let all_write = w.op(BinaryOp::And, all_write, same_value);
    let all_read = w.is(seen.kinds, READ);
    let together = w.select(changes_nothing, all_read, all_write);
    // An iteration that wrote the same value has read before.
    let (updated, other_written) = (w.has(seen.kinds, UPDATE), w.not(same_value));
    let other_written = w.op(BinaryOp::And, other_written, was_written);
    let by_write = w.or(updated, other_written);
    let wrote = w.field(seen.word, WRITE_SITE_SHIFT, SITE_MASK);
    let did_read = w.field(seen.word, READ_SITE_SHIFT, SITE_MASK);
    let other_site = w.select(by_write, wrote, did_read);
    Next { fresh, own, together, other_site }
}

fn next_of_update(w: &mut Words<'_>, seen: &Seen, args: &[ValueId]) -> Next {
    let updated = part(w, UPDATE, args[2], WRITE_SITE_SHIFT);
    let fresh = w.or(args[1], updated);
    let has_site = w.has(seen.kinds, WRITE | UPDATE);
    let (kept, with) = (w.or_bits(seen.word, UPDATE << KIND_SHIFT), w.or(seen.word, updated));
    let own = w.select(has_site, kept, with);
    let together = w.is(seen.kinds, UPDATE);
    let was_written = w.has(seen.kinds, WRITE);
    let wrote = w.field(seen.word, WRITE_SITE_SHIFT, SITE_MASK);
    let did_read = w.field(seen.word, READ_SITE_SHIFT, SITE_MASK);
    let other_site = w.select(was_written, wrote, did_read);
    Next { fresh, own, together, other_site }
}

/// Calls a function before an access, for each scalar that it touches. Its arguments are the scalar's number, the given
/// arguments, and for a store, bits of the value and whether memory already has it.
pub fn push_watch(b: &mut Builder, v: ValueId, callee: FuncId, given: &[ValueId], shapes: &Shapes) {
    let (address, stored) = match b.body.inst(v).op {
        Op::Load(address) => (address, None),
        Op::Store(address, value) => (address, Some(value)),
        Op::Atomic(_, address, _) | Op::AtomicCas(address, ..) => (address, None),
        _ => return,
    };
    let first = push_scalar_number(b, address, shapes);
    let ty = b.pointee(address).clone();
    let present = stored.map(|_| b.load(address));
    let mut leaves = Vec::new();
    push_leaves(b, &ty, stored.zip(present), &mut leaves);
    for (next, leaf) in leaves.into_iter().enumerate() {
        let scalar = offset(b, first, next as u64);
        let mut args = vec![scalar];
        args.extend(given);
        if let Some((value, present)) = leaf {
            let [value, present] = [value, present].map(|v| bits_of(b, v));
            let is_there = b.binary(BinaryOp::Eq, value, present);
            let is_there = b.cast(is_there, Scalar::U64);
            let mut w = Words { b };
            let factor = w.c(0x9e37_79b9_7f4a_7c15);
            let mixed = w.op(BinaryOp::Mul, value, factor);
            let mixed = w.shr(mixed, 54);
            args.extend([mixed, is_there]);
        }
        b.push(Op::Call(callee, args), Type::Unit);
    }
}

/// For each scalar of a type, nothing, or the stored and the current value.
fn push_leaves(
    b: &mut Builder,
    ty: &Type,
    values: Option<(ValueId, ValueId)>,
    leaves: &mut Vec<Option<(ValueId, ValueId)>>,
) {
    let Some((new, old)) = values else {
        leaves.extend(std::iter::repeat_n(None, ty.leaf_count()));
        return;
    };
    match ty {
        Type::Struct(s) => {
            for (i, (_, member)) in s.members.iter().enumerate() {
                let [new, old] = [new, old].map(|v| b.extract(v, i as u32));
                push_leaves(b, member, Some((new, old)), leaves);
            }
        }
        Type::Scalar(_) => leaves.push(Some((new, old))),
        _ => {
            for i in 0..ty.leaf_count() as u32 {
                let [new, old] = [new, old].map(|v| b.extract(v, i));
                leaves.push(Some((new, old)));
            }
        }
    }
}

/// The bits of a scalar in a word.
fn bits_of(b: &mut Builder, value: ValueId) -> ValueId {
    let word = match b.ty(value).scalar() {
        Some(Scalar::F16) => Scalar::U16,
        Some(Scalar::F32) => Scalar::U32,
        Some(Scalar::F64) => Scalar::U64,
        _ => return b.cast(value, Scalar::U64),
    };
    let bits = b.push(Op::Bitcast(value), word.into());
    b.cast(bits, Scalar::U64)
}

fn offset(b: &mut Builder, first: ValueId, by: u64) -> ValueId {
    if by == 0 {
        return first;
    }
    let by = b.int(by as i64, Scalar::I64);
    b.binary(BinaryOp::Add, first, by)
}

/// The number of the first scalar at an address, i64: elements in the order of their indices, the last one fastest.
fn push_scalar_number(b: &mut Builder, address: ValueId, shapes: &Shapes) -> ValueId {
    match b.body.inst(address).op.clone() {
        Op::MemberAddr(base, member) => {
            let Type::Struct(s) = b.pointee(base).clone() else {
                panic!("compiler bug: a member of a type that is not a struct")
            };
            let before: usize = s.members[..member as usize].iter().map(|(_, ty)| ty.leaf_count()).sum();
            let first = push_scalar_number(b, base, shapes);
            offset(b, first, before as u64)
        }
        Op::ElementAddr(base, indices) => {
            let shape = b.pointee(base).shape();
            let first = push_scalar_number(b, base, shapes);
            let mut component = None;
            for (index, extent) in indices.iter().zip(shape) {
                let index = b.cast(*index, Scalar::I64);
                component = Some(match component {
                    None => index,
                    Some(row) => {
                        let extent = b.int(i64::from(extent), Scalar::I64);
                        let row = b.binary(BinaryOp::Mul, row, extent);
                        b.binary(BinaryOp::Add, row, index)
                    }
                });
            }
            component.map_or(first, |component| b.binary(BinaryOp::Add, first, component))
        }
        Op::BufferAddr(buffer, indices) => {
            let BufferShape { layout, scalars, .. } = &shapes.buffers[buffer.index()];
            let mut number = b.int(0, Scalar::I64);
            for (axis, index) in indices.iter().enumerate() {
                let mut index = b.cast(*index, Scalar::I64);
                if let Layout::Dense { offset, .. } = layout
                    && offset[axis] != 0
                {
                    let offset = b.int(offset[axis], Scalar::I64);
                    index = b.binary(BinaryOp::Sub, index, offset);
                }
                if axis > 0 {
                    let extent = push_extent(b, layout, buffer, axis);
                    number = b.binary(BinaryOp::Mul, number, extent);
                    number = b.binary(BinaryOp::Add, number, index);
                } else {
                    number = index;
                }
            }
            let scalars = b.int(*scalars as i64, Scalar::I64);
            b.binary(BinaryOp::Mul, number, scalars)
        }
        Op::LocalAddr(local) => b.int(shapes.locals[&local] as i64, Scalar::I64),
        op => panic!("compiler bug: {address} = {op:?} is not watched"),
    }
}

/// The extent of an axis, i64.
pub fn push_extent(b: &mut Builder, layout: &Layout, buffer: BufferId, axis: usize) -> ValueId {
    match layout {
        Layout::Dense { shape, .. } => b.int(shape[axis] as i64, Scalar::I64),
        _ => b.push(Op::Shape(buffer, axis as u32), Scalar::I64.into()),
    }
}
