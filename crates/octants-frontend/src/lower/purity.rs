//! Kernels declared to depend on their arguments only (`fastcache=True`, `pure=True`): any other captured value is an
//! error. Enumerations and the constants of `math`, `numpy` and this package do not change and are allowed.
//!
//! The declaration has no other effect: the disk cache is correct for every kernel.

use octants_diag::{Code, Diagnostic, Result};

use crate::world::{Entity, Obj};

use super::Lowerer;

impl Lowerer<'_> {
    /// A name that the function at hand takes from outside.
    pub(super) fn check_outer_name(&mut self, name: &str, found: Obj) -> Result<()> {
        if !self.pure {
            return Ok(());
        }
        self.note_outer(found);
        if self.is_variable(found) && !self.is_of_package(self.frame_ref().func, "__module__") {
            return self.impure(name, &format!("it uses `{name}` from an outer scope"));
        }
        Ok(())
    }

    /// An attribute of something that came from outside.
    pub(super) fn check_outer_attribute(&mut self, owner: Obj, name: &str, found: Obj) -> Result<()> {
        if !self.pure || !self.outer.contains(&owner) {
            return Ok(());
        }
        self.note_outer(found);
        let constant = self.is_member_of_enum(owner)
            || self.is_of_package(owner, "__module__")
            || self.is_of_package(owner, "__name__");
        if self.is_variable(found) && !constant {
            return self.impure(name, &format!("it uses the attribute `{name}` of an object from an outer scope"));
        }
        Ok(())
    }

    fn note_outer(&mut self, found: Obj) {
        // Equal numbers and strings may be one shared object.
        if matches!(self.world.entity(found), Entity::Broken(_) | Entity::Opaque | Entity::StructConst { .. }) {
            self.outer.insert(found);
        }
    }

    fn is_variable(&self, obj: Obj) -> bool {
        let kind = self.world.entity(obj);
        let value = matches!(kind, Entity::Bool(_) | Entity::Int(_) | Entity::Float(_) | Entity::Str(_));
        let memory = matches!(
            kind,
            Entity::Field(_) | Entity::ReorderedField { .. } | Entity::StructField(_) | Entity::Ndarray(_)
        );
        memory || value && !self.is_member_of_enum(obj)
    }

    fn is_member_of_enum(&self, obj: Obj) -> bool {
        matches!(self.world.attribute(obj, "_value_"), Ok(Some(_)))
    }

    /// Belongs to `math`, `numpy` or this package, by one of its names.
    fn is_of_package(&self, obj: Obj, which: &str) -> bool {
        let Ok(Some(name)) = self.world.attribute(obj, which) else { return false };
        let Entity::Str(name) = self.world.entity(name) else { return false };
        let package = name.split('.').next().unwrap_or_default();
        matches!(package, "math" | "numpy" | "octants")
    }

    /// Uppercase names are assumed to be constants, and values in `qd.static` often are: these are warnings.
    fn impure(&mut self, name: &str, what: &str) -> Result<()> {
        let kernel = self.parsed.get(&self.kernel_obj).map_or_else(String::new, |p| p.source.name.clone());
        let message = format!("[PURE.VIOLATION] kernel `{kernel}` may depend only on its arguments, but {what}");
        let diagnostic = Diagnostic::new(Code::Compilation, self.b.span, message)
            .with_hint(format!("pass `{name}` as an argument, or remove `fastcache=True` (`pure=True`)"));
        if self.static_depth > 0 || name.to_uppercase() == name {
            self.world.warn(*diagnostic);
            return Ok(());
        }
        Err(diagnostic)
    }
}
