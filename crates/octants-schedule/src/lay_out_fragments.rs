//! [`lay_out_fragments`]: decides the layout of fragments, and the implementation of matrix products: instructions if
//! the target has them, loops over threads on machines without a grid, scalar code otherwise.
//!
//! Runs before all other decisions, so that they see the final code.

use octants_ir::expand_matrix_products::{Form, expand_matrix_products};
use octants_ir::{ProductKind, Program, TargetInfo};

use crate::load_matrices::load_matrices;

/// Expands the fragment operations of the tasks and functions of a program.
pub(crate) fn lay_out_fragments(program: &mut Program, target: &TargetInfo) {
    let bodies = program.tasks.iter_mut().map(|t| &mut t.body).chain(program.functions.iter_mut().map(|f| &mut f.body));
    for body in bodies {
        if let Some(shape) = target.product(ProductKind::F16).filter(|_| target.loads_matrices) {
            load_matrices(body, &program.buffers, shape);
        }
        expand_matrix_products(body, |kind| match target.product(kind) {
            Some(shape) => Form::Target(shape),
            None if target.has_grid => Form::Plain,
            None => Form::PlainLayout,
        });
    }
}
