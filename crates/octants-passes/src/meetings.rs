//! [`Meetings`]: the points where threads of a block or subgroup synchronize, in code and in the functions that it
//! calls.

use octants_ir::{BlockId, Body, Function, Op, SubgroupOp, ThreadScope};

/// Which threads meet somewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Meeting {
    pub block: bool,
    pub subgroup: bool,
}

impl Meeting {
    pub fn any(self) -> bool {
        self.block || self.subgroup
    }

    pub fn or(self, other: Meeting) -> Meeting {
        Meeting { block: self.block || other.block, subgroup: self.subgroup || other.subgroup }
    }
}

/// The known behavior of functions.
#[derive(Debug)]
pub(crate) struct Meetings(Vec<Meeting>);

impl Meetings {
    /// Analyzes the functions, which may call each other.
    pub fn of(functions: &[Function]) -> Meetings {
        let mut known = Meetings(vec![Meeting::default(); functions.len()]);
        loop {
            let now: Vec<Meeting> = functions.iter().map(|f| known.inside(&f.body, f.body.root)).collect();
            if now == known.0 {
                return known;
            }
            known.0 = now;
        }
    }

    /// The threads that synchronize at an operation itself.
    pub fn at(&self, op: &Op) -> Meeting {
        let (block, subgroup) = match op {
            Op::Barrier(ThreadScope::Subgroup) => (false, true),
            Op::Barrier(_) | Op::BlockCount(_) => (true, false),
            Op::Subgroup(SubgroupOp::AllHere | SubgroupOp::IsWhole, _) => (false, false),
            Op::Subgroup(..) => (false, true),
            Op::Call(f, _) => return self.0[f.index()],
            _ => (false, false),
        };
        Meeting { block, subgroup }
    }

    /// The threads that synchronize in a block of code, or in nested blocks.
    pub fn inside(&self, body: &Body, block: BlockId) -> Meeting {
        let mut found = Meeting::default();
        body.visit(block, &mut |_, inst| found = found.or(self.at(&inst.op)));
        found
    }
}
