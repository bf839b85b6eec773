//! [`launch_bound`]: bounds of parallel loops in terms of a launch's argument slots.

use octants_artifact::{Bound, BoundTerm};
use octants_ir::Term;
use octants_ir::schedule::LaunchBound;

use crate::facts::{Facts, kind_of};

/// A bound as the launcher finds it, by argument slots.
pub fn launch_bound(facts: &Facts<'_>, of: &LaunchBound) -> Bound {
    match of {
        LaunchBound::Known(value) => Bound::Known(*value),
        LaunchBound::Sum(sum, s) => {
            let slot = match sum.terms.keys().next() {
                Some(Term::Param(p)) => Some(facts.args.params[*p as usize]),
                Some(Term::Extent(b, axis)) => facts.args.buffers[b.index()].map(|slot| slot + 1 + axis),
                Some(Term::Index(..)) | None => None,
            };
            slot.map_or(Bound::Computed, |slot| Bound::Slot(slot, kind_of(*s), sum.constant))
        }
        LaunchBound::Larger(of) => one_of(facts, of, Bound::Larger),
        LaunchBound::Smaller(of) => one_of(facts, of, Bound::Smaller),
        LaunchBound::Computed => Bound::Computed,
    }
}

fn one_of(facts: &Facts<'_>, of: &[LaunchBound; 2], which: fn(BoundTerm, BoundTerm) -> Bound) -> Bound {
    let term = |bound| launch_bound(facts, bound).term();
    term(&of[0]).zip(term(&of[1])).map_or(Bound::Computed, |(a, b)| which(a, b))
}
