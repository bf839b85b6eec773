"""Ndarrays, tensors, and their common base with fields: elements, whole arrays, copies between devices."""
