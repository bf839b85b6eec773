//! [`Recorded`]: commands that are recorded once and executed by many batches.

use std::sync::Arc;

use ash::vk;
use octants_runtime::Result;

use crate::checked::failed;
use crate::gpu::Gpu;
use crate::memory::Lease;

/// Commands, with all that they use. A batch that executes them keeps them alive.
#[derive(Debug)]
pub struct Recorded {
    gpu: Arc<Gpu>,
    /// For these commands only, so that they can be destroyed by any thread.
    pool: vk::CommandPool,
    /// The secondary command buffer.
    pub commands: vk::CommandBuffer,
    staged: Vec<Lease>,
}

impl Recorded {
    /// Commands that are being recorded.
    pub fn begin(gpu: &Arc<Gpu>) -> Result<Recorded> {
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(gpu.family);
        // SAFETY: the structures are whole; `Recorded` destroys the pool, and its commands with it.
        unsafe {
            let pool = gpu.device.create_command_pool(&info, None);
            let pool = pool.map_err(|code| failed("vkCreateCommandPool", code, "recording a graph"))?;
            let (gpu, staged) = (gpu.clone(), Vec::new());
            let mut recorded = Recorded { gpu, pool, commands: vk::CommandBuffer::null(), staged };
            let info = vk::CommandBufferAllocateInfo::default()
                .command_pool(pool)
                .level(vk::CommandBufferLevel::SECONDARY)
                .command_buffer_count(1);
            let device = &recorded.gpu.device;
            recorded.commands = device
                .allocate_command_buffers(&info)
                .map_err(|code| failed("vkAllocateCommandBuffers", code, "recording a graph"))?[0];
            let inherited = vk::CommandBufferInheritanceInfo::default();
            let info = vk::CommandBufferBeginInfo::default()
                .flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE)
                .inheritance_info(&inherited);
            device
                .begin_command_buffer(recorded.commands, &info)
                .map_err(|code| failed("vkBeginCommandBuffer", code, "recording a graph"))?;
            Ok(recorded)
        }
    }

    /// Keeps memory that the commands read.
    pub fn keep(&mut self, staged: Option<Lease>) {
        self.staged.extend(staged);
    }

    /// Ends the recording.
    pub fn end(&self) -> Result<()> {
        // SAFETY: the commands are being recorded.
        unsafe { self.gpu.device.end_command_buffer(self.commands) }
            .map_err(|code| failed("vkEndCommandBuffer", code, "recording a graph"))
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // SAFETY: no batch that executes the commands is left: each keeps them alive.
        unsafe { self.gpu.device.destroy_command_pool(self.pool, None) }
    }
}
