"""Measure both meshes as their files hold them: closed, right holes, volume and bounds; flange.png is a PNG."""

import json
import math
import struct

import numpy as np
import trimesh

with open("part.json") as source:
    part = json.load(source)
with open("measurements.json") as source:
    measured = {mesh["file"]: mesh for mesh in json.load(source)["meshes"]}
R, a, b, c, d = (
    part[name] / 2
    for name in ("flange_diameter", "hub_base_diameter", "hub_top_diameter", "bore_diameter", "bolt_hole_diameter")
)
t, h, n = part["flange_thickness"], part["hub_height"], part["bolt_count"]
volume = math.pi * (R * R * t + h * (a * a + a * b + b * b) / 3 - c * c * (t + h) - n * d * d * t)
bounds = [[-R, -R, 0], [R, R, t + h]]

for file, scale in (("flange.obj", 1.0), ("flange.glb", 1000.0)):
    mesh = trimesh.load(file, force="mesh", process=False)
    mesh.apply_scale(scale)
    assert mesh.is_watertight, f"{file} is not watertight"
    assert mesh.is_winding_consistent, f"{file}: the faces do not agree on what is outside"
    assert mesh.euler_number == -2 * n, f"{file}: {1 - mesh.euler_number / 2:g} holes instead of {n + 1}"
    assert math.isclose(mesh.volume, volume, rel_tol=1e-3), f"{file}: volume {mesh.volume}, should be {volume}"
    assert np.allclose(mesh.bounds, bounds, rtol=0, atol=0.01), f"{file}: bounds {mesh.bounds.tolist()}"
    assert math.isclose(measured[file]["volume_mm3"], mesh.volume, rel_tol=1e-6), f"measurements.json: {measured[file]}"
    assert measured[file]["passed"], f"measurements.json: {measured[file]}"

with open("flange.png", "rb") as source:
    head = source.read(24)
assert head[:8] == b"\x89PNG\r\n\x1a\n", "flange.png is not a PNG"
width, height = struct.unpack(">II", head[16:])
assert width >= 1200 and height >= 800, f"flange.png has {width} by {height} pixels"
print(f"two closed meshes with {n + 1} holes, {volume:.0f} mm3 within 0.1 %; picture of {width} by {height} pixels")
