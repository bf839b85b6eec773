//! [`task_order`]: the dependences between the tasks of a program, derived from the memory that they touch.
//!
//! The order of two tasks matters if both touch an element, a frame slot or the log, and one of them changes it.
//! Updates count as changes even if they commute: a task may use the old values, and float sums depend on the order.
//! No task may run before an earlier one that can fail an assertion.
//!
//! Two elements of one buffer are distinguished by their colors, and otherwise only by constant bounds: a sum with
//! arguments may wrap in a launch.

use std::collections::{BTreeSet, HashMap};

use octants_ir::{Body, Effect, FuncId, Function, Program, Task};

use crate::access_sets::{Access, AccessKind, AxisSet, TaskAccess, access_sets};
use crate::colors::apart;
use crate::memory_classes::MemoryClasses;

/// Programs with more tasks keep program order: the search is quadratic in their number.
const MOST_TASKS: usize = 256;

/// For each task the earlier tasks that it must run after. Those that follow from others are left out: a task is
/// after everything that its predecessors are after. `arrays_may_alias` as in [`MemoryClasses::of`].
pub fn task_order(program: &Program, arrays_may_alias: bool) -> Vec<Vec<u32>> {
    let tasks = program.tasks.len();
    if tasks > MOST_TASKS {
        return (0..tasks as u32).map(|t| t.checked_sub(1).into_iter().collect()).collect();
    }
    let class_of = MemoryClasses::of(&program.buffers, arrays_may_alias).sharing();
    let talk = program.functions.iter().map(|f| HostMessages::of(&f.body, &[])).collect::<Vec<_>>();
    let sets = access_sets(program);
    let touched: Vec<Touched<'_>> = program
        .tasks
        .iter()
        .zip(&sets)
        .map(|(task, sets)| Touched::of(task, sets, &class_of, HostMessages::with_callees(&task.body, program, &talk)))
        .collect();
    let mut order: Vec<Vec<u32>> = Vec::with_capacity(tasks);
    // All tasks that a task is after.
    let mut depends_on: Vec<BTreeSet<u32>> = Vec::with_capacity(tasks);
    for later in 0..tasks {
        let (mut direct, mut all) = (Vec::new(), BTreeSet::new());
        for earlier in (0..later).rev() {
            if !all.contains(&(earlier as u32)) && touched[earlier].precedes(&touched[later]) {
                direct.push(earlier as u32);
                all.insert(earlier as u32);
                all.extend(&depends_on[earlier]);
            }
        }
        direct.reverse();
        order.push(direct);
        depends_on.push(all);
    }
    order
}

/// The messages of a task to the host.
#[derive(Debug, Clone, Copy, Default)]
struct HostMessages {
    prints: bool,
    asserts: bool,
}

impl HostMessages {
    /// The messages of a body, given those of its callees.
    fn of(body: &Body, functions: &[HostMessages]) -> HostMessages {
        let mut talk = HostMessages::default();
        body.visit(body.root, &mut |_, inst| match inst.op.effect() {
            Effect::Print => talk.prints = true,
            Effect::Assert => talk.asserts = true,
            Effect::Call(f, _) => {
                let callee = functions.get(f.index()).copied().unwrap_or_default();
                talk.prints |= callee.prints;
                talk.asserts |= callee.asserts;
            }
            _ => {}
        });
        talk
    }

    /// The messages of a task: of its body and all functions that it reaches.
    fn with_callees(body: &Body, program: &Program, own: &[HostMessages]) -> HostMessages {
        let mut reached: BTreeSet<FuncId> = BTreeSet::new();
        let mut open = callees(body);
        while let Some(f) = open.pop() {
            if reached.insert(f) {
                open.extend(callees(&function(program, f).body));
            }
        }
        let all = reached.iter().map(|f| own[f.index()]).chain([HostMessages::of(body, &[])]);
        all.fold(HostMessages::default(), |a, b| HostMessages {
            prints: a.prints || b.prints,
            asserts: a.asserts || b.asserts,
        })
    }
}

fn function(program: &Program, f: FuncId) -> &Function {
    &program.functions[f.index()]
}

fn callees(body: &Body) -> Vec<FuncId> {
    let mut found = Vec::new();
    body.visit(body.root, &mut |_, inst| {
        if let Effect::Call(f, _) = inst.op.effect() {
            found.push(f);
        }
    });
    found
}

/// The accesses of a task, prepared for comparisons.
struct Touched<'a> {
    task: &'a Task,
    /// Accesses by the class of their memory.
    by_class: HashMap<usize, Vec<&'a Access>>,
    talk: HostMessages,
}

impl<'a> Touched<'a> {
    fn of(task: &'a Task, sets: &'a TaskAccess, class_of: &[usize], talk: HostMessages) -> Touched<'a> {
        let mut by_class: HashMap<usize, Vec<&Access>> = HashMap::new();
        for access in &sets.accesses {
            by_class.entry(class_of[access.buffer.index()]).or_default().push(access);
        }
        Touched { task, by_class, talk }
    }

    /// A later task must run after this one.
    fn precedes(&self, later: &Touched<'_>) -> bool {
        let says = |talk: HostMessages| talk.prints || talk.asserts;
        self.talk.asserts || says(self.talk) && says(later.talk) || self.shares_frame(later) || self.conflicts(later)
    }

    fn shares_frame(&self, later: &Touched<'_>) -> bool {
        let (a, b) = (&self.task.access, &later.task.access);
        !a.frame_writes.is_disjoint(&b.frame_reads)
            || !a.frame_writes.is_disjoint(&b.frame_writes)
            || !a.frame_reads.is_disjoint(&b.frame_writes)
    }

    fn conflicts(&self, later: &Touched<'_>) -> bool {
        self.by_class.iter().any(|(class, own)| {
            let others = later.by_class.get(class).map_or(&[][..], Vec::as_slice);
            own.iter().any(|a| others.iter().any(|b| may_conflict(a, b)))
        })
    }
}

/// Accesses to memory that may be the same.
fn may_conflict(a: &Access, b: &Access) -> bool {
    let reads = (a.kind, b.kind) == (AccessKind::Read, AccessKind::Read);
    let same_elements = || a.axes.iter().zip(&b.axes).all(|(x, y)| may_meet(x, y)) && !apart(&a.colors, &b.colors);
    !reads && (a.buffer != b.buffer || a.parts & b.parts != 0 && same_elements())
}

/// An index may be in both sets.
fn may_meet(a: &AxisSet, b: &AxisSet) -> bool {
    let constant = |set: &AxisSet| match set {
        AxisSet::Range { begin, end, .. } => begin.as_constant().zip(end.as_constant()),
        AxisSet::All => None,
    };
    match (constant(a), constant(b)) {
        (Some((a, a_end)), Some((b, b_end))) => a < b_end && b < a_end,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that stores what it loads: `from[i]` to `to[i + shift]` for `i` in 0..8.
    fn copy(name: &str, from: u32, to: u32, shift: u32) -> String {
        format!(
            "  task {name} parallel reads [@{from}] writes [@{to}] {{
    %0: i32 = const 0
    %1: i32 = const 8
    %2 = for [%0..%1] parallel {{
      %3: i32 = loop_index %2, 0
      %4: ref f32 = buffer_addr @{from}[%3]
      %5: f32 = load %4
      %6: i32 = const {shift}
      %7: i32 = add %3, %6
      %8: ref f32 = buffer_addr @{to}[%7]
      store %8, %5
    }}
  }}
"
        )
    }

    fn program(tasks: &[String]) -> Program {
        let buffers: String = (0..4).map(|b| format!("  buffer @{b} b{b}: f32[1] contiguous\n")).collect();
        let text = format!("program k -> unit {{\n  roots 0\n{buffers}{}}}\n", tasks.concat());
        text.parse().unwrap_or_else(|e| panic!("{e:?}\n{text}"))
    }

    #[test]
    fn tasks_on_different_buffers_are_not_ordered() {
        let program = program(&[copy("a", 0, 1, 0), copy("b", 0, 2, 0), copy("c", 1, 3, 0), copy("d", 2, 3, 0)]);
        // `d` overwrites what `c` has written, so it depends on `c`, and through it on `a`.
        assert_eq!(task_order(&program, false), [vec![], vec![], vec![0], vec![1, 2]]);
        assert_eq!(task_order(&program, true), [vec![], vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn a_write_waits_for_the_reads_before_it() {
        let program = program(&[copy("a", 0, 1, 0), copy("b", 0, 2, 0), copy("c", 3, 0, 0)]);
        assert_eq!(task_order(&program, false), [vec![], vec![], vec![0, 1]]);
    }

    #[test]
    fn disjoint_constant_ranges_of_a_buffer_are_independent() {
        let program = program(&[copy("a", 0, 1, 0), copy("b", 0, 1, 8), copy("c", 0, 1, 4)]);
        assert_eq!(task_order(&program, false), [vec![], vec![], vec![0, 1]]);
    }

    #[test]
    fn colors_and_parts_of_elements_are_independent() {
        let task = |name: &str, shift: u32, part: u32| {
            format!(
                "  task {name} parallel writes [@0] {{
    %0: i32 = const 0
    %1: i32 = param 0
    %2 = for [%0..%1] parallel {{
      %3: i32 = loop_index %2, 0
      %4: i32 = const 2
      %5: i32 = mul %3, %4
      %6: i32 = add %5, %1
      %7: i32 = const {shift}
      %8: i32 = add %6, %7
      %9: ref vec2<f32> = buffer_addr @0[%8]
      %10: i32 = const {part}
      %11: ref f32 = element_addr %9[%10]
      %12: f32 = const 1.0
      store %11, %12
    }}
  }}
"
            )
        };
        let tasks = [task("a", 0, 0), task("b", 1, 0), task("c", 0, 1), task("d", 3, 0), task("e", 2, 1)].concat();
        let text = format!("program k -> unit {{\n  param n: i32\n  buffer @0 x: vec2<f32>[1] contiguous\n{tasks}}}\n");
        let program: Program = text.parse().unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        assert_eq!(task_order(&program, false), [vec![], vec![], vec![], vec![1], vec![2]]);
    }

    #[test]
    fn nothing_runs_before_an_assertion_that_precedes_it() {
        let asserts = "  task s serial {
    %0: i32 = const 0
    %1: u1 = gt %0, %0
    assert %1, (\"no\")
  }
"
        .to_string();
        let program = program(&[copy("a", 0, 1, 0), asserts, copy("b", 0, 2, 0)]);
        assert_eq!(task_order(&program, false), [vec![], vec![], vec![1]]);
    }

    #[test]
    fn long_programs_keep_their_order() {
        let tasks: Vec<String> = (0..MOST_TASKS + 1).map(|t| copy(&format!("t{t}"), 0, 1 + t as u32 % 3, 0)).collect();
        let order = task_order(&program(&tasks), false);
        assert!((1..tasks.len()).all(|t| order[t] == [t as u32 - 1]));
    }
}
