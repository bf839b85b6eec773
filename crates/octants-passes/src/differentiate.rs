//! From a kernel to the one that computes its derivatives, before the pipeline runs: what both modes need first, then the mode.

use octants_diag::Diagnostic;
use octants_ir::{AutodiffMode, Kernel, verify::assert_kernel};

use crate::differentiate_forward::differentiate_forward;
use crate::differentiate_reverse::{Keeping, StoreNeed, differentiate_reverse, gradients};
use crate::eliminate_dead_code::eliminate_dead_code;
use crate::fold_constants::fold_constants;
use crate::inline_calls::inline_calls;
use crate::make_updates_atomic::make_updates_atomic;
use crate::simplify_locals::simplify_locals;
use crate::warn_of_stored_bits::warn_of_stored_bits;

/// Makes of a kernel what a mode asks for; `keeping` is for reverse mode. `warn` is told of what makes a derivative wrong and can be meant nevertheless.
///
/// Updates of variables that iterations share become atomic before: the modes tell them from other updates by that. Locals and
/// constants are simplified so that there is less to differentiate.
///
/// # Errors
/// What the mode cannot differentiate, with its place.
pub fn differentiate(
    kernel: &mut Kernel,
    mode: AutodiffMode,
    keeping: Keeping,
    warn: &mut dyn FnMut(Diagnostic),
) -> Result<Option<StoreNeed>, Vec<Diagnostic>> {
    match mode {
        // What these take needs the sources: `validate_reads`, `tally_loops`.
        AutodiffMode::None | AutodiffMode::Validation | AutodiffMode::Trips | AutodiffMode::Reads => return Ok(None),
        AutodiffMode::Reverse => {
            let store = differentiate_reverse(kernel, keeping, warn)?;
            if cfg!(debug_assertions) {
                assert_kernel(kernel, "differentiate_reverse");
            }
            return Ok(store);
        }
        AutodiffMode::Forward => {}
    }
    inline_calls(kernel);
    make_updates_atomic(kernel);
    simplify_locals(kernel);
    fold_constants(kernel, false);
    eliminate_dead_code(kernel);
    warn_of_stored_bits(&kernel.body, &gradients(kernel), warn);
    differentiate_forward(kernel);
    if cfg!(debug_assertions) {
        assert_kernel(kernel, "differentiate");
    }
    Ok(None)
}
