"""One scene of Genesis in one process: builds it, steps it, prints one JSON line, and saves its state for a comparison.

`genesis.py` starts it with caches of its own for each package. Genesis imports `quadrants`; with `--module octants`
that name finds Octants. Nothing is drawn: the OpenGL context that Genesis makes for cameras is left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


class NoContext:
    """Replaces an OpenGL platform. Its operations do nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **options: lambda: None


def leave_out_rendering() -> None:
    """Makes Genesis' renderer do without a context."""
    offscreen = importlib.import_module("genesis.ext.pyrender.offscreen")

    def create(renderer: Any, *args: Any) -> None:
        renderer._platform = NoContext()

    offscreen.OffscreenRenderer._create = create


def rigid_scene(gs: Any, **options: Any) -> Any:
    """An empty scene with a floor."""
    scene = gs.Scene(show_viewer=False, sim_options=gs.options.SimOptions(dt=0.01), **options)
    scene.add_entity(gs.morphs.Plane())
    return scene


def box(gs: Any) -> tuple[Any, list[Any]]:
    """A tilted box above the floor: it lands after about 28 steps."""
    scene = rigid_scene(gs)
    return scene, [scene.add_entity(gs.morphs.Box(size=(0.2, 0.2, 0.2), pos=(0.0, 0.0, 0.5), euler=(10, 20, 30)))]


def franka(gs: Any) -> tuple[Any, list[Any]]:
    """An arm with a gripper that moves to a target."""
    scene = rigid_scene(gs)
    return scene, [scene.add_entity(gs.morphs.MJCF(file="xml/franka_emika_panda/panda.xml"))]


def sphere_on_box(gs: Any) -> tuple[Any, list[Any]]:
    """A sphere that drops onto a box, off center."""
    scene = rigid_scene(gs)
    lower = scene.add_entity(gs.morphs.Box(size=(0.3, 0.3, 0.2), pos=(0.0, 0.0, 0.1)))
    return scene, [lower, scene.add_entity(gs.morphs.Sphere(radius=0.1, pos=(0.02, 0.01, 0.32)))]


def go2(gs: Any) -> tuple[Any, list[Any]]:
    """A quadruped that falls onto its feet with its joints held."""
    scene = rigid_scene(gs)
    return scene, [scene.add_entity(gs.morphs.URDF(file="urdf/go2/urdf/go2.urdf", pos=(0.0, 0.0, 0.42)))]


def ten_boxes(gs: Any) -> tuple[Any, list[Any]]:
    """Two columns of five boxes each, which fall onto one another."""
    scene = rigid_scene(gs)
    places = [(0.4 * (k % 2), 0.01 * k, 0.1 + 0.22 * (k // 2)) for k in range(10)]
    return scene, [scene.add_entity(gs.morphs.Box(size=(0.2, 0.2, 0.2), pos=p)) for p in places]


def mpm(gs: Any) -> tuple[Any, list[Any]]:
    """An elastic cube of material points above the floor."""
    scene = gs.Scene(
        show_viewer=False,
        sim_options=gs.options.SimOptions(dt=4e-3, substeps=10),
        mpm_options=gs.options.MPMOptions(lower_bound=(-0.3, -0.3, 0.0), upper_bound=(0.3, 0.3, 0.6), grid_density=48),
    )
    scene.add_entity(gs.morphs.Plane())
    cube = gs.morphs.Box(pos=(0.0, 0.0, 0.25), size=(0.15, 0.15, 0.15))
    return scene, [scene.add_entity(morph=cube, material=gs.materials.MPM.Elastic(sampler="regular"))]


def sph(gs: Any) -> tuple[Any, list[Any]]:
    """A block of liquid that drops and spreads."""
    scene = gs.Scene(
        show_viewer=False,
        sim_options=gs.options.SimOptions(dt=4e-3, substeps=10),
        sph_options=gs.options.SPHOptions(
            lower_bound=(-0.5, -0.5, 0.0), upper_bound=(0.5, 0.5, 1.0), particle_size=0.02
        ),
    )
    scene.add_entity(gs.morphs.Plane())
    block = gs.morphs.Box(pos=(0.0, 0.0, 0.25), size=(0.2, 0.2, 0.2))
    return scene, [scene.add_entity(morph=block, material=gs.materials.SPH.Liquid(sampler="regular"))]


SCENES = {
    "box": box,
    "franka": franka,
    "sphere-on-box": sphere_on_box,
    "go2": go2,
    "boxes": ten_boxes,
    "mpm": mpm,
    "sph": sph,
}

# After how many steps states are compared element by element: before small differences have grown. And after how many
# their means are.
EARLY, LATE = 15, 60


def hold(name: str, entities: list[Any], envs: int) -> None:
    """Position control: the arm moves to a target, the quadruped keeps its joints bent."""
    robot = entities[0]
    if name == "franka":
        robot.set_dofs_kp(np.array([4500, 4500, 3500, 3500, 2000, 2000, 2000, 100, 100], np.float32))
        robot.set_dofs_kv(np.array([450, 450, 350, 350, 200, 200, 200, 10, 10], np.float32))
        target, joints = np.array([0.3, 0.2, -0.2, -1.7, 0.1, 1.6, 0.5, 0.02, 0.02], np.float32), np.arange(9)
    elif name == "go2":
        joints = np.arange(6, robot.n_dofs)
        robot.set_dofs_kp(np.full(len(joints), 20.0, np.float32), joints)
        robot.set_dofs_kv(np.full(len(joints), 0.5, np.float32), joints)
        target = np.array([0.0] * 4 + [0.8] * 4 + [-1.5] * 4, np.float32)
    else:
        return
    robot.control_dofs_position(target if envs == 0 else np.tile(target, (envs, 1)), joints)


def state(name: str, entities: list[Any]) -> dict[str, np.ndarray]:
    """Positions and velocities of everything that moves, as the host sees them."""

    def host(values: Any) -> np.ndarray:
        return values.detach().cpu().numpy().astype(np.float64).ravel()

    if name in ("mpm", "sph"):
        parts = [(host(e.get_particles_pos()), host(e.get_particles_vel())) for e in entities]
    else:
        parts = [(host(e.get_qpos()), host(e.get_dofs_velocity())) for e in entities]
    return {key: np.concatenate([p[k] for p in parts]) for k, key in enumerate(("pos", "vel"))}


def quadrants_of(module: str) -> Any:
    """The package that Genesis will find as `quadrants`."""
    if module != "quadrants":
        importlib.import_module(f"{module}.as_quadrants")
    return importlib.import_module("quadrants")


class Spent:
    """Wall-clock and processor seconds between two points."""

    def __init__(self) -> None:
        self.wall, self.processor = time.perf_counter(), time.process_time()

    def into(self, result: dict[str, Any], name: str) -> None:
        """Stores the elapsed time."""
        result[name] = round(time.perf_counter() - self.wall, 5)
        result[f"{name} cpu"] = round(time.process_time() - self.processor, 5)


def measure(args: argparse.Namespace, result: dict[str, Any]) -> None:
    """Fills in the result stage by stage, so that a failure keeps earlier stages."""
    spent = Spent()
    importlib.import_module("torch")
    spent.into(result, "import torch")
    spent = Spent()
    qd = quadrants_of(args.module)
    spent.into(result, "import module")
    spent = Spent()
    gs = importlib.import_module("genesis")
    spent.into(result, "import genesis")
    leave_out_rendering()
    result["stage"], spent = "init", Spent()
    gs.init(
        backend=gs.gpu if args.backend == "gpu" else gs.cpu,
        precision="32",
        seed=0,
        logging_level="error",
        performance_mode=args.mode == "field",
    )
    spent.into(result, "init")
    result |= {
        "genesis": gs.__version__,
        "backend": gs.backend.name,
        "version": str(qd.__version__),
        "ndarray": bool(gs.use_ndarray),
    }
    # Meshes are read here, by other packages.
    result["stage"], spent = "entities", Spent()
    scene, entities = SCENES[args.scene](gs)
    spent.into(result, "entities")
    result["stage"], spent = "build", Spent()
    scene.build(n_envs=args.envs)
    spent.into(result, "build")
    # Torch imports SymPy when it first broadcasts shapes, which must not count as build time.
    result["stage"], spent = "control", Spent()
    hold(args.scene, entities, args.envs)
    spent.into(result, "control")
    result["stage"], spent = "first step", Spent()
    scene.step()
    qd.sync()
    spent.into(result, "first step")
    states: dict[str, np.ndarray] = {}
    if args.state is not None:
        result["stage"] = "states"
        for k in range(2, LATE + 1):
            scene.step()
            if k in (EARLY, LATE):
                when = "early" if k == EARLY else "late"
                states |= {f"{when} {key}": values for key, values in state(args.scene, entities).items()}
        result["finite"] = bool(all(np.isfinite(v).all() for v in states.values()))
        np.savez(args.state, allow_pickle=False, **states)
    if args.rounds:
        result["stage"] = "rounds"
        print("@@{}", flush=True)
        for _ in range(args.rounds):
            input()
            answer: dict[str, Any] = {}
            spent = Spent()
            for _ in range(args.steps):
                scene.step()
            qd.sync()
            spent.into(answer, "round")
            print("@@" + json.dumps(answer), flush=True)
    elif args.steps:
        result["stage"], count, spent = "steps", 0, Spent()
        while count < args.steps and time.perf_counter() - spent.wall < args.seconds:
            scene.step()
            count += 1
        qd.sync()
        spent.into(result, "steps")
        result["step count"] = count
        result["steps/s"] = round(count / result["steps"], 2)
        result["steps/cpu s"] = round(count / result["steps cpu"], 2)
    # Quadrants stores its kernels when Genesis is shut down.
    result["stage"], spent = "destroy", Spent()
    gs.destroy()
    spent.into(result, "destroy")
    result["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    result["stage"] = "done"


def main() -> None:
    """Measures, and prints one line after `@@`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", required=True)
    parser.add_argument("--scene", choices=SCENES, required=True)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--mode", choices=["ndarray", "field"], required=True)
    parser.add_argument("--backend", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--rounds", type=int, default=0, help="number of rounds of --steps; each starts with a line of the input"
    )
    parser.add_argument("--state", type=Path)
    args = parser.parse_args()
    result: dict[str, Any] = {"stage": "import"}
    try:
        measure(args, result)
    finally:
        print("@@" + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
