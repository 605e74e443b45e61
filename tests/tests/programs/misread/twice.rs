//! Files that are there twice.

use super::{Case, read, refused};

const P: (&str, &str) = ("in/p.csv", "src,dst\n0,1\n1,2\n");

const CASES: &[Case] = &[
    refused(&[P], "--edges in/p.csv in/p.csv", "named twice", "", ""),
    refused(&[P], "--edges in in/p.csv", "named twice", "", ""),
    refused(
        &[P, ("in/p.csv~", "0,1\n")],
        "--edges in",
        "p.csv~: this looks like the data of",
        "",
        "",
    ),
    refused(&[P, ("in/p.csv.bak", "0,1\n")], "--edges in", "p.csv.bak", "", ""),
    refused(&[P, ("in/p.csv.gz", "")], "--edges in", "p.csv.gz", "", ""),
    refused(&[P, ("in/p (1).csv", "0,1\n")], "--edges in", "p (1).csv", "", ""),
    refused(&[P, ("in/p copy.csv", "0,1\n")], "--edges in", "p copy.csv", "", ""),
    refused(
        &[P, ("in/p.csv.orig", "0,1\n")],
        "--edges in/p.csv in/p.csv.orig",
        "p.csv.orig",
        "",
        "",
    ),
    read(
        &[P, ("in/q.csv", "src,dst\n2,0\n")],
        "--edges in",
        "and 1 more",
        "0>1&1>2&2>0",
    ),
    read(
        &[P, ("other/p.csv", "src,dst\n2,0\n")],
        "--edges in other",
        "and 1 more",
        "0>1&1>2&2>0",
    ),
];

#[test]
fn a_file_that_is_there_twice_is_refused() {
    CASES.iter().for_each(Case::check);
}
