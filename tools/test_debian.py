"""Tests of debian.py with a small archive. Run: python3 -m unittest discover tools"""

import argparse
import array
import hashlib
import os
import tempfile
import unittest

import debian

PACKAGES = """\
Package: zeta
Section: contrib/editors
Depends: alpha (>= 1.0) | beta:any, zeta
Recommends: mail-agent, virtual-many
Suggests: alpha, nowhere
Description: an editor for zeta files
Description-md5: 11
Tag: role::program, untagged,
 use::editing

Package: alpha
Version: 2
Section: libs
Provides: mail-agent (= 1), virtual-many
Description: library

Package: alpha
Version: 1
Section: oldlibs
Depends: zeta

Package: beta
Section: libs
Pre-Depends: alpha
Provides: virtual-many, mail-agent
Description: library

Package: lonely
Section: libs
Maintainer: A. Dev
  <a@example.org>
Description: library
"""
# Sections of so many packages are classes.
FILLER = "".join(
    f"\nPackage: filler{i:02}\nSection: libs\nProvides: virtual-many\nDescription: library\n" for i in range(60)
)
TRANSLATION = "Package: zeta\nDescription-md5: 11\nDescription-en: an editor\n Edits zeta with elegance.\n"
CONTENTS = """\
usr/bin/zeta edit       editors/zeta
usr/bin/a               libs/alpha,libs/beta,libs/gone
README   libs/lonely
"""


class Graphs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = self.path("graph")
        self.index = [
            self.write("Packages", PACKAGES + FILLER),
            self.write("Translation-en", TRANSLATION),
            self.write("Contents-amd64", CONTENTS),
        ]

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as out:
            out.write(text)
        return self.path(name)

    def make(self, graph, *options):
        debian.main([graph, self.out, *options, "--index", *self.index])

    def failure(self, graph, *options):
        with self.assertRaises(debian.Failure) as caught:
            self.make(graph, *options)
        return str(caught.exception)

    def bytes(self, name):
        with open(f"{self.out}/{name}", "rb") as file:
            return file.read()

    def lines(self, name):
        return self.bytes(name).decode().splitlines()

    def numbers(self, name, kind="q"):
        data = self.bytes(name)
        self.assertEqual(data[:8], b"\x93NUMPY\x01\x00")
        return array.array(kind, data[128:]).tolist()

    def test_bytes_are_the_ones_of_earlier_versions(self):
        def digest(names):
            return hashlib.sha256(b"".join(self.bytes(name) for name in names.split())).hexdigest()[:16]

        self.make("debian")
        names = "edges.npy features.npy labels.npy train.npy val.npy test.npy edges.tsv train.txt val.txt test.txt nodes.txt classes.txt"
        self.assertEqual(digest(names), "4f5260cd4fbbfd62")
        self.out = self.path("files")
        self.make("debian-contents", "--dim", "4")
        names = "edges.npy features.npy labels.npy train.npy val.npy test.npy packages.txt classes.txt"
        self.assertEqual(digest(names), "f1fecdf493976233")

    def test_packages_have_edges_to_dependencies_and_to_providers_of_virtual_packages(self):
        self.make("debian")
        nodes = self.lines("nodes.txt")
        self.assertEqual((len(nodes), nodes), (64, sorted(nodes)))
        # The first version counts. mail-agent has two providers, virtual-many has too many. No package depends on itself.
        edges = [tuple(line.split("\t")) for line in self.lines("edges.tsv")]
        between = [edge for edge in edges if edge[0] != edge[1]]
        self.assertEqual(between, [("beta", "alpha"), ("zeta", "alpha"), ("zeta", "beta")])
        self.assertEqual(len(edges) - len(between), 61)
        self.assertIn(("lonely", "lonely"), edges)
        ids = [nodes.index(name) for edge in between for name in edge]
        self.assertEqual(self.numbers("edges.npy"), ids)
        self.assertIn(b"(3, 2)", self.bytes("edges.npy")[:128])

    def test_sections_of_enough_packages_are_classes_and_splits_are_of_labelled_packages(self):
        self.make("debian")
        self.assertEqual(self.lines("classes.txt"), ["libs"])
        nodes = self.lines("nodes.txt")
        self.assertEqual(self.numbers("labels.npy"), [-1 if name == "zeta" else 0 for name in nodes])
        # The tenths of these names are 5, 6, 7 and 8.
        for split, name in (("train", "filler00"), ("val", "filler07"), ("val", "filler04"), ("test", "filler13")):
            self.assertIn(name, self.lines(f"{split}.txt"))
        named = [name for split in debian.SPLITS for name in self.lines(f"{split}.txt")]
        numbered = [nodes[node] for split in debian.SPLITS for node in self.numbers(f"{split}.npy")]
        self.assertEqual(named, numbered)
        self.assertEqual(set(nodes) - set(named), {"zeta"})

    def test_files_lead_to_folders_up_to_the_root_and_packages_to_files(self):
        self.make("debian-contents", "--dim", "4")
        package = self.lines("packages.txt").index
        # The root, usr and usr/bin come before the first file in them.
        root, usr, usr_bin, zeta, a, readme = range(64, 70)
        edges = [(usr, root), (usr_bin, usr), (zeta, usr_bin), (package("zeta"), zeta), (a, usr_bin)]
        edges += [(package("alpha"), a), (package("beta"), a), (readme, root), (package("lonely"), readme)]
        self.assertEqual(self.numbers("edges.npy"), [node for edge in edges for node in edge])
        self.assertEqual(len(self.numbers("labels.npy")), 70)
        self.assertIn(b"'<f2'", self.bytes("features.npy")[:128])
        self.assertEqual(len(self.bytes("features.npy")), 128 + 70 * 4 * 2)

    def test_types_are_packages_sections_maintainers_and_files(self):
        self.make("debian-types", "--files")
        self.assertEqual(self.lines("depends.tsv"), ["beta\talpha", "zeta\talpha", "zeta\tbeta"])
        self.assertIn("zeta\teditors", self.lines("in.tsv"))
        self.assertEqual(self.lines("maintains.tsv"), ["A. Dev <a@example.org>\tlonely"])
        ships = ["zeta\tusr/bin/zeta edit", "alpha\tusr/bin/a", "beta\tusr/bin/a", "lonely\tREADME"]
        self.assertEqual(self.lines("ships.tsv"), ships)
        # A role of few packages is no class.
        self.assertEqual((self.lines("classes.txt"), set(self.numbers("labels.npy"))), ([], {-1}))
        self.index = self.index[:2]
        self.out = self.path("without")
        self.make("debian-types")
        self.assertFalse(os.path.exists(f"{self.out}/ships.tsv"))
        self.out = self.path("missing")
        self.assertIn("--fetch", self.failure("debian-types", "--files"))

    def test_the_role_of_a_package_is_its_label_and_no_feature(self):
        entry = debian.read_packages({"Packages": self.index[:1]})["zeta"]
        self.assertEqual((debian.role_of(entry), debian.role_of({})), ("program", ""))
        packages = {"zeta": entry, "alpha": {}}

        def row(**options):
            bags = [debian.bag_of(name, entry, {}) for name, entry in packages.items()]
            return next(debian.package_rows(packages, bags, **options))

        shown, hidden = row(), row(hidden="role::")
        column, _ = debian.slot("tag role::program", debian.DIM)
        self.assertNotEqual(shown[column], 0)
        self.assertEqual(hidden[column], 0)

    def test_bad_files_are_errors_with_a_place_or_a_remedy(self):
        contents = self.index[2]
        self.write("Contents-amd64", "nonsense\n")
        self.assertRegex(self.failure("debian-contents"), "line 1.*nonsense")
        self.assertFalse(os.path.exists(self.out))
        self.index = self.index[:1]
        self.assertIn("--fetch", self.failure("debian-contents"))
        self.write("Packages", "A: 1\nno field\n")
        self.assertRegex(self.failure("debian"), "Packages, line 2.*no field")
        self.write("Packages", "")
        self.assertIn("apt-get update", self.failure("debian"))
        self.index = [contents]
        self.assertIn("list of packages", self.failure("debian"))
        os.mkdir(self.out)
        self.assertIn("exists", self.failure("debian"))

    def test_features_are_of_descriptions_and_tags_without_the_name(self):
        index = {"Packages": self.index[:1], "Translation-en": self.index[1:2]}
        packages, long = debian.read_packages(index), debian.long_descriptions(index)
        bags = {name: debian.bag_of(name, entry, long) for name, entry in packages.items()}
        expected = {"an": 2, "edits": 1, "editor": 2, "elegance": 1, "files": 1, "for": 1, "with": 1}
        self.assertEqual(bags["zeta"], expected)
        rows = dict(zip(packages, debian.package_rows(packages, bags.values())))
        self.assertEqual(rows["alpha"], rows["beta"])
        self.assertAlmostEqual(sum(value * value for value in rows["zeta"]), 1.0, 6)
        column, sign = debian.slot("tag use::editing", debian.DIM)
        self.assertGreater(rows["zeta"][column] * sign, 0)


class Parts(unittest.TestCase):
    def test_the_longest_list_of_packages_that_fits_is_chosen(self):
        release = dict(COMPONENT="main", RELEASE="bookworm", CODENAME="bookworm", SUITE="oldstable", ARCHITECTURE="amd64")
        release["CREATED_BY"] = "Packages"
        targets = [
            {**release, "RELEASE": "node", "BYTES": 7},
            {**release, "BYTES": 50},
            {**release, "CREATED_BY": "Translations", "BYTES": 90},
            {**release, "ARCHITECTURE": "arm64", "BYTES": 50},
            {**release, "RELEASE": "trixie", "SUITE": "stable", "BYTES": 40},
            {**release, "COMPONENT": "contrib", "BYTES": 60},
        ]

        def chosen(suite=None, arch=None, component="main"):
            options = argparse.Namespace(suite=suite, arch=arch, component=component)
            found = debian.main_target(options, targets)
            return targets.index(found) if found else None

        self.assertEqual(chosen(), 1)
        self.assertEqual((chosen("stable"), chosen("trixie")), (4, 4))
        self.assertEqual((chosen(None, "arm64"), chosen(None, "arm64", "contrib"), chosen("sid")), (3, None, None))

    def test_names_are_without_versions_and_architectures(self):
        wants = {"Depends": "libc6 (>= 2.34), a+b.c-1:any | b [amd64],\n c, (x), 0ad"}
        self.assertEqual(list(debian.names(wants, ["Depends", "Suggests"])), ["libc6", "a+b.c-1", "b", "c", "0ad"])

    def test_words_are_letters_then_letters_digits_and_plus(self):
        found = debian.words("a g++ 7zip, x-ray caf\u00e9 abcdefghijklmnopqrstuvwxyz12")
        self.assertEqual(found, ["g++", "zip", "ray", "caf", "abcdefghijklmnopqrstuvwx", "yz12"])

    def test_rows_have_length_one_or_zero(self):
        self.assertEqual(debian.row_of([(0, 3.0), (1, 4.0)], 2), array.array("f", [0.6, 0.8]))
        self.assertEqual(debian.row_of([], 2), array.array("f", [0.0, 0.0]))


if __name__ == "__main__":
    unittest.main()
