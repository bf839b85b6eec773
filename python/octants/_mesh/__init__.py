"""Meshes: elements of four kinds (`verts`, `edges`, `faces`, `cells`), their attributes, and the relations among them.

A mesh (`mesh.py`) belongs to the running program. It is created from metadata, which consists of numpy arrays and does
not depend on a program. Metadata comes from files in MeshTaichi's format (`patches.py`), or from a list of triangles,
tetrahedra or edges (`connectivity.py`).
"""
