//! Structs: types from annotations, construction, members, methods.

use std::rc::Rc;
use std::sync::Arc;

use octants_diag::{Code, Diagnostic, Result, Span};
use octants_ir::{Op, Scalar, StructType, Type, ValueId};

use super::Lowerer;
use crate::arith::type_name;
use crate::value::{DataclassArg, Members, Place, Value};
use crate::world::{Entity, Obj};

impl Lowerer<'_> {
    /// The run-time type of an annotation or type object.
    pub(super) fn type_of_object(&mut self, obj: Obj, span: Span) -> Result<Type> {
        Ok(match self.world.entity(obj) {
            Entity::Dtype(s) => Type::Scalar(s),
            Entity::TensorType(ty) | Entity::AnyTensorType(ty) => ty,
            Entity::Builtin(name) if name == "int" => Type::Scalar(self.options.default_ip),
            Entity::Builtin(name) if name == "float" => Type::Scalar(self.options.default_fp),
            Entity::Builtin(name) if name == "bool" => Type::U1,
            Entity::StructType { name, members } => {
                if let Some(s) = self.struct_types.get(&obj) {
                    return Ok(Type::Struct(s.clone()));
                }
                let members = members
                    .into_iter()
                    .map(|(n, t)| Ok((n, self.type_of_object(t, span)?)))
                    .collect::<Result<Vec<_>>>()?;
                let s = Arc::new(StructType { name, members });
                self.struct_types.insert(obj, s.clone());
                self.struct_objects.entry(s.clone()).or_insert(obj);
                Type::Struct(s)
            }
            _ => {
                let name = self.world.attribute(obj, "__name__").ok().flatten().map(|name| self.world.entity(name));
                let what = match (self.class_module(obj), name) {
                    (Some(_), Some(Entity::Str(name))) => format!("`{name}`"),
                    _ => self.describe_object(obj),
                };
                return Err(Diagnostic::new(Code::Type, span, format!("{what} is not a type that kernels support")));
            }
        })
    }

    pub(super) fn type_of_value(&mut self, v: &Value) -> Result<Type> {
        match v {
            Value::Obj(o) => self.type_of_object(*o, self.b.span),
            other => {
                let what = self.describe(other);
                self.err(Code::Type, format!("{what} is not a type"))
            }
        }
    }

    /// The scalar type of a `dtype` argument.
    pub(super) fn dtype_of(&mut self, v: &Value) -> Result<Scalar> {
        match self.type_of_value(v)? {
            Type::Scalar(s) => Ok(s),
            other => self.err(Code::Type, format!("expected a scalar type, got {other}", other = type_name(&other))),
        }
    }

    pub(super) fn dtype_value(&mut self, s: Scalar) -> Result<Value> {
        Ok(Value::Obj(self.world.dtype(s)))
    }

    /// Members read into one struct value.
    pub(super) fn struct_value(&mut self, m: &Members) -> Result<ValueId> {
        if let Some(obj) = m.ty
            && let Type::Struct(s) = self.type_of_object(obj, self.b.span)?
        {
            let mut parts = Vec::new();
            for (name, ty) in &s.members {
                let Some((_, v)) = m.items.iter().find(|(n, _)| n == name) else {
                    return self
                        .err(Code::Type, format!("struct `{}` is missing a value for the member `{name}`", s.name));
                };
                parts.push(self.value_for(v, ty)?);
            }
            return Ok(self.b.push(Op::MakeStruct(parts), Type::Struct(s)));
        }
        let mut parts = Vec::new();
        let mut members = Vec::new();
        for (name, v) in &m.items {
            let v = self.rt(v)?;
            members.push((name.clone(), self.b.ty(v).clone()));
            parts.push(v);
        }
        let ty = Type::Struct(Arc::new(StructType { name: "struct".into(), members }));
        Ok(self.b.push(Op::MakeStruct(parts), ty))
    }

    /// Member names and values of a struct, in any representation.
    pub(super) fn member_values(&mut self, value: &Value) -> Result<Vec<(String, Value)>> {
        match value {
            Value::Members(m) if !m.is_array => return Ok(m.items.clone()),
            Value::Dict(_) | Value::Obj(_) => {
                if let Some(entries) = self.dict_entries(value)? {
                    let named = |(k, v): &(Value, Value)| match k {
                        Value::Str(k) => Some((k.to_string(), v.clone())),
                        _ => None,
                    };
                    return Ok(entries.iter().filter_map(named).collect());
                }
            }
            _ => {}
        }
        if let Some(v) = self.try_rt(value)?
            && let Type::Struct(s) = self.b.ty(v).clone()
        {
            return Ok(s
                .members
                .iter()
                .enumerate()
                .map(|(i, (n, _))| (n.clone(), Value::Rt(self.b.extract(v, i as u32))))
                .collect());
        }
        let what = self.describe(value);
        self.err(Code::Type, format!("expected a struct, got {what}"))
    }

    /// `StructType(a, b, c=...)`.
    pub(super) fn construct_struct(&mut self, obj: Obj, args: &[Value], kwargs: &[(String, Value)]) -> Result<Value> {
        let Type::Struct(s) = self.type_of_object(obj, self.b.span)? else {
            return self.err(Code::Type, "expected a struct type");
        };
        if let ([one], true) = (args, kwargs.is_empty()) {
            if let Value::Dict(_) | Value::Members(_) = one {
                let items = self.member_values(one)?;
                return Ok(Value::Rt(self.struct_value(&Members { ty: Some(obj), is_array: false, items })?));
            }
            if let Some(Type::Struct(t)) = self.runtime_type(one)
                && t == s
            {
                return Ok(Value::Rt(self.rt(one)?));
            }
        }
        if args.len() > s.members.len() {
            return self.err(
                Code::Type,
                format!("struct `{}` has {} members, but {} values are given", s.name, s.members.len(), args.len()),
            );
        }
        for (name, _) in kwargs {
            if s.index_of(name).is_none() {
                return self.err(Code::Type, format!("struct `{}` has no member `{name}`", s.name));
            }
        }
        let mut parts = Vec::new();
        for (i, (name, ty)) in s.members.iter().enumerate() {
            let given = args.get(i).or_else(|| kwargs.iter().find(|(n, _)| n == name).map(|(_, v)| v));
            parts.push(match (given, ty) {
                (Some(Value::Dict(_)), Type::Struct(inner)) if self.struct_objects.contains_key(inner) => {
                    let v = given.cloned().unwrap_or(Value::None);
                    let inner = self.struct_objects[inner];
                    let v = self.construct_struct(inner, &[v], &[])?;
                    self.rt(&v)?
                }
                (Some(v), _) => self.value_for(v, ty)?,
                (None, _) => self.zero(ty),
            });
        }
        Ok(Value::Rt(self.b.push(Op::MakeStruct(parts), Type::Struct(s))))
    }

    /// The zero of a type.
    pub(super) fn zero(&mut self, ty: &Type) -> ValueId {
        match ty {
            Type::Scalar(s) => self.b.int(0, *s),
            Type::Vector(s, _) | Type::Matrix(s, _, _) => {
                let z = self.b.int(0, *s);
                self.b.splat(z, ty)
            }
            Type::Struct(s) => {
                let parts = s.members.iter().map(|(_, t)| self.zero(t)).collect();
                self.b.push(Op::MakeStruct(parts), ty.clone())
            }
            Type::Unit | Type::Ref(_) => panic!("compiler bug: {ty} has no zero"),
        }
    }

    /// A vector member that was declared with `unpacked=True`: its components, each a separate member.
    fn unpacked_vector(&mut self, ty: Option<Obj>, base: &Value, name: &str) -> Result<Option<Value>> {
        let Some(ty) = ty else { return Ok(None) };
        let found = self.world.attribute(ty, &format!("_unpacked_{name}")).map_err(|e| self.host_error(e))?;
        let Some(Entity::Int(n)) = found.map(|o| self.world.entity(o)) else { return Ok(None) };
        let items = (0..n).map(|i| self.attribute(base, &format!("_{name}{i}"))).collect::<Result<Vec<_>>>()?;
        let items = Rc::new(items);
        self.unpacked_vectors.push((items.clone(), name.to_owned()));
        Ok(Some(Value::List(items)))
    }

    /// `base.name` where `base` is a struct, a struct field, or a dataclass argument.
    pub(super) fn struct_attribute(&mut self, base: &Value, name: &str) -> Result<Option<Value>> {
        if let Value::Dataclass(d) = base {
            if let Some((_, spec)) = d.members.iter().find(|(n, _)| n == name) {
                let mut path = d.path.clone();
                path.push(name.to_owned());
                return Ok(Some(self.argument(d.index, path, &spec.clone())?));
            }
            if let Ok(None) = self.world.attribute(d.obj, name) {
                return Err(self.no_member(d, name));
            }
            return Ok(Some(match self.host_attribute(d.obj, name)? {
                Value::Obj(f) if matches!(self.world.entity(f), Entity::Func(_)) => {
                    Value::Method(Rc::new((base.clone(), name.to_owned())))
                }
                v => v,
            }));
        }
        if let Some(m) = self.as_members(base) {
            if let Some((_, v)) = m.items.iter().find(|(n, _)| n == name) {
                return Ok(Some(v.clone()));
            }
            if let Value::Obj(o) = base {
                return Ok(Some(self.host_attribute(*o, name)?));
            }
            if m.is_array
                && name == "shape"
                && let Some((_, v)) = m.items.first()
            {
                return Ok(Some(self.attribute(&v.clone(), "shape")?));
            }
            if let Some(v) = self.unpacked_vector(m.ty, base, name)? {
                return Ok(Some(v));
            }
            return Ok(Some(self.struct_method(m.ty, base, name)?));
        }
        if let Value::Obj(o) = base {
            if let Entity::StructConst { members, .. } = self.world.entity(*o) {
                if let Some((_, v)) = members.iter().find(|(n, _)| n == name) {
                    return Ok(Some(self.lift(*v)));
                }
                return Ok(Some(self.host_attribute(*o, name)?));
            }
            return Ok(None);
        }
        let Some(Type::Struct(s)) = self.runtime_type(base) else { return Ok(None) };
        let Some(i) = s.index_of(name) else {
            let ty = self.struct_objects.get(&s).copied();
            if let Some(v) = self.unpacked_vector(ty, base, name)? {
                return Ok(Some(v));
            }
            return Ok(Some(self.struct_method(ty, base, name)?));
        };
        if let Some(p) = self.place(base) {
            let addr = self.b.member_addr(p.addr, i as u32);
            return Ok(Some(Value::Place(Place { addr, global: p.global })));
        }
        let v = self.rt(base)?;
        Ok(Some(Value::Rt(self.b.extract(v, i as u32))))
    }

    /// If a function receives a dataclass other than the annotated one, the error lists the members.
    fn no_member(&self, given: &DataclassArg, name: &str) -> Box<Diagnostic> {
        let class = match self.world.attribute(given.obj, "__name__").ok().flatten().map(|n| self.world.entity(n)) {
            Some(Entity::Str(class)) => format!(" `{class}`"),
            _ => String::new(),
        };
        let members: Vec<String> = given.members.iter().map(|(n, _)| format!("`{n}`")).collect();
        let text = format!("the dataclass{class} has no member `{name}`");
        Diagnostic::new(Code::Attribute, self.b.span, text)
            .with_hint(format!("the argument has the members {}", members.join(", ")))
    }

    fn struct_method(&mut self, ty: Option<Obj>, base: &Value, name: &str) -> Result<Value> {
        if matches!(name, "to_dict" | "keys" | "items" | "get") {
            return Ok(Value::Method(Rc::new((base.clone(), name.to_owned()))));
        }
        if let Some(ty) = ty
            && self.find_struct_method(ty, name)?.is_some()
        {
            return Ok(Value::Method(Rc::new((base.clone(), name.to_owned()))));
        }
        self.err(Code::Compilation, format!("the struct has no member or method `{name}`"))
    }

    /// A method declared with a struct type.
    pub(super) fn find_struct_method(&mut self, ty: Obj, name: &str) -> Result<Option<Obj>> {
        let methods = self.world.attribute(ty, "methods").map_err(|e| self.host_error(e))?;
        let Some(methods) = methods else { return Ok(None) };
        let key = self.world.make(crate::world::HostValue::Str(name.to_owned()));
        Ok(self.world.subscript(methods, key).ok())
    }
}
