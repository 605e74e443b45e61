#!/usr/bin/env python3
"""Makes real graphs from the index of Debian's package archive, with Python's standard library alone.

The graphs depend on the index alone: the same files give the same bytes. Ids number packages in the order of their names, so a
package has the same id in all graphs. Everything is written to a temporary folder, which is renamed when it is complete.
"""

import argparse
import array
import bz2
import collections
import functools
import gzip
import hashlib
import lzma
import math
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys

DIM = 128  # features of a package
PROVIDERS_MAX = 4  # a virtual name with more providers leads to none of them
CLASS_PACKAGES_MIN = 50  # a section with fewer packages is not a class
SPLITS = ("train", "val", "test")
APT_HELPER = "/usr/lib/apt/apt-helper"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
FIELDS = ("COMPONENT", "RELEASE", "CODENAME", "SUITE", "ARCHITECTURE", "REPO_URI", "CREATED_BY", "FILENAME")

# Leaves out files that are not needed, has long descriptions, and makes an unreachable mirror an error.
APT_CONF = """
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Languages "en";
APT::Update::Error-Mode "any";
"""
# By default apt does not fetch the lists of all files.
CONTENTS_CONF = """
Acquire::IndexTargets::deb::Contents-deb {
    MetaKey "$(COMPONENT)/Contents-$(ARCHITECTURE)";
    ShortDescription "Contents";
    Description "$(RELEASE) $(ARCHITECTURE) Contents";
    flatMetaKey "Contents-$(ARCHITECTURE)";
    flatDescription "Contents";
    PDiffs "false";
    KeepCompressed "true";
    DefaultEnabled "true";
    Identifier "Contents-deb";
};
"""


class Failure(Exception):
    """A message for the user."""


# The files of an index.


def targets_of_machine():
    """The files that apt has, in the order of its sources, each with its length as BYTES; none without apt."""
    form = "|".join(f"$({field})" for field in FIELDS)
    try:
        ran = subprocess.run(["apt-get", "indextargets", "--format", form], stdout=-1, stderr=subprocess.DEVNULL, text=True)
    except FileNotFoundError:
        return []
    if ran.returncode != 0:
        raise Failure(f"apt does not tell which index it has: `apt-get indextargets` failed ({ran.returncode})")
    targets = [dict(zip(FIELDS, line.split("|", 7))) for line in ran.stdout.splitlines()]
    targets = [target for target in targets if os.path.exists(target.get("FILENAME", ""))]
    for target in targets:
        target["BYTES"] = os.path.getsize(target["FILENAME"])
    return targets


def main_target(options, targets):
    """The longest list of packages that fits, or None. Lists of updates and third parties are shorter."""
    fits = [
        target
        for target in targets
        if target["CREATED_BY"] == "Packages"
        and target["COMPONENT"] == options.component
        and options.suite in (None, target["RELEASE"], target["CODENAME"], target["SUITE"])
        and options.arch in (None, target["ARCHITECTURE"])
    ]
    return max(fits, key=lambda target: target["BYTES"], default=None)


def files_of_machine(options):
    """The files of one release that apt has on this machine."""
    targets = targets_of_machine()
    main = main_target(options, targets)
    if main is None:
        raise Failure(
            f"this machine has no package index of `{options.component}`: run `apt-get update`, or have one fetched with"
            " --fetch --mirror URI --suite NAME; the quickstart can do with another graph (--dataset cora)"
        )
    same = ("REPO_URI", "RELEASE", "COMPONENT")
    return [
        target["FILENAME"]
        for target in targets
        if all(target[field] == main[field] for field in same)
        # A release can have several architectures. Packages for all of them are in each list.
        and (target["CREATED_BY"] != "Packages" or target["ARCHITECTURE"] == main["ARCHITECTURE"])
    ]


def fetched_files(options, state):
    """Lets apt fetch a new index into the folder `state`, which needs no root."""
    targets = targets_of_machine()
    default = main_target(options, targets) or next(iter(targets), None)
    if default is None and not (options.mirror and options.suite):
        missing = "suite" if options.mirror else "mirror"
        raise Failure(f"apt has no index to tell the {missing} from: run `apt-get update`, or name it with --{missing}")
    mirror = options.mirror or default["REPO_URI"]
    suite = options.suite or default["RELEASE"]
    arch = options.arch or subprocess.run(["dpkg", "--print-architecture"], check=True, stdout=-1, text=True).stdout.strip()
    for folder in ("lists/partial", "cache/archives/partial"):
        os.makedirs(f"{state}/{folder}")
    signed = f" signed-by={KEYRING}" if os.path.exists(KEYRING) else ""
    with open(f"{state}/sources.list", "w") as out:
        out.write(f"deb [arch={arch}{signed}] {mirror} {suite} {options.component}\n")
    with open(f"{state}/apt.conf", "w") as out:
        out.write(APT_CONF + (CONTENTS_CONF if options.needs_contents else ""))
    settings = {
        "Dir::State::Lists": f"{state}/lists",
        "Dir::Cache": f"{state}/cache",
        "Dir::Etc::SourceList": f"{state}/sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Acquire::Languages": "en",
        "APT::Architecture": arch,
    }
    command = ["apt-get", "update", "--quiet=2"]
    for key, value in settings.items():
        command += ["-o", f"{key}={value}"]
    print("$", shlex.join(command), file=sys.stderr)
    ran = subprocess.run(command, env={**os.environ, "APT_CONFIG": f"{state}/apt.conf"})
    if ran.returncode != 0:
        raise Failure(f"apt could not fetch the index of {suite} from {mirror}")
    return sorted(entry.path for entry in os.scandir(f"{state}/lists"))


def index_of(options, work):
    """The files of the index by kind: Packages, Translation-en, Contents-."""
    if options.index:
        files = options.index
    elif options.fetch or options.mirror:
        files = fetched_files(options, f"{work}/apt")
    else:
        files = files_of_machine(options)
    index = {"Packages": [], "Translation-en": [], "Contents-": []}
    for path in files:
        # apt puts the source of a file before its name, and has files of other kinds.
        name = os.path.basename(path).rsplit("_", 1)[-1]
        for kind in index:
            if name.startswith(kind):
                index[kind].append(path)
    if not index["Packages"]:
        raise Failure(
            "none of the files is a list of packages: its name is to start with `Packages`, or to end as apt has it (..._Packages)"
        )
    if options.needs_contents and not index["Contents-"]:
        raise Failure(
            "the index has no lists of files (Contents): apt fetches them only if it is told to; add --fetch, or name them with --index"
        )
    return index


def lines(path):
    """The lines of a file, as bytes without line feeds. An error names the file and the line."""
    if path.endswith((".lz4", ".zst")):
        try:
            unpacking = subprocess.Popen([APT_HELPER, "cat-file", path], stdout=-1)
        except FileNotFoundError as error:
            raise Failure(f"cannot start {APT_HELPER}, which unpacks {path}: unpack it first") from error
        file = unpacking.stdout
    else:
        unpacking = None
        opener = {".gz": gzip.open, ".xz": lzma.open, ".lzma": lzma.open, ".bz2": bz2.open}.get(os.path.splitext(path)[1], open)
        file = opener(path, "rb")
    number = 0
    with file:
        try:
            for number, line in enumerate(file, 1):
                yield line.rstrip(b"\n")
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise Failure(f"cannot read {path}: {error}") from error
    if unpacking is not None and unpacking.wait() != 0:
        raise Failure(f"apt-helper cannot read {path} ({unpacking.returncode})")


def entries(path):
    """The entries of a control file: dictionaries of fields. Continued lines follow after a line feed."""
    fields, last = {}, None
    for number, line in enumerate(lines(path), 1):
        text = line.decode(errors="replace")
        if not text:
            if fields:
                yield fields
            fields, last = {}, None
        elif text[0] in " \t" and last is not None:
            fields[last] += "\n" + text
        elif text[0] not in " \t" and ":" in text:
            last, _, value = text.partition(":")
            fields[last] = value.strip()
        else:
            raise Failure(f"{path}, line {number}: expected `Field: value`, found {text!r}")
    if fields:
        yield fields


# Packages.


def read_packages(index):
    """The packages by name, in the order of their names. The first version of a package counts."""
    packages = {}
    for path in index["Packages"]:
        for entry in entries(path):
            if not entry.get("Package"):
                raise Failure(f"{path}: an entry has no field `Package`: {entry}")
            packages.setdefault(entry["Package"], entry)
    if not packages:
        raise Failure("the lists of packages are empty: run `apt-get update`")
    return dict(sorted(packages.items(), key=lambda item: item[0].encode()))


def names(entry, fields):
    """The packages named in fields such as `a (>= 1) | b, c:any`."""
    for field in fields:
        for clause in re.split("[,|]", entry.get(field, "")):
            found = re.match("[a-z0-9][a-z0-9+.-]*", clause.lstrip())
            if found:
                yield found[0]


def dependencies(packages, ids):
    """The edges, ascending, without self-loops and duplicates."""
    providers = collections.defaultdict(list)
    for name, entry in packages.items():
        for provided in names(entry, ["Provides"]):
            if provided not in ids:
                providers[provided].append(ids[name])
    edges = set()
    for name, entry in packages.items():
        for wanted in names(entry, ["Pre-Depends", "Depends", "Recommends", "Suggests"]):
            found = [ids[wanted]] if wanted in ids else providers.get(wanted, [])
            if len(found) <= PROVIDERS_MAX:
                edges.update((ids[name], target) for target in found)
    return sorted(edge for edge in edges if edge[0] != edge[1])


def split_of(name):
    """The split of a package: 6 of 10 train, 2 val, 2 test. It does not depend on other packages."""
    tenth = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") % 10
    return SPLITS[(tenth >= 6) + (tenth >= 8)]


def section_of(entry):
    """The section of a package, without its component. Empty if it has none."""
    return entry.get("Section", "").rsplit("/", 1)[-1]


def tags_of(entry):
    """The tags of a package, such as `role::program`."""
    return [tag for tag in re.split(r"[,\s]", entry.get("Tag", "")) if "::" in tag]


def role_of(entry):
    """What a package is, by its first tag `role::...`: a program, a library, documentation. Empty if it has none."""
    return next((tag.partition("::")[2] for tag in tags_of(entry) if tag.startswith("role::")), "")


class Classes:
    """A name for each package as its class, and the labelled packages of each split."""

    def __init__(self, packages, name_of):
        found = [name_of(entry) for entry in packages.values()]
        counts = collections.Counter(found)
        self.names = sorted(name for name, count in counts.items() if name and count >= CLASS_PACKAGES_MIN)
        numbers = {name: i for i, name in enumerate(self.names)}
        self.labels = [numbers.get(name, -1) for name in found]
        self.splits = {split: [] for split in SPLITS}
        for i, (name, label) in enumerate(zip(packages, self.labels)):
            if label >= 0:
                self.splits[split_of(name)].append(i)

    def write(self, work, nodes):
        """Writes the labels of `nodes` nodes, the splits, and the class names. Only packages have labels."""
        write_array(f"{work}/labels.npy", "<i8", (nodes,), self.labels + [-1] * (nodes - len(self.labels)))
        for split, ids in self.splits.items():
            write_array(f"{work}/{split}.npy", "<i8", (len(ids),), ids)
        write_lines(f"{work}/classes.txt", self.names)

    def __str__(self):
        counts = [f"{len(ids)} to {split}" for split, ids in self.splits.items()]
        labelled = sum(len(ids) for ids in self.splits.values())
        return ", ".join([f"{labelled} labelled", f"{len(self.names)} classes", *counts])


# Features.


def long_descriptions(index):
    """Long descriptions, by the MD5 that packages refer to."""
    all_entries = (entry for path in index["Translation-en"] for entry in entries(path))
    return {entry["Description-md5"]: entry.get("Description-en", "") for entry in all_entries if entry.get("Description-md5")}


def words(text):
    """Words of lower-case text: a letter, then at least one letter, digit or `+`. The rest of a long word is another word."""
    return [word for word in re.findall(r"[a-z][a-z0-9+]{0,23}", text) if len(word) > 1]


def bag_of(name, entry, long):
    """The number of each word in the descriptions of a package, without the words of its own name."""
    text = f"{entry.get('Description', '')} {long.get(entry.get('Description-md5', ''), '')}".lower()
    own = set(words(name))
    return collections.Counter(word for word in words(text) if word not in own)


@functools.lru_cache(maxsize=1 << 20)
def slot(word, dim):
    """The column of a word among `dim`, and its sign."""
    number = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
    return number % dim, 1.0 if number >> 63 else -1.0


def row_of(terms, dim):
    """Sums (column, value) in a row and scales it to length 1, unless it is 0.

    All is rounded to f32 after each operation. Squares are added in eight lanes, and these in pairs, so that the result has the same
    bits as NumPy's.
    """
    row = array.array("f", bytes(4 * dim))
    term = array.array("f", [0.0])
    for column, value in terms:
        term[0] = value
        row[column] += term[0]
    lanes = array.array("f", bytes(4 * 8))
    used = [column for column in range(dim) if row[column]]
    for column in used:
        term[0] = row[column] * row[column]
        lanes[column % 8] += term[0]
    while len(lanes) > 1:
        lanes = array.array("f", [a + b for a, b in zip(lanes[::2], lanes[1::2])])
    lanes[0] = math.sqrt(lanes[0])
    length = lanes[0] or 1.0
    for column in used:
        row[column] /= length
    return row


def package_rows(packages, bags, hidden="no::tag"):
    """The rows of packages. Tags that begin with `hidden` are left out. The hash of a word or tag determines its column and sign. Its weight is (1 + ln of its count in the
    package) x ln (number of packages / number of packages that have it)."""
    for bag, entry in zip(bags, packages.values()):
        bag.update(f"tag {tag}" for tag in tags_of(entry) if not tag.startswith(hidden))
    documents = collections.Counter(word for bag in bags for word in bag)
    weights = {}
    for word, count in documents.items():
        column, sign = slot(word, DIM)
        weights[word] = (column, sign * math.log(len(packages) / count))
    for bag in bags:
        terms = ((weights[word], count) for word, count in sorted(bag.items()))
        yield row_of(((column, weight * (1.0 + math.log(count))) for (column, weight), count in terms), DIM)


# Files.


class ArrayFile:
    """A NumPy array to which rows are appended. Its header takes 128 bytes for any shape, and is written last."""

    def __init__(self, path, dtype):
        self.file, self.dtype = open(path, "wb", buffering=1 << 20), dtype
        self.file.write(bytes(128))

    def finish(self, shape):
        header = f"{{'descr': '{self.dtype}', 'fortran_order': False, 'shape': {shape}, }}"
        self.file.seek(0)
        self.file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.ljust(117).encode() + b"\n")
        self.file.close()


def write_array(path, dtype, shape, values):
    out = ArrayFile(path, dtype)
    array.array({"<i8": "q", "<f4": "f"}[dtype], values).tofile(out.file)
    out.finish(shape)


def write_lines(path, texts):
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(f"{text}\n" for text in texts)


def write_features(work, packages, long, **options):
    features = ArrayFile(f"{work}/features.npy", "<f4")
    for row in package_rows(packages, [bag_of(name, entry, long) for name, entry in packages.items()], **options):
        row.tofile(features.file)
    features.finish((len(packages), DIM))


def write_names(work, order, classes):
    """Writes the names of packages, in the order of their ids, and those of each split."""
    for split, members in classes.splits.items():
        write_lines(f"{work}/{split}.txt", (order[node] for node in members))
    write_lines(f"{work}/nodes.txt", order)


# The graphs.


def make_debian(options, work):
    """The graph of packages."""
    index = index_of(options, work)
    packages = read_packages(index)
    ids = {name: i for i, name in enumerate(packages)}
    classes, order = Classes(packages, section_of), list(packages)
    edges = dependencies(packages, ids)
    write_array(f"{work}/edges.npy", "<i8", (len(edges), 2), [node for edge in edges for node in edge])
    long = long_descriptions(index)
    write_features(work, packages, long)
    classes.write(work, len(packages))
    alone = set(ids.values()).difference(*edges)
    pairs = edges + [(node, node) for node in sorted(alone)]
    write_lines(f"{work}/edges.tsv", (f"{order[source]}\t{order[target]}" for source, target in pairs))
    write_names(work, order, classes)
    described = sum(entry.get("Description-md5", "") in long for entry in packages.values())
    folder = options.out
    return "\n".join(
        [
            f"{folder}: {len(packages)} packages, {len(edges)} edges, {DIM} values a package; {classes}",
            f"{described} packages have a long description."
            if described
            else "Features are of short descriptions and tags: the index has no long descriptions (`--fetch` has apt fetch one that does).",
            "To make a store of it:",
            f"    grappa-ingest --edges {folder}/edges.tsv --ids string --self-loops drop --undirected --dedup \\",
            f"        --features {folder}/features.npy --labels {folder}/labels.npy --train {folder}/train.txt \\",
            f"        --val {folder}/val.txt --test {folder}/test.txt --out debian.grappa",
        ]
    )


@functools.lru_cache(maxsize=1 << 18)
def packed_row(counts, dim):
    """The row of a node, from counts of hashed words, as f16. Many files have the same name."""
    terms = ((slot(word, dim), count) for word, count in counts)
    return struct.pack(f"<{dim}e", *row_of(((column, sign * count) for (column, sign), count in terms), dim))


class Tree:
    """The graph of files while it is written. Only the folders are in memory."""

    def __init__(self, ids, work, dim):
        self.ids, self.dim = ids, dim
        self.nodes, self.edge_count, self.files, self.unknown = len(ids), 0, 0, 0
        self.folders = {}  # path without a trailing slash -> node
        self.edges = ArrayFile(f"{work}/edges.npy", "<i8")
        self.features = ArrayFile(f"{work}/features.npy", "<f2") if dim else None

    def node(self, name):
        """Adds a file or folder. The words of its name are runs of letters and runs of digits."""
        if self.dim:
            words = re.findall("[a-z]+|[0-9]+", name.decode(errors="replace").lower())
            self.features.file.write(packed_row(tuple((word, 1) for word in words), self.dim))
        self.nodes += 1
        return self.nodes - 1

    def edge(self, source, target):
        self.edge_count += 1
        self.edges.file.write(struct.pack("<qq", source, target))

    def folder(self, path):
        """The node of a folder. New folders are added from the root down; the root has the empty name."""
        node = self.folders.get(path)
        if node is None:
            above, _, name = path.rpartition(b"/")
            parent = self.folder(above) if path else None
            node = self.folders[path] = self.node(name)
            if parent is not None:
                self.edge(node, parent)
        return node

    def line(self, line):
        """Adds a line such as `usr/bin/apt    admin/apt`: a path, which may contain blanks, and after the last blank the packages
        that contain it. Returns whether it is one."""
        path, blank, owners = line.rpartition(b" ")
        above, _, name = path.rstrip().rpartition(b"/")
        if not blank:
            return False
        folder = self.folder(above)
        file = self.node(name)
        self.files += 1
        self.edge(file, folder)
        for owner in owners.split(b","):
            package = self.ids.get(owner.rsplit(b"/", 1)[-1].decode(errors="replace"))
            if package is None:
                self.unknown += 1
            else:
                self.edge(package, file)
        return True


def not_a_file(path, number, line):
    return Failure(f"{path}, line {number}: expected a path and packages, found {line.decode(errors='replace')!r}")


def make_debian_contents(options, work):
    """The graph of files, in the order in which the lists name them."""
    index = index_of(options, work)
    packages = read_packages(index)
    classes = Classes(packages, section_of)
    tree = Tree({name: i for i, name in enumerate(packages)}, work, options.dim)
    if options.dim:
        long = long_descriptions(index)
        for name, entry in packages.items():
            tree.features.file.write(packed_row(tuple(sorted(bag_of(name, entry, long).items())), options.dim))
    for path in index["Contents-"]:
        for number, line in enumerate(lines(path), 1):
            if not tree.line(line):
                raise not_a_file(path, number, line)
    tree.edges.finish((tree.edge_count, 2))
    if options.dim:
        tree.features.finish((tree.nodes, options.dim))
    classes.write(work, tree.nodes)
    write_lines(f"{work}/packages.txt", packages)
    folder = options.out
    features = f"--features {folder}/features.npy " if options.dim else ""
    said = [
        f"{folder}: {tree.nodes} nodes ({len(packages)} packages, {tree.files} files, {len(tree.folders)} folders),"
        f" {tree.edge_count} edges; {classes}"
    ]
    if tree.unknown:
        said.append(f"{tree.unknown} times a file was said to be of a package that the index does not have.")
    said += [
        "To make a store of it:",
        f"    grappa-ingest --edges {folder}/edges.npy --nodes {tree.nodes} --undirected --dedup --labels {folder}/labels.npy \\",
        f"        {features}--train {folder}/train.npy --val {folder}/val.npy --test {folder}/test.npy --out debian-contents.grappa",
    ]
    return "\n".join(said)


def owners_of_files(path):
    """The path of each file of a list of files, with the packages that contain it."""
    for number, line in enumerate(lines(path), 1):
        name, blank, owners = line.decode(errors="replace").rpartition(" ")
        if not blank:
            raise not_a_file(path, number, line)
        yield name.rstrip(), [owner.rsplit("/", 1)[-1] for owner in owners.split(",")]


def make_debian_types(options, work):
    """The graph of packages, maintainers, sections and, if they are wanted, files."""
    index = index_of(options, work)
    packages = read_packages(index)
    ids = {name: i for i, name in enumerate(packages)}
    classes, order = Classes(packages, role_of), list(packages)
    depends = [f"{order[source]}\t{order[target]}" for source, target in dependencies(packages, ids)]
    in_section = [f"{name}\t{section_of(entry)}" for name, entry in packages.items() if section_of(entry)]
    maintainers = ((" ".join(entry.get("Maintainer", "").split()), name) for name, entry in packages.items())
    maintains = [f"{maintainer}\t{name}" for maintainer, name in maintainers if maintainer]
    relations = {
        "package:depends:package": depends,
        "package:in:section": in_section,
        "maintainer:maintains:package": maintains,
    }
    for relation, edges in relations.items():
        write_lines(f"{work}/{relation.split(':')[1]}.tsv", edges)
    counts = {relation: len(edges) for relation, edges in relations.items()}
    if options.files:
        counts["package:ships:file"] = 0
        with open(f"{work}/ships.tsv", "w", encoding="utf-8", errors="replace") as out:
            for path in index["Contents-"]:
                for name, owners in owners_of_files(path):
                    known = [owner for owner in owners if owner in ids and "\t" not in name]
                    counts["package:ships:file"] += len(known)
                    out.writelines(f"{owner}\t{name}\n" for owner in known)
    write_features(work, packages, long_descriptions(index), hidden="role::")
    classes.write(work, len(packages))
    write_names(work, order, classes)
    folder = options.out
    edges = [f"--edges {relation}={folder}/{relation.split(':')[1]}.tsv" for relation in counts]
    return "\n".join(
        [
            f"{folder}: {len(packages)} packages, {DIM} values each; {classes}; "
            + ", ".join(f"{count} edges {relation}" for relation, count in counts.items()),
            "To make a graph of it:",
            f"    grappa-ingest {' '.join(edges)} \\",
            "        --separator tab --header no --ids string --dedup --reverse \\",
            f"        --node-ids package={folder}/nodes.txt --features package={folder}/features.npy --labels package={folder}/labels.npy \\",
            *[f"        --{split} package={folder}/{split}.txt \\" for split in SPLITS],
            "        --out debian-types.grappa",
        ]
    )


# The command line.

DEBIAN = """
Debian's packages and their dependencies: 63 thousand nodes and 322 thousand edges (bookworm), with features.

An edge leads from a package to each package that it depends on, recommends or suggests; all alternatives count. A virtual name leads
to its providers, if there are at most four. Features are a signed, hashed bag of the words and tags that describe a package, without
its own name. The label is the section, if it has at least 50 packages. The split is by a hash of the name.

Writes, by integer id: edges.npy, features.npy, labels.npy, train.npy, val.npy, test.npy; by name: edges.tsv, in which packages
without edges have a self-loop, and train.txt, val.txt, test.txt; the names in the order of ids: nodes.txt, classes.txt.
"""
CONTENTS = """
Debian's packages, their files, and folders: 8.0 million nodes and 15.3 million edges (bookworm).

An edge leads from a package to each of its files, from a file to its folder, and from a folder to its parent. Files and folders are
numbered after the packages, in the order of their paths. Only packages have labels and splits, as in the graph of packages.

Writes edges.npy, labels.npy, train.npy, val.npy, test.npy, packages.txt, classes.txt, and features.npy if requested.
"""
TYPES = """
Debian's packages, maintainers and sections, a graph with several node types: 63 thousand packages (bookworm). With --files, also the
files of packages: 7 million.

The relations are package:depends:package, as in the graph of packages, package:in:section, maintainer:maintains:package and, with
--files, package:ships:file. Packages alone have features, as in the graph of packages, but without the tag `role::...`, which is their
label: program, shared-lib, documentation and so on.

Writes a file of names for each relation: depends.tsv, in.tsv, maintains.tsv, ships.tsv; and of packages: nodes.txt, features.npy,
labels.npy, classes.txt, train.txt, val.txt, test.txt, and these three as numbers of rows in .npy.
"""


def options_of(arguments):
    parser = argparse.ArgumentParser(prog="cargo xtask data", description="Makes a graph from the index of Debian's package archive.")
    graphs = parser.add_subparsers(dest="graph", required=True, metavar="GRAPH")
    for name, text in (("debian", DEBIAN), ("debian-contents", CONTENTS), ("debian-types", TYPES)):
        short = text.strip().partition("\n")[0]
        graph = graphs.add_parser(name, help=short, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
        graph.add_argument("out", metavar="OUT", help="the folder to create")
        add = functools.partial(graph.add_argument, metavar="NAME")
        add("--index", metavar="FILE", nargs="+", help="files of the index: Packages, Translation-en, Contents-ARCH")
        graph.add_argument("--fetch", action="store_true", help="let apt fetch a new and complete index; apt's own stays as it is")
        add("--mirror", metavar="URI", help="fetch from this mirror [default: apt's]")
        add("--suite", help="the release [default: apt's release with the longest list of packages]")
        add("--component", default="main", help="the component of the archive [default: main]")
        add("--arch", help="the architecture [default: this machine's]")
        if name == "debian-contents":
            add("--dim", type=int, metavar="D", choices=range(1, 1 << 16), help="write features with this many values (f16)")
        if name == "debian-types":
            graph.add_argument("--files", action="store_true", help="also write the files of packages")
    options = parser.parse_args(arguments)
    options.needs_contents = options.graph == "debian-contents" or getattr(options, "files", False)
    if options.index and (options.fetch or options.mirror or options.suite or options.arch):
        parser.error("--index excludes --fetch, --mirror, --suite and --arch")
    return options


def main(arguments):
    if arguments == ["has-index"]:
        files_of_machine(argparse.Namespace(component="main", suite=None, arch=None))
        return
    options = options_of(arguments)
    if os.path.lexists(options.out):
        raise Failure(f"{options.out} exists: remove it, or name another folder")
    # apt resolves relative paths in its own folder.
    work = os.path.abspath(options.out) + ".partial"
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    graphs = {"debian": make_debian, "debian-contents": make_debian_contents, "debian-types": make_debian_types}
    said = graphs[options.graph](options, work)
    shutil.rmtree(f"{work}/apt", ignore_errors=True)
    os.rename(work, options.out)
    print(said)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (Failure, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")
