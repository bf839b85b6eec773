//! How a parallel loop runs on split arrays: arrays whose first axis is distributed over ranks.
//!
//! An iteration runs on the rank that owns the rows which it writes ("owner computes"). So one axis of the loop has to
//! follow the rows: the first index of each write to a split array is that axis' index plus one constant, the same for
//! all of them. Reads may be at other constants: the rows beyond those that a rank owns are its halo. Everything else
//! is refused, with the instruction that is at fault.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use octants_analysis::{Effects, Sums, function_effects, inst_effects, local_uses, trace_element};
use octants_diag::{Code, Diagnostic, Span};
use octants_ir::{
    AtomicOp, BinaryOp, Body, Buffer, BufferId, Effect, ForLoop, Function, Inst, Kernel, Op, Term, ValueId,
};

/// Rows that are read beside the one that an iteration owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Halo {
    /// Rows before it.
    pub before: u64,
    /// Rows behind it.
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
    /// Other memory that is updated: each rank has a part of the sum.
    pub updates: BTreeMap<BufferId, AtomicOp>,
    /// Constants that a read is clamped to. Each has to be the last row of the array.
    pub last_rows: BTreeSet<(BufferId, i64)>,
}

/// What a kernel's code is asked about split arrays.
pub struct SplitCode<'a> {
    buffers: &'a [Buffer],
    split: &'a BTreeSet<BufferId>,
    functions: Vec<Effects>,
}

type Refused<T> = Result<T, Box<Diagnostic>>;

/// The first index of an access to a split array, by the loop's axis.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Row {
    axis: u32,
    /// Distance from the index of the axis, where nothing clamps it.
    distance: i64,
    /// It is at least zero: `max(i - 1, 0)`.
    clamped_below: bool,
    /// It is at most the last row: `min(i + 1, n - 1)`.
    clamped_above: Option<LastRow>,
}

/// The last row of an array, as code has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastRow {
    /// A constant, which a launch compares with the array.
    Constant(i64),
    /// That of a split array, which has to have as many rows as the others.
    Of(BufferId),
}

/// An update of memory that is not split: by an operation, or a write without one.
type Update = (BufferId, Option<AtomicOp>, Span);

struct Access {
    buffer: BufferId,
    index: ValueId,
    writes: bool,
    span: Span,
}

impl<'a> SplitCode<'a> {
    /// Of code whose split arrays these are.
    pub fn new(buffers: &'a [Buffer], functions: &[Function], split: &'a BTreeSet<BufferId>) -> SplitCode<'a> {
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
        self.touched(body, inst, &mut |buffer, _, _| touched = touched.or(Some(buffer)));
        match touched {
            None => Ok(()),
            Some(buffer) => Err(Diagnostic::new(
                Code::Compilation,
                inst.span,
                format!("`{}` is split over ranks and is used outside of a parallel loop", self.name(buffer)),
            )
            .with_hint("index it in a parallel loop, by the index of the loop")),
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
        let mut sums = Sums::through(body, &locals);
        let rows = split.iter().map(|a| self.row(&mut sums, body, at, a)).collect::<Refused<Vec<Row>>>()?;
        let mut found = SplitLoop::default();
        (found.axis, found.shift) = self.owner(&split, &rows)?;
        for (access, row) in split.iter().zip(&rows) {
            if row.axis != found.axis {
                let message = format!("`{}` is indexed by another axis of the loop here", self.name(access.buffer));
                return Err(self.unbounded(access.span, message));
            }
            if access.writes {
                found.writes.insert(access.buffer);
                continue;
            }
            // A row that is clamped is the last or the first one, which is on this side of the owned row or is that row.
            let clamped = row.clamped_above.is_some();
            let least = if clamped { row.distance.min(found.shift) } else { row.distance };
            let most = if row.clamped_below { row.distance.max(found.shift) } else { row.distance };
            let halo = found.reads.entry(access.buffer).or_default();
            halo.before = halo.before.max(u64::try_from(found.shift - least).unwrap_or(0));
            halo.after = halo.after.max(u64::try_from(most - found.shift).unwrap_or(0));
            match row.clamped_above {
                Some(LastRow::Constant(last)) => {
                    found.last_rows.insert((access.buffer, last));
                }
                Some(LastRow::Of(other)) => {
                    found.reads.entry(other).or_default();
                }
                None => {}
            }
        }
        for (buffer, op, span) in plain {
            let message = match (op, found.updates.get(&buffer)) {
                (None, _) => "is written in a loop over a split array, and is not split itself",
                (Some(AtomicOp::Exchange), _) => "is exchanged in a loop over a split array",
                (Some(op), Some(other)) if *other != op => "is updated by two operations in a loop over a split array",
                (Some(op), _) => {
                    found.updates.insert(buffer, op);
                    continue;
                }
            };
            return Err(Diagnostic::new(Code::Compilation, span, format!("`{}` {message}", self.name(buffer)))
                .with_hint("each rank runs a part of the loop: split that array too, or reduce into it"));
        }
        Ok(Some(found))
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
            if matches!(inst.op.effect(), Effect::Draw) && refused.is_ok() {
                let text = "random numbers in a loop over a split array would be the same on each rank";
                refused = Err(Diagnostic::new(Code::Compilation, inst.span, text)
                    .with_hint("compute them from the index, or fill the array from Python"));
            }
            self.touched(body, inst, &mut |buffer, index, update| {
                let is_split = self.split.contains(&buffer);
                if let (true, Some(index)) = (is_split, index) {
                    split.push(Access { buffer, index, writes: update.is_some(), span: inst.span });
                } else if is_split {
                    passes_on = true;
                    let message =
                        format!("`{}` is split over ranks, and a function is called with it", self.name(buffer));
                    refused = Err(self.unbounded(inst.span, message));
                } else if let Some(op) = update
                    && !self.buffers[buffer.index()].space.is_temporary()
                {
                    if op.is_some() && used.contains(&v) && refused.is_ok() {
                        let text = format!("the old value of `{}` depends on the ranks before", self.name(buffer));
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

    /// Calls `f` with each buffer that an instruction touches, the first index, and how it is updated: not at all, by
    /// an operation, or by a write.
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
                effects.access.reads.iter().filter(|b| self.split.contains(b)).for_each(|&b| f(b, None, None));
                effects.access.writes.iter().for_each(|&b| f(b, None, Some(None)));
                return;
            }
            _ => return,
        };
        let Some((buffer, element)) = trace_element(body, address) else { return };
        if let Op::BufferAddr(_, indices) = &body.inst(element).op
            && (update.is_some() || self.split.contains(&buffer))
        {
            f(buffer, indices.first().copied(), update);
        }
    }

    /// The axis that follows the rows, and the distance of the row that an iteration owns.
    fn owner(&self, accesses: &[Access], rows: &[Row]) -> Refused<(u32, i64)> {
        let mut owner = None;
        for (access, row) in accesses.iter().zip(rows).filter(|(a, _)| a.writes) {
            if row.clamped_below || row.clamped_above.is_some() {
                let message = format!("`{}` is written at a row that is not the loop's", self.name(access.buffer));
                return Err(self.unbounded(access.span, message));
            }
            match owner {
                None => owner = Some((row.axis, row.distance)),
                Some(known) if known == (row.axis, row.distance) => {}
                Some(_) => {
                    let message =
                        format!("an iteration writes two rows of split arrays (`{}`)", self.name(access.buffer));
                    return Err(Diagnostic::new(Code::Compilation, access.span, message)
                        .with_hint("gather instead: let each iteration write its own row and read its neighbors"));
                }
            }
        }
        // Nothing is written: each row is some rank's.
        let nearest = || rows.iter().map(|r| (r.axis, r.distance)).min_by_key(|(_, d)| d.abs());
        owner.or_else(nearest).ok_or_else(|| unreachable!("compiler bug: there are accesses"))
    }

    fn row(&self, sums: &mut Sums<'_>, body: &Body, at: ValueId, access: &Access) -> Refused<Row> {
        self.find_row(sums, body, at, access.index).ok_or_else(|| {
            let text = format!(
                "the first index of `{}`, which is split over ranks, cannot be bounded",
                self.name(access.buffer)
            );
            self.unbounded(access.span, text)
        })
    }

    fn find_row(&self, sums: &mut Sums<'_>, body: &Body, at: ValueId, index: ValueId) -> Option<Row> {
        let index = sums.source(index);
        if let Some(sum) = sums.of(index) {
            let mut terms = sum.terms.iter();
            return match (terms.next(), terms.next()) {
                (Some((Term::Index(of, axis), 1)), None) if *of == at => {
                    Some(Row { axis: *axis, distance: sum.constant, clamped_below: false, clamped_above: None })
                }
                _ => None,
            };
        }
        match &body.inst(index).op {
            Op::Cast(a) => self.find_row(sums, body, at, *a),
            // `max(i - 1, 0)` is a row from i - 1 to i.
            Op::Binary(BinaryOp::Max, a, b) => {
                let (row, bound) = self.clamped(sums, body, at, (*a, *b))?;
                (sums.of(bound)?.as_constant() == Some(0)).then_some(Row { clamped_below: true, ..row })
            }
            // `min(i + 1, n - 1)` is a row from i to i + 1, if n is the number of rows.
            Op::Binary(BinaryOp::Min, a, b) => {
                let (row, bound) = self.clamped(sums, body, at, (*a, *b))?;
                let bound = sums.of(bound)?;
                let mut terms = bound.terms.iter();
                let last = match (terms.next(), terms.next()) {
                    (None, _) => LastRow::Constant(bound.constant),
                    (Some((Term::Extent(b, 0), 1)), None) if bound.constant == -1 && self.split.contains(b) => {
                        LastRow::Of(*b)
                    }
                    _ => return None,
                };
                row.clamped_above.is_none().then_some(Row { clamped_above: Some(last), ..row })
            }
            _ => None,
        }
    }

    /// The row of one of two values; the other one.
    fn clamped(
        &self,
        sums: &mut Sums<'_>,
        body: &Body,
        at: ValueId,
        (a, b): (ValueId, ValueId),
    ) -> Option<(Row, ValueId)> {
        let row = self.find_row(sums, body, at, a).map(|row| (row, b));
        row.or_else(|| self.find_row(sums, body, at, b).map(|row| (row, a)))
    }

    fn unbounded(&self, span: Span, message: String) -> Box<Diagnostic> {
        Diagnostic::new(Code::Compilation, span, message).with_hint(
            "index it by one index of the parallel loop, plus a constant; `max(i - 1, 0)` and `min(i + 1, n - 1)` are \
             bounded too",
        )
    }

    fn name(&self, buffer: BufferId) -> &str {
        &self.buffers[buffer.index()].name
    }
}

/// The loop is a task of its own.
pub fn runs_in_parallel(of: &ForLoop) -> bool {
    of.parallel.as_ref().is_some_and(|config| !config.serialize)
}

fn body_of(op: &Op) -> octants_ir::BlockId {
    let Op::For(l) = op else { unreachable!("compiler bug: a loop was found") };
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
