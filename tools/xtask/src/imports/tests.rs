//! Small crates, and their circles.

use std::{fs, path::Path};

use super::{Crate, circles};

/// The circles of a crate with these files below `src`.
fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join("src").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let krate = Crate::read(folder.path(), Path::new("src/lib.rs")).unwrap();
    circles::of_crate(&krate).iter().map(ToString::to_string).collect()
}

/// The circle of the files `a.rs` and `b.rs`.
const A_AND_B: [&str; 1] =
    ["2 files or modules import from each other:\n    src/a.rs from src/b.rs\n    src/b.rs from src/a.rs"];

#[test]
fn imports_are_found_in_trees_paths_and_bodies() {
    let defines_a = "use crate::b::B; pub struct A; pub fn make() {}";
    for imports_a in [
        "use crate::a::A; pub struct B;",
        "use super::a::{self, A}; pub struct B;",
        "use crate::{a::{A as X}}; pub struct B;",
        "use super::a::*; pub struct B;",
        "pub struct B(crate::a::A);",
        "pub struct B; fn f() { crate::a::make() }",
        "use super::a; pub struct B; fn f() { a::make() }",
        "pub struct B; fn f() { use crate::a::make; make() }",
    ] {
        let found = circles_of(&[("lib.rs", "mod a; mod b;"), ("a.rs", defines_a), ("b.rs", imports_a)]);
        assert_eq!(found, A_AND_B, "{imports_a}");
    }
}

#[test]
fn tests_comments_and_other_crates_are_no_imports() {
    let a = "use crate::b::B; pub struct A;";
    let b = "// crate::a::A\nuse other::a::A; pub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }\n";
    let found = circles_of(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", b)]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_parent_that_only_declares_and_reexports_is_in_no_circle() {
    let a = [("lib.rs", "mod room;"), ("room/a.rs", "use super::B; pub struct A;"), ("room/b.rs", "pub struct B;")];
    let parent = ("room/mod.rs", "mod a; mod b; pub use a::A; pub use self::b::B;");
    assert_eq!(circles_of(&[&a[..], &[parent]].concat()), [""; 0]);
    // It defines an item that a child takes, and takes one from that child.
    let defines = ("room/mod.rs", "mod a; mod b; use a::A; pub use b::B; pub struct Room(A);");
    let takes = ("room/a.rs", "use super::{B, Room}; pub struct A;");
    let found = circles_of(&[a[0], defines, takes, a[2]]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("src/room/a.rs from src/room/mod.rs"), "{found:?}");
}

#[test]
fn names_are_traced_through_reexports_to_the_file_that_defines_them() {
    let files = [
        ("lib.rs", "pub mod room; mod a; pub use room::b::B as Other;"),
        ("a.rs", "use crate::Other; pub struct A;"),
        ("room/mod.rs", "pub mod b;"),
        ("room/b.rs", "use crate::a::A; pub struct B;"),
    ];
    let circle =
        "2 files or modules import from each other:\n    src/a.rs from src/room/b.rs\n    src/room/b.rs from src/a.rs";
    assert_eq!(circles_of(&files), [circle]);
}

#[test]
fn a_circle_through_three_files_is_one_circle() {
    let file = |next: &str, own: &str| format!("use crate::{next}; pub struct {own};");
    let (a, b, c) = (file("b::B", "A"), file("c::C", "B"), file("a::A", "C"));
    let files = [("lib.rs", "mod a; mod b; mod c; mod d;"), ("d.rs", "use crate::a::A;")];
    let found = circles_of(&[&files[..], &[("a.rs", &a), ("b.rs", &b), ("c.rs", &c)]].concat());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("3 files") && !found[0].contains("d.rs"), "{found:?}");
}

#[test]
fn modules_whose_files_import_across_are_a_circle() {
    let files = [
        ("lib.rs", "mod room; mod house;"),
        ("room/mod.rs", "pub mod a; pub mod b;"),
        ("room/a.rs", "use crate::house::c::C; pub struct A;"),
        ("room/b.rs", "pub struct B;"),
        ("house/mod.rs", "pub mod c; pub mod d;"),
        ("house/c.rs", "pub struct C;"),
        ("house/d.rs", "use crate::room::b::B; pub struct D;"),
    ];
    let circle = "2 files or modules import from each other:\n    src/house from src/room\n    src/room from src/house";
    assert_eq!(circles_of(&files), [circle]);
}
