"""A key of the metadata of members of a dataclass, under its path in Quadrants.

A member that has it takes part in what a compiled kernel is found by, which all members do here.
"""

FIELD_METADATA_CACHE_VALUE = "add_value_to_cache_key"
