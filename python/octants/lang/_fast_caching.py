"""A metadata key for dataclass members, under its import path in Quadrants.

In Quadrants a member with this key is part of the cache key of a kernel. Here all members are.
"""

FIELD_METADATA_CACHE_VALUE = "add_value_to_cache_key"
