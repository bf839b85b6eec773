//! Constructs a [`Specialization`] from a compiled kernel.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use octants_engine::Executable;
use octants_engine::frontend::{Capture, NdarrayDesc, Obj};
use octants_engine::trace::Binding;
use pyo3::prelude::*;

use super::described::Leaf;
use super::{ArraySlot, CapturedArray, Copy, Described, Fixed, Specialization, SplitArray};
use crate::argument::Gathered;
use crate::array;
use crate::buffer::Buffer;
use crate::errors;
use crate::guard::{Guard, LiveNumber, Path, Step, fill_array};
use crate::guard_group::GuardGroup;
use crate::launch_history::LaunchHistory;
use crate::ndarray::Ndarray;
use crate::result::ResultKind;
use crate::world::PyWorld;

/// A captured array that is looked up at each launch: parameter, attributes, first slot, type.
type LiveArray = (u32, Vec<String>, u32, NdarrayDesc);

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Fills the slots of a range of rows with all rows, for launches that do not say which.
fn fill_all_rows(slots: &mut [u64], split: &[SplitArray]) {
    // A constant may be added to them.
    const ALL_ROWS: [i32; 2] = [-(1 << 30), 1 << 30];
    if !split.is_empty() {
        let rows = slots.len() - 2;
        slots[rows..].copy_from_slice(&ALL_ROWS.map(|row| row as u64));
    }
}

/// Fills the slots of the memory of fields, and keeps that memory.
fn fill_roots(
    binding: &Binding,
    places: &[u32],
    slots: &mut [u64],
    fixed: &mut Vec<Fixed>,
    world: &PyWorld<'_>,
    py: Python<'_>,
) -> PyResult<()> {
    for (root, &id) in binding.roots.iter().enumerate() {
        let buffer = world.object(Obj(id)).getattr("buffer")?.cast_into::<Buffer>()?;
        slots[places[root] as usize] = buffer.get().address(py)?;
        fixed.push(Fixed { buffer: buffer.unbind(), owner: None });
    }
    Ok(())
}

impl Specialization {
    /// Builds the specialization of a compiled kernel.
    pub fn new(
        (gathered, args): (&Gathered<'_>, &[Bound<'_, PyAny>]),
        described: Described,
        binding: &Binding,
        (code, may_alias): (Executable, bool),
        result: ResultKind,
        world: &PyWorld<'_>,
        py: Python<'_>,
    ) -> PyResult<Specialization> {
        let layout = &code.layout;
        let mut slots = vec![0u64; layout.slots as usize];
        let (mut copies, mut fixed, mut captured, mut live) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        fill_roots(binding, code.layout.roots.as_slice(), &mut slots, &mut fixed, world, py)?;
        let leaf_of = |wanted: &Leaf| described.leaves.iter().position(|l| l == wanted);
        let words = |leaf: usize| {
            let start = gathered.starts[leaf];
            let end = gathered.starts.get(leaf + 1).map_or(gathered.words.len() as u32, |&e| e);
            (start, end - start)
        };
        let (mut arrays, mut numbers) = (Vec::new(), Vec::new());
        let mut may_have_gradient = described.has_gradient;
        for (i, capture) in binding.buffers.iter().enumerate() {
            let (Some(capture), Some(to)) = (capture, layout.buffers[i]) else { continue };
            match capture {
                Capture::Arg { index, path } => {
                    let leaf = leaf_of(&(*index, path.clone()))
                        .ok_or_else(|| errors::runtime_error(py, "compiler bug: an array argument is missing"))?;
                    let (from, count) = words(leaf);
                    copies.push(Copy { leaf: leaf as u32, from, to, count });
                    let written = code.writes_buffer(i as u32);
                    arrays.push(ArraySlot::new(leaf, &described.leaves[leaf], to, written));
                }
                Capture::ShadowBuffer { index, path, desc } => {
                    captured.push(CapturedArray::of(to, desc));
                    live.push((*index, path.clone(), to, desc.clone()));
                }
                Capture::Object { obj, from } => {
                    let object = world.object(*obj);
                    let view = array::view(&object)?
                        .ok_or_else(|| errors::runtime_error(py, "compiler bug: a captured array of another type"))?;
                    fill_array(&mut slots, to, &view);
                    may_have_gradient |= view.needs_grad;
                    captured.push(CapturedArray::of(to, &view.desc()));
                    match from {
                        Some((param, path)) => live.push((*param, path.clone(), to, array_desc(&object)?)),
                        None => {
                            if let Ok(array) = object.cast::<Ndarray>() {
                                let buffer = array.get().buffer(py);
                                fixed.push(Fixed { buffer, owner: Some(object.clone().unbind()) });
                            }
                        }
                    }
                }
            }
        }
        for (i, (param, path)) in binding.params.iter().enumerate() {
            let to = layout.params[i];
            match leaf_of(&(*param, path.clone())) {
                Some(leaf) => {
                    let (from, count) = words(leaf);
                    copies.push(Copy { leaf: leaf as u32, from, to, count });
                }
                // Not an argument, but a number that an argument holds.
                None => numbers.push(LiveNumber::new(py, *param, path, layout.param_leaves[i][0], to)),
            }
        }
        let (groups_of_guards, guards) = GuardGroup::sort(py, guards(py, world, live)?, args)?;
        let split = SplitArray::all_of(binding, code.split_tasks().flatten(), world);
        fill_all_rows(&mut slots, &split);
        Ok(Specialization {
            key: gathered.key.to_vec().into_boxed_slice(),
            serial: gathered.serial,
            code,
            result,
            slots: slots.into_boxed_slice(),
            joined_copies: Copy::join(&copies).into_boxed_slice(),
            copies: copies.into_boxed_slice(),
            groups_of_guards: groups_of_guards.into_boxed_slice(),
            guards: guards.into_boxed_slice(),
            numbers: numbers.into_boxed_slice(),
            alive: described.objects.into_boxed_slice(),
            fixed: fixed.into_boxed_slice(),
            arrays: arrays.into_boxed_slice(),
            captured: captured.into_boxed_slice(),
            may_alias,
            unites_arrays: false,
            united: OnceLock::new(),
            constants: world.take_constants(),
            checkpoints: Vec::new(),
            may_record_trip_counts: false,
            may_have_gradient,
            has_shadow_buffers: true,
            records_trip_counts: AtomicBool::new(false),
            sees_launches: AtomicBool::new(false),
            seen: LaunchHistory::default(),
            split,
            peers: Vec::new(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        })
    }
}

/// The guards: the arrays that the code uses, and all reads from compile-time arguments.
fn guards(py: Python<'_>, world: &PyWorld<'_>, live: Vec<LiveArray>) -> PyResult<Vec<Guard>> {
    let mut out: Vec<Guard> = Vec::new();
    let mut arrays: Vec<(u32, Vec<String>)> = Vec::new();
    for (param, path, to, desc) in live {
        let steps = path.iter().cloned().map(Step::Attribute).collect();
        out.push(Guard::array(py, &Path { param, steps, live: false }, desc, to));
        arrays.push((param, path));
    }
    for read in world.take_reads() {
        let known = |a: &(u32, Vec<String>)| a.0 == read.path.param && read.path.attributes().is_some_and(|n| a.1 == n);
        if !arrays.iter().any(known) {
            out.extend(Guard::value(&read.path, &read.value)?);
        }
    }
    Ok(out)
}

fn array_desc(object: &Bound<'_, PyAny>) -> PyResult<NdarrayDesc> {
    Ok(object.cast::<Ndarray>()?.get().desc())
}
