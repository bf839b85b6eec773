//! [`map_arguments`]: the arguments of a kernel that is made of several launches. Memory and integers that several
//! launches are given are one argument.

use std::collections::{BTreeSet, HashMap};

use octants_ir::{Affine, ArgLayout, Buffer, BufferId, ComponentLayout, Kernel, Layout, Param, Scalar, Term, Type};
use octants_runtime::{FusionLaunch, FusionMemory, FusionRequest};

/// The arguments of a fused kernel.
#[derive(Default)]
pub(super) struct Arguments {
    /// For each launch, for each buffer and each parameter of its kernel, that of the fused one.
    pub(super) maps: Vec<(Vec<BufferId>, Vec<u32>)>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) params: Vec<Param>,
    /// Addresses.
    pub(super) roots: Vec<u64>,
    pub(super) temporaries: BTreeSet<BufferId>,
    /// For each buffer its slots; none for fields.
    buffer_slots: Vec<Vec<u64>>,
    param_slots: Vec<Vec<u64>>,
    /// For each buffer that is not a field, the memory that it is in, and whether it is written.
    memory: Vec<Option<FusionMemory>>,
    known_arrays: HashMap<(Vec<u64>, Layout, Type), BufferId>,
    known_numbers: HashMap<(Scalar, u64), u32>,
}

/// The bounds of each axis of a loop in a launch.
pub(super) type Bounds = Vec<(i64, i64, Scalar)>;

/// Evaluates the bounds of a loop.
///
/// # Errors
/// Arithmetic wraps.
pub(super) fn evaluate(
    of_loop: &[(Affine, Affine, Scalar)],
    (kernel, layout): (&Kernel, &ArgLayout),
    args: &[u64],
) -> Result<Bounds, String> {
    let term = |term: &Term| -> Option<i128> {
        Some(match term {
            Term::Param(p) => {
                let scalar = kernel.params.get(*p as usize)?.ty.scalar()?;
                signed(scalar, *args.get(layout.params[*p as usize] as usize)?)
            }
            Term::Extent(b, axis) => match (&kernel.buffers[b.index()].layout, layout.buffers[b.index()]) {
                (Layout::Dense { shape, .. }, _) => i128::from(*shape.get(*axis as usize)?),
                (_, slot) => i128::from(*args.get((slot? + 1 + axis) as usize)?),
            },
            Term::Index(..) => return None,
        })
    };
    let bound = |sum: &Affine, scalar: Scalar| -> Option<i64> {
        let mut value = i128::from(sum.constant);
        for (of, factor) in &sum.terms {
            value += term(of)? * i128::from(*factor);
        }
        let fits = if scalar == Scalar::I32 { i32::try_from(value).is_ok() } else { true };
        i64::try_from(value).ok().filter(|_| fits)
    };
    let axis = |(begin, end, scalar): &(Affine, Affine, Scalar)| {
        let bounds = bound(begin, *scalar).zip(bound(end, *scalar));
        bounds.map(|(begin, end)| (begin, end, *scalar)).ok_or("a range has more iterations than its type can count")
    };
    Ok(of_loop.iter().map(axis).collect::<Result<_, _>>()?)
}

/// The value of an integer in a slot.
fn signed(scalar: Scalar, slot: u64) -> i128 {
    match scalar {
        Scalar::I8 => i128::from(slot as i8),
        Scalar::I16 => i128::from(slot as i16),
        Scalar::I32 => i128::from(slot as i32),
        Scalar::I64 => i128::from(slot as i64),
        Scalar::U8 | Scalar::U1 => i128::from(slot as u8),
        Scalar::U16 => i128::from(slot as u16),
        Scalar::U32 => i128::from(slot as u32),
        _ => i128::from(slot),
    }
}

/// Which arguments of the launches of these kernels are the same.
///
/// # Errors
/// Two arrays overlap, but are not the same, and one is written.
pub(super) fn map_arguments(parts: &[(&Kernel, &ArgLayout)], request: &FusionRequest<'_>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    for ((kernel, layout), launch) in parts.iter().zip(&request.launches) {
        let roots: Vec<u32> = layout.roots.iter().map(|slot| arguments.root(launch.args[*slot as usize])).collect();
        let buffers = kernel.buffers.iter().zip(&layout.buffers);
        let buffers = buffers.map(|(buffer, slot)| arguments.buffer(buffer, *slot, &roots, launch)).collect();
        let params = kernel.params.iter().zip(layout.params.iter().zip(&layout.param_leaves));
        let params = params.map(|(param, (slot, leaves))| {
            let slots = &launch.args[*slot as usize..*slot as usize + leaves.len()];
            arguments.param(param, slots)
        });
        let params = params.collect();
        arguments.maps.push((buffers, params));
    }
    arguments.find_overlaps()?;
    let is_temporary = |memory: &FusionMemory| request.temporaries.contains(&memory.number);
    let temporaries = arguments.memory.iter().enumerate().filter(|(_, m)| m.as_ref().is_some_and(is_temporary));
    arguments.temporaries = temporaries.map(|(b, _)| BufferId(b as u32)).collect();
    Ok(arguments)
}

impl Arguments {
    fn root(&mut self, address: u64) -> u32 {
        let known = self.roots.iter().position(|r| *r == address);
        known.unwrap_or_else(|| {
            self.roots.push(address);
            self.roots.len() - 1
        }) as u32
    }

    fn buffer(&mut self, of: &Buffer, slot: Option<u32>, roots: &[u32], launch: &FusionLaunch<'_>) -> BufferId {
        let mut buffer = of.clone();
        let Some(slot) = slot else {
            if let (Layout::Dense { components, .. }, false) = (&mut buffer.layout, of.space.is_temporary()) {
                for ComponentLayout { root, .. } in components {
                    *root = roots[*root as usize];
                }
            }
            let is_same = |b: &Buffer| (&b.layout, &b.elem, b.space) == (&buffer.layout, &buffer.elem, buffer.space);
            let known = self.buffers.iter().position(is_same).filter(|_| !of.space.is_temporary());
            return known.map_or_else(|| self.add(buffer, Vec::new(), None), |known| BufferId(known as u32));
        };
        let count = if of.layout == Layout::Strided { 1 + 2 * of.ndim } else { 1 + of.ndim };
        let slots = launch.args[slot as usize..(slot + count) as usize].to_vec();
        let memory = launch.memory.iter().find(|m| m.slot == slot).copied();
        let written = memory.is_some_and(|m| m.written);
        let key = (slots.clone(), of.layout.clone(), of.elem.clone());
        // Without memory, it has no elements.
        if let Some(known) = self.known_arrays.get(&key).filter(|_| memory.is_some()) {
            let known = *known;
            self.buffers[known.index()].short_offsets &= of.short_offsets;
            if let Some(memory) = &mut self.memory[known.index()] {
                memory.written |= written;
            }
            return known;
        }
        let made = self.add(buffer, slots, memory);
        self.known_arrays.insert(key, made);
        made
    }

    fn add(&mut self, buffer: Buffer, slots: Vec<u64>, memory: Option<FusionMemory>) -> BufferId {
        self.buffers.push(buffer);
        self.buffer_slots.push(slots);
        self.memory.push(memory);
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Floats are not united: the optimizer would combine floats of different loops.
    fn param(&mut self, of: &Param, slots: &[u64]) -> u32 {
        let number = match (&of.ty, slots) {
            (Type::Scalar(s), [slot]) if s.is_int() => Some((*s, signed(*s, *slot) as u64)),
            _ => None,
        };
        if let Some(known) = number.and_then(|number| self.known_numbers.get(&number)) {
            return *known;
        }
        let made = self.params.len() as u32;
        self.params.push(of.clone());
        self.param_slots.push(slots.to_vec());
        self.known_numbers.extend(number.map(|number| (number, made)));
        made
    }

    fn find_overlaps(&self) -> Result<(), String> {
        let arrays: Vec<(usize, &FusionMemory)> =
            self.memory.iter().enumerate().filter_map(|(b, m)| Some((b, m.as_ref()?))).collect();
        for (n, (a, x)) in arrays.iter().enumerate() {
            for (b, y) in &arrays[n + 1..] {
                if x.number == y.number && (x.written || y.written) {
                    let (a, b) = (&self.buffers[*a].name, &self.buffers[*b].name);
                    return Err(format!("`{a}` and `{b}` are different parts of the same memory"));
                }
            }
        }
        Ok(())
    }

    /// The slots of a launch. Those of removed buffers have no address.
    pub(super) fn slots(&self, layout: &ArgLayout, removed: &[usize]) -> Vec<u64> {
        let mut slots = vec![0; layout.slots as usize];
        let mut set = |at: u32, values: &[u64]| {
            slots[at as usize..at as usize + values.len()].copy_from_slice(values);
        };
        layout.roots.iter().zip(&self.roots).for_each(|(slot, root)| set(*slot, &[*root]));
        for (b, (slot, values)) in layout.buffers.iter().zip(&self.buffer_slots).enumerate() {
            if let (Some(slot), false) = (slot, values.is_empty()) {
                set(*slot, values);
                if removed.contains(&b) {
                    set(*slot, &[0]);
                }
            }
        }
        // The parameters after these are zero.
        layout.params.iter().zip(&self.param_slots).for_each(|(slot, values)| set(*slot, values));
        slots
    }
}
