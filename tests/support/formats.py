"""Files read by their formats' own rules, without the libraries that wrote them."""

import json
import struct
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

Point = tuple[float, float, float]


def png_size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG whose checksums hold and whose pixels are all there."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, kinds, pixels = 8, [], b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + body),)
        kinds.append(kind)
        pixels += body if kind == b"IDAT" else b""
        at += 12 + length
    assert kinds[0] == b"IHDR"
    assert kinds[-1] == b"IEND"
    width, height, depth, colour = struct.unpack(">IIBB", data[16:26])
    assert (depth, colour) == (8, 6), "8 bits of red, green, blue and alpha"
    assert len(zlib.decompress(pixels)) == height * (1 + 4 * width)
    return width, height


class Obj:
    """A mesh of an OBJ file, its points as the file numbers them."""

    def __init__(self, path: Path) -> None:
        lines = [line.split() for line in path.read_text().splitlines()]
        self.points: list[Point] = [(float(x), float(y), float(z)) for kind, x, y, z in _of("v", lines)]
        self.faces = [[int(corner.split("/")[0]) - 1 for corner in line[1:]] for line in _of("f", lines)]

    def open_sides(self) -> int:
        """How many sides of faces have not exactly one partner that runs the other way: 0 for a closed mesh."""
        sides = Counter((face[i - 1], face[i]) for face in self.faces for i in range(len(face)))
        return sum(sides[a, b] != 1 or (b, a) not in sides for a, b in list(sides))

    def holes(self) -> int:
        """Through holes of a closed mesh in one piece, by Euler's formula."""
        used = {corner for face in self.faces for corner in face}
        edges = sum(len(face) for face in self.faces) // 2
        return 1 - (len(used) - edges + len(self.faces)) // 2

    def volume(self) -> float:
        """The signed volume: positive where the faces look outwards."""
        return sum(_determinant(*(self.points[corner] for corner in face)) for face in self.faces) / 6

    def bounds(self) -> list[list[float]]:
        """The lowest and the highest coordinates."""
        return [[pick(axis) for axis in zip(*self.points, strict=True)] for pick in (min, max)]


def _of(kind: str, lines: list[list[str]]) -> list[list[str]]:
    return [line for line in lines if line and line[0] == kind]


def _determinant(a: Point, b: Point, c: Point) -> float:
    x = a[0] * (b[1] * c[2] - b[2] * c[1])
    y = a[1] * (b[2] * c[0] - b[0] * c[2])
    return x + y + a[2] * (b[0] * c[1] - b[1] * c[0])


def glb_positions(path: Path) -> dict[str, Any]:
    """The accessor of the points of a binary glTF 2 with one mesh: their number, lowest and highest coordinates."""
    data = path.read_bytes()
    magic, version, length, size, kind = struct.unpack("<4sIII4s", data[:20])
    assert (magic, version, length, kind) == (b"glTF", 2, len(data), b"JSON")
    scene = json.loads(data[20 : 20 + size])
    ((primitive,),) = (mesh["primitives"] for mesh in scene["meshes"])
    accessor: dict[str, Any] = scene["accessors"][primitive["attributes"]["POSITION"]]
    return accessor
