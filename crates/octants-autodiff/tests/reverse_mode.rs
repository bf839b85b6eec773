//! Compares gradients of random kernels with finite differences, before and after the pipeline, with one lane and with
//! several.
//!
//! `OCTANTS_TEST_SEEDS` says how many kernels (default 1000).

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};

use octants_autodiff::{Differentiation, Keeping, StoreNeed, differentiate};
use octants_interpreter::random_kernels::{COUNTS, Dice, M, N, W, X, Y, Z, random_kernel};
use octants_interpreter::{Interpreter, Leaf, Memory, Outcome};
use octants_ir::{AutodiffMode, BufferId, Kernel, run_pass, run_pipeline};
use octants_passes::{PIPELINE, PassOptions};

/// Replaces a kernel by its adjoint.
fn adjoin(kernel: &mut Kernel, keeping: Keeping) -> Option<StoreNeed> {
    let mut asked = Differentiation::new(AutodiffMode::Reverse, keeping);
    differentiate(kernel, &mut asked).unwrap_or_else(|e| panic!("{e:?}"));
    asked.store
}

/// The contents of each buffer.
type Contents = Vec<Vec<Leaf>>;

/// Random numbers and no gradients.
fn contents(kernel: &Kernel, dice: &mut Dice) -> Contents {
    let mut contents = Vec::new();
    for b in &kernel.buffers {
        let n = N as usize * b.elem.leaf_count();
        let is_gradient = b.name.ends_with(".grad");
        contents.push(
            (0..n)
                .map(|_| match b.elem.scalar() {
                    Some(s) if s.is_int() => Leaf::Int(dice.below(4) as i64),
                    _ if is_gradient => Leaf::Float(0.0),
                    _ => Leaf::Float(dice.unit()),
                })
                .collect(),
        );
    }
    contents
}

/// Runs a kernel on arrays of one axis.
fn run(kernel: &Kernel, contents: &mut Contents, params: &[Leaf]) -> Outcome {
    let mut memory = Memory::new(&kernel.buffers);
    let ids = || (0..kernel.buffers.len() as u32).map(BufferId);
    for (b, leaves) in ids().zip(contents.iter()) {
        let elements = leaves.len() / kernel.buffers[b.index()].elem.leaf_count();
        memory.set(b, &[elements as u64], leaves);
    }
    let params: Vec<Vec<Leaf>> = params.iter().map(|p| vec![*p]).collect();
    let outcome = Interpreter::default().run_kernel(kernel, &mut memory, &params).unwrap_or_else(|e| panic!("{e}"));
    contents.iter_mut().zip(ids()).for_each(|(leaves, b)| *leaves = memory.get(b));
    outcome
}

/// The inputs: memory that is read, and the previous contents of written memory.
const INPUTS: [octants_ir::BufferId; 5] = [X, W, Y, Z, M];

/// The outputs.
const OUTPUTS: [octants_ir::BufferId; 3] = [Y, Z, M];

fn loss(kernel: &Kernel, before: &Contents, weights: &[Vec<f64>; 3]) -> f64 {
    let mut after = before.clone();
    run(kernel, &mut after, &[]);
    assert_eq!(after[COUNTS.index()], before[COUNTS.index()]);
    let part = |i: usize, w: &[f64]| after[i].iter().zip(w).map(|(x, w)| x.float() * w).sum::<f64>();
    OUTPUTS.iter().zip(weights).map(|(b, w)| part(b.index(), w)).sum()
}

/// The directional derivative by finite differences; `None` if it does not converge because of a branch or a kink.
fn difference(kernel: &Kernel, at: &Contents, direction: &[Vec<f64>], weights: &[Vec<f64>; 3]) -> Option<f64> {
    let moved = |by: f64| {
        let mut m = at.clone();
        for (b, d) in INPUTS.iter().zip(direction) {
            for (x, d) in m[b.index()].iter_mut().zip(d) {
                *x = Leaf::Float(x.float() + by * d);
            }
        }
        loss(kernel, &m, weights)
    };
    let slope = |h: f64| (moved(h) - moved(-h)) / (2.0 * h);
    let (a, b, c) = (slope(1e-5), slope(3e-6), slope(1e-6));
    let tolerance = 1e-4 * (1.0 + a.abs());
    ((a - b).abs() < tolerance && (b - c).abs() < tolerance).then_some(b)
}

/// Runs an adjoint with a store of exactly the size that was counted.
fn run_adjoint(adjoint: &Kernel, store: Option<&StoreNeed>, memory: &mut Contents, lanes: i64, neighbors: bool) {
    let Some(store) = store else {
        run(adjoint, memory, &[]);
        return;
    };
    memory.extend([Vec::new(), Vec::new()]);
    let counted = run(&store.count, memory, &[Leaf::Int(0); 7]).returned.unwrap();
    let &[iterations, lane32, lane64, root32, root64] = &counted.iter().map(|l| l.int()).collect::<Vec<_>>()[..] else {
        panic!("{counted:?}")
    };
    let lanes = lanes.min(iterations).max(1);
    let first = store.arguments.first_buffer as usize;
    memory[first] = vec![Leaf::Int(0); (root32 + lanes * lane32) as usize];
    memory[first + 1] = vec![Leaf::Int(0); (root64 + lanes * lane64) as usize];
    let (step, stride32, stride64) = if neighbors { (1, lane32, lane64) } else { (lanes, 1, 1) };
    let params = [lanes, step, stride32, stride64, root32, root64, i64::from(neighbors)].map(Leaf::Int);
    run(adjoint, memory, &params);
}

/// The results of a seed.
#[derive(Default)]
struct Found {
    /// Whether finite differences converged.
    told: bool,
    /// Sums of the gradient were gathered.
    gathered: bool,
    /// Loops were cut into blocks.
    cut: bool,
}

/// Checks the gradient of the kernel of a seed.
fn check(seed: u64) -> Found {
    let kernel = random_kernel(seed);
    octants_ir::assert_kernel(&kernel, "making it up");
    let mut dice = Dice(seed ^ 0x5555);
    let before = contents(&kernel, &mut dice);
    let mut numbers = |n: usize| (0..n).map(|_| dice.unit()).collect::<Vec<f64>>();
    let weights = OUTPUTS.map(|b| numbers(before[b.index()].len()));
    let direction: Vec<Vec<f64>> = INPUTS.iter().map(|b| numbers(before[b.index()].len())).collect();
    let Some(expected) = difference(&kernel, &before, &direction, &weights) else { return Found::default() };

    let mut after = before.clone();
    // If a value overflows and then has no effect, its gradient is zero times infinity.
    if !run(&kernel, &mut after, &[]).finite {
        return Found::default();
    }
    let gradient = |b: octants_ir::BufferId| kernel.shadow_buffers[&b].index();
    for (b, w) in OUTPUTS.into_iter().zip(&weights) {
        after[gradient(b)] = w.iter().map(|w| Leaf::Float(*w)).collect();
    }
    let mut result = Found { told: true, ..Found::default() };
    for keeping in [Keeping::Iterations, Keeping::Blocks] {
        let mut adjoint = kernel.clone();
        let store = adjoin(&mut adjoint, keeping);
        octants_ir::assert_kernel(&adjoint, "differentiating it");
        let mut gathered = adjoint.clone();
        let mut options = PassOptions { gather: Some(1), ..PassOptions::default() };
        for pass in ["hoist_invariants", "gather_updates", "eliminate_dead_code"] {
            run_pass(PIPELINE, pass, &mut gathered, &mut options);
        }
        octants_ir::assert_kernel(&gathered, "gathering");
        let parallel_loops = |k: &Kernel| k.body.block(k.body.root).len();
        result.gathered |= parallel_loops(&gathered) != parallel_loops(&adjoint);
        result.cut |= store.iter().flat_map(|s| &s.kept).any(|k| k.every > 1);
        for (kernel, lanes, neighbors) in
            [(&adjoint, 1, true), (&adjoint, 3, true), (&adjoint, 2, false), (&gathered, 3, true)]
        {
            let mut memory = after.clone();
            run_adjoint(kernel, store.as_ref(), &mut memory, lanes, neighbors);
            let found: f64 = INPUTS
                .iter()
                .zip(&direction)
                .flat_map(|(b, d)| memory[gradient(*b)].iter().zip(d))
                .map(|(g, d)| g.float() * d)
                .sum();
            let close = (found - expected).abs() <= 1e-4 * (1.0 + expected.abs().max(found.abs()));
            assert!(close, "{keeping:?}, {lanes} lanes: {found} instead of {expected}\n{kernel}");
        }
    }
    result
}

/// What the checks of some seeds have found.
#[derive(Default)]
struct Findings {
    told: u64,
    gathered: u64,
    cut: u64,
    /// Kernel, seed and reason.
    failed: Vec<(String, u64, String)>,
}

impl Findings {
    fn check(&mut self, seed: u64) {
        match std::panic::catch_unwind(|| check(seed)) {
            Ok(found) => {
                self.told += u64::from(found.told);
                self.gathered += u64::from(found.gathered);
                self.cut += u64::from(found.cut);
            }
            Err(e) => {
                let text = e.downcast_ref::<String>().cloned().or(e.downcast_ref::<&str>().map(|s| s.to_string()));
                self.failed.push((random_kernel(seed).to_string(), seed, text.unwrap_or_default()));
            }
        }
    }

    fn and(mut self, other: Self) -> Self {
        self.failed.extend(other.failed);
        let (told, gathered, cut) = (self.told + other.told, self.gathered + other.gathered, self.cut + other.cut);
        Self { told, gathered, cut, failed: self.failed }
    }
}

/// Checks the seeds below a number with all processors: with one, this test would run on when all others have ended.
fn check_seeds(seeds: u64) -> Findings {
    let next = AtomicU64::new(0);
    let check_some = || {
        let mut findings = Findings::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return findings;
            }
            findings.check(seed);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(check_some)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).fold(Findings::default(), Findings::and)
    })
}

#[test]
fn gradients_match_finite_differences() {
    let seeds = std::env::var("OCTANTS_TEST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1000);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let Findings { told, gathered, cut, mut failed } = check_seeds(seeds);
    std::panic::set_hook(hook);
    // The smallest kernel is the most useful one.
    failed.sort_by_key(|f| (f.0.lines().count(), f.1));
    let report: Vec<String> = failed.iter().take(1).map(|(k, seed, why)| format!("seed {seed}: {why}\n{k}")).collect();
    assert!(failed.is_empty(), "{} of {seeds} fail\n{}", failed.len(), report.concat());
    assert!(told * 10 > seeds * 8, "differences told of {told} kernels only");
    assert!(gathered * 250 > seeds, "sums of {gathered} kernels only were gathered");
    assert!(cut * 50 > seeds, "loops of {cut} kernels only were cut into blocks");
}

#[test]
fn infinite_values_are_not_compared() {
    // Repeated squaring overflows, but nothing reads the result, so the differences converge.
    assert!(!check(3147).told);
}

#[test]
fn the_pipeline_preserves_adjoints() {
    for seed in 0..200 {
        let kernel = random_kernel(seed);
        let mut adjoint = kernel.clone();
        let store = adjoin(&mut adjoint, Keeping::Blocks);
        for mut k in store.into_iter().map(|s| s.count).chain([adjoint]) {
            let mut options = PassOptions { debug: true, check_bounds: true, ..PassOptions::default() };
            run_pipeline(PIPELINE, &mut k, &mut options);
        }
    }
}
