//! How a parallel loop runs on split arrays, which have one axis distributed over ranks. An index of that axis
//! is a row.
//!
//! An iteration runs on the rank that owns the rows that it writes ("owner computes"). One axis of the loop must
//! therefore index the rows: the row of each write to a split array is the index of that axis plus a constant, the same
//! constant for all writes. Reads may use other constants: the rows next to those that a rank owns are its
//! halo. The same holds for sums whose old value is not used: a rank adds to its halo, and the owner of these rows
//! combines the sums. A row index of any other form must have bounds that a launch can compare with the rows of its
//! rank. Everything else is refused, and the error names the instruction.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use octants_analysis::{Effects, Sums, function_effects, inst_effects, local_uses, trace_element};
use octants_diag::{Code, Diagnostic, Span};
use octants_ir::{AtomicOp, Body, Buffer, BufferId, Effect, ForLoop, Function, Inst, Kernel, Op, ValueId};

use crate::split_rows::{LastRow, Row, RowBound, RowCount, Rows};

/// Rows that are accessed in addition to the one that an iteration owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Halo {
    /// Rows before it.
    pub before: u64,
    /// Rows after it.
    pub after: u64,
}

/// How a loop runs on the rows of one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SplitLoop {
    /// The loop's axis that follows the rows.
    pub axis: u32,
    /// The row that an iteration owns is the index of that axis plus this.
    pub shift: i64,
    /// The split arrays that are read, with the rows around the owned one.
    pub reads: BTreeMap<BufferId, Halo>,
    /// The split arrays that are written.
    pub writes: BTreeSet<BufferId>,
    /// The split arrays that are only added to, with the rows around the owned one.
    pub adds: BTreeMap<BufferId, Halo>,
    /// The split arrays that are read or added to at any rows of the rank.
    pub local: BTreeSet<LocalRows>,
    /// Other memory that is updated: each rank has a part of the sum.
    pub updates: BTreeMap<BufferId, AtomicOp>,
    /// The split arrays whose rows are taken modulo their number.
    pub wraps: BTreeSet<WrappedRows>,
    /// Constants that a read is clamped to. Each must be the last row of the array.
    pub last_rows: BTreeSet<(BufferId, i64)>,
}

/// Rows of a split array between two bounds. A rank must have all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalRows {
    /// The array.
    pub buffer: BufferId,
    /// It is added to, not read.
    pub adds: bool,
    /// The least row.
    pub first: RowBound,
    /// The largest row.
    pub last: RowBound,
}

/// Rows of a split array modulo their number: the ghost rows at one end of the array are copies of rows at the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WrappedRows {
    /// The array.
    pub buffer: BufferId,
    /// The number of rows that the code assumes, if it is a constant.
    pub modulus: Option<i64>,
    /// The end of the rows that iterations own, if it is a constant. It is not after the last row.
    pub end: Option<i64>,
}

/// Properties of a kernel's code with regard to split arrays.
pub struct SplitCode<'a> {
    buffers: &'a [Buffer],
    /// And the axis that is distributed.
    split: &'a BTreeMap<BufferId, u32>,
    functions: Vec<Effects>,
}

type Refused<T> = Result<T, Box<Diagnostic>>;

/// An update of memory that is not split: by an operation, or a write without one.
type Update = (BufferId, Option<AtomicOp>, Span);

struct Access {
    buffer: BufferId,
    index: ValueId,
    kind: Kind,
    span: Span,
}

/// The kind of an access to a split array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    /// A sum whose old value is not used.
    Add,
}

/// The row of an access.
#[derive(Clone, Copy)]
enum Place {
    Row(Row),
    /// Between these bounds.
    Local(RowBound, RowBound),
}

impl Place {
    fn row(self) -> Option<Row> {
        match self {
            Place::Row(row) => Some(row),
            Place::Local(..) => None,
        }
    }
}

impl Halo {
    /// Wide enough for a row, too, seen from the row at distance `owned`.
    fn include(&mut self, row: Row, owned: i64) {
        let (least, most) = row.span(owned);
        self.before = self.before.max(u64::try_from(owned - least).unwrap_or(0));
        self.after = self.after.max(u64::try_from(most - owned).unwrap_or(0));
    }
}

impl<'a> SplitCode<'a> {
    /// The properties of code with these split arrays.
    pub fn new(buffers: &'a [Buffer], functions: &[Function], split: &'a BTreeMap<BufferId, u32>) -> SplitCode<'a> {
        SplitCode { buffers, split, functions: function_effects(functions) }
    }

    /// Checks that no code outside of parallel loops touches split arrays.
    ///
    /// # Errors
    /// The first instruction that does.
    pub fn check_serial(&self, kernel: &Kernel) -> Refused<()> {
        let body = &kernel.body;
        let mut in_loops = HashSet::new();
        body.visit(body.root, &mut |v, inst| {
            if matches!(&inst.op, Op::For(l) if runs_in_parallel(l)) {
                in_loops.insert(v);
                body.visit(body_of(&inst.op), &mut |u, _| {
                    in_loops.insert(u);
                });
            }
        });
        let mut refused = Ok(());
        body.visit(body.root, &mut |v, inst| {
            if refused.is_ok() && !in_loops.contains(&v) {
                refused = self.refuse_outside(body, inst);
            }
        });
        refused
    }

    fn refuse_outside(&self, body: &Body, inst: &Inst) -> Refused<()> {
        let mut touched = None;
        self.touched(body, inst, &mut |buffer, _, _| {
            // Each rank does the same to other memory.
            touched = touched.or(Some(buffer).filter(|b| self.split.contains_key(b)));
        });
        match touched {
            None => Ok(()),
            Some(buffer) => Err(Diagnostic::new(
                Code::Compilation,
                inst.span,
                format!("`{}` is split over ranks but used outside of a parallel loop", self.name(buffer)),
            )
            .with_hint("use it in a parallel loop, indexed by the loop variable")),
        }
    }

    /// How a parallel loop runs; `None` when it touches no split array, and runs whole on each rank.
    ///
    /// # Errors
    /// An access that has no bound, or whose result would depend on the number of ranks.
    pub fn split_loop(&self, body: &Body, at: ValueId) -> Refused<Option<SplitLoop>> {
        let Op::For(of) = &body.inst(at).op else { return Ok(None) };
        let Some((split, plain)) = self.accesses(body, of)? else { return Ok(None) };
        let locals = local_uses(body);
        let mut rows = Rows { sums: Sums::through(body, &locals), body, at, split: self.split };
        let places = split.iter().map(|a| self.place(&mut rows, a)).collect::<Refused<Vec<Place>>>()?;
        let mut found = SplitLoop::default();
        (found.axis, found.shift) = self.owner(&split, &places)?;
        let owned = |row: Row| (row.axis, row.distance) == (found.axis, found.shift) && row.is_exact();
        let scattered: BTreeSet<BufferId> = split
            .iter()
            .zip(&places)
            .filter(|(access, place)| access.kind == Kind::Add && !place.row().is_some_and(owned))
            .map(|(access, _)| access.buffer)
            .collect();
        for (access, &place) in split.iter().zip(&places) {
            if scattered.contains(&access.buffer) && access.kind != Kind::Add {
                let text = format!("the same loop adds to rows of `{}` that other ranks own", self.name(access.buffer));
                return Err(Diagnostic::new(Code::Compilation, access.span, text)
                    .with_hint("read or write it in a separate loop: its sums are complete only after this loop"));
            }
            self.add_access(&mut found, access, place, scattered.contains(&access.buffer))?;
            if let Some(count) = place.row().and_then(|row| row.modulus) {
                let end = rows.stays_inside(of.dims[found.axis as usize], found.shift).ok_or_else(|| {
                    let text = format!(
                        "row indices of `{}` wrap around, but the loop does not run over its rows",
                        self.name(access.buffer)
                    );
                    Diagnostic::new(Code::Compilation, access.span, text)
                        .with_hint("loop over the rows of the array: `for i in x`, or `range(x.shape[0])`")
                })?;
                let modulus = match count {
                    RowCount::Constant(count) => Some(count),
                    RowCount::Of(_) => None,
                };
                found.wraps.insert(WrappedRows { buffer: access.buffer, modulus, end });
            }
        }
        for (buffer, op, span) in plain {
            let message = match (op, found.updates.get(&buffer)) {
                (None, _) => "is written in a loop over a split array, but is not split itself",
                (Some(AtomicOp::Exchange), _) => "is updated by an atomic exchange in a loop over a split array",
                (Some(op), Some(other)) if *other != op => {
                    "is updated by two different operations in a loop over a split array"
                }
                (Some(op), _) => {
                    found.updates.insert(buffer, op);
                    continue;
                }
            };
            return Err(Diagnostic::new(Code::Compilation, span, format!("`{}` {message}", self.name(buffer)))
                .with_hint(
                    "each rank runs only a part of the loop: split this array too, or reduce into it with one operator",
                ));
        }
        Ok(Some(found))
    }

    /// Records an access of a loop to a split array.
    fn add_access(&self, found: &mut SplitLoop, access: &Access, place: Place, scattered: bool) -> Refused<()> {
        let row = match place {
            Place::Row(row) => row,
            Place::Local(first, last) => {
                let adds = access.kind == Kind::Add;
                found.local.insert(LocalRows { buffer: access.buffer, adds, first, last });
                return Ok(());
            }
        };
        if row.axis != found.axis {
            let message = format!(
                "the rows of `{}` are indexed by a different loop variable than those of the other split arrays",
                self.name(access.buffer)
            );
            return Err(self.unbounded(access.span, message));
        }
        match access.kind {
            Kind::Read => found.reads.entry(access.buffer).or_default().include(row, found.shift),
            Kind::Add if scattered => found.adds.entry(access.buffer).or_default().include(row, found.shift),
            Kind::Write | Kind::Add => _ = found.writes.insert(access.buffer),
        }
        match row.clamped_above {
            Some(LastRow::Constant(last)) => _ = found.last_rows.insert((access.buffer, last)),
            // That array has as many rows as the others.
            Some(LastRow::Of(other)) if other != access.buffer => _ = found.reads.entry(other).or_default(),
            Some(LastRow::Of(_)) | None => {}
        }
        if let Some(RowCount::Of(other)) = row.modulus
            && other != access.buffer
        {
            found.reads.entry(other).or_default();
        }
        Ok(())
    }

    /// Accesses to split arrays, and updates of other memory. `None` when there are none of the first.
    fn accesses(&self, body: &Body, of: &ForLoop) -> Refused<Option<(Vec<Access>, Vec<Update>)>> {
        let (mut split, mut plain) = (Vec::new(), Vec::new());
        let (mut refused, mut passes_on) = (Ok(()), false);
        for reduction in &of.reductions {
            if let Some((buffer, element)) = trace_element(body, reduction.target) {
                plain.push((buffer, Some(reduction.op), body.inst(element).span));
            }
        }
        let used = used_values(body, of);
        body.visit(of.body, &mut |v, inst| {
            self.touched(body, inst, &mut |buffer, index, update| {
                let is_split = self.split.contains_key(&buffer);
                if let (true, Some(index)) = (is_split, index) {
                    let kind = match update {
                        None => Kind::Read,
                        Some(Some(AtomicOp::Add | AtomicOp::Sub)) if !used.contains(&v) => Kind::Add,
                        Some(_) => Kind::Write,
                    };
                    split.push(Access { buffer, index, kind, span: inst.span });
                } else if is_split {
                    passes_on = true;
                    let message = format!(
                        "`{}` is split over ranks and cannot be passed to a function that is compiled separately",
                        self.name(buffer)
                    );
                    refused = Err(self.unbounded(inst.span, message));
                } else if let Some(op) = update
                    && !self.buffers[buffer.index()].space.is_temporary()
                {
                    if op.is_some() && used.contains(&v) && refused.is_ok() {
                        let text = format!(
                            "the value that an atomic operation on `{}` returns would depend on the other ranks",
                            self.name(buffer)
                        );
                        refused = Err(Diagnostic::new(Code::Compilation, inst.span, text));
                    }
                    plain.push((buffer, op, inst.span));
                }
            });
        });
        if split.is_empty() && !passes_on {
            return Ok(None);
        }
        refused.map(|()| Some((split, plain)))
    }

    /// Calls `f` with each buffer that an instruction touches, the row if it is split, and how it is updated: not at
    /// all, by an operation, or by a write.
    fn touched(
        &self,
        body: &Body,
        inst: &Inst,
        f: &mut dyn FnMut(BufferId, Option<ValueId>, Option<Option<AtomicOp>>),
    ) {
        let (address, update) = match inst.op.effect() {
            Effect::Read(a) | Effect::ReadVolatile(a) => (a, None),
            Effect::Write(a) => (a, Some(None)),
            Effect::Update(a) => {
                (a, Some(Some(if let Op::Atomic(op, ..) = inst.op { op } else { AtomicOp::Exchange })))
            }
            Effect::Call(..) => {
                let mut effects = Effects::default();
                inst_effects(body, &inst.op, &self.functions, &mut effects);
                effects.access.reads.iter().filter(|b| self.split.contains_key(b)).for_each(|&b| f(b, None, None));
                effects.access.writes.iter().for_each(|&b| f(b, None, Some(None)));
                return;
            }
            _ => return,
        };
        let Some((buffer, element)) = trace_element(body, address) else { return };
        if let Op::BufferAddr(_, indices) = &body.inst(element).op
            && (update.is_some() || self.split.contains_key(&buffer))
        {
            f(buffer, self.row_of(buffer, indices), update);
        }
    }

    /// The axis that indexes the rows, and the distance of the row that an iteration owns: that of the writes; without
    /// writes, that of the sums if they agree, and otherwise the middle one.
    fn owner(&self, accesses: &[Access], places: &[Place]) -> Refused<(u32, i64)> {
        let placed = || accesses.iter().zip(places);
        let mut owner = None;
        for (access, place) in placed().filter(|(a, _)| a.kind == Kind::Write) {
            let Some(row) = place.row().filter(|row| row.is_exact()) else {
                let message = format!(
                    "`{}` is written at a row that does not follow from the loop variable",
                    self.name(access.buffer)
                );
                return Err(self.unbounded(access.span, message));
            };
            match owner {
                None => owner = Some((row.axis, row.distance)),
                Some(known) if known == (row.axis, row.distance) => {}
                Some(_) => {
                    let message = format!(
                        "an iteration writes two different rows of split arrays (`{}`)",
                        self.name(access.buffer)
                    );
                    return Err(Diagnostic::new(Code::Compilation, access.span, message).with_hint(
                        "gather instead: let each iteration write its own row and read its neighbors; or add to rows \
                         of neighbors with `+=`",
                    ));
                }
            }
        }
        if let Some(owner) = owner {
            return Ok(owner);
        }
        let mut sums = placed().filter(|(a, _)| a.kind == Kind::Add).map(|(_, place)| place.row());
        if let Some(Some(first)) = sums.next()
            && first.is_exact()
            && sums.all(|row| row == Some(first))
        {
            return Ok((first.axis, first.distance));
        }
        // Any rank could run an iteration. The rows determine it, because each row has an owner.
        let rows = places.iter().filter_map(|place| place.row());
        // A row that wraps around follows the index, but is another one than the iteration's near the ends.
        let distance = |row: Row| if row.modulus.is_some() { 0 } else { row.distance };
        let nearest = rows.min_by_key(|row| (row.modulus.is_some(), distance(*row).abs(), distance(*row)));
        // Between the first and the last row that is read, so that as few ghost rows as possible are.
        let middle = |row: Row| {
            let beside = places.iter().filter_map(|place| place.row());
            let exact = beside.filter(|other| other.axis == row.axis && other.modulus.is_none() && other.is_exact());
            let (least, most) = exact.fold((i64::MAX, i64::MIN), |(least, most), other| {
                (least.min(other.distance), most.max(other.distance))
            });
            if least <= most { (least + most) / 2 } else { distance(row) }
        };
        nearest.map(|row| (row.axis, middle(row))).ok_or_else(|| {
            let access = accesses.first().expect("compiler bug: no access to a split array");
            let text = format!(
                "cannot decide which rank runs an iteration: apart from `{}`, no split array is indexed by the loop \
                 variable",
                self.name(access.buffer)
            );
            Diagnostic::new(Code::Compilation, access.span, text)
                .with_hint("loop over the rows of a split array, and index that array by the loop variable")
        })
    }

    /// The index of the axis along which a buffer is split.
    fn row_of(&self, buffer: BufferId, indices: &[ValueId]) -> Option<ValueId> {
        indices.get(*self.split.get(&buffer)? as usize).copied()
    }

    fn place(&self, rows: &mut Rows<'_>, access: &Access) -> Refused<Place> {
        if let Some(row) = rows.find(access.index) {
            return Ok(Place::Row(row));
        }
        if let (Some((first, last)), true) = (rows.bounds(access.index), access.kind != Kind::Write) {
            return Ok(Place::Local(first, last));
        }
        let name = self.name(access.buffer);
        let which = match self.split.get(&access.buffer) {
            None | Some(0) => String::from("the first index"),
            Some(axis) => format!("index {axis}, counted from 0,"),
        };
        let text = format!("cannot bound {which} of `{name}`, which is split over ranks");
        Err(self.unbounded(access.span, text))
    }

    /// The addresses of elements in a loop whose row wraps around, with axis and distance of the row.
    pub fn wrapped_addresses(&self, body: &Body, at: ValueId) -> BTreeMap<ValueId, (u32, i64)> {
        let mut wrapped = BTreeMap::new();
        let Op::For(of) = &body.inst(at).op else { return wrapped };
        let locals = local_uses(body);
        let mut rows = Rows { sums: Sums::through(body, &locals), body, at, split: self.split };
        body.visit(of.body, &mut |v, inst| {
            if let Op::BufferAddr(buffer, indices) = &inst.op
                && let Some(row) = self.row_of(*buffer, indices).and_then(|index| rows.find(index))
                && row.modulus.is_some()
            {
                wrapped.insert(v, (row.axis, row.distance));
            }
        });
        wrapped
    }

    fn unbounded(&self, span: Span, message: String) -> Box<Diagnostic> {
        Diagnostic::new(Code::Compilation, span, message).with_hint(
            "index it by one variable of the parallel loop plus a constant, or by `max(i - 1, 0)`, `min(i + 1, n - 1)` \
             or `(i + 1) % n`. Use `qd.distributed.assume_local(array, row)` to read or add to any other row that \
             this rank has, ghost rows included",
        )
    }

    fn name(&self, buffer: BufferId) -> &str {
        &self.buffers[buffer.index()].name
    }
}

/// The loop is a separate task.
pub fn runs_in_parallel(of: &ForLoop) -> bool {
    of.parallel.as_ref().is_some_and(|config| !config.serialize)
}

fn body_of(op: &Op) -> octants_ir::BlockId {
    let Op::For(l) = op else { unreachable!("compiler bug: no loop") };
    l.body
}

/// The values that instructions of a loop take as operands.
fn used_values(body: &Body, of: &ForLoop) -> HashSet<ValueId> {
    let mut used = HashSet::new();
    body.visit(of.body, &mut |_, inst| {
        inst.op.for_each_operand(|u| {
            used.insert(u);
        });
    });
    used
}
