//! [`Synchronizations`]: the points where threads of a block or subgroup synchronize, in code and in the functions that
//! it calls.

use octants_ir::{BlockId, Body, Function, Op, SubgroupOp, ThreadScope};

/// Which threads synchronize at a point of the code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Synchronization {
    pub block: bool,
    pub subgroup: bool,
}

impl Synchronization {
    pub fn any(self) -> bool {
        self.block || self.subgroup
    }

    pub fn or(self, other: Synchronization) -> Synchronization {
        Synchronization { block: self.block || other.block, subgroup: self.subgroup || other.subgroup }
    }
}

/// The known behavior of functions.
#[derive(Debug)]
pub(crate) struct Synchronizations(Vec<Synchronization>);

impl Synchronizations {
    /// Analyzes the functions, which may call each other.
    pub fn of(functions: &[Function]) -> Synchronizations {
        let mut known = Synchronizations(vec![Synchronization::default(); functions.len()]);
        loop {
            let now: Vec<Synchronization> = functions.iter().map(|f| known.inside(&f.body, f.body.root)).collect();
            if now == known.0 {
                return known;
            }
            known.0 = now;
        }
    }

    /// The threads that synchronize at an operation itself.
    pub fn at(&self, op: &Op) -> Synchronization {
        let (block, subgroup) = match op {
            Op::Barrier(ThreadScope::Subgroup) => (false, true),
            Op::Barrier(_) | Op::BlockCount(_) => (true, false),
            Op::Subgroup(SubgroupOp::AllHere | SubgroupOp::IsWhole, _) => (false, false),
            Op::Subgroup(..) => (false, true),
            Op::Call(f, _) => return self.0[f.index()],
            _ => (false, false),
        };
        Synchronization { block, subgroup }
    }

    /// The threads that synchronize in a block of code, or in nested blocks.
    pub fn inside(&self, body: &Body, block: BlockId) -> Synchronization {
        let mut found = Synchronization::default();
        body.visit(block, &mut |_, inst| found = found.or(self.at(&inst.op)));
        found
    }
}
