"""Enumerations with Quadrants' values: field roles in differentiation, launch modes, device capabilities, pixel
formats.
"""

from enum import Enum, IntEnum

from octants.layouts import Layout as Layout


class SNodeGradType(IntEnum):
    """The role of a place: values, or the gradient or dual of another field."""

    PRIMAL = 0
    """Values."""
    ADJOINT = 1
    """Gradients."""
    DUAL = 2
    """Tangents of forward mode."""
    ADJOINT_CHECKBIT = 3
    """Read marks of the gradient validation. Octants stores them elsewhere."""

    def __repr__(self) -> str:
        return f"SNodeGradType.{self.name}"


class AutodiffMode(IntEnum):
    """How a launch of a kernel is differentiated."""

    FORWARD = 0
    """Computes values and tangents."""
    REVERSE = 1
    """Computes gradients."""
    NONE = 2
    """Computes values."""
    VALIDATION = 3
    """Computes values, and checks that nothing is overwritten that a gradient will read."""

    def __repr__(self) -> str:
        return f"AutodiffMode.{self.name}"


class DeviceCapability:
    """Capabilities of Vulkan devices, under the names of Quadrants."""

    spirv_version_1_3 = "spirv_version=66304"
    spirv_version_1_4 = "spirv_version=66560"
    spirv_version_1_5 = "spirv_version=66816"
    spirv_has_int8 = "spirv_has_int8"
    spirv_has_int16 = "spirv_has_int16"
    spirv_has_int64 = "spirv_has_int64"
    spirv_has_float16 = "spirv_has_float16"
    spirv_has_float64 = "spirv_has_float64"
    spirv_has_atomic_int64 = "spirv_has_atomic_int64"
    spirv_has_atomic_float16 = "spirv_has_atomic_float16"
    spirv_has_atomic_float16_add = "spirv_has_atomic_float16_add"
    spirv_has_atomic_float16_minmax = "spirv_has_atomic_float16_minmax"
    spirv_has_atomic_float = "spirv_has_atomic_float"
    spirv_has_atomic_float_add = "spirv_has_atomic_float_add"
    spirv_has_atomic_float_minmax = "spirv_has_atomic_float_minmax"
    spirv_has_atomic_float64 = "spirv_has_atomic_float64"
    spirv_has_atomic_float64_add = "spirv_has_atomic_float64_add"
    spirv_has_atomic_float64_minmax = "spirv_has_atomic_float64_minmax"
    spirv_has_variable_ptr = "spirv_has_variable_ptr"
    spirv_has_physical_storage_buffer = "spirv_has_physical_storage_buffer"
    spirv_has_subgroup_basic = "spirv_has_subgroup_basic"
    spirv_has_subgroup_vote = "spirv_has_subgroup_vote"
    spirv_has_subgroup_arithmetic = "spirv_has_subgroup_arithmetic"
    spirv_has_subgroup_ballot = "spirv_has_subgroup_ballot"
    spirv_has_non_semantic_info = "spirv_has_non_semantic_info"
    spirv_has_no_integer_wrap_decoration = "spirv_has_no_integer_wrap_decoration"


class Format(Enum):
    """Formats of pixels, images and depth buffers: channels, bits per channel, and their interpretation."""

    unknown = 0
    r8 = 1
    rg8 = 2
    rgba8 = 3
    rgba8srgb = 4
    bgra8 = 5
    bgra8srgb = 6
    r8u = 7
    rg8u = 8
    rgba8u = 9
    r8i = 10
    rg8i = 11
    rgba8i = 12
    r16 = 13
    rg16 = 14
    rgb16 = 15
    rgba16 = 16
    r16u = 17
    rg16u = 18
    rgb16u = 19
    rgba16u = 20
    r16i = 21
    rg16i = 22
    rgb16i = 23
    rgba16i = 24
    r16f = 25
    rg16f = 26
    rgb16f = 27
    rgba16f = 28
    r32u = 29
    rg32u = 30
    rgb32u = 31
    rgba32u = 32
    r32i = 33
    rg32i = 34
    rgb32i = 35
    rgba32i = 36
    r32f = 37
    rg32f = 38
    rgb32f = 39
    rgba32f = 40
    depth16 = 41
    depth24stencil8 = 42
    depth32f = 43
