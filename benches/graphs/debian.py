"""Real graphs that any Debian machine can make, from the index of its package archive.

    python3 debian.py packages OUT    63 thousand packages and 322 thousand dependencies, with features
    python3 debian.py contents OUT    8.0 million packages, files and folders, 15.3 million edges

(The sizes are those of bookworm/main/amd64; other suites differ.) Needs apt, Python 3 and numpy, but not to be root:
apt keeps what it downloads in OUT/apt.

packages: an edge leads from a package to each that it depends on, recommends or suggests. Every alternative of `a | b`
counts. A name that no package has leads to the packages that provide it, if those are at most four. No self-loops, no
duplicates. Features are a signed, hashed bag of the words and tags that describe a package, its own name excepted.

contents: an edge leads from a package to each file in it, from a file to its folder, and from a folder to its parent.
Packages have the ids 0..P, in the order of their names; files and folders follow in the order of their paths, so that
neighbours have neighbouring ids, as pages of the web have in the order of their URLs.

Both: the label of a package is its section, if that has 50 packages or more; files and folders have none. The split is
by a hash of the package's name: 6 train, 2 val, 2 test of 10.

Writes edges.tsv.gz (contents) or edges.npy (packages), labels.npy, train.npy, val.npy, test.npy, and features.npy
(packages) to OUT.
"""

import argparse
import array
import collections
import gzip
import hashlib
import math
import os
import re
import subprocess
from pathlib import Path

import numpy as np

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SECTION_PACKAGES_MIN = 50
PROVIDERS_MAX = 4
FEATURE_DIM = 128

NAME = re.compile(r"^\s*([a-z0-9][a-z0-9+.\-]*)")
WORD = re.compile(r"[a-z][a-z0-9+]{1,23}")

# Makes apt fetch the list of all files, which it does not do by itself.
CONTENTS_TARGET = """
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


class Archive:
    """A package archive's index, fetched by apt into a folder of its own."""

    def __init__(self, args):
        state = args.out / "apt"
        for folder in ("lists/partial", "cache/archives/partial"):
            (state / folder).mkdir(parents=True, exist_ok=True)
        source = f"deb [arch={args.arch} signed-by={KEYRING}] {args.mirror or own_mirror()} {args.suite} main\n"
        (state / "sources.list").write_text(source)
        contents = CONTENTS_TARGET if args.graph == "contents" else ""
        (state / "apt.conf").write_text(
            f'Acquire::GzipIndexes "true";\nAcquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";\n{contents}'
        )
        options = {
            "Dir::State::Lists": state / "lists",
            "Dir::Cache": state / "cache",
            "Dir::Etc::SourceList": state / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Acquire::Languages": "en",
            "APT::Architecture": args.arch,
        }
        options = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        environment = dict(os.environ, APT_CONFIG=str(state / "apt.conf"))
        subprocess.run(["apt-get", "update", "-qq", *options], check=True, env=environment)
        self.lists = state / "lists"

    def lines(self, kind):
        for path in sorted(self.lists.glob(f"*_{kind}*")):
            process = subprocess.Popen(["/usr/lib/apt/apt-helper", "cat-file", path], stdout=subprocess.PIPE)
            for line in process.stdout:
                yield line.decode("utf-8", "replace").rstrip("\n")
            if process.wait() != 0:
                raise SystemExit(f"apt-helper could not read {path}")

    def stanzas(self, kind):
        """The entries of a Debian control file, as dictionaries."""
        stanza, key = {}, None
        for line in self.lines(kind):
            if not line:
                if stanza:
                    yield stanza
                stanza, key = {}, None
            elif line[0] in " \t":
                if key:
                    stanza[key] += "\n" + line
            else:
                key, _, value = line.partition(":")
                stanza[key] = value.strip()
        if stanza:
            yield stanza

    def packages(self):
        packages = {}
        for stanza in self.stanzas("Packages"):
            packages.setdefault(stanza["Package"], stanza)
        return dict(sorted(packages.items()))


def own_mirror():
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    mirrors = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    if not mirrors:
        raise SystemExit("apt has no sources yet: run `apt-get update`, or name one with --mirror")
    return mirrors[0]


def named_packages(field):
    for clause in field.replace("\n", " ").split(","):
        for alternative in clause.split("|"):
            if match := NAME.match(alternative):
                yield match.group(1)


def dependencies(packages):
    ids = {name: i for i, name in enumerate(packages)}
    providers = collections.defaultdict(list)
    for name, stanza in packages.items():
        for virtual in named_packages(stanza.get("Provides", "")):
            if virtual not in ids:
                providers[virtual].append(ids[name])
    edges = set()
    for name, stanza in packages.items():
        for field in ("Pre-Depends", "Depends", "Recommends", "Suggests"):
            for wanted in named_packages(stanza.get(field, "")):
                targets = [ids[wanted]] if wanted in ids else providers.get(wanted, [])
                if len(targets) <= PROVIDERS_MAX:
                    edges.update((ids[name], target) for target in targets if target != ids[name])
    return np.array(sorted(edges), dtype=np.int64)


def description_features(packages, archive):
    long = {s["Description-md5"]: s.get("Description-en", "") for s in archive.stanzas("Translation-en")}
    bags, documents = [], collections.Counter()
    for name, stanza in packages.items():
        text = stanza.get("Description", "") + " " + long.get(stanza.get("Description-md5"), "")
        own = set(WORD.findall(name))
        bag = collections.Counter(word for word in WORD.findall(text.lower()) if word not in own)
        bag.update({"tag " + tag: 1 for tag in re.split(r"[,\s]+", stanza.get("Tag", "")) if "::" in tag})
        bags.append(bag)
        documents.update(bag.keys())

    weights = {}
    for word, count in documents.items():
        digest = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
        weights[word] = digest % FEATURE_DIM, (1 if digest >> 63 else -1) * math.log(len(packages) / count)
    features = np.zeros((len(packages), FEATURE_DIM), dtype=np.float32)
    for row, bag in zip(features, bags):
        for word in sorted(bag):
            column, weight = weights[word]
            row[column] += weight * (1.0 + math.log(bag[word]))
    return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)


def file_tree(packages, archive):
    """Source and target of each edge, and the number of nodes."""
    package_ids = {name: i for i, name in enumerate(packages)}
    sources, targets = array.array("i"), array.array("i")
    folder_ids = {}
    next_id = len(packages)

    def folder_id(path):
        nonlocal next_id
        if path not in folder_ids:
            parent = folder_id(path.rpartition("/")[0]) if path else None
            folder_ids[path] = next_id
            next_id += 1
            if parent is not None:
                sources.append(folder_ids[path])
                targets.append(parent)
        return folder_ids[path]

    for line in archive.lines("Contents-"):
        path, _, owners = line.rpartition(" ")
        folder = folder_id(path.rstrip().rpartition("/")[0])
        file = next_id
        next_id += 1
        sources.append(file)
        targets.append(folder)
        for owner in owners.split(","):
            if (package := package_ids.get(owner.rpartition("/")[2])) is not None:
                sources.append(package)
                targets.append(file)
    return sources, targets, next_id


def save_labels(packages, nodes, out):
    sections = [stanza.get("Section", "").rpartition("/")[2] for stanza in packages.values()]
    counts = collections.Counter(sections)
    classes = sorted(section for section in counts if section and counts[section] >= SECTION_PACKAGES_MIN)
    ids = {section: i for i, section in enumerate(classes)}
    labels = np.full(nodes, -1, dtype=np.int64)
    labels[: len(packages)] = [ids.get(section, -1) for section in sections]
    np.save(out / "labels.npy", labels)

    digests = [hashlib.sha256(name.encode()).digest()[:8] for name in packages]
    tenths = np.array([int.from_bytes(digest, "little") % 10 for digest in digests])
    labelled = labels[: len(packages)] >= 0
    for name, part in (("train", tenths < 6), ("val", (tenths == 6) | (tenths == 7)), ("test", tenths >= 8)):
        np.save(out / f"{name}.npy", np.nonzero(part & labelled)[0].astype(np.int64))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", choices=["packages", "contents"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("--arch", default="amd64")
    parser.add_argument("--mirror", help="default: the first that apt is set up with")
    args = parser.parse_args()

    archive = Archive(args)
    packages = archive.packages()
    if args.graph == "packages":
        nodes = len(packages)
        edges = dependencies(packages)
        edge_count = len(edges)
        np.save(args.out / "edges.npy", edges)
        np.save(args.out / "features.npy", description_features(packages, archive))
    else:
        sources, targets, nodes = file_tree(packages, archive)
        edge_count = len(sources)
        with gzip.GzipFile(args.out / "edges.tsv.gz", "wb", compresslevel=4, mtime=0) as file:
            for begin in range(0, edge_count, 1 << 20):
                block = slice(begin, begin + (1 << 20))
                lines = map("%d\t%d\n".__mod__, zip(sources[block], targets[block]))
                file.write("".join(lines).encode())
    save_labels(packages, nodes, args.out)
    print(f"{args.out}: {nodes} nodes, {edge_count} edges")


if __name__ == "__main__":
    main()
