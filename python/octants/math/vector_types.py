"""GLSL's vector and matrix types. Their components are of the session's default types, looked up at use."""

from __future__ import annotations

from octants.types.primitive import DataType, default_ip, u32, u64
from octants.types.tensor_types import VectorType, matrix, vector


class _UnsignedVectorType(VectorType):
    """A vector of unsigned integers of the width of the default integer type."""

    @property
    def dtype(self) -> DataType:
        """The scalar type of the components."""
        return u64 if default_ip().bits == 64 else u32

    def __repr__(self) -> str:
        return f"qd.math.uvec{self.n}"

    def __reduce__(self) -> str:  # type: ignore[override]
        return f"uvec{self.n}"


vec2 = vector(2, float)
vec3 = vector(3, float)
vec4 = vector(4, float)

ivec2 = vector(2, int)
ivec3 = vector(3, int)
ivec4 = vector(4, int)

uvec2 = _UnsignedVectorType(2, u32)
uvec3 = _UnsignedVectorType(3, u32)
uvec4 = _UnsignedVectorType(4, u32)

mat2 = matrix(2, 2, float)
mat3 = matrix(3, 3, float)
mat4 = matrix(4, 4, float)
