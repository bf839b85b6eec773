//! Arguments, arrays and fields as parameters and buffers of a kernel. Each becomes a parameter or buffer once.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{Buffer, BufferId, Layout, MemorySpace, Op, Param, Scalar, ShadowBuffer, Type, ValueId};

use super::{Frame, Lowerer};
use crate::ast::Stmt;
use crate::value::{DataclassArg, Value};
use crate::world::{ArgSpec, Capture, FieldDesc, NdarrayDesc, Obj, Reach, shadow_attribute};

impl Lowerer<'_> {
    pub(super) fn argument(&mut self, index: u32, path: Vec<String>, spec: &ArgSpec) -> Result<Value> {
        Ok(match spec {
            ArgSpec::Value(ty, obj) => {
                if let (Type::Struct(s), Some(obj)) = (ty, obj) {
                    self.struct_types.insert(*obj, s.clone());
                    self.struct_objects.insert(s.clone(), *obj);
                }
                if !self.in_kernel_body {
                    return Ok(Value::Rt(self.borrowed_param(index, path, spec, ty)));
                }
                let i = match self.param_paths.iter().position(|p| p.0 == index && p.1 == path) {
                    Some(i) => i,
                    None => {
                        self.params.push(Param { name: self.argument_name(index, &path), ty: ty.clone() });
                        self.param_paths.push((index, path));
                        self.params.len() - 1
                    }
                };
                Value::Rt(self.b.push(Op::Param(i as u32), ty.clone()))
            }
            ArgSpec::Array(desc) => {
                let key = (index, path);
                let id = match self.buffer_of_path.get(&key) {
                    Some(id) => *id,
                    None => {
                        let name = self.argument_name(index, &key.1);
                        let capture = Capture::Arg { index, path: key.1.clone() };
                        let id = self.add_array(name, desc, capture, None);
                        self.buffer_of_path.insert(key, id);
                        id
                    }
                };
                Value::Array(id)
            }
            ArgSpec::Template(obj) => {
                self.reached.entry(*obj).or_insert((index, path));
                self.lift(*obj)
            }
            ArgSpec::Dataclass(obj, members) => {
                Value::Dataclass(Rc::new(DataclassArg { index, path, obj: *obj, members: members.clone() }))
            }
        })
    }

    /// Warns of a dataclass as a template argument. Under its own annotation its members would be arguments.
    pub(super) fn warn_of_dataclass(&self, obj: Obj, kernel: &str, param: &str, body: &[Stmt]) {
        if !self.world.is_dataclass(obj) {
            return;
        }
        let message = format!(
            "Kernel '{kernel}' parameter '{param}': passing a @dataclasses.dataclass instance as `qd.Template` is \
             deprecated and will be an error in a future release"
        );
        let span = body.first().map_or(self.b.span, |s| s.span);
        let hint = "annotate the parameter with the dataclass";
        self.world.warn(*Diagnostic::new(Code::Deprecated, span, message).with_hint(hint));
    }

    /// A parameter of the kernel as a function of the IR sees it.
    pub(super) fn borrowed_param(&mut self, index: u32, path: Vec<String>, spec: &ArgSpec, ty: &Type) -> ValueId {
        let is_function = |f: &&mut Frame| f.borrowed.is_some() || !f.bound_params.is_empty();
        let frame = self.frames.iter_mut().rev().find(is_function);
        let frame = frame.expect("compiler bug: a dataclass member was not passed to the function");
        let Some(borrowed) = &mut frame.borrowed else {
            let bound = frame.bound_params.get(&(index, path));
            return *bound.expect("compiler bug: a dataclass member was not passed to the function");
        };
        let known = borrowed.params.iter().position(|p| p.0 == index && p.1 == path);
        let i = known.unwrap_or_else(|| {
            borrowed.params.push((index, path, spec.clone()));
            borrowed.params.len() - 1
        });
        let number = borrowed.first + i as u32;
        self.b.push(Op::Param(number), ty.clone())
    }

    /// Code here may read the kernel's parameters: no `@qd.real_func` is around it.
    pub(super) fn sees_parameters(&self) -> bool {
        self.in_kernel_body || !self.in_real_function
    }

    pub(super) fn argument_name(&self, index: u32, path: &[String]) -> String {
        let base = self
            .parsed
            .get(&self.kernel_obj)
            .and_then(|p| p.source.params.get(index as usize))
            .map_or_else(|| format!("argument {index}"), |p| p.name.clone());
        std::iter::once(base).chain(path.iter().cloned()).collect::<Vec<_>>().join(".")
    }

    pub(super) fn add_array(
        &mut self,
        name: String,
        desc: &NdarrayDesc,
        capture: Capture,
        obj: Option<Obj>,
    ) -> BufferId {
        self.buffers.push(Buffer {
            name,
            elem: desc.elem.clone(),
            ndim: desc.ndim,
            layout: if desc.contiguous { Layout::Contiguous } else { Layout::Strided },
            space: MemorySpace::Global,
            short_offsets: desc.reach == Reach::Short,
            is_metadata: false,
        });
        self.buffer_captures.push(Some(capture));
        self.buffer_objects.push(obj);
        let id = BufferId((self.buffers.len() - 1) as u32);
        if desc.reach == Reach::Wide {
            self.wide_arrays.insert(id);
        }
        if desc.clamped {
            self.clamped_arrays.insert(id);
        }
        if desc.is_view {
            self.view_arrays.insert(id);
        }
        if let Some(axis) = desc.split_axis {
            self.split_arrays.insert(id, axis);
        }
        id
    }

    /// The array that a view argument is a range of, as a separate array.
    pub(super) fn whole_of_view(&mut self, view: BufferId) -> Option<BufferId> {
        if let Some(known) = self.wholes.get(&view) {
            return Some(*known);
        }
        let (index, path, spec) = self.view_argument(view)?;
        let ArgSpec::Array(desc) = spec else { return None };
        let reach = if desc.reach == Reach::Wide { Reach::Wide } else { Reach::Long };
        let desc = NdarrayDesc { reach, is_view: false, clamped: false, ..desc };
        let name = format!("{}.arr", self.buffers[view.index()].name);
        let path = path.into_iter().chain([String::from("arr")]).collect();
        let whole = self.add_array(name, &desc, Capture::ShadowBuffer { index, path, desc: desc.clone() }, None);
        self.wholes.insert(view, whole);
        Some(whole)
    }

    /// How many elements of the whole array are before those of a view argument: a number that a launch reads of it.
    pub(super) fn offset_of_view(&mut self, view: BufferId) -> Result<Option<ValueId>> {
        let Some((index, mut path, spec)) = self.view_argument(view).filter(|_| self.sees_parameters()) else {
            return Ok(None);
        };
        let wide = matches!(spec, ArgSpec::Array(desc) if desc.reach == Reach::Wide);
        path.push(String::from("offset"));
        let ty = Type::Scalar(if wide { Scalar::I64 } else { Scalar::I32 });
        let offset = self.argument(index, path, &ArgSpec::Value(ty, None))?;
        self.rt(&offset).map(Some)
    }

    /// The argument and the path of a view.
    fn view_argument(&self, view: BufferId) -> Option<(u32, Vec<String>, ArgSpec)> {
        if !self.view_arrays.contains(&view) {
            return None;
        }
        let Some(Capture::Arg { index, path }) = self.buffer_captures[view.index()].clone() else { return None };
        let mut spec = &self.args[index as usize];
        for name in &path {
            let ArgSpec::Dataclass(_, members) = spec else { return None };
            spec = members.iter().find(|(n, _)| n == name).map(|(_, s)| s)?;
        }
        Some((index, path, spec.clone()))
    }

    /// The gradient of an array argument, as a separate array.
    pub(super) fn gradient(&mut self, array: BufferId) -> Option<BufferId> {
        if let Some(known) = self.gradients.get(&array) {
            return *known;
        }
        let found = self.argument_shadow_buffer(array, ShadowBuffer::Gradient);
        self.gradients.insert(array, found);
        found
    }

    /// The shadow buffer of an array argument, if it has one, as a separate array.
    pub(super) fn argument_shadow_buffer(&mut self, array: BufferId, which: ShadowBuffer) -> Option<BufferId> {
        let Some(Capture::Arg { index, path }) = self.buffer_captures[array.index()].clone() else { return None };
        let mut spec = &self.args[index as usize];
        for name in &path {
            let ArgSpec::Dataclass(_, members) = spec else { return None };
            spec = members.iter().find(|(n, _)| n == name).map(|(_, s)| s)?;
        }
        let ArgSpec::Array(desc) = spec else { return None };
        let has_it = if which == ShadowBuffer::Dual { desc.needs_dual } else { desc.needs_grad };
        if !has_it {
            return None;
        }
        let desc = NdarrayDesc { is_view: false, needs_grad: false, needs_dual: false, ..desc.clone() };
        let desc = match which {
            ShadowBuffer::Gradient | ShadowBuffer::Dual => desc,
            ShadowBuffer::ReadMarks => {
                // Its elements may be larger than the array's.
                let reach = if desc.reach == Reach::Wide { Reach::Wide } else { Reach::Long };
                NdarrayDesc { elem: Type::I32, contiguous: true, reach, ..desc }
            }
        };
        let attribute = shadow_attribute(which);
        let name = format!("{}.{attribute}", self.buffers[array.index()].name);
        let path = path.into_iter().chain([attribute.to_string()]).collect();
        let capture = Capture::ShadowBuffer { index, path, desc: NdarrayDesc { clamped: false, ..desc.clone() } };
        Some(self.add_array(name, &desc, capture, None))
    }

    pub(super) fn add_field(&mut self, desc: FieldDesc, obj: Obj) -> BufferId {
        let short_offsets = desc.has_short_offsets();
        let packed = desc.packed;
        let mut components = desc.components;
        for c in &mut components {
            let i = match self.roots.iter().position(|r| *r == c.root) {
                Some(i) => i,
                None => {
                    self.roots.push(c.root);
                    self.roots.len() - 1
                }
            };
            c.root = i as u32;
        }
        self.buffers.push(Buffer {
            name: desc.name,
            elem: desc.elem,
            ndim: desc.shape.len() as u32,
            layout: Layout::Dense { shape: desc.shape, offset: desc.offset, components },
            space: MemorySpace::Global,
            short_offsets,
            is_metadata: desc.is_metadata,
        });
        self.buffer_captures.push(None);
        self.buffer_objects.push(Some(obj));
        let field = BufferId((self.buffers.len() - 1) as u32);
        if !packed.is_empty() {
            self.add_packed_field(field, packed);
        }
        field
    }
}
