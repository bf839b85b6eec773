//! Rejects fields and captured arrays of a device other than the one that a kernel is compiled for.

use octants_engine::frontend::{Capture, Obj};
use octants_engine::ir::{self, Layout};
use octants_engine::trace::Binding;
use pyo3::prelude::*;

use crate::array;
use crate::buffer::Buffer;
use crate::world::PyWorld;

/// Memory of another device.
pub struct Elsewhere {
    /// The tree of fields, or the kernel's buffer.
    what: Memory,
    /// The program that owns it.
    pub serial: u64,
}

enum Memory {
    Root(u32),
    Buffer(usize),
}

/// Checks the memory that code reaches without an argument: trees of fields, and captured arrays. Each launch checks
/// the arrays that objects hold.
pub fn find_elsewhere(binding: &Binding, world: &PyWorld<'_>, serial: u64) -> PyResult<Option<Elsewhere>> {
    for (root, &id) in (0..).zip(&binding.roots) {
        let lies = world.object(Obj(id)).getattr("buffer")?.cast::<Buffer>()?.get().serial();
        if lies != serial {
            return Ok(Some(Elsewhere { what: Memory::Root(root), serial: lies }));
        }
    }
    for (index, capture) in binding.buffers.iter().enumerate() {
        let Some(Capture::Object { obj, .. }) = capture else { continue };
        if let Some(view) = array::view(&world.object(*obj))?
            && view.serial != 0
            && view.serial != serial
        {
            return Ok(Some(Elsewhere { what: Memory::Buffer(index), serial: view.serial }));
        }
    }
    Ok(None)
}

impl Elsewhere {
    /// Describes the memory by the kernel's name for it.
    pub fn describe(&self, kernel: &ir::Kernel) -> String {
        let of_root = |buffer: &&ir::Buffer, root: u32| match &buffer.layout {
            Layout::Dense { components, .. } => components.iter().any(|c| c.root == root),
            _ => false,
        };
        match self.what {
            Memory::Buffer(index) => format!("the array `{}`", kernel.buffers[index].name),
            Memory::Root(root) => match kernel.buffers.iter().find(|b| of_root(b, root)) {
                Some(buffer) => format!("the field `{}`", buffer.name),
                None => String::from("a field"),
            },
        }
    }
}
