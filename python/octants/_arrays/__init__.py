"""Ndarrays, tensors, and what they share with fields: elements, whole arrays, copies between devices."""
