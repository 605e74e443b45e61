//! Tests with a small archive.

use super::*;

const PACKAGES: &str = "\
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
Description: library
";

/// More packages, so that sections are large enough to be classes.
fn filler() -> String {
    (0..60)
        .map(|i| format!("\nPackage: filler{i:02}\nSection: libs\nProvides: virtual-many\nDescription: library\n"))
        .collect()
}

fn source(folder: &Path) -> Source {
    fs::write(folder.join("Packages"), format!("{PACKAGES}{}", filler())).unwrap();
    fs::write(
        folder.join("Translation-en"),
        "Package: zeta\nDescription-md5: 11\nDescription-en: an editor\n Edits zeta with elegance.\n",
    )
    .unwrap();
    fs::write(
        folder.join("Contents-amd64"),
        "usr/bin/zeta edit       editors/zeta\nusr/bin/a               libs/alpha,libs/beta,libs/gone\nREADME   libs/lonely\n",
    )
    .unwrap();
    Source::of_files(["Packages", "Translation-en", "Contents-amd64"].map(|name| folder.join(name)))
}

/// The numbers of an array of int64.
fn numbers(path: &Path) -> Vec<i64> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let numbers = bytes[128..].chunks_exact(8);
    numbers
        .map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

fn header(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap()[10..128])
        .trim_end()
        .to_owned()
}

fn text(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn packages_have_edges_to_dependencies_and_to_providers_of_virtual_packages() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("graph");
    debian(&out, &source(folder.path())).unwrap();

    let names = text(&out.join("nodes.txt"));
    assert_eq!(names.len(), 64);
    assert!(names.is_sorted());
    // The first version counts. mail-agent has two providers, virtual-many has too many. No package depends on itself.
    let edges = text(&out.join("edges.tsv"));
    let (between, alone): (Vec<_>, Vec<_>) = edges
        .iter()
        .map(|line| line.split_once('\t').unwrap())
        .partition(|(source, target)| source != target);
    assert_eq!(between, [("beta", "alpha"), ("zeta", "alpha"), ("zeta", "beta")]);
    assert_eq!(alone.len(), 61);
    assert!(alone.contains(&("lonely", "lonely")));
    let by_number: Vec<(&str, &str)> = numbers(&out.join("edges.npy"))
        .chunks_exact(2)
        .map(|edge| (names[edge[0] as usize].as_str(), names[edge[1] as usize].as_str()))
        .collect();
    assert_eq!(by_number, between);
    assert!(
        header(&out.join("edges.npy")).contains("(3, 2)"),
        "{}",
        header(&out.join("edges.npy"))
    );
}

#[test]
fn sections_of_enough_packages_are_classes_and_splits_are_of_labelled_packages() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("graph");
    debian(&out, &source(folder.path())).unwrap();

    assert_eq!(text(&out.join("classes.txt")), ["libs"]);
    let names = text(&out.join("nodes.txt"));
    let labels = numbers(&out.join("labels.npy"));
    for (name, label) in names.iter().zip(&labels) {
        assert_eq!(*label, if name == "zeta" { -1 } else { 0 }, "{name}");
    }
    // The tenths 5, 6, 7 and 8, as Python's int.from_bytes(hashlib.sha256(name).digest()[:8], "little") % 10 has them.
    let known = [
        ("train", "filler00"),
        ("val", "filler07"),
        ("val", "filler04"),
        ("test", "filler13"),
    ];
    let mut all = Vec::new();
    for split in ["train", "val", "test"] {
        let members = text(&out.join(format!("{split}.txt")));
        for (_, name) in known.iter().filter(|(of, _)| *of == split) {
            assert!(members.contains(&(*name).to_owned()), "{name} in {split}");
        }
        let ids = numbers(&out.join(format!("{split}.npy")));
        assert_eq!(
            ids.iter().map(|&id| names[id as usize].clone()).collect::<Vec<_>>(),
            members
        );
        all.extend(members);
    }
    all.sort();
    assert_eq!(all.len(), 63);
    assert!(!all.contains(&"zeta".to_owned()));
}

#[test]
fn files_lead_to_folders_up_to_the_root_and_packages_to_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("graph");
    let mut source = source(folder.path());
    debian_contents(&out, &source, Some(4)).unwrap();

    let packages = text(&out.join("packages.txt"));
    let package = |name: &str| packages.iter().position(|other| other == name).unwrap() as i64;
    // The root, usr and usr/bin come before the first file in them.
    let node = |i: i64| 64 + i;
    let edges: Vec<(i64, i64)> = numbers(&out.join("edges.npy"))
        .chunks_exact(2)
        .map(|edge| (edge[0], edge[1]))
        .collect();
    let expected = [
        (node(1), node(0)),
        (node(2), node(1)),
        (node(3), node(2)),
        (package("zeta"), node(3)),
        (node(4), node(2)),
        (package("alpha"), node(4)),
        (package("beta"), node(4)),
        (node(5), node(0)),
        (package("lonely"), node(5)),
    ];
    assert_eq!(edges, expected);
    assert_eq!(numbers(&out.join("labels.npy")).len(), 70);
    assert!(header(&out.join("features.npy")).contains("'<f2'"));
    assert_eq!(fs::metadata(out.join("features.npy")).unwrap().len(), 128 + 70 * 4 * 2);

    fs::remove_dir_all(&out).unwrap();
    fs::write(folder.path().join("Contents-amd64"), "nonsense\n").unwrap();
    let error = format!("{:#}", debian_contents(&out, &source, None).unwrap_err());
    assert!(error.contains("line 1") && error.contains("nonsense"), "{error}");
    assert!(!out.exists());

    source = Source::of_files([folder.path().join("Packages")]);
    let error = debian_contents(&out, &source, None).unwrap_err().to_string();
    assert!(error.contains("--fetch"), "{error}");
}

#[test]
fn features_are_of_descriptions_and_tags_without_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let index = source.index(folder.path(), false).unwrap();
    let packages = Packages::read(&index).unwrap();
    let long = descriptions::long(&index).unwrap();
    let bags = descriptions::bags(&packages, &long);
    let zeta = &bags[packages.id("zeta").unwrap() as usize];
    let words: Vec<(&str, u32)> = zeta.iter().map(|(word, &count)| (word.as_str(), count)).collect();
    assert_eq!(
        words,
        [
            ("an", 2),
            ("edits", 1),
            ("editor", 2),
            ("elegance", 1),
            ("files", 1),
            ("for", 1),
            ("with", 1)
        ]
        .into_iter()
        .collect::<std::collections::BTreeMap<_, _>>()
        .into_iter()
        .collect::<Vec<_>>()
    );

    let features = descriptions::features(&packages, &long);
    let row = |name: &str| {
        let id = packages.id(name).unwrap() as usize;
        &features[id * descriptions::DIM..][..descriptions::DIM]
    };
    assert_eq!(row("alpha"), row("beta"));
    assert_ne!(row("alpha"), row("zeta"));
    let length: f32 = row("zeta").iter().map(|value| value * value).sum();
    assert!((length - 1.0).abs() < 1e-6);
    // Both tags count. With one tag the row would differ.
    let (column, sign) = descriptions::slot(b"tag use::editing", descriptions::DIM);
    assert!(f64::from(row("zeta")[column]) * sign > 0.0);
}

#[test]
fn the_same_index_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    debian(&a, &source).unwrap();
    debian(&b, &source).unwrap();
    for entry in fs::read_dir(&a).unwrap() {
        let name = entry.unwrap().file_name();
        assert_eq!(
            fs::read(a.join(&name)).unwrap(),
            fs::read(b.join(&name)).unwrap(),
            "{name:?}"
        );
    }
}

#[test]
fn nothing_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let error = debian(folder.path(), &source(folder.path())).unwrap_err().to_string();
    assert!(error.contains("exists"), "{error}");
}

#[test]
fn an_index_without_packages_is_an_error_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("Packages");
    fs::write(&path, "").unwrap();
    let error = debian(&folder.path().join("graph"), &Source::of_files([path]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("apt-get update"), "{error}");
}
