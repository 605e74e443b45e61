//! The remedies in messages about input files: what a user can do that helps.

use grappa_tests::{npy::Npy, program::run};

use crate::ingest::Bench;

#[test]
fn a_third_column_that_is_no_weight_can_be_cut_off() {
    let bench = Bench::new();
    for (name, text, cut) in [
        ("edges.csv", "src,dst,kind\n0,1,cites\n1,2,cites\n", "cut -d, -f1,2"),
        ("edges.tsv", "0\t1\tcites\n1\t2\tcites\n", "cut -f1,2"),
        ("edges.txt", "0 1 cites\n1 2 cites\n", "cut -d' ' -f1,2"),
    ] {
        let edges = bench.write(name, text);
        for skip in ["fail", "skip"] {
            let ran = bench.refused(&edges, &["--on-bad-line", skip], &["not a weight", cut]);
            assert!(!ran.stderr.contains("--on-bad-line"), "{}", ran.stderr);
        }
    }
}

#[test]
fn commas_in_a_file_that_is_not_called_csv_are_recognized() {
    let bench = Bench::new();
    let edges = bench.write("edges.txt", "a,b\nb,c\n");
    bench.refused(&edges, &["--ids", "string"], &["edges.txt:1", "--format csv"]);
    run(&mut bench.ingest(&edges, &["--ids", "string", "--format", "csv"])).success();
}
