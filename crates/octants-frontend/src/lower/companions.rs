//! Companions: the gradient or dual that lies beside an array of floats, for the modes of differentiation.

use octants_ir::{BufferId, Companion, Scalar};

use crate::value::Value;
use crate::world::{Obj, companion_attribute};

use super::Lowerer;

impl Lowerer<'_> {
    /// Makes buffers of the companions of all arrays that the kernel uses, where they have memory.
    pub(super) fn find_companions(&mut self) {
        let Some(which) = self.options.mode.companion() else { return };
        for i in 0..self.buffers.len() {
            let array = BufferId(i as u32);
            if !self.buffers[i].elem.scalar().is_some_and(Scalar::is_float) {
                continue;
            }
            let found = match self.buffer_objects[i] {
                Some(obj) => self.companion_of(obj, which),
                None if which == Companion::Gradient => self.gradient(array),
                None => self.argument_companion(array, which),
            };
            if let Some(companion) = found {
                self.companions.insert(array, companion);
            }
        }
    }

    fn companion_of(&mut self, obj: Obj, which: Companion) -> Option<BufferId> {
        let name = companion_attribute(which);
        let companion = self.world.attribute(obj, name).ok().flatten()?;
        if let Some((index, mut path)) = self.reached.get(&obj).cloned() {
            path.push(name.to_owned());
            self.reached.entry(companion).or_insert((index, path));
        }
        // One without memory is none.
        self.as_array(&Value::Obj(companion)).ok().flatten()
    }
}
