//! Work of vendors' sparse libraries, in stream order.

use super::Stream;
use crate::buffer::Buffer;
use crate::caller::Caller;
use crate::capture;
use crate::error::Result;
use crate::nesting::refuse_while_capturing;
use crate::report::lock;
use crate::sparse::{SparseProduct, SparseSolver};

impl Stream {
    /// Queues `y = A x`. False, with nothing queued, while launches are captured into a graph, which has no such work.
    pub fn multiply_sparse(
        &self,
        product: &SparseProduct,
        x: &Buffer,
        y: &Buffer,
        caller: &dyn Caller,
    ) -> Result<bool> {
        let core = self.core();
        core.device.check_open("stream")?;
        if capture::current().is_some() || core.is_captured()? {
            return Ok(false);
        }
        let matrix = &product.matrix;
        let size = matrix.real.bytes();
        let (_x_pinned, x_address) = core.range(x, 0, size * matrix.columns)?;
        let (_y_pinned, y_address) = core.range(y, 0, size * matrix.rows)?;
        let mut open = lock(&product.open);
        let workspace = open.workspace(&core.device, self.number())?;
        let (_workspace_pinned, workspace_address) = core.range(&workspace, 0, 1)?;
        core.in_order(caller, || {
            matrix.buffers().into_iter().chain([x]).for_each(|b| b.note_use(core, false));
            [y, &workspace].into_iter().for_each(|b| b.note_use(core, true));
            // SAFETY: the ranges are checked and pinned, and frees are queued after this work.
            let end = unsafe { open.calls.get().multiply(core.handle, workspace_address, x_address, y_address) };
            core.mark_work().and(end).map(|()| true)
        })
    }

    /// Symbolic factorization: orders the unknowns of a solver's matrix and finds the pattern of its factors. Waits for
    /// the stream.
    pub fn analyze_sparse(&self, solver: &SparseSolver, caller: &dyn Caller) -> Result<()> {
        let core = self.core();
        core.device.check_open("stream")?;
        refuse_while_capturing("a sparse matrix cannot be analyzed")?;
        core.check_not_capturing("analyze a sparse matrix")?;
        let mut calls = lock(&solver.calls);
        core.in_order(caller, || {
            caller.will_block();
            solver.matrix.buffers().into_iter().for_each(|b| b.note_use(core, false));
            // SAFETY: the solver owns the matrix's memory, and frees are queued after this work.
            let end = unsafe { calls.get().analyze(core.handle) };
            core.mark_work().and(end)
        })
    }

    /// Computes the factors of a matrix of the solver's pattern with these values. A sentence says why there are none.
    /// Waits for the stream.
    pub fn factorize_sparse(
        &self,
        solver: &SparseSolver,
        values: &Buffer,
        caller: &dyn Caller,
    ) -> Result<Option<String>> {
        let core = self.core();
        core.device.check_open("stream")?;
        refuse_while_capturing("a sparse matrix cannot be factorized")?;
        core.check_not_capturing("factorize a sparse matrix")?;
        let matrix = &solver.matrix;
        let (_pinned, address) = core.range(values, 0, matrix.real.bytes() * matrix.entries)?;
        let mut calls = lock(&solver.calls);
        core.in_order(caller, || {
            caller.will_block();
            matrix.buffers().into_iter().chain([values]).for_each(|b| b.note_use(core, false));
            // SAFETY: as above; the range is checked and pinned.
            let end = unsafe { calls.get().factorize(core.handle, address) };
            core.mark_work().and(end)
        })
    }

    /// Queues the solution for a right side.
    pub fn solve_sparse(
        &self,
        solver: &SparseSolver,
        right: &Buffer,
        solution: &Buffer,
        caller: &dyn Caller,
    ) -> Result<()> {
        let core = self.core();
        core.device.check_open("stream")?;
        refuse_while_capturing("a sparse system cannot be solved")?;
        core.check_not_capturing("solve a sparse system")?;
        let bytes = solver.matrix.real.bytes() * solver.matrix.rows;
        let (_right_pinned, right_address) = core.range(right, 0, bytes)?;
        let (_solution_pinned, solution_address) = core.range(solution, 0, bytes)?;
        let mut calls = lock(&solver.calls);
        core.in_order(caller, || {
            solver.matrix.buffers().into_iter().chain([right]).for_each(|b| b.note_use(core, false));
            solution.note_use(core, true);
            // SAFETY: the ranges are checked and pinned, and frees are queued after this work.
            let end = unsafe { calls.get().solve(core.handle, right_address, solution_address) };
            core.mark_work().and(end)
        })
    }
}
