//! Fields of quantized types: their elements are bit fields of words. Accesses to elements are replaced by accesses to
//! words.
//!
//! Lowering, differentiation and the activation of sparse cells see a field of the compute type. `expand` replaces its
//! accesses by loads, stores and compare-and-swaps of words. Different iterations may write elements of one word
//! concurrently. Consecutive stores to the same word are merged.

mod expansion;
mod lanes;
mod numbers;
mod sole_writers;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use octants_ir::insert_code::bodies;
use octants_ir::{
    BlockId, Body, Buffer, BufferId, Builder, Const, Kernel, Layout, MemorySpace, NO_BYTES, Op, Type, ValueId,
};

use self::expansion::Expansion;
use self::sole_writers::sole_writers;
use super::Lowerer;
use crate::packed_component::PackedComponent;

/// The fields of quantized types that a kernel uses.
#[derive(Debug, Clone, Default)]
pub struct PackedFields {
    fields: BTreeMap<BufferId, PackedField>,
}

/// A field of a quantized type.
#[derive(Debug, Clone)]
struct PackedField {
    /// The type of an element, as it is computed with.
    element: Type,
    parts: Vec<Packed>,
    /// First index of each axis.
    first: Vec<i64>,
}

/// A component, and the words as a buffer of the kernel.
#[derive(Debug, Clone)]
pub(super) struct Packed {
    component: PackedComponent,
    words: BufferId,
}

/// Which components of an element an address is of.
enum Which {
    All,
    One(usize),
    /// By indices that are known at run time.
    Dynamic(Vec<ValueId>),
}

/// An address in a field of a quantized type.
struct PackedPlace {
    buffer: BufferId,
    indices: Vec<ValueId>,
    which: Which,
}

impl Lowerer<'_> {
    /// Remembers where the components of a field of a quantized type are. The root of the words is the field's.
    pub(super) fn add_packed_field(&mut self, field: BufferId, components: Vec<PackedComponent>) {
        let buffer = self.buffers[field.index()].clone();
        let Layout::Dense { components: places, offset: first, .. } = buffer.layout else { return };
        let Some(root) = places.first().map(|place| place.root) else { return };
        let mut parts = Vec::new();
        for mut component in components {
            component.words.root = root;
            let words = self.buffer_of_words(&component);
            parts.push(Packed { component, words });
        }
        // Until accesses are replaced, the field is separate memory: no component of another field overlaps it.
        if let Layout::Dense { components, .. } = &mut self.buffers[field.index()].layout {
            for (component, part) in components.iter_mut().zip(&parts) {
                let bits =
                    part.component.words.place.base.saturating_mul(64) + u64::from(part.component.digits.range.first);
                component.place.base = NO_BYTES | bits;
            }
        }
        self.packed_fields.fields.insert(field, PackedField { element: buffer.elem, parts, first });
    }

    /// The buffer of a component's words, which may be those of another one.
    fn buffer_of_words(&mut self, component: &PackedComponent) -> BufferId {
        let is_it = |known: &&Packed| known.component.words == component.words;
        if let Some(known) = self.packed_fields.fields.values().flat_map(|field| &field.parts).find(is_it) {
            return known.words;
        }
        let end = component.words.place.last();
        self.buffers.push(Buffer {
            name: String::new(),
            elem: component.word.into(),
            ndim: component.shape.len() as u32,
            layout: Layout::Dense {
                shape: component.shape.clone(),
                offset: vec![0; component.shape.len()],
                components: vec![component.words.clone()],
            },
            space: MemorySpace::Global,
            short_offsets: end <= i32::MAX as u64,
            is_metadata: false,
        });
        self.buffer_captures.push(None);
        self.buffer_objects.push(None);
        BufferId((self.buffers.len() - 1) as u32)
    }

    /// If words of a field are of several elements along one axis: the axis, and how many.
    pub(super) fn elements_of_word(&self, field: BufferId) -> Option<(usize, u32)> {
        let [part] = &self.packed_fields.fields.get(&field)?.parts[..] else { return None };
        let [(axis, count)] = part.component.within[..] else { return None };
        Some((axis, count as u32))
    }

    /// Whether an address is of a field of a quantized type.
    pub(super) fn is_packed(&self, address: ValueId) -> bool {
        place_of(&self.packed_fields.fields, &self.b.body, address).is_some()
    }
}

impl PackedFields {
    /// Names words after the fields that have elements in them.
    fn name_words(&self, buffers: &mut [Buffer]) {
        for (field, packed) in &self.fields {
            let field = buffers[field.index()].name.clone();
            for part in &packed.parts {
                let name = &mut buffers[part.words.index()].name;
                if !name.split(", ").any(|known| known == field) {
                    *name = if name.is_empty() { field.clone() } else { format!("{name}, {field}") };
                }
            }
        }
    }

    /// Replaces all accesses to fields of quantized types.
    pub fn expand(&self, kernel: &mut Kernel) {
        if self.fields.is_empty() {
            return;
        }
        self.name_words(&mut kernel.buffers);
        let by_reference: Vec<Vec<bool>> = kernel
            .functions
            .iter()
            .map(|f| f.params.iter().map(|param| matches!(param, Type::Ref(_))).collect())
            .collect();
        let soles = sole_writers(&self.fields, kernel);
        let functions = kernel.functions.len();
        for (number, body) in bodies(kernel).enumerate() {
            // The kernel's own body comes last.
            let soles = if number == functions { soles.clone() } else { BTreeSet::new() };
            let mut b = Builder::new();
            b.body = std::mem::take(body);
            let fields = &self.fields;
            let mut expansion =
                Expansion { fields, by_reference: &by_reference, soles, pending: Vec::new(), words: HashMap::new() };
            // Blocks that are added are finished.
            for block in 0..b.body.blocks.len() {
                let insts = std::mem::take(&mut b.body.blocks[block]);
                b.set_cursor(BlockId(block as u32));
                for v in insts {
                    b.span = b.body.inst(v).span;
                    expansion.instruction(&mut b, v);
                }
                expansion.write_all(&mut b);
            }
            *body = b.body;
        }
    }
}

/// The target of an address in a field of a quantized type.
fn place_of(fields: &BTreeMap<BufferId, PackedField>, body: &Body, address: ValueId) -> Option<PackedPlace> {
    match &body.inst(address).op {
        Op::BufferAddr(buffer, indices) if fields.contains_key(buffer) => {
            Some(PackedPlace { buffer: *buffer, indices: indices.clone(), which: Which::All })
        }
        Op::ElementAddr(base, index) => {
            let place = place_of(fields, body, *base)?;
            let Type::Ref(element) = body.ty(*base) else { return None };
            let constants: Option<Vec<i64>> = index
                .iter()
                .map(|i| match body.as_const(*i) {
                    Some(Const::Int(i)) => Some(i),
                    _ => None,
                })
                .collect();
            let which = match constants {
                Some(at) => {
                    let number = element.shape().iter().zip(at).fold(0, |n, (extent, i)| n * i64::from(*extent) + i);
                    Which::One(number as usize)
                }
                None => Which::Dynamic(index.clone()),
            };
            Some(PackedPlace { which, ..place })
        }
        _ => None,
    }
}
