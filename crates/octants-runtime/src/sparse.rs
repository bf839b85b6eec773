//! Sparse matrices for the device vendor's libraries: products with vectors, and direct solvers.
//!
//! A driver provides [`ProductCalls`] and [`SolverCalls`]. [`SparseProduct`] and [`SparseSolver`] own what these need:
//! the memory of the matrix, and a workspace for each stream. Methods of [`crate::Stream`] queue the work.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};

use crate::buffer::Buffer;
use crate::cores::DeviceCore;
use crate::device::Device;
use crate::driver::{Contents, Factors, MatrixRows, ProductCalls, RealType, SolverCalls, SparseWork};
use crate::error::{ErrorKind, Result};

/// A matrix by rows in buffers.
#[derive(Clone)]
pub struct RowBuffers {
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
    /// Number of entries.
    pub entries: u64,
    /// Row offsets: the start of each row, and the end of the last one: 32-bit integers.
    pub starts: Buffer,
    /// The column of each entry: 32-bit integers.
    pub column_numbers: Buffer,
    /// The value of each entry.
    pub values: Buffer,
    /// The type of the values.
    pub real: RealType,
}

impl RowBuffers {
    fn at(&self) -> Result<MatrixRows> {
        Ok(MatrixRows {
            rows: self.rows,
            columns: self.columns,
            entries: self.entries,
            starts: self.starts.at(0, 4 * (self.rows + 1))?,
            column_numbers: self.column_numbers.at(0, 4 * self.entries)?,
            values: self.values.at(0, self.real.bytes() * self.entries)?,
            real: self.real,
        })
    }

    fn check(&self, core: &Arc<DeviceCore>) -> Result<()> {
        core.check_open("device")?;
        for buffer in self.buffers() {
            if !buffer.is_of(core) {
                return Err(ErrorKind::ForeignDevice { what: "array" }.into());
            }
        }
        Ok(())
    }

    /// The memory.
    pub(crate) fn buffers(&self) -> [&Buffer; 3] {
        [&self.starts, &self.column_numbers, &self.values]
    }
}

/// The calls, dropped unless the device was abandoned by a fork: its library is then the parent's.
pub(crate) struct Calls<T: ?Sized> {
    core: Arc<DeviceCore>,
    calls: ManuallyDrop<Box<T>>,
}

impl<T: ?Sized> Calls<T> {
    pub(crate) fn get(&mut self) -> &mut T {
        &mut self.calls
    }
}

impl<T: ?Sized> Drop for Calls<T> {
    fn drop(&mut self) {
        if !self.core.is_abandoned() {
            // SAFETY: dropped only here.
            unsafe { ManuallyDrop::drop(&mut self.calls) }
        }
    }
}

/// A matrix that vectors can be multiplied by.
pub struct SparseProduct {
    pub(crate) matrix: RowBuffers,
    pub(crate) open: Mutex<OpenProduct>,
}

/// The state that one multiplication at a time uses.
pub(crate) struct OpenProduct {
    pub(crate) calls: Calls<dyn ProductCalls>,
    /// The workspace, and the number of the stream that it is for.
    workspace: Option<(u32, Buffer)>,
}

impl OpenProduct {
    /// The workspace, for work on a stream. That for another stream is freed after its work.
    pub(crate) fn workspace(&mut self, core: &Arc<DeviceCore>, stream: u32) -> Result<Buffer> {
        if let Some((_, buffer)) = self.workspace.as_ref().filter(|(number, _)| *number == stream) {
            return Ok(buffer.clone());
        }
        let bytes = self.calls.get().workspace_bytes().max(1);
        let buffer = Buffer::allocate(core, bytes, Contents::Any)?;
        self.workspace = Some((stream, buffer.clone()));
        Ok(buffer)
    }
}

/// A direct solver for matrices of one pattern.
pub struct SparseSolver {
    pub(crate) matrix: RowBuffers,
    pub(crate) calls: Mutex<Calls<dyn SolverCalls>>,
}

impl Device {
    /// Why there is no library for this work with sparse matrices: a sentence that names what to install. `None` if
    /// there is one.
    pub fn missing_sparse_library(&self, work: SparseWork) -> Option<String> {
        self.core().driver.missing_sparse_library(work)
    }

    /// A matrix for products by the vendor's library.
    pub fn sparse_product(&self, matrix: RowBuffers) -> Result<SparseProduct> {
        let core = self.core();
        matrix.check(core)?;
        // SAFETY: the memory is that of the buffers, which the product keeps.
        let calls = unsafe { core.driver.sparse_product(&matrix.at()?)? };
        let calls = Calls { core: core.clone(), calls: ManuallyDrop::new(calls) };
        Ok(SparseProduct { matrix, open: Mutex::new(OpenProduct { calls, workspace: None }) })
    }

    /// A direct solver by the vendor's library, for matrices of this one's pattern.
    pub fn sparse_solver(&self, matrix: RowBuffers, factors: Factors) -> Result<SparseSolver> {
        let core = self.core();
        matrix.check(core)?;
        // SAFETY: as above.
        let calls = unsafe { core.driver.sparse_solver(&matrix.at()?, factors)? };
        let calls = Calls { core: core.clone(), calls: ManuallyDrop::new(calls) };
        Ok(SparseSolver { matrix, calls: Mutex::new(calls) })
    }
}

impl fmt::Debug for SparseProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SparseProduct").field("rows", &self.matrix.rows).finish_non_exhaustive()
    }
}

impl fmt::Debug for SparseSolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SparseSolver").field("rows", &self.matrix.rows).finish_non_exhaustive()
    }
}
