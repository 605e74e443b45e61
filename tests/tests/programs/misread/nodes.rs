//! Features, labels, ids and splits of nodes: their errors.

use grappa_tests::{archive::zip, npy::Npy};

use super::{IngestFolder, SharedFile, check_inputs};

/// A cycle of four nodes.
const SQUARE: SharedFile = ("good.tsv", "0 1\n1 2\n2 3\n3 0\n", "0>1&1>2&2>3&3>0");

/// Checks that arrays are refused beside the edges of a square: an option with the file, other options, the array, and
/// parts of the error.
fn refuse_arrays<'a>(cases: impl IntoIterator<Item = (&'a str, &'a str, Npy, &'a str)>) {
    let folder = IngestFolder::new();
    folder.write(SQUARE.0, SQUARE.1);
    for (option, more, array, error) in cases {
        let file = option.split(' ').nth(1).unwrap();
        folder.write(file, array.encode());
        folder.expect_error(&format!("--edges good.tsv {option} {more}"), &[file, error], error);
    }
}

fn list<T: grappa_tests::npy::Element>(values: &[T]) -> Npy {
    Npy::new(&[values.len()], values.iter().copied())
}

fn mask(entries: &[u8]) -> Npy {
    Npy::raw("|b1", &[entries.len()], entries)
}

#[test]
fn features_must_fit_the_nodes_and_be_finite() {
    let rows = |rows: usize| Npy::new(&[rows, 2], vec![0.5f32; rows * 2]);
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let holes = Npy::new(&[4, 2], [0.0, nan, 1.0, 2.0, inf, 0.0, 0.0, -inf]);
    let few = "this file has 3 rows, but the edges name node 3 && good.tsv:3 && at least 4";
    let sparse = "expected 4 rows && found 5; with --ids sparse or string, the nodes are the different ids";
    refuse_arrays(grappa_skip::cases![
        // Without --nodes, the features file determines the number of nodes, and an edge has a larger id.
        "--features few.npy", "", rows(3), few;
        "--features few.npy", "--nodes 4", rows(3), "expected 4 rows && found 3";
        "--features many.npy", "--nodes 4", rows(5), "expected 4 rows && found 5";
        "--features many.npy", "--ids sparse", rows(5), sparse;
        "--features cube.npy", "", Npy::new(&[4, 2, 1], [0f32; 8]), "[N, D] && (4, 2, 1)";
        "--features strings.npy", "", Npy::raw("<U1", &[4, 2], [0; 32]), "U1";
        "--features cut.npy", "", Npy::raw("<f4", &[4, 2], [0; 31]), "truncated";
        "--features holes.npy", "", holes.clone(), "row 0 && column 1 && 2 more && --allow-nan";
    ]);
    let folder = IngestFolder::new();
    folder.write(SQUARE.0, SQUARE.1);
    folder.write("holes.npy", holes.encode());
    folder.ingest("--edges good.tsv --features holes.npy --allow-nan").unwrap();
    let table = [
        "--edges good.tsv --ids string --features many.csv",
        "many.csv: 0,1\n1,2\n2,3\n3,4\n4,5\n | !many.csv && found more; with --ids sparse or string",
        "--edges good.tsv --features x.csv",
        "x.csv: 0,1\n1,2\n2,nan\n3,4\n | !x.csv && 2 && --allow-nan",
        "x.csv: 0,1\n1,2\n2\n3,4\n | !x.csv:3 && found 1",
    ];
    check_inputs(Some(SQUARE), &table);
}

#[test]
fn labels_must_fit_the_nodes_and_be_classes() {
    let none = "no node has a label && omit --labels";
    let sentinel = "at row 2 && 2147483648 classes for 4 nodes && a negative number";
    let most = i64::from(i32::MAX);
    let sets = Npy::new(&[4, 3], [0i64, 1, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    let cases = vec![
        (list(&[0i64; 3]), "4 && 3"),
        (list(&[0i64; 5]), "4 && 5"),
        (list(&[0i64, 1, 1 << 40, 1]), "row 2 && from 0 to 4294967294"),
        (list(&[0, 1, most, most]), sentinel),
        (list(&[0f32, 1.0, 0.5, 1.0]), "row 2 && 0.5"),
        (list(&[-1i64; 4]), none),
        (sets, "row 1 && zeros and ones"),
    ];
    let cases = cases.into_iter().map(|(array, error)| ("--labels y.npy", "--nodes 4", array, error));
    refuse_arrays(cases);
    let table = [
        "--edges good.tsv --labels y.csv",
        "y.csv: 0\n1\ncats\n1\n | !y.csv:3 && cats",
        // Ids beside the labels.
        "y.csv: n0,3\nn1,0\nn2,1\nn3,0\n | !y.csv:1 && column 1 && --id 1",
        "y.csv: 0,3\n1,0\n2,1\n3,0\n | !y.csv:1 && first column && --id 1",
    ];
    check_inputs(Some(SQUARE), &table);
}

#[test]
fn splits_must_be_disjoint_and_of_known_nodes() {
    refuse_arrays(grappa_skip::cases![
        "--test large.npy", "", list(&[0i64, 4]), "row 1 && 4";
        "--test negative.npy", "", list(&[0i64, -1]), "row 1 && -1";
        "--test huge.npy", "", list(&[0i64, 1 << 41]), "row 1 && 2199023255552";
        "--test empty.npy", "", list::<i64>(&[]), "no ids";
        "--test floats.npy", "", list(&[0f32, 0.5]), "at row 1 && 0.5 && fraction";
    ]);
    let table = [
        "--edges good.tsv --test names.txt",
        "names.txt: 0\n1\nthree\n | !names.txt:3 && three",
        "--edges good.tsv --test no.npy",
        " | !no.npy && No such file",
        "--edges good.tsv --train train.txt --val val.txt",
        "train.txt: 0\n1\n + val.txt: 1\n2\n | !1  && also in the split && train && val && for example 1",
    ];
    check_inputs(Some(SQUARE), &table);
}

#[test]
fn a_mask_is_of_type_bool_and_has_one_entry_per_node() {
    let bits = Npy::raw("|u1", &[4], [1, 0, 0, 1]);
    let masks = Npy::raw("|b1", &[4, 3], [1; 12]);
    let twice = "at row 2 && the id 0 is there already, at row 1 && a.astype(bool)";
    refuse_arrays(grappa_skip::cases![
        "--train bits.npy", "", bits, twice;
        "--train masks.npy", "", masks, "shape (4, 3) && a[:, 0]";
        "--train short.npy", "", mask(&[1, 0, 1]), "expected 4 rows && found 3";
        "--train long.npy", "", mask(&[1, 0, 1, 0, 0]), "expected 4 rows && --nodes";
        "--train whole.npy", "--ids sparse", mask(&[1, 0, 1, 0]), "--ids sparse";
        "--train whole.npy", "--ids string", mask(&[1, 0, 1, 0]), "--ids string";
    ]);
    let folder = IngestFolder::new();
    folder.write(SQUARE.0, SQUARE.1);
    folder.write("mask.npy", mask(&[1, 0, 1, 0]).encode());
    folder.ingest("--edges good.tsv --train mask.npy").unwrap();
    // With --node-ids, the rows of files are in another order than the ids.
    folder.write("ids.txt", "2\n0\n1\n3\n");
    folder.write("labels.txt", "0\n1\n0\n1\n");
    let arguments = "--edges good.tsv --train mask.npy --node-ids ids.txt --labels labels.txt";
    folder.expect_error(arguments, &["mask.npy && --node-ids && list of the ids"], "");
    let table = [
        "--edges good.tsv --train t.txt",
        "t.txt: # ids\n3\n1\n3\n | !t.txt:4 && the id 3 is there already, in line 2 && list each id once",
        "--edges good.tsv --train t.txt --ids string",
        // A list of strings has no comments: an id may begin as one does.
        "t.txt: # ids\n3\n1\n3\n | !t.txt:1 && no node with the id # ids",
        "t.txt: 3\n1\n3\n | !t.txt:3 && the id 3 is there already, in line 1",
    ];
    check_inputs(Some(SQUARE), &table);
}

#[test]
fn a_header_that_was_read_as_an_id_is_suspected() {
    let path = ("e.tsv", "n1\tn2\nn2\tn3\n", "n1>n2&n2>n3");
    let table = [
        "--edges e.tsv --ids string --node-ids i.txt --labels y.txt",
        "i.txt: package\nn1\nn2\nn3\n + y.txt: 1\n2\n3\n \
         | !expected 4 && found 3 && header && remove that line",
        "--edges e.tsv --ids string --node-ids i.txt --train t.txt --val v.txt",
        "i.txt: package\nn1\nn2\nn3\n + t.txt: package\nn1\n + v.txt: package\nn2\n \
         | !package && first line of both files && tail -n +2",
    ];
    check_inputs(Some(path), &table);
    let folder = IngestFolder::new();
    folder.write(path.0, path.1);
    folder.write("i.txt", "package\nn1\nn2\nn3\n");
    folder.write("x.npy", Npy::new(&[3, 1], [1.0_f32, 2.0, 3.0]).encode());
    let arguments = "--edges e.tsv --ids string --node-ids i.txt --features x.npy";
    folder.expect_error(arguments, &["i.txt && header && tail -n +2"], "");
}

#[test]
fn files_of_other_kinds_are_named_with_a_way_to_convert_them() {
    let folder = IngestFolder::new();
    folder.write(SQUARE.0, SQUARE.1);
    folder.write("x.pt", zip([("x/data.pkl".to_owned(), Vec::new())].into_iter()));
    for option in ["--features", "--labels", "--train", "--node-ids"] {
        let arguments = format!("--edges good.tsv --ids sparse {option} x.pt");
        folder.expect_error(&arguments, &["PyTorch && torch.load && .numpy()"], option);
    }
    folder.expect_error("--edges x.pt", &["PyTorch && torch.load"], "");
}
