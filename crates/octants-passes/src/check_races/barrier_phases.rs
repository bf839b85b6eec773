//! For each instruction, the block barriers that may be the last one before it. All threads of a block pass the same
//! barriers, so two threads' accesses are ordered unless one barrier may be the last before both.

use std::collections::{BTreeSet, HashMap};

use octants_ir::{BlockId, Body, Effect, Op, ThreadScope, ValueId};

/// Barriers. None of them represents the start of the loop's body.
pub type Barriers = BTreeSet<Option<ValueId>>;

/// The barriers before each instruction of a parallel loop's body.
pub fn last_barriers(body: &Body, block: BlockId) -> HashMap<ValueId, Barriers> {
    let mut walk = Walk { body, before: HashMap::new(), leaving: Vec::new() };
    walk.block(block, Barriers::from([None]));
    walk.before
}

struct Walk<'a> {
    body: &'a Body,
    before: HashMap<ValueId, Barriers>,
    /// For each enclosing loop, the last barriers before the exits of an iteration.
    leaving: Vec<Barriers>,
}

impl Walk<'_> {
    /// The last barriers before the end of a block, given those before its start.
    fn block(&mut self, block: BlockId, mut last: Barriers) -> Barriers {
        for &v in self.body.block(block) {
            self.before.entry(v).or_default().extend(&last);
            match self.body.inst(v).op.effect() {
                Effect::Branch(yes, no) => {
                    let mut end = self.block(yes, last.clone());
                    end.extend(self.block(no, last));
                    last = end;
                }
                Effect::For(l) => last = self.rounds(l.body, last),
                Effect::Loop(inner) => last = self.rounds(inner, last),
                Effect::Leave => self.leaving.iter_mut().for_each(|leaving| leaving.extend(&last)),
                _ if matches!(self.body.inst(v).op, Op::Barrier(ThreadScope::Block) | Op::BlockCount(_)) => {
                    last = Barriers::from([Some(v)]);
                }
                _ => {}
            }
        }
        last
    }

    /// The last barriers before the end of a loop. Each iteration starts with the barriers that any iteration ends
    /// with.
    fn rounds(&mut self, inner: BlockId, mut last: Barriers) -> Barriers {
        loop {
            self.leaving.push(Barriers::new());
            let mut next = last.clone();
            next.extend(self.block(inner, last.clone()));
            next.extend(self.leaving.pop().unwrap_or_default());
            if next == last {
                return last;
            }
            last = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use octants_ir::Kernel;

    use super::*;

    const KERNEL: &str = "kernel k -> unit {
  body {
    %0: i32 = const 0
    %1: i32 = const 4
    %2 = for [%0..%1] parallel {
      %3: i32 = const 1
      barrier block
      %5 = for [%0..%1] {
        %6: i32 = const 2
        barrier block
        %8: i32 = const 3
      }
      %9: i32 = const 5
    }
  }
}
";

    #[test]
    fn an_iteration_starts_after_the_last_barrier_of_the_previous_one() {
        let kernel: Kernel = KERNEL.parse().unwrap_or_else(|e| panic!("{e:?}"));
        let body = &kernel.body;
        let mut before = Vec::new();
        body.visit(body.root, &mut |v, inst| {
            if let Op::For(l) = &inst.op
                && l.parallel.is_some()
            {
                before = last_barriers(body, l.body).into_iter().collect();
            }
            let _ = v;
        });
        before.sort();
        let counts: Vec<(String, usize)> = before
            .iter()
            .filter(|(v, _)| matches!(body.inst(*v).op, Op::Const(_)))
            .map(|(v, barriers)| (format!("{:?}", body.as_const(*v)), barriers.len()))
            .collect();
        let expected = [(1, 1), (2, 2), (3, 1), (5, 2)].map(|(c, n)| (format!("Some(Int({c}))"), n));
        assert_eq!(counts, expected);
    }
}
