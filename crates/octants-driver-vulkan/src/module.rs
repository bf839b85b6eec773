//! [`Module`]: loaded code, and the pipelines created from it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;
use octants_artifact::{Artifact, ParallelMeta, SiteKind, TaskMeta};
use octants_driver_gpu::plan_grid::{GridPlan, worthwhile_run};
use octants_runtime::{ErrorKind, Result};

use crate::checked::failed;
use crate::gpu::Gpu;

/// Threads of a block if the program does not say: on a GPU, and on a software device.
const GPU_BLOCK: u32 = 256;
const PROCESSOR_BLOCK: u32 = 64;
/// Threads of a block of a small loop on a GPU.
const SMALL_BLOCK: u32 = 64;
/// A loop is small if it has at most this many small blocks per multiprocessor. On an NVIDIA H200, it then takes less
/// time than in large blocks, which occupy few multiprocessors: scatters of 8192 iterations take 6.8 us, not 9.0.
const MOST_SMALL_BLOCKS: u64 = 2;
/// Number of blocks that fill a GPU with an unknown number of multiprocessors.
const GPU_FILL: u32 = 512;

/// Maximum iterations of a thread on a software device: Mesa's lavapipe exits a thread's loops after 65,535 rounds in
/// total, including those of inner loops.
const MOST_ITERATIONS: u64 = 1024;
/// Iterations above this CPU cost estimate, in nanoseconds, may have loops: a thread runs only one. A loop of unknown
/// length costs more than three.
const SHORT_ITERATION: f32 = 2.0;

/// A task with the data of its launches.
#[derive(Debug)]
pub struct LoadedTask {
    /// Its place among the kernel's tasks.
    pub number: u32,
    /// Its code depends on the number of the launch.
    pub is_numbered: bool,
    gpu: Arc<Gpu>,
    /// None for one thread.
    parallel: Option<ParallelMeta>,
    /// For any launch.
    main: Form,
    /// For launches in which a thread may run several iterations at a time.
    wide: Option<Form>,
}

/// A variant of a task's code, with the pipelines made of it.
#[derive(Debug)]
pub struct Form {
    gpu: Arc<Gpu>,
    kernel: String,
    shader: vk::ShaderModule,
    /// None for one thread.
    grids: Option<Grids>,
    /// By the number of threads of a block.
    pipelines: Mutex<HashMap<u32, vk::Pipeline>>,
}

/// The grids of a variant. There are at most two block sizes, and so two pipelines.
#[derive(Debug)]
struct Grids {
    usual: GridPlan,
    /// For small loops.
    small: Option<GridPlan>,
}

impl Grids {
    /// The number of blocks and the block size; `None` without iterations.
    fn plan(&self, iterations: Option<u64>) -> Option<(u32, u32)> {
        let is_small = |small: &&GridPlan| {
            let most = MOST_SMALL_BLOCKS * u64::from(small.multiprocessors) * u64::from(small.block * small.lanes);
            iterations.is_some_and(|n| n <= most)
        };
        self.small.as_ref().filter(is_small).unwrap_or(&self.usual).plan(iterations)
    }
}

/// Loaded code.
#[derive(Debug)]
pub struct Module {
    /// One for each of the artifact's.
    pub tasks: Vec<LoadedTask>,
}

impl Module {
    /// Loads code.
    pub fn load(gpu: &Arc<Gpu>, artifact: &Artifact) -> Result<Module> {
        let asserts = artifact.sites.iter().any(|s| matches!(s.kind, SiteKind::Assert | SiteKind::LeftEarly));
        let mut module = Module { tasks: Vec::with_capacity(artifact.tasks.len()) };
        for (number, task) in artifact.tasks.iter().enumerate() {
            let code = artifact.modules.get(task.module as usize).map_or(&[][..], Vec::as_slice);
            module.tasks.push(LoadedTask::load(gpu, &artifact.kernel, task, number as u32, code, asserts)?);
        }
        Ok(module)
    }
}

impl LoadedTask {
    fn load(
        gpu: &Arc<Gpu>,
        kernel: &str,
        task: &TaskMeta,
        number: u32,
        code: &[u8],
        asserts: bool,
    ) -> Result<LoadedTask> {
        let parallel = task.parallel.clone().filter(|p| !p.serialize);
        let grid = |lanes| parallel.as_ref().map(|meta| plan(gpu, meta, lanes)).transpose();
        let main = Form::new(gpu, kernel, code, grid(1)?)?;
        let wide = match parallel.as_ref().and_then(|meta| meta.wide.as_ref()) {
            Some(wide) => Some(Form::new(gpu, kernel, &wide.code, grid(wide.lanes)?)?),
            None => None,
        };
        let is_numbered = task.draws_random || asserts;
        Ok(LoadedTask { number, is_numbered, gpu: gpu.clone(), parallel, main, wide })
    }

    /// The variant for a launch with these argument slots, the number of blocks, and the block size; `None` without
    /// iterations.
    pub fn plan(&self, args: &[u64]) -> Result<Option<(&Form, u32, u32)>> {
        let Some(meta) = &self.parallel else { return Ok(Some((&self.main, 1, 1))) };
        let form = self.wide.as_ref().filter(|_| meta.wide_form(args).is_some()).unwrap_or(&self.main);
        let (iterations, grids) = (meta.iterations(args), form.grids.as_ref());
        let Some((blocks, threads)) = grids.and_then(|grids| grids.plan(iterations)) else { return Ok(None) };
        if blocks > self.gpu.max_blocks && meta.cooperates {
            let most = self.gpu.max_blocks;
            let message =
                format!("a loop with cooperating threads needs {blocks} blocks, but this device supports {most}");
            return Err(ErrorKind::Misuse { message }.into());
        }
        let least = match iterations {
            Some(n) if self.gpu.is_processor => {
                let most = if meta.cost_per_iteration > SHORT_ITERATION { 1 } else { MOST_ITERATIONS };
                n.div_ceil(u64::from(threads) * most)
            }
            _ => 0,
        };
        // Threads walk the iterations with the stride of the grid.
        let blocks = blocks.max(u32::try_from(least).unwrap_or(u32::MAX));
        Ok(Some((form, blocks.min(self.gpu.max_blocks), threads)))
    }

    /// Maximum number of resident threads on the device; `None` for a serial task.
    pub fn max_resident_threads(&self) -> Option<u64> {
        self.main.grids.as_ref().map(|grids| grids.usual.max_resident_threads())
    }
}

impl Form {
    fn new(gpu: &Arc<Gpu>, kernel: &str, code: &[u8], grids: Option<Grids>) -> Result<Form> {
        let words: Vec<u32> = code.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
        let info = vk::ShaderModuleCreateInfo::default().code(&words);
        // SAFETY: the code is SPIR-V that the code generator made.
        let shader = unsafe { gpu.device.create_shader_module(&info, None) }
            .map_err(|code| failed("vkCreateShaderModule", code, format!("loading kernel `{kernel}`")))?;
        let (gpu, kernel, pipelines) = (gpu.clone(), kernel.to_owned(), Mutex::default());
        Ok(Form { gpu, kernel, shader, grids, pipelines })
    }

    /// The pipeline for blocks of this many threads.
    pub fn pipeline(&self, threads: u32) -> Result<vk::Pipeline> {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = pipelines.get(&threads) {
            return Ok(*pipeline);
        }
        let pipeline = self.make_pipeline(threads)?;
        pipelines.insert(threads, pipeline);
        Ok(pipeline)
    }

    fn make_pipeline(&self, threads: u32) -> Result<vk::Pipeline> {
        let gpu = &self.gpu;
        let entries = [vk::SpecializationMapEntry { constant_id: 0, offset: 0, size: 4 }];
        let bytes = threads.to_ne_bytes();
        let constants = vk::SpecializationInfo::default().map_entries(&entries).data(&bytes);
        let mut size =
            vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default().required_subgroup_size(gpu.subgroup);
        let mut stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(self.shader)
            .name(c"main")
            .specialization_info(&constants);
        if gpu.whole_subgroups && threads.is_multiple_of(gpu.subgroup) {
            stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS);
        }
        if gpu.asks_subgroup {
            stage = stage.push_next(&mut size);
        }
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(gpu.layout)];
        // SAFETY: the module is alive, the structures are whole.
        let made = unsafe { gpu.device.create_compute_pipelines(gpu.cache, &info, None) };
        match made {
            Ok(pipelines) => {
                gpu.has_pipelines.store(true, Ordering::Relaxed);
                Ok(pipelines[0])
            }
            Err((_, code)) => {
                let doing = format!("making code of kernel `{}`", self.kernel);
                Err(failed("vkCreateComputePipelines", code, doing))
            }
        }
    }
}

impl Drop for Form {
    fn drop(&mut self) {
        let pipelines = std::mem::take(&mut *self.pipelines.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: the caller of unload waits for the work first.
        unsafe {
            pipelines.into_values().for_each(|p| self.gpu.device.destroy_pipeline(p, None));
            self.gpu.device.destroy_shader_module(self.shader, None);
        }
    }
}

/// The grids of a task whose threads run this many iterations at a time.
fn plan(gpu: &Gpu, meta: &ParallelMeta, lanes: u32) -> Result<Grids> {
    let most = gpu.max_threads;
    let block = match meta.block_dim {
        Some(asked) if meta.cooperates && asked > most => {
            let message = format!(
                "the loop needs blocks of {asked} cooperating threads, but this device supports at most {most} \
                 threads per block"
            );
            return Err(ErrorKind::Misuse { message }.into());
        }
        Some(asked) if meta.cooperates => asked.max(1),
        Some(asked) => asked.max(1).next_multiple_of(gpu.subgroup).min(most),
        None if gpu.is_processor => PROCESSOR_BLOCK.max(gpu.subgroup).min(most),
        None => GPU_BLOCK.min(most),
    };
    let (multiprocessors, threads) = match gpu.shape {
        _ if gpu.is_processor => (std::thread::available_parallelism().map_or(1, |n| n.get() as u32), block),
        Some(shape) => shape,
        None => (GPU_FILL, block),
    };
    let grid = |block: u32, resident_threads: u32| GridPlan {
        block,
        fixed: true,
        resident: (resident_threads / block).max(1),
        multiprocessors,
        warp: gpu.subgroup,
        once: meta.block_sums,
        single: meta.cooperates,
        lanes,
        run: worthwhile_run(meta.cost_per_iteration, lanes),
    };
    let small = SMALL_BLOCK.next_multiple_of(gpu.subgroup);
    let is_free = meta.block_dim.is_none() && !meta.cooperates && !meta.block_sums;
    let has_small = is_free && !gpu.is_processor && gpu.shape.is_some();
    let small = (has_small && small < block).then(|| grid(small, threads));
    Ok(Grids { usual: grid(block, threads), small })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grids(lanes: u32, has_small: bool) -> Grids {
        let of = |block: u32| GridPlan {
            block,
            fixed: true,
            resident: 2048 / block,
            multiprocessors: 132,
            warp: 32,
            once: false,
            single: false,
            lanes,
            run: 8,
        };
        Grids { usual: of(GPU_BLOCK), small: has_small.then(|| of(SMALL_BLOCK)) }
    }

    #[test]
    fn small_loops_have_small_blocks() {
        let all = grids(1, true);
        assert_eq!(all.plan(Some(8192)), Some((128, 64)));
        assert_eq!(all.plan(Some(1)), Some((1, 64)));
        // Two small blocks for each multiprocessor, and one iteration more.
        assert_eq!(all.plan(Some(264 * 64)), Some((264, 64)));
        assert_eq!(all.plan(Some(264 * 64 + 1)), Some((67, 256)));
        assert_eq!(all.plan(Some(0)), None);
        // An unknown number of iterations fills the device.
        assert_eq!(all.plan(None), Some((132 * 8, 256)));
        // A thread that runs four iterations at a time.
        assert_eq!(grids(4, true).plan(Some(4 * 264 * 64)), Some((264, 64)));
        assert_eq!(grids(4, true).plan(Some(4 * 264 * 64 + 4)), Some((67, 256)));
        assert_eq!(grids(1, false).plan(Some(8192)), Some((32, 256)));
    }
}
