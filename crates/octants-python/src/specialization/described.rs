//! [`Described`]: the arguments of a call, as described to the compiler.

use octants_engine::Alias;
use octants_engine::frontend::{ArgSpec, Capture, NdarrayDesc};
use octants_engine::ir::BufferId;
use octants_engine::trace::Binding;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyWeakrefReference};

use super::Alive;
use crate::annotation::{ArrayKind, ParamKind};
use crate::argument::{Gathered, Overlap, Place, array_argument, by_identity, is_array};
use crate::array;
use crate::array_view::ArrayView;
use crate::classify::Handles;
use crate::errors;
use crate::guard::{MARKS, Step, read_marks};
use crate::names::unwrap_tensor;
use crate::world::PyWorld;

/// A value or array argument: its position in the parameter list.
pub(super) type Leaf = (u32, Vec<String>);

/// The compiler's description of the arguments, and the sources of their words.
#[derive(Default)]
pub struct Described {
    /// One per parameter.
    pub specs: Vec<ArgSpec>,
    pub(super) leaves: Vec<Leaf>,
    /// With their parameters.
    pub(super) objects: Vec<(u32, Alive)>,
    /// Some array has a gradient.
    pub has_gradient: bool,
}

impl Described {
    /// Walks the arguments in the order of [`Gathered::take`].
    pub fn new<'py>(
        kinds: &[(&str, &ParamKind)],
        args: &[Bound<'py, PyAny>],
        kernel: &str,
        world: &PyWorld<'py>,
    ) -> PyResult<Described> {
        let mut out = Described::default();
        for (i, ((name, kind), arg)) in kinds.iter().zip(args).enumerate() {
            let place = Place { index: i, name, parent: None, kernel };
            let spec = out.describe(kind, arg, &place, (i as u32, Vec::new()), world)?;
            out.specs.push(spec);
        }
        Ok(out)
    }

    fn describe<'py>(
        &mut self,
        kind: &ParamKind,
        value: &Bound<'py, PyAny>,
        place: &Place<'_>,
        leaf: Leaf,
        world: &PyWorld<'py>,
    ) -> PyResult<ArgSpec> {
        let py = value.py();
        Ok(match kind {
            ParamKind::Scalar(s) => {
                self.leaves.push(leaf);
                ArgSpec::Value((*s).into(), None)
            }
            ParamKind::Tensor(ty) => {
                self.leaves.push(leaf);
                ArgSpec::Value(ty.clone(), None)
            }
            ParamKind::Struct(ty, object) => {
                self.leaves.push(leaf);
                let ty = octants_engine::ir::Type::Struct(ty.clone());
                ArgSpec::Value(ty, Some(world.handle(object.bind(py).clone())))
            }
            ParamKind::Array(wanted) if wanted.optional && value.is_none() => {
                self.template(value.clone(), leaf, world)?
            }
            ParamKind::Array(wanted) => {
                self.leaves.push(leaf);
                let desc = array_argument(wanted, value, place)?.desc();
                self.has_gradient |= desc.needs_grad;
                ArgSpec::Array(NdarrayDesc { clamped: wanted.clamped, is_view: wanted.view, ..desc })
            }
            ParamKind::Either => {
                let value = unwrap_tensor(value.clone())?;
                if is_array(&value)? {
                    return self.describe(&ParamKind::Array(ArrayKind::ANY), &value, place, leaf, world);
                }
                self.template(value, leaf, world)?
            }
            ParamKind::Template => self.template(value.clone(), leaf, world)?,
            ParamKind::Refused(message) => return Err(errors::syntax_error(py, message.clone())),
            ParamKind::Dataclass(class, members) => {
                let mut out = Vec::new();
                for (name, kind) in members {
                    let member = value.getattr(name.bind(py))?;
                    let text = name.bind(py).to_str()?;
                    let inner = Place { index: place.index, name: text, parent: Some(place), kernel: place.kernel };
                    let mut path = leaf.1.clone();
                    path.push(text.to_string());
                    out.push((text.to_string(), self.describe(kind, &member, &inner, (leaf.0, path), world)?));
                }
                ArgSpec::Dataclass(world.handle(class.bind(py).clone().into_any()), out)
            }
        })
    }

    fn template<'py>(&mut self, value: Bound<'py, PyAny>, leaf: Leaf, world: &PyWorld<'py>) -> PyResult<ArgSpec> {
        self.keep(leaf.0, &value)?;
        let obj = world.handle(value);
        let steps = leaf.1.into_iter().map(Step::Attribute).collect();
        world.is_argument(obj, leaf.0, steps);
        Ok(ArgSpec::Template(obj))
    }

    /// Keeps the object behind an address in the key, or watches its lifetime, as long as the specialization is used.
    fn keep(&mut self, param: u32, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(tuple) = value.cast::<PyTuple>() {
            return tuple.iter().try_for_each(|item| self.keep(param, &item));
        }
        if by_identity(value)? {
            let alive = match PyWeakrefReference::new(value) {
                Ok(weak) => Alive::Weak(weak.unbind()),
                Err(_) => Alive::Strong(value.clone().unbind()),
            };
            self.objects.push((param, alive));
        }
        Ok(())
    }

    /// The buffers of arrays that share memory in this call, and whether any do.
    pub fn aliases<'py>(
        &self,
        gathered: &Gathered<'py>,
        args: &[Bound<'py, PyAny>],
        binding: &Binding,
        world: &PyWorld<'py>,
    ) -> PyResult<(Vec<Alias>, bool)> {
        let buffer = |leaf: u32| {
            let (param, path) = &self.leaves[leaf as usize];
            let is =
                |c: &Option<Capture>| matches!(c, Some(Capture::Arg { index, path: p }) if (index, p) == (param, path));
            binding.buffers.iter().position(is).map(|i| BufferId(i as u32))
        };
        let alias = |o: Overlap| Some(Alias { first: buffer(o.first)?, second: buffer(o.second)?, same: o.same });
        let mut aliases: Vec<Alias> = gathered.overlaps().into_iter().filter_map(alias).collect();
        let mut any = gathered.overlapping();
        let mut captured: Vec<(BufferId, ArrayView)> = Vec::new();
        for (i, capture) in binding.buffers.iter().enumerate() {
            let object = match capture {
                Some(Capture::Object { obj, .. }) => world.object(*obj),
                Some(Capture::ShadowBuffer { index, path, desc }) => {
                    let first = args[*index as usize].clone();
                    path.iter().try_fold(first, |owner, name| match name.as_str() {
                        MARKS => read_marks(&owner, desc.ndim),
                        name => owner.getattr(name),
                    })?
                }
                _ => continue,
            };
            let Some(view) = array::view(&object)? else { continue };
            let (id, (low, high)) = (BufferId(i as u32), view.span());
            for (other, earlier) in &captured {
                let (l, h) = earlier.span();
                if low < h && l < high {
                    let dense = view.strides.is_empty() && earlier.strides.is_empty();
                    let same = dense && (l, h, &earlier.extents) == (low, high, &view.extents);
                    aliases.push(Alias { first: *other, second: id, same });
                }
            }
            for span in gathered.spans.iter().filter(|s| low < s.high && s.low < high) {
                any = true;
                let words = gathered.words_of(span).split_first();
                let same = view.strides.is_empty() && words == Some((&view.address, view.extents.as_slice()));
                aliases.extend(buffer(span.leaf).map(|second| Alias { first: id, second, same }));
            }
            captured.push((id, view));
        }
        any |= !aliases.is_empty();
        Ok((aliases, any))
    }
}
