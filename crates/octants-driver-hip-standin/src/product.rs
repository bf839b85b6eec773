//! [`Product`]: a sparse matrix times a vector, as a stream operation.

use std::sync::Arc;

use crate::faults::note;

/// A CSR matrix in device memory.
#[derive(Debug)]
pub struct Matrix {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Number of entries.
    pub entries: usize,
    /// Row offsets.
    pub starts: u64,
    /// Column indices.
    pub column_numbers: u64,
    /// Values.
    pub values: u64,
    /// Values of 64 bits.
    pub is_double: bool,
}

/// A product, with its workspace.
#[derive(Debug)]
pub struct Product {
    /// The matrix.
    pub matrix: Arc<Matrix>,
    /// The vector.
    pub x: u64,
    /// The result.
    pub y: u64,
    /// Workspace.
    pub workspace: u64,
}

/// Workspace size in bytes.
pub const WORKSPACE_BYTES: usize = 64;

impl Product {
    /// Computes the product. Fails if `check` rejects some of the memory.
    pub fn run(&self, can_use: impl Fn(u64, usize) -> bool) {
        let m = &*self.matrix;
        let size = if m.is_double { 8 } else { 4 };
        let parts = [
            (m.starts, 4 * (m.rows + 1)),
            (m.column_numbers, 4 * m.entries),
            (m.values, size * m.entries),
            (self.x, size * m.columns),
            (self.y, size * m.rows),
            (self.workspace, WORKSPACE_BYTES),
        ];
        if !parts.iter().all(|(at, bytes)| can_use(*at, *bytes)) {
            return;
        }
        // SAFETY: the memory was checked and is aligned by its allocator.
        unsafe { if m.is_double { self.multiply::<f64>() } else { self.multiply::<f32>() } }
    }

    unsafe fn multiply<T: Copy + Default + std::ops::Mul<Output = T> + std::ops::AddAssign>(&self) {
        let m = &*self.matrix;
        // SAFETY: the caller's contract.
        let (starts, columns, values, x, y) = unsafe {
            (
                std::slice::from_raw_parts(m.starts as *const i32, m.rows + 1),
                std::slice::from_raw_parts(m.column_numbers as *const i32, m.entries),
                std::slice::from_raw_parts(m.values as *const T, m.entries),
                std::slice::from_raw_parts(self.x as *const T, m.columns),
                std::slice::from_raw_parts_mut(self.y as *mut T, m.rows),
            )
        };
        for (row, sum) in y.iter_mut().enumerate() {
            *sum = T::default();
            for entry in starts[row] as usize..starts[row + 1] as usize {
                match x.get(columns[entry] as usize) {
                    Some(factor) => *sum += values[entry] * *factor,
                    None => note(format!("a sparse matrix names column {}", columns[entry])),
                }
            }
        }
    }
}
