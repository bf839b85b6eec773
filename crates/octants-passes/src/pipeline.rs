//! The kernel pipeline: the passes that run before offloading, their order and their conditions.

use octants_ir::{Kernel, Pass, always};

use crate::check_bounds::check_bounds;
use crate::check_convergence::check_convergence;
use crate::check_overflow::check_overflow;
use crate::check_races::{check_races, inline_group_calls};
use crate::demote_atomics::{demote_atomics, demote_shadow_atomics};
use crate::eliminate_dead_code::eliminate_dead_code;
use crate::fold_constants::fold_constants;
use crate::gather_updates::gather_updates;
use crate::hoist_invariants::hoist_invariants;
use crate::inline_calls::{inline_calls, inline_calls_with_references, inline_cooperating_calls};
use crate::make_updates_atomic::make_updates_atomic;
use crate::merge_aliased_buffers::merge_aliased_buffers;
use crate::name_call_sites::name_call_sites;
use crate::normalize_loop_direction::normalize_loop_direction;
use crate::pass_options::PassOptions;
use crate::privatize_reductions::privatize_reductions;
use crate::promote_inner_sums::promote_inner_sums;
use crate::share_reciprocals::share_reciprocals;
use crate::simplify_locals::simplify_locals;

/// Whether gradients are gathered on the device, and no run-time checks must be reported.
fn gathers(kernel: &Kernel, o: &PassOptions) -> bool {
    o.gather.is_some() && !kernel.shadow_buffers.is_empty() && !o.arrays_may_alias && !o.check_bounds && !o.debug
}

/// The pipeline, in order.
///
/// Inlining comes first, so that later passes see whole loops. In debug mode, updates of shared sums are recognized
/// before overflow checks are inserted, which would hide them. Overflow is checked next, while the operations are the
/// user's own. Conditions around synchronization are checked after locals are simplified, which shows which of them are
/// uniform. Locals are simplified before reductions are looked for, which need to see what an index is made of.
/// Invariants leave inner loops before these are gathered, so that a gathering loop need not compute them in each
/// iteration. Atomics are demoted after the passes that search for atomic sums. Bounds checks are inserted last, so
/// that they do not block reductions. Then the functions with checks are known that need the kernel's line.
pub const PIPELINE: &[Pass<Kernel, PassOptions>] = &[
    Pass {
        name: "merge_aliased_buffers",
        runs: |_, o| o.merges_aliased_buffers,
        run: |k, _| merge_aliased_buffers(k, &[]),
    },
    Pass { name: "inline_calls", runs: always, run: |k, _| inline_calls(k) },
    Pass {
        name: "inline_cooperating_calls",
        runs: |_, o| o.inlines_cooperation,
        run: |k, _| inline_cooperating_calls(k),
    },
    Pass {
        name: "inline_calls_with_references",
        runs: |_, o| o.check_races,
        run: |k, _| inline_calls_with_references(k),
    },
    Pass { name: "inline_group_calls", runs: |_, o| o.check_races, run: |k, _| inline_group_calls(k) },
    Pass { name: "make_updates_atomic", runs: |_, o| o.debug, run: |k, _| make_updates_atomic(k) },
    Pass { name: "check_overflow", runs: |_, o| o.debug, run: |k, o| check_overflow(k, o.sources.as_ref()) },
    Pass { name: "simplify_locals", runs: always, run: |k, _| simplify_locals(k) },
    Pass { name: "fold_constants", runs: always, run: |k, o| fold_constants(k, o.fast_math) },
    Pass { name: "eliminate_dead_code", runs: always, run: |k, _| eliminate_dead_code(k) },
    Pass { name: "check_convergence", runs: |_, o| o.debug, run: |k, _| check_convergence(k) },
    Pass { name: "make_updates_atomic", runs: always, run: |k, _| make_updates_atomic(k) },
    Pass {
        name: "normalize_loop_direction",
        runs: |_, o| o.fast_math && !o.check_bounds && !o.debug,
        run: |k, o| normalize_loop_direction(k, o),
    },
    Pass { name: "hoist_invariants", runs: gathers, run: |k, _| hoist_invariants(k) },
    Pass { name: "gather_updates", runs: gathers, run: |k, o| gather_updates(k, o) },
    Pass { name: "eliminate_dead_code", runs: gathers, run: |k, _| eliminate_dead_code(k) },
    Pass { name: "demote_shadow_atomics", runs: always, run: |k, o| demote_shadow_atomics(k, o) },
    Pass { name: "privatize_reductions", runs: always, run: |k, o| privatize_reductions(k, o) },
    Pass { name: "promote_inner_sums", runs: |_, o| !o.check_bounds && !o.debug, run: |k, o| promote_inner_sums(k, o) },
    Pass {
        name: "demote_atomics",
        runs: |_, o| o.launches_in_order,
        run: |k, o| o.assumes_order |= demote_atomics(k, o),
    },
    Pass { name: "share_reciprocals", runs: |_, o| o.fast_math, run: |k, _| share_reciprocals(k) },
    Pass { name: "check_bounds", runs: |_, o| o.check_bounds, run: |k, _| check_bounds(k) },
    Pass {
        name: "name_call_sites",
        runs: |_, o| o.check_bounds || o.debug,
        run: |k, o| name_call_sites(k, o.sources.as_ref()),
    },
    Pass { name: "check_races", runs: |_, o| o.check_races, run: check_races },
    Pass { name: "eliminate_dead_code", runs: always, run: |k, _| eliminate_dead_code(k) },
];
