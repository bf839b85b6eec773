//! [`SplitTask`]: how a task runs on rows of arrays that are split over ranks.

use serde::{Deserialize, Serialize};

use crate::{ScalarKind, UpdateOp};

/// A task that runs on a range of rows of split arrays. The last two argument slots of a launch are the range.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitTask {
    /// The split arrays that it reads, and the number of ghost rows before and after.
    pub reads: Vec<(u32, u64, u64)>,
    /// The split arrays that it writes.
    pub writes: Vec<u32>,
    /// The split arrays that it adds to, and the number of ghost rows before and after.
    pub adds: Vec<(u32, u64, u64)>,
    /// The split arrays that it reads or adds to at rows between bounds.
    pub local: Vec<LocalRows>,
    /// Other memory that it updates: each part of the task computes a partial sum.
    pub updates: Vec<(u32, UpdateOp, SplitMemory)>,
    /// The split arrays whose rows wrap around, with the number of rows and the end of the row range as the code has
    /// them, if these are constants.
    pub wraps: Vec<(u32, Option<i64>, Option<i64>)>,
    /// Rows that must be the last ones of the array.
    pub last_rows: Vec<(u32, i64)>,
}

impl SplitTask {
    /// Whether the task accesses this split array.
    pub fn accesses(&self, buffer: u32) -> bool {
        let rows = self.reads.iter().chain(&self.adds).map(|rows| rows.0);
        rows.chain(self.writes.iter().copied()).chain(self.local.iter().map(|rows| rows.buffer)).any(|b| b == buffer)
    }
}

/// Rows of a split array that must be local to the rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalRows {
    /// The array.
    pub buffer: u32,
    /// It is added to, not read.
    pub adds: bool,
    /// The least row.
    pub first: RowBound,
    /// The largest row.
    pub last: RowBound,
}

/// A row that is known at launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowBound {
    /// A constant.
    Constant(i64),
    /// The argument slot of an i32.
    Slot(u32),
}

impl RowBound {
    /// The row of a launch.
    pub fn row(self, args: &[u64]) -> i64 {
        match self {
            RowBound::Constant(row) => row,
            RowBound::Slot(slot) => i64::from(args[slot as usize] as i32),
        }
    }
}

/// Contiguous scalars of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitMemory {
    /// The argument slot that holds the address.
    pub slot: u32,
    /// Bytes from there.
    pub offset: u64,
    /// Their type.
    pub kind: ScalarKind,
    /// How many, times the product of `extents`.
    pub scalars: u64,
    /// Argument slots that hold extents.
    pub extents: Vec<u32>,
}

impl SplitMemory {
    /// Address and number of scalars in a launch.
    pub fn range(&self, args: &[u64]) -> (u64, u64) {
        let extents: u64 = self.extents.iter().map(|&slot| args[slot as usize]).product();
        (args[self.slot as usize] + self.offset, self.scalars * extents)
    }
}
