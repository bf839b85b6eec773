//! Mesh elements: loops over them, their attributes, their numbers, and their neighbors.
//!
//! At run time an element is represented by its position among the elements of its kind, in memory order. All other
//! data is in tables that the host keeps as fields. The front end reads these attributes of an
//! [`Entity::MeshElements`], which `python/octants/_mesh/elements.py` provides:
//!
//! - `_ids`: a field with the number of the element at each position, or `None` if that is the position.
//! - `_patches`: a field with the patch of the element at each position.
//! - `_attributes`: an object with the user's fields as attributes. A reordered field is indexed by position, and every
//!   other one by number.
//! - `_relations`: an object with the table of each relation as an attribute, named by the target kind. A table has
//!   `to` (the target elements), `indices` (a field of their positions), and either `width` (the number of columns of
//!   `indices`) or `offsets` (the start of each element's positions in `indices`, followed by the end).

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{BinaryOp, Op, Scalar, TextPart, Type, ValueId};

use super::Lowerer;
use crate::arith;
use crate::value::{MeshElement, Neighbors, Value};
use crate::world::{Entity, Obj};

/// The kinds of elements, by the number of axes that an element extends in.
const KINDS: [&str; 4] = ["verts", "edges", "faces", "cells"];

impl Lowerer<'_> {
    /// `verts`, `edges`, `faces` or `cells`.
    pub(super) fn kind_of(&self, elements: Obj) -> String {
        match self.world.entity(elements) {
            Entity::MeshElements { kind, .. } => kind,
            _ => panic!("compiler bug: an element of a mesh is of no kind"),
        }
    }

    /// The bounds of a loop over elements of a mesh: all of a kind, or those next to an element.
    pub(super) fn visited_range(&mut self, iterable: &Value) -> Result<Option<(Value, Value)>> {
        match iterable {
            Value::Obj(obj) => match self.world.entity(*obj) {
                Entity::MeshElements { kind, count: 0 } => {
                    self.err(Code::Value, format!("Cannot loop over `{kind}`: the mesh has no {kind}"))
                }
                Entity::MeshElements { count, .. } => Ok(Some((Value::Int(0), Value::Int(count.into())))),
                _ => Ok(None),
            },
            Value::Neighbors(neighbors) => Ok(Some(match self.width(neighbors.relation)? {
                Some(width) => (Value::Int(0), Value::Int(width)),
                None => {
                    let (begin, end) = self.row(neighbors)?;
                    (Value::Rt(begin), Value::Rt(end))
                }
            })),
            _ => Ok(None),
        }
    }

    /// The loop variable of such a loop.
    pub(super) fn visited_element(&mut self, visited: &Value, index: ValueId) -> Result<Value> {
        match visited {
            Value::Neighbors(neighbors) => match self.width(neighbors.relation)? {
                Some(_) => self.table_entry(neighbors, &[neighbors.position, index]),
                None => self.table_entry(neighbors, &[index]),
            },
            Value::Obj(elements) => {
                self.mesh_loop = Some((*elements, index));
                Ok(Value::Element(Rc::new(MeshElement { elements: *elements, position: Value::Rt(index) })))
            }
            _ => panic!("compiler bug: a loop over a mesh visits something else"),
        }
    }

    /// `v.id`, `v.x`, `v.cells`.
    pub(super) fn element_attribute(&mut self, element: &MeshElement, name: &str) -> Result<Value> {
        if name == "id" {
            return self.number(element).map(Value::Rt);
        }
        if KINDS.contains(&name) {
            return self.neighbors_of(element, name);
        }
        let attributes = self.part(element.elements, "_attributes")?;
        if self.world.attribute(attributes, name).map_err(|e| self.host_error(e))?.is_none() {
            let kind = self.kind_of(element.elements);
            return Err(Diagnostic::new(
                Code::Attribute,
                self.b.span,
                format!("an element of `{kind}` has no attribute `{name}`"),
            )
            .with_hint(format!("declare it: `mesh.{kind}.place({{\"{name}\": qd.f32}})`")));
        }
        let attribute = self.part(attributes, name)?;
        let (field, index) = match self.world.entity(attribute) {
            Entity::ReorderedField { field, .. } => (field, self.rt(&element.position)?),
            _ => (attribute, self.number(element)?),
        };
        self.subscript(&Value::Obj(field), vec![Value::Rt(index)])
    }

    /// `v.cells.size`.
    pub(super) fn neighbors_attribute(&mut self, neighbors: &Neighbors, name: &str) -> Result<Value> {
        if name != "size" {
            let message = format!("a mesh relation has no attribute `{name}`");
            return Err(
                Diagnostic::new(Code::Attribute, self.b.span, message).with_hint("use `size`, an index or a loop")
            );
        }
        Ok(match self.width(neighbors.relation)? {
            Some(width) => Value::Int(width),
            None => {
                let (begin, end) = self.row(neighbors)?;
                Value::Rt(self.b.binary(BinaryOp::Sub, end, begin))
            }
        })
    }

    /// `v.cells[j]`.
    pub(super) fn neighbor(&mut self, neighbors: &Neighbors, index: &[Value]) -> Result<Value> {
        let [index] = index else {
            let count = index.len();
            return self.err(Code::Index, format!("a mesh relation takes one index, not {count}"));
        };
        let width = self.width(neighbors.relation)?;
        if let Value::Int(i) = index {
            if *i < 0 {
                let message = "Negative indices are not supported in Quadrants kernels.";
                return Err(Diagnostic::new(Code::Syntax, self.b.span, message)
                    .with_hint("count from the end with the size: `v.cells[v.cells.size - 1]`"));
            }
            if let Some(width) = width.filter(|width| i >= width) {
                return self
                    .err(Code::Index, format!("index {i} is out of bounds for a mesh relation with {width} elements"));
            }
        }
        let index = match index {
            Value::Int(i) => self.b.int(*i as i64, Scalar::I32),
            v => {
                let v = self.index_value(v)?;
                self.b.cast(v, Scalar::I32)
            }
        };
        let (begin, end) = match width {
            Some(width) => (self.b.int(0, Scalar::I32), self.b.int(width as i64, Scalar::I32)),
            None => self.row(neighbors)?,
        };
        if self.options.debug {
            let count = self.b.binary(BinaryOp::Sub, end, begin);
            self.assert_index(index, count)?;
        }
        match width {
            Some(_) => self.table_entry(neighbors, &[neighbors.position, index]),
            None => {
                let at = self.b.binary(BinaryOp::Add, begin, index);
                self.table_entry(neighbors, &[at])
            }
        }
    }

    /// An element of a mesh that later assignments to its variable do not change.
    pub(super) fn detached_element(&mut self, element: &MeshElement) -> Result<Value> {
        let position = Value::Rt(self.rt(&element.position)?);
        Ok(Value::Element(Rc::new(MeshElement { elements: element.elements, position })))
    }

    /// `v = v.verts[0]` where `v` is a variable.
    pub(super) fn store_element(&mut self, target: &MeshElement, value: &Value) -> Result<()> {
        let kind = self.kind_of(target.elements);
        match value {
            Value::Element(e) if e.elements == target.elements => {
                let position = e.position.clone();
                self.store(&target.position, &position)
            }
            Value::Element(_) => self.err(
                Code::Type,
                format!("a variable that holds an element of `{kind}` cannot hold an element of another kind or mesh"),
            ),
            _ => {
                let what = self.describe(value);
                self.err(
                    Code::Type,
                    format!("{what} cannot be assigned to a variable that holds an element of `{kind}`"),
                )
            }
        }
    }

    /// The memory field of a reordered field, and the position of an element in it.
    pub(super) fn index_in_memory(&mut self, base: &Value, index: &[Value]) -> Result<Option<(Value, Vec<Value>)>> {
        let Value::Obj(obj) = base else { return Ok(None) };
        let Entity::ReorderedField { field, positions } = self.world.entity(*obj) else { return Ok(None) };
        let Some((first, rest)) = index.split_first() else {
            return self.err(Code::Index, "a subscript needs at least one index");
        };
        let position = self.subscript(&Value::Obj(positions), vec![first.clone()])?;
        let position = Value::Rt(self.rt(&position)?);
        Ok(Some((Value::Obj(field), [std::slice::from_ref(&position), rest].concat())))
    }

    /// `qd.mesh_patch_idx()`.
    pub(super) fn lower_patch_index(&mut self) -> Result<Value> {
        let Some((elements, position)) = self.mesh_loop else {
            let message = "qd.mesh_patch_idx() can only be called inside a loop over mesh elements";
            return Err(Diagnostic::new(Code::Syntax, self.b.span, message)
                .with_hint("call it in the body of `for v in mesh.verts:`, and pass the result to functions"));
        };
        let patches = Value::Obj(self.part(elements, "_patches")?);
        let patch = self.subscript(&patches, vec![Value::Rt(position)])?;
        Ok(Value::Rt(self.rt(&patch)?))
    }

    /// `qd.mesh_local(...)`: a hint that changes nothing, about fields.
    pub(super) fn lower_mesh_local(&mut self, fields: &[Value]) -> Result<Value> {
        for field in fields {
            let is_field = match field {
                Value::Obj(o) => matches!(
                    self.world.entity(*o),
                    Entity::Field(_) | Entity::ReorderedField { .. } | Entity::StructField(_)
                ),
                _ => false,
            };
            if !is_field {
                let what = self.describe(field);
                let message = format!("qd.mesh_local() takes mesh attributes and fields, not {what}");
                return self.err(Code::Type, message);
            }
        }
        Ok(Value::None)
    }

    fn neighbors_of(&mut self, element: &MeshElement, kind: &str) -> Result<Value> {
        let relations = self.part(element.elements, "_relations")?;
        if self.world.attribute(relations, kind).map_err(|e| self.host_error(e))?.is_none() {
            let from = self.kind_of(element.elements);
            let d = Diagnostic::new(
                Code::Attribute,
                self.b.span,
                format!("the mesh has no relation from `{from}` to `{kind}`"),
            );
            let known = self.part(relations, "known")?;
            return Err(match self.world.entity(known) {
                Entity::Str(known) => d.with_hint(known.clone()),
                _ => d,
            });
        }
        let relation = self.part(relations, kind)?;
        let position = self.rt(&element.position)?;
        Ok(Value::Neighbors(Rc::new(Neighbors { relation, position })))
    }

    /// The user-visible number of an element.
    fn number(&mut self, element: &MeshElement) -> Result<ValueId> {
        let position = self.rt(&element.position)?;
        let ids = self.part(element.elements, "_ids")?;
        if self.world.entity(ids) == Entity::None {
            return Ok(position);
        }
        let id = self.subscript(&Value::Obj(ids), vec![Value::Rt(position)])?;
        self.rt(&id)
    }

    /// The number of adjacent elements, if it is the same for all elements.
    fn width(&mut self, relation: Obj) -> Result<Option<i128>> {
        let width = self.part(relation, "width")?;
        Ok(match self.world.entity(width) {
            Entity::Int(width) => Some(width),
            _ => None,
        })
    }

    /// The begin and end of an element's entries in the table of the relation.
    fn row(&mut self, neighbors: &Neighbors) -> Result<(ValueId, ValueId)> {
        let offsets = Value::Obj(self.part(neighbors.relation, "offsets")?);
        let one = self.b.int(1, Scalar::I32);
        let next = self.b.binary(BinaryOp::Add, neighbors.position, one);
        let mut entry = |at: ValueId| {
            let place = self.subscript(&offsets, vec![Value::Rt(at)])?;
            self.rt(&place)
        };
        Ok((entry(neighbors.position)?, entry(next)?))
    }

    fn table_entry(&mut self, neighbors: &Neighbors, index: &[ValueId]) -> Result<Value> {
        let indices = Value::Obj(self.part(neighbors.relation, "indices")?);
        let place = self.subscript(&indices, index.iter().map(|i| Value::Rt(*i)).collect())?;
        let position = Value::Rt(self.rt(&place)?);
        let elements = self.part(neighbors.relation, "to")?;
        Ok(Value::Element(Rc::new(MeshElement { elements, position })))
    }

    /// In debug mode, an index of a relation is below the number of its elements.
    fn assert_index(&mut self, index: ValueId, count: ValueId) -> Result<()> {
        let zero = self.b.int(0, Scalar::I32);
        let above = arith::compare(&mut self.b, &self.options, arith::Comparison::Ge, index, zero)?;
        let below = arith::compare(&mut self.b, &self.options, arith::Comparison::Lt, index, count)?;
        let inside = match arith::math(&mut self.b, &self.options, "logical_and", &[above, below]) {
            Some(v) => v?,
            None => panic!("compiler bug: truth values have no `and`"),
        };
        let inside = arith::to_condition(&mut self.b, "assert", inside)?;
        let text = |t: &str| TextPart::Text(t.to_string());
        let parts = vec![
            text("index "),
            TextPart::Value(index, None),
            text(" is out of bounds for a mesh relation with "),
            TextPart::Value(count, None),
            text(" elements"),
        ];
        self.b.push(Op::Assert(inside, parts), Type::Unit);
        Ok(())
    }

    /// An attribute that the outside's object of a mesh has.
    fn part(&mut self, of: Obj, name: &str) -> Result<Obj> {
        match self.host_attribute(of, name)? {
            Value::Obj(found) => Ok(found),
            value => match self.to_host(&value) {
                Some(found) => Ok(found),
                None => panic!("compiler bug: `{name}` of a mesh is not an object"),
            },
        }
    }
}
