//! [`Dispatch`]: a task's launch as commands: a pipeline, its push constants, and a number of blocks.

use std::sync::Arc;

use ash::vk;
use octants_artifact::DeviceContext;
use octants_driver_gpu::plan_grid::Parameter;
use octants_runtime::{DevicePtr, Launch, Result};

use crate::gpu::{Gpu, PUSH_BYTES};
use crate::memory::{Lease, Memory};
use crate::module::LoadedTask;

/// Words of a `DeviceContext`.
const CONTEXT_WORDS: usize = DeviceContext::BYTES as usize / 8;

/// A task with its arguments.
pub struct Dispatch {
    pipeline: vk::Pipeline,
    blocks: u32,
    constants: Vec<u8>,
    /// The arguments that exceed the push constants. The commands read them.
    pub staged: Option<Lease>,
}

impl Dispatch {
    /// The dispatch of a launch's task; `None` without iterations.
    pub fn new(
        task: &LoadedTask,
        launch: &Launch<'_>,
        (pinned, arguments): (&Memory, &Arc<Memory>),
    ) -> Result<Option<Dispatch>> {
        let Some((form, blocks, threads)) = task.plan(launch.args)? else { return Ok(None) };
        let pipeline = form.pipeline(threads)?;
        let number = if task.is_numbered { launch.number } else { 0 };
        // The host counts the rounds of loops, in the number of the launch.
        let parameter = Parameter::new(launch, task.number, number, launch.guard.0);
        // Pinned memory has other addresses on the device.
        let translated = |at: DevicePtr| pinned.find(at.0).map_or(at.0, |part| part.address);
        let mut words: Vec<u64> = parameter.words().to_vec();
        words[1] = translated(launch.result);
        words[2] = translated(launch.channel);
        let mut staged = None;
        if words.len() * 8 > PUSH_BYTES as usize {
            let slots = words.split_off(CONTEXT_WORDS);
            let lease = arguments.lease(8 * slots.len() as u64)?;
            // SAFETY: the memory is mapped, and has this length.
            unsafe { std::ptr::copy_nonoverlapping(slots.as_ptr(), lease.at as *mut u64, slots.len()) };
            words.extend(arguments.find(lease.at).map(|part| part.address));
            staged = Some(lease);
        }
        let constants = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        Ok(Some(Dispatch { pipeline, blocks, constants, staged }))
    }

    /// Records it.
    ///
    /// # Safety
    /// The commands are being recorded. The module stays loaded, and the staged arguments alive, until they are done.
    pub unsafe fn record(&self, gpu: &Gpu, commands: vk::CommandBuffer) {
        // SAFETY: the contract above.
        unsafe {
            gpu.device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, self.pipeline);
            let stages = vk::ShaderStageFlags::COMPUTE;
            gpu.device.cmd_push_constants(commands, gpu.layout, stages, 0, &self.constants);
            gpu.device.cmd_dispatch(commands, self.blocks, 1, 1);
        }
    }
}
