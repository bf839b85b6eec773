//! [`access_of_tasks`]: the access sets of a program's tasks, in the form that artifacts store.

use octants_analysis::access_sets::ALL_PARTS;
use octants_analysis::{Affine, AxisSet, Term, access_sets};
use octants_artifact::{Access, AccessAxis, AccessColor, AccessKind, AccessPart, ScalarKind, SlotSum, UpdateOp};
use octants_diag::Sources;
use octants_ir::{ArgLayout, AtomicOp, BufferId, Layout, Program, Scalar};

/// The access sets of each task of a program whose arguments are in these slots.
pub(super) fn access_of_tasks(program: &Program, layout: &ArgLayout) -> Vec<Vec<Access>> {
    let slots = Slots { program, layout };
    // Block or thread memory is not an argument.
    let is_argument = |a: &octants_analysis::Access| !program.buffers[a.buffer.index()].space.is_temporary();
    let of_task = |task: octants_analysis::TaskAccess| {
        task.accesses.into_iter().filter(is_argument).map(|a| slots.access(&a)).collect()
    };
    access_sets(program).into_iter().map(of_task).collect()
}

/// The file and line of each of these accesses.
pub(super) fn access_lines(program: &Program, sources: &Sources) -> Vec<Vec<String>> {
    let is_argument = |a: &octants_analysis::Access| !program.buffers[a.buffer.index()].space.is_temporary();
    let of_task = |task: octants_analysis::TaskAccess| {
        let found = task.accesses.iter().zip(task.spans).filter(|(access, _)| is_argument(access));
        let line = |(_, span)| sources.position(span).map_or_else(String::new, |_| sources.users_location(span));
        found.map(line).collect()
    };
    access_sets(program).into_iter().map(of_task).collect()
}

/// The slots of a launch's numbers.
struct Slots<'a> {
    program: &'a Program,
    layout: &'a ArgLayout,
}

impl Slots<'_> {
    fn access(&self, of: &octants_analysis::Access) -> Access {
        let axes = of.axes.iter().enumerate().map(|(i, set)| self.axis(of.buffer, i as u32, set));
        let color = |color: &octants_analysis::Color| {
            let (coefficients, phase) = (color.coefficients.clone(), self.sum(&color.phase)?);
            Some(AccessColor { coefficients, modulus: color.modulus, phase })
        };
        let (parts, element) = self.parts(of);
        let colors = of.colors.iter().filter_map(color).collect();
        Access { buffer: of.buffer.0, kind: kind(of.kind), axes: axes.collect(), colors, parts, element }
    }

    /// The parts of an element, and its size.
    fn parts(&self, of: &octants_analysis::Access) -> (Vec<AccessPart>, u64) {
        let buffer = &self.program.buffers[of.buffer.index()];
        let leaves = buffer.elem.leaves();
        let is_part = |n: usize| of.parts == ALL_PARTS || of.parts >> n & 1 == 1;
        let bytes = |scalar: &Scalar| u64::from(scalar.bytes());
        if let Layout::Dense { components, .. } = &buffer.layout {
            let placed = components.iter().zip(&leaves).enumerate().filter(|(n, _)| is_part(*n));
            let part = |(_, (component, scalar)): (usize, (&octants_ir::ComponentLayout, &Scalar))| {
                let (slot, begin) = (self.layout.roots[component.root as usize], component.place.base);
                AccessPart { slot, begin, end: begin.saturating_add(bytes(scalar)) }
            };
            return (placed.map(part).collect(), 0);
        }
        let slot = self.layout.buffers[of.buffer.index()].expect("compiler bug: an array without argument slots");
        let element = leaves.iter().map(bytes).sum();
        if of.parts == ALL_PARTS {
            return (vec![AccessPart { slot, begin: 0, end: element }], element);
        }
        let mut end = 0;
        let mut parts: Vec<AccessPart> = Vec::new();
        for (n, scalar) in leaves.iter().enumerate() {
            let begin = end;
            end += bytes(scalar);
            match parts.last_mut() {
                _ if !is_part(n) => {}
                Some(last) if last.end == begin => last.end = end,
                _ => parts.push(AccessPart { slot, begin, end }),
            }
        }
        (parts, element)
    }

    fn axis(&self, buffer: BufferId, axis: u32, set: &AxisSet) -> AccessAxis {
        let extent = self.extent(buffer, axis);
        match set {
            AxisSet::All => AccessAxis { extent, range: None, step: 1 },
            AxisSet::Range { begin, end, step } => {
                let range = self.sum(begin).zip(self.sum(end));
                AccessAxis { extent, step: if range.is_some() { *step } else { 1 }, range }
            }
        }
    }

    fn extent(&self, buffer: BufferId, axis: u32) -> SlotSum {
        match (&self.program.buffers[buffer.index()].layout, self.layout.buffers[buffer.index()]) {
            (Layout::Dense { shape, .. }, _) => SlotSum::constant(shape[axis as usize] as i64),
            (_, Some(slot)) => SlotSum { constant: 0, terms: vec![(slot + 1 + axis, ScalarKind::I64, 1)] },
            (_, None) => panic!("compiler bug: an array without argument slots"),
        }
    }

    /// A sum in terms of slots; `None` if a term is not a scalar of the launch.
    fn sum(&self, of: &Affine) -> Option<SlotSum> {
        let mut sum = SlotSum::constant(of.constant);
        for (term, coefficient) in &of.terms {
            match term {
                Term::Index(..) => return None,
                Term::Param(p) => {
                    let scalar = self.layout.param_leaves[*p as usize].first()?;
                    sum.terms.push((self.layout.params[*p as usize], integer_kind(*scalar)?, *coefficient));
                }
                Term::Extent(buffer, axis) => {
                    let extent = self.extent(*buffer, *axis);
                    sum.constant = sum.constant.checked_add(extent.constant.checked_mul(*coefficient)?)?;
                    sum.terms.extend(extent.terms.into_iter().map(|(slot, kind, _)| (slot, kind, *coefficient)));
                }
            }
        }
        Some(sum)
    }
}

/// The kind of a signed integer. Only these form affine sums.
fn integer_kind(scalar: Scalar) -> Option<ScalarKind> {
    match scalar {
        Scalar::I8 => Some(ScalarKind::I8),
        Scalar::I16 => Some(ScalarKind::I16),
        Scalar::I32 => Some(ScalarKind::I32),
        Scalar::I64 => Some(ScalarKind::I64),
        _ => None,
    }
}

fn kind(of: octants_analysis::AccessKind) -> AccessKind {
    match of {
        octants_analysis::AccessKind::Read => AccessKind::Read,
        octants_analysis::AccessKind::Write => AccessKind::Write,
        octants_analysis::AccessKind::Atomic(op) => AccessKind::Update(update_op(op)),
    }
}

/// An atomic operation as artifacts keep it.
pub(super) fn update_op(op: AtomicOp) -> UpdateOp {
    match op {
        AtomicOp::Add => UpdateOp::Add,
        AtomicOp::Sub => UpdateOp::Sub,
        AtomicOp::Mul => UpdateOp::Mul,
        AtomicOp::Min => UpdateOp::Min,
        AtomicOp::Max => UpdateOp::Max,
        AtomicOp::And => UpdateOp::And,
        AtomicOp::Or => UpdateOp::Or,
        AtomicOp::Xor => UpdateOp::Xor,
        AtomicOp::Exchange => UpdateOp::Exchange,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "program k -> unit {
  roots 1
  param n: i32
  buffer @0 x: f32[1] contiguous
  buffer @1 f: f32[1] dense shape [64] offset [0] {
    component root 0 base 0 axes [[64 * 4]]
  }
  task k_0 parallel reads [@0] writes [@1] {
    %0: i32 = const 0
    %1: i32 = param 0
    %2 = for [%0..%1] parallel {
      %3: i32 = loop_index %2, 0
      %4: i32 = const 2
      %5: i32 = mul %3, %4
      %6: ref f32 = buffer_addr @0[%5]
      %7: f32 = load %6
      %8: i32 = const 1
      %9: i32 = add %3, %8
      %10: ref f32 = buffer_addr @1[%9]
      %11: f32 = atomic add %10, %7
    }
  }
}
";

    #[test]
    fn the_accessed_elements_follow_from_the_argument_slots() {
        let program: Program = PROGRAM.parse().unwrap_or_else(|e| panic!("{e:?}"));
        let layout = ArgLayout::new(program.roots, &program.buffers, &program.params);
        let tasks = access_of_tasks(&program, &layout);
        assert_eq!(tasks.len(), 1);
        let [read, updated] = &tasks[0][..] else { panic!("{:?}", tasks[0]) };
        // The root, the array with its extent, the parameter.
        let slots = [4096, 8192, 100, 10];
        let mut found = read.ranges(&slots).chain(updated.ranges(&slots)).map(|r| (r.begin, r.end, r.step));
        assert_eq!((read.buffer, read.kind), (0, AccessKind::Read));
        assert_eq!((updated.buffer, updated.kind), (1, AccessKind::Update(UpdateOp::Add)));
        assert_eq!(found.next(), Some((0, 19, 2)));
        assert_eq!(found.next(), Some((1, 11, 1)));
        // More than the array has: a launch would be out of bounds, so there is no access set.
        let slots = [4096, 8192, 10, 10];
        assert_eq!(read.ranges(&slots).next().map(|r| (r.begin, r.end, r.step)), Some((0, 10, 1)));
    }
}
