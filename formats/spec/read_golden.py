#!/usr/bin/env python3
"""Reads the golden files. Written from this specification alone, without code of Grappa, with only the standard library.

It shows that the specification is complete, and is a starting point for readers in other languages. It does not verify
checksums, because XXH3 is not in the standard library. Run it without arguments. It prints the contents of the files, and
fails if they are wrong.
"""

import json
import struct
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"


# container.md


def container(name, kind):
    """Meta and payload of a container file. They are equal in all layouts of the file."""
    files = [GOLDEN / layout / name for layout in ["v1", "v1-pages", "v2", "v3"]]
    found = [open_container(path, kind) for path in files if path.exists()]
    assert all(each == found[0] for each in found), name
    return found[0]


def open_container(path, kind):
    file = path.read_bytes()
    magic, found, version, offset, length, meta_length, block, _, _, _ = struct.unpack_from("<8s4sIQQIIQQQ", file)
    by_time = kind in ("ROWS", "DEGR") and file[64] == 2
    expected = 2 if kind in ("GRPH", "MEMB") else 3 if by_time or kind in ("AXIS", "TIME", "TDEG") else 1
    assert (magic, found, version) == (b"\x89GRAPPA\n", kind.encode(), expected), path
    assert len(file) == offset + length + 8 * -(-length // block), path
    assert not any(file[64 + meta_length : offset]), path
    return file[64 : 64 + meta_length], file[offset : offset + length]


def span(meta):
    chunk, zero, first_node, rows = struct.unpack_from("<IIQQ", meta)
    assert zero == 0
    return chunk, first_node, rows


# permutation.md


def feistel(nodes, seed):
    """The node of each dense id, as a function."""
    bits = max((nodes - 1).bit_length() if nodes else 0, 2)
    low_bits = bits // 2
    low_mask, high_mask = (1 << low_bits) - 1, (1 << bits - low_bits) - 1
    keys = []
    for _ in range(6):
        seed = (seed + 0x9E3779B97F4A7C15) % 2**64
        z = seed
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        keys.append((z ^ z >> 31) >> 32)

    def mix(half, key):
        x = (half ^ key) * 0x9E3779B1 % 2**32
        x ^= x >> 15
        x = x * 0x85EBCA77 % 2**32
        return x ^ x >> 16

    def forward(value):
        while True:
            low, high = value & low_mask, value >> low_bits
            for first, second in zip(keys[0::2], keys[1::2]):
                high ^= mix(low, first) & high_mask
                low ^= mix(high, second) & low_mask
            value = high << low_bits | low
            if value < nodes:
                return value

    return forward


def permutation_vectors():
    rows = [line.split("|")[1:-1] for line in (Path(__file__).parent / "permutation.md").read_text().splitlines() if line[:1] == "|"]
    for nodes, seed, dense_id, node in [[int(cell) for cell in row] for row in rows if row[0].strip().isdigit()]:
        assert feistel(nodes, seed)(dense_id) == node, (nodes, seed, dense_id)


# ids.md


def permutation_table():
    meta, payload = container("order", "ORDR")
    (n,) = struct.unpack("<Q", meta)
    entries = [int.from_bytes(payload[5 * i : 5 * i + 5], "little") for i in range(2 * n)]
    nodes, dense_ids = entries[:n], entries[n:]
    assert all(dense_ids[node] == dense_id for dense_id, node in enumerate(nodes))
    return nodes


def integers():
    kind, _, n, key_bytes = struct.unpack("<IIQQ", container("dictionary-integers", "DICT")[0])
    assert kind == 0 and key_bytes == 8 * n
    return list(struct.unpack(f"<{n}Q", container("dictionary-integers", "DICT")[1]))


def strings():
    meta, payload = container("dictionary-strings", "DICT")
    kind, _, n, key_bytes = struct.unpack("<IIQQ", meta)
    table = struct.unpack_from(f"<{-(-n // 16)}Q", payload, -(-key_bytes // 8) * 8)
    assert kind == 1
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    keys = []
    for dense_id in range(n):
        if dense_id % 16 == 0:
            assert table[dense_id // 16] == at
            shared = 0
        else:
            shared = varint()
        length = varint()
        keys.append((keys[-1][:shared] if shared else b"") + payload[at : at + length])
        at += length
    assert at == key_bytes and keys == sorted(set(keys))
    return keys


# features.md, labels.md, schema.md, splits.md, weights.md, edge-features.md, assignment.md, aggregates.md


def features(name, beside=False):
    meta, payload = container(name, "FEAT")
    dim, stride, dtype, follow = struct.unpack_from("<IIBB", meta, 24)
    row_bytes = [4 * dim, 2 * dim, 2 * dim, 4 + dim][dtype]
    assert follow or not beside
    start = -(-row_bytes // 8) * 8 if beside else 0
    return feature_rows((payload[r * stride + start :] for r in range(span(meta)[2])), dim, dtype)


def feature_rows(rows, dim, dtype):
    for row in rows:
        if dtype == 0:
            yield list(struct.unpack_from(f"<{dim}f", row))
        elif dtype == 1:
            yield list(struct.unpack_from(f"<{dim}e", row))
        elif dtype == 2:
            halves = struct.unpack_from(f"<{dim}H", row)
            yield [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
        else:
            scale, *quanta = struct.unpack_from(f"<f{dim}b", row)
            yield [scale * q for q in quanta]


def single_labels():
    meta, payload = container("labels-single", "LABL")
    classes, kind = struct.unpack_from("<IB", meta, 24)
    width = 1 if classes <= 255 else 2 if classes <= 65535 else 4
    rows = [int.from_bytes(payload[i : i + width], "little") for i in range(0, len(payload), width)]
    assert kind == 0 and len(rows) == span(meta)[2]
    return [None if row == 256**width - 1 else row for row in rows]


def label_sets():
    meta, payload = container("labels-multi", "LABL")
    classes, kind = struct.unpack_from("<IB", meta, 24)
    width = (classes + 1 + 7) // 8
    rows = [int.from_bytes(payload[i : i + width], "little") for i in range(0, len(payload), width)]
    assert kind == 1 and len(rows) == span(meta)[2]
    return [[c for c in range(classes) if row >> c & 1] if row >> classes & 1 else None for row in rows]


def partial_labels():
    meta, payload = container("labels-partial", "LABL")
    classes, kind = struct.unpack_from("<IB", meta, 24)
    width = (2 * classes + 7) // 8
    rows = [int.from_bytes(payload[i : i + width], "little") for i in range(0, len(payload), width)]
    assert kind == 2 and len(rows) == span(meta)[2]
    return [[row >> c & 1 if row >> classes + c & 1 else None for c in range(classes)] for row in rows]


def targets():
    meta, payload = container("labels-targets", "LABL")
    count, kind = struct.unpack_from("<IB", meta, 24)
    rows = list(struct.iter_unpack(f"<{count}f", payload))
    assert kind == 3 and len(rows) == span(meta)[2]
    return [[None if value != value else value for value in row] for row in rows]


def schema():
    """The names of dimensions and of classes."""
    meta, payload = container("schema", "SCHM")
    found = json.loads(payload)
    assert meta == b"" and sorted(found) == ["classes", "features"]
    names = []
    for column in found["features"]:
        name, encoding = column["name"], column["encoding"]
        if encoding["kind"] != "category":
            names.append(name)
            if "indicator" in encoding["missing"]:
                names.append(name + "_missing")
        elif encoding["form"] == "index":
            names.append(name)
        else:
            values, other = encoding["values"], "other"
            while other in values:
                other += "_"
            names += [f"{name}={value}" for value in values + [other]]
    return names, found["classes"]


def split():
    meta, payload = container("split", "SPLT")
    name, nodes, count = struct.unpack("<8sQQ", meta)
    found, at = [], 8

    def take(layout):
        nonlocal at
        values = struct.unpack_from("<" + layout, payload, at)
        at += struct.calcsize("<" + layout)
        return values

    for _ in range(struct.unpack_from("<Q", payload)[0]):
        high, cookie = take("II")
        runs, containers = b"", cookie >> 16
        if cookie & 0xFFFF == 12347:
            containers += 1
            runs = take(f"{-(-containers // 8)}s")[0]
        else:
            assert cookie == 12346
            (containers,) = take("I")
        descriptions = [take("HH") for _ in range(containers)]
        if not runs or containers >= 4:
            take(f"{containers}I")
        for i, (key, cardinality) in enumerate(descriptions):
            start = high << 32 | key << 16
            if runs and runs[i // 8] >> i % 8 & 1:
                for first, more in [take("HH") for _ in range(take("H")[0])]:
                    found += range(start + first, start + first + more + 1)
            elif cardinality < 4096:
                found += [start | low for low in take(f"{cardinality + 1}H")]
            else:
                bits = int.from_bytes(take("8192s")[0], "little")
                found += [start | low for low in range(65536) if bits >> low & 1]
    assert at == len(payload) and len(found) == count and max(found) < nodes and name == b"train\0\0\0"
    return found


# rows.md


class Bits:
    """The bits of a payload, read from a position on."""

    def __init__(self, payload, at):
        self.number, self.at = int.from_bytes(payload, "little"), at

    def take(self, width):
        self.at += width
        return self.number >> self.at - width & (1 << width) - 1

    def exp_golomb(self, k):
        zeros = 0
        while not self.take(1):
            zeros += 1
        return self.take(zeros + k) + (2**zeros - 1) * 2**k


def rows(codec):
    return lists(container("edges-" + codec, "ROWS"), container("degrees-" + codec, "DEGR"))


def lists(edges_file, degrees_file):
    (meta, edges), (same, degrees) = edges_file, degrees_file
    kind, relative, first_k, degree_k, gap_k, run_k, _, nodes, first_node, count, total, length, exceptions = struct.unpack("<6BH6Q", meta)
    assert meta == same and len(edges) == -(-length // 8) + 8
    largest, lines = nodes - 1, -(-count // 54)
    assert len(degrees) == 64 * lines + 6 * exceptions

    def places():
        """Start and number of each adjacency list, from the directory."""
        for row in range(count):
            line = degrees[row // 54 * 64 :][:64]
            number = line[10 + row % 54]
            if row % 54 == 0:
                start, exception = int.from_bytes(line[:6], "little"), int.from_bytes(line[6:10], "little")
            if number == 255:
                number = int.from_bytes(degrees[64 * lines + 6 * exception :][:6], "little")
                exception += 1
            yield start, number
            start += number if kind == 1 else list_of_degree(Bits(edges, start), number)[1]

    def list_of_degree(bits, d):
        """Sources of a list, and its size in bits."""
        start = bits.at
        if kind == 2:
            whole = max(largest.bit_length(), 1)
            return [bits.take(whole) for _ in range(d)], d * whole
        if d == 0:
            return [], 0
        low, whole = 0, largest.bit_length()
        while largest >> low > 2 * (d - 1):
            low += 1
        upper = d + (largest >> low)
        if 0 < d * whole <= d * low + upper:
            return [bits.take(whole) for _ in range(d)], d * whole
        bits.take((d - 1) // 256 * (upper - 1).bit_length())
        ones = [p for p in range(upper) if bits.take(1)]
        return [p - i << low | bits.take(low) for i, p in enumerate(ones)], bits.at - start

    def gap(bits, size, node):
        if size == 0:
            return []
        end, d = bits.at + size, bits.exp_golomb(degree_k) + 1
        sources, table = [], []
        if d > 128:
            p = bits.take(6)
            table = [(bits.take(p), bits.take(largest.bit_length())) for _ in range((d - 1) // 128)]
        blocks_at, first = bits.at, bits.exp_golomb(first_k)
        if relative:
            first = node + (first // 2 if first % 2 == 0 else -(first + 1) // 2)
        for i, (position, first) in enumerate([(None, first)] + table):
            assert position is None or bits.at == blocks_at + position
            block = [first]
            n = min(128, d - 128 * i)
            while len(block) < n:
                block += [block[-1] + 1 + j for j in range(bits.exp_golomb(run_k))]
                if len(block) < n:
                    code = bits.exp_golomb(gap_k)
                    block.append(block[-1] + (code + 1 if code else 0))
            sources += block
        assert bits.at == end
        return sources

    if kind != 1:
        found = [list_of_degree(Bits(edges, start), degree)[0] for start, degree in places()]
    else:
        found = [gap(Bits(edges, start), size, first_node + i) for i, (start, size) in enumerate(places())]
    assert sum(map(len, found)) == total
    return first_node, found


# times.md


def time_axis(name):
    """The unit, and the times of all positions."""
    meta, payload = container(name, "AXIS")
    unit, form, zeros, first, n = struct.unpack("<BB6sqQ", meta)
    assert zeros == bytes(6)
    times = list(struct.unpack(f"<{n}q", payload)) if form else list(range(first, first + n))
    assert form or not payload
    return ["integer", "s", "ms", "us", "ns", "days"][unit], times


def timed_edges():
    """For each node, the time and the source of each of its in-edges."""
    first_node, sources = rows("by-time")
    same, positions = lists(container("times", "TIME"), container("time-degrees", "TDEG"))
    assert same == first_node
    times = time_axis("time-axis-span")[1]
    edges = [[(times[p], s) for p, s in zip(*of_node, strict=True)] for of_node in zip(positions, sources, strict=True)]
    assert all(of_node == sorted(of_node) for of_node in edges)
    return first_node, edges


def node_times():
    """The time of each node."""
    first, [positions] = lists(container("node-times", "TIME"), container("node-time-degrees", "TDEG"))
    assert first == 0 and positions == sorted(positions)
    times = time_axis("time-axis-span")[1]
    return [times[p] for p in positions]


def weights():
    meta, payload = container("weights", "WGHT")
    (edges,) = struct.unpack_from("<Q", meta, 24)
    anchors = struct.unpack_from(f"<{-(-span(meta)[2] // 64)}Q", payload, -(-4 * edges // 8) * 8)
    return list(struct.unpack_from(f"<{edges}f", payload)), list(anchors)


def edge_features(name):
    meta, payload = container(name, "EFEA")
    edges, dim, stride, dtype = struct.unpack_from("<QIIB", meta, 24)
    anchors = struct.unpack_from(f"<{-(-span(meta)[2] // 64)}Q", payload, -(-stride * edges // 8) * 8)
    return [*feature_rows((payload[e * stride :] for e in range(edges)), dim, dtype)], list(anchors)


def aggregates(name):
    meta, payload = container(name, "AGGR")
    manifest, chunks, kind = struct.unpack("<QIB3x", meta)
    assert len(payload) == 16 * chunks
    return manifest, kind, list(struct.iter_unpack("<QQ", payload))


def assignment(name):
    meta, payload = container(name, "ASGN")
    generation, chunks, partitions, distinct, _, schedule = struct.unpack("<QIIII16s", meta)
    width, code = (2, "H") if partitions < 65535 else (4, "I")
    row_of = struct.unpack_from(f"<{chunks}I", payload)
    cells = struct.unpack_from(f"<{2 * chunks * distinct}{code}", payload, 4 * chunks)
    cells = [None if cell == 256**width - 1 else cell for cell in cells]
    row = lambda d: [(cells[2 * (d * chunks + j)], cells[2 * (d * chunks + j) + 1]) for j in range(chunks)]
    return generation, schedule.rstrip(b"\0"), [row(d) for d in row_of]


def table_of(owners):
    """The table that follows from the owners of each chunk: base, and variable or None."""
    seen = lambda partition, source: partition if partition in owners[source] else None
    return [[tuple(seen(p, j) if p is not None else None for p in row) for j in range(len(owners))] for row in owners]


# manifest.md


class Archive:
    """Fields of an rkyv archive, at positions counted from its start."""

    def __init__(self, payload):
        self.bytes = payload

    def integer(self, at, layout):
        return struct.unpack_from("<" + layout, self.bytes, at)[0]

    def vector(self, at, size, element):
        pointer, length = self.integer(at, "i"), self.integer(at + 4, "I")
        return [element(at + pointer + i * size) for i in range(length)]

    def string(self, at):
        if self.bytes[at] & 0xC0 != 0x80:
            return self.bytes[at : at + 8].split(b"\xff")[0].decode()
        length = self.integer(at, "I")
        start = at + self.integer(at + 4, "i")
        return self.bytes[start : start + (length & 0x3F | length >> 8 << 6)].decode()


def manifest(name):
    meta, payload = container(name, "MANI")
    assert meta == b""
    return manifest_at(Archive(payload), len(payload) - 144)


def manifest_at(archive, root):
    u64 = lambda at: archive.integer(at, "Q")
    u32 = lambda at: archive.integer(at, "I")
    u8 = lambda at: archive.integer(at, "B")
    permutation = root + 40 + 8
    found = {
        "writer": archive.string(root),
        "nodes": u64(root + 8),
        "edges": u64(root + 16),
        "chunk_starts": archive.vector(root + 24, 8, u64),
        "chunks": archive.vector(root + 32, 24, lambda at: (u8(at), u8(at + 1), u8(at + 2), u64(at + 8), archive.vector(at + 16, 8, u64))),
        "external": ["dense", "sparse", "string"][u8(root + 40)],
        "permutation": ["identity", ("feistel", u64(permutation + 8)), "table"][u8(permutation)],
        "features": None,
        "labels": None,
        "splits": archive.vector(root + 96, 16, lambda at: (archive.string(at), u64(at + 8))),
        "weighted": u8(root + 104),
        "edge_options": (u8(root + 105), u8(root + 106), ["keep", "drop", "add"][u8(root + 107)]),
        "edges_read": u64(root + 112),
        "rejected": u64(root + 120),
        "generator": archive.string(root + 128),
        "files": archive.vector(root + 136, 24, lambda at: (archive.string(at), u64(at + 8), u64(at + 16))),
    }
    if u8(root + 64):
        at = root + 68
        dtype, source = ["f32", "f16", "bf16", "int8"][u8(at + 4)], ["stored", "procedural"][u8(at + 12)]
        found["features"] = (u32(at), dtype, u32(at + 8), source)
    if u8(root + 84):
        found["labels"] = (u32(root + 88), ["single", "multi"][u8(root + 92)])
    return found


# graph.md


def graph(name):
    meta, payload = container(name, "GRPH")
    assert meta == b""
    archive, root = Archive(payload), len(payload) - 32
    u32 = lambda at: archive.integer(at, "I")
    digest = lambda at: archive.integer(at, "Q")
    reverse_of = lambda at: u32(at + 4) if archive.integer(at, "B") else None
    return {
        "writer": archive.string(root),
        "node_types": archive.vector(root + 8, 16, lambda at: (archive.string(at), digest(at + 8))),
        "relations": archive.vector(
            root + 16, 32, lambda at: (u32(at), archive.string(at + 4), u32(at + 12), reverse_of(at + 16), digest(at + 24))
        ),
        "generator": archive.string(root + 24),
    }


def member(name):
    """The manifest of a member, and the starts of the chunks of its sources, if it has any."""
    meta, payload = container(name, "MEMB")
    assert meta == b""
    archive, root = Archive(payload), len(payload) - 160
    kind = archive.integer(root + 144, "B")
    assert kind in (1, 2)
    u64 = lambda at: archive.integer(at, "Q")
    return manifest_at(archive, root), archive.vector(root + 148, 8, u64) if kind == 1 else None


def held_out(found):
    """The parts of the edges that are held out of the graph."""
    names = [path.partition("/")[2] for path, _, _ in found["files"]]
    return sorted({name.removesuffix("-edges") for name in names if name.endswith("-edges")})


def expect(name, found, expected):
    print(f"{name}: {found}")
    assert found == expected, f"{name}: expected {expected}"


def main():
    permutation_vectors()
    expect("order", permutation_table(), [2, 0, 3, 1])
    expect("dictionary-integers", integers(), [3, 70, 71, 0x1122334455667788])
    expect("dictionary-strings", strings(), [b"bin/"] + [b"bin/tool%d" % i for i in range(10, 26)] + [b"lib"])
    expect("features-f32", [[round(v, 6) for v in row] for row in features("features-f32")], [[1, -2.5, 0.1], [127, -3, 0]])
    for name, digits in [("features-f16", 3), ("features-bf16", 2), ("features-int8", 1)]:
        expect(name, [[round(v, digits) for v in row] for row in features(name)], [[1, -2.5, 0.1], [127, -3, 0]])
    expect("features-beside", list(features("features-beside")), [[127, 0, -1], [0, 254, 126]])
    beside = features("features-beside", beside=True)
    expect("features-beside", [[round(v, 1) for v in row] for row in beside], [[1, -2.5, 0.1], [127, -3, 0]])
    expect("labels-single", single_labels(), [0, 299, None, 7])
    expect("labels-multi", label_sets(), [[0, 9], [], None, [3]])
    expect("labels-partial", partial_labels(), [[1, 0, None, 1, None], [0] * 5, [None] * 5, [None] * 4 + [1]])
    big = struct.unpack("<f", struct.pack("<f", 3e38))[0]
    expect("labels-targets", targets(), [[1.5, -2.0], [None, 0.25], [None, None], [0.0, big]])
    countries = [f"country={value}" for value in ["DE", "FR", "other", "other_"]]
    names = ["age", "is_admin", "income", "income_missing", "joined", *countries, "plan"]
    expect("schema", schema(), (names, ["free", "gold"]))
    expect("split", split(), [1, 5, *range(200, 300), 0x10000, 2**32 + 7])
    sources = [[1, 3, 3, 9], [], [5, 6, 7, 8, 12], [14]]
    expect("rows, Elias-Fano", rows("elias-fano"), (4, sources))
    expect("rows, gap code", rows("gap"), (4, sources + [[*range(100, 229), 500]]))
    expect("time-axis-table", time_axis("time-axis-table"), ("days", [-365, 0, 365]))
    s = 1_700_000_000
    timed = [[(s, 9), (s + 17, 3), (s + 40, 1), (s + 40, 3)], [], [(s + 3, 6), (s + 3, 7), (s + 50, 12), (s + 98, 5), (s + 99, 8)], [(s + 17, 14)]]
    expect("edges by time", timed_edges(), (4, timed))
    expect("node-times", node_times(), [s, s + 17, s + 17, s + 40, s + 99])
    expect("weights", weights(), ([1.5, -2.0, 0.25], [0, 2]))
    for name, digits in [("edge-features-bf16", 2), ("edge-features-int8", 1)]:
        found, anchors = edge_features(name)
        rounded = [[round(v, digits) for v in row] for row in found]
        expect(name, (rounded, anchors), ([[1, -2.5, 0.1], [127, -3, 0], [0, 0, 0]], [0, 2]))
    first, second = [(0, None)] * 2 + [(0, 1)] * 2, [(1, 0)] * 2 + [(1, None)] * 2
    expect("assignment", assignment("assignment"), (2, b"sweep", [first, first, second, second]))
    table = table_of([(0, 2), (1, 0), (0, 2), (2, 1)])
    expect("assignment-sweep", assignment("assignment-sweep"), (5, b"sweep", table))
    for name, kind in [("aggregates", 1), ("aggregates-weighted", 3)]:
        files = [(4168, 0x1111222233334444), (8264, 0x5555666677778888)]
        expect(name, aggregates(name), (0x0123456789ABCDEF, kind, files))
    expect("assignment-whole", assignment("assignment-whole"), (0, b"whole", table_of([(0, None)] * 3)))
    whole = {
        "writer": "grappa-ingest 0.1.0",
        "nodes": 5,
        "edges": 7,
        "chunk_starts": [0, 2, 5],
        "chunks": [(1, 0, 0, 3, [1, 2]), (1, 0, 0, 4, [4, 0])],
        "external": "sparse",
        "permutation": ("feistel", 0x1122334455667788),
        "features": (3, "f16", 8, "stored"),
        "labels": (4, "multi"),
        "splits": [("train", 2)],
        "weighted": 1,
        "edge_options": (0, 1, "add"),
        "edges_read": 9,
        "rejected": 1,
        "generator": "",
        "files": [("chunk-0/edges", 4242, 0x0123456789ABCDEF), ("ids", 99, 0xFEDCBA9876543210)],
    }
    expect("manifest", manifest("manifest"), whole)
    part = {
        "writer": "g 1",
        "chunks": [(0, 0, 0, 0, []), (1, 0, 0, 7, [7, 0])],
        "external": "dense",
        "permutation": "identity",
        "features": None,
        "labels": None,
        "splits": [],
        "generator": '{"model":"rmat"}',
        "files": [],
    }
    expect("manifest-slice", manifest("manifest-slice"), whole | part)
    halo = {"edges": 4, "chunks": [(0, 1, 0, 0, []), (1, 0, 0, 4, [4, 0])]}
    expect("manifest-halo", manifest("manifest-halo"), whole | halo)
    names = [f"chunk-{c}/{part}{name}" for c in (0, 1) for part in ("", "test-", "val-") for name in ("degrees", "edges", "weights")]
    files = {"files": [(name, 8, 7) for name in sorted(names)]}
    expect("manifest-held-out", manifest("manifest-held-out"), whole | files)
    expect("held out", held_out(manifest("manifest-held-out")), ["test", "val"])
    halo = {"edges": 4, "chunks": [(0, 1, 1, 0, []), (1, 0, 0, 4, [4, 0])]}
    expect("manifest-halo-degrees", manifest("manifest-halo-degrees"), whole | halo)
    relations = [(0, "writes", 1, None, 33), (1, "rev_writes", 0, 0, 44)]
    typed = {"writer": "grappa-ingest 0.1.0", "node_types": [("author", 11), ("paper", 22)], "relations": relations, "generator": ""}
    expect("graph", graph("graph"), typed)
    no_edges = {"edges": 0, "chunks": [(1, 0, 0, 0, []), (1, 0, 0, 0, [])], "weighted": 0}
    expect("member-type", member("member-type"), (whole | no_edges, None))
    no_nodes = {"features": None, "labels": None, "splits": [], "external": "dense", "permutation": "identity"}
    three = {"chunks": [(1, 0, 0, 3, [1, 2, 0]), (1, 0, 0, 4, [4, 0, 0])]}
    expect("member-relation", member("member-relation"), (whole | no_nodes | three, [0, 7, 8, 20]))


if __name__ == "__main__":
    main()
