"""Meshes: elements of four kinds (`verts`, `edges`, `faces`, `cells`), their attributes, and the relations among them.

A mesh is a program's (`mesh.py`), made from metadata, which is numpy arrays and belongs to no program. Metadata comes
from files in the format of MeshTaichi (`patches.py`) or from a list of triangles or tetrahedra (`connectivity.py`).
"""
