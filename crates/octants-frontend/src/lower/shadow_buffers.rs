//! Shadow buffers: the gradient or dual of a floating-point array, for the modes of differentiation.

use octants_ir::{BufferId, Scalar, ShadowBuffer};

use crate::value::Value;
use crate::world::{Obj, shadow_attribute};

use super::Lowerer;

impl Lowerer<'_> {
    /// Adds the shadow buffers of all arrays that the kernel uses, if they have memory.
    pub(super) fn find_shadow_buffers(&mut self) {
        let Some(which) = self.options.mode.shadow_buffer() else { return };
        for i in 0..self.buffers.len() {
            let array = BufferId(i as u32);
            if !self.buffers[i].elem.scalar().is_some_and(Scalar::is_float) {
                continue;
            }
            let found = match self.buffer_objects[i] {
                Some(obj) => self.shadow_buffer_of(obj, which),
                None if which == ShadowBuffer::Gradient => self.gradient(array),
                None => self.argument_shadow_buffer(array, which),
            };
            if let Some(shadow_buffer) = found {
                self.shadow_buffers.insert(array, shadow_buffer);
            }
        }
    }

    fn shadow_buffer_of(&mut self, obj: Obj, which: ShadowBuffer) -> Option<BufferId> {
        let name = shadow_attribute(which);
        let shadow_buffer = self.world.attribute(obj, name).ok().flatten()?;
        if let Some((index, mut path)) = self.reached.get(&obj).cloned() {
            path.push(name.to_owned());
            self.reached.entry(shadow_buffer).or_insert((index, path));
        }
        // One without memory is none.
        self.as_array(&Value::Obj(shadow_buffer)).ok().flatten()
    }
}
