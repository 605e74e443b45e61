//! Flips bytes of files with checksums. Each flip must be an error, or have no effect on the data.

use std::ops::Range;

use super::{nodes::csr, *};

/// Flips each byte of `whole` in turn and calls `read`, which must fail or return the same data as for the whole file. Returns
/// the number of failures.
#[track_caller]
fn flip_each<T: PartialEq + std::fmt::Debug>(whole: &[u8], read: impl Fn(PathBuf) -> Result<T>) -> usize {
    flip_each_in(whole, 0..whole.len(), read)
}

/// Like [`flip_each`], for the bytes of a range.
#[track_caller]
fn flip_each_in<T: PartialEq + std::fmt::Debug>(
    whole: &[u8],
    range: Range<usize>,
    read: impl Fn(PathBuf) -> Result<T>,
) -> usize {
    let folder = Folder::new();
    let good = read(folder.file("file", whole)).unwrap();
    let mut failed = 0;
    for at in range {
        for flip in [0x01, 0x40, 0xff] {
            let mut flipped = whole.to_vec();
            flipped[at] ^= flip;
            match read(folder.file("file", flipped)) {
                Ok(found) => assert_eq!(found, good, "byte {at} xor {flip:#x} was not noticed"),
                Err(error) => {
                    assert_contains(&error.to_string(), &["file"]);
                    failed += 1;
                }
            }
        }
    }
    failed
}

fn edges(path: PathBuf) -> Result<Read> {
    let source = EdgeSource::open(&[path], EdgeSourceOptions { block_bytes: 64, ..Default::default() })?;
    let all = read(&source, 1)?;
    source.check()?;
    Ok(all)
}

#[test]
fn no_flipped_byte_of_an_archive_becomes_an_edge() {
    let ids: Vec<i64> = (0..40).map(|k| k * 7 % 31).collect();
    let data = le(&ids, i64::to_le_bytes);
    for shape in ["(20, 2)", "(2, 20)"] {
        let array = npy("<i8", shape, &data);
        for (deflated, zip64) in [(false, false), (false, true), (true, false), (true, true)] {
            let whole = npz(&[("edge_index", array.clone())], deflated, zip64);
            let failed = flip_each(&whole, edges);
            // Flips in the member must fail, and so must some others.
            let least = if deflated { whole.len() } else { 3 * array.len() };
            assert!(failed > least, "{failed} of {} failed", 3 * whole.len());
        }
    }
}

#[test]
fn no_flipped_byte_of_an_archive_becomes_a_feature() {
    let values: Vec<f32> = (0..60).map(|k| k as f32 / 8.0).collect();
    let array = npy("<f4", "(20, 3)", &le(&values, f32::to_le_bytes));
    let rows = |path: PathBuf| {
        let source = MatrixSource::open(&path)?;
        let (mut all, mut rows) = (Vec::new(), Vec::new());
        // The reader stops early: bytes that were not read are verified too.
        for first in [0, 1] {
            source.read_rows(first, 1, &mut rows)?;
            all.push(rows.clone());
        }
        source.check()?;
        Ok(all)
    };
    for deflated in [false, true] {
        flip_each(&npz(&[("x", array.clone())], deflated, false), rows);
        flip_each(&csr(Some("csr"), deflated, |_| {}), rows);
    }
}

#[test]
fn no_flipped_byte_of_an_archive_becomes_a_label() {
    let labels: Vec<i64> = (0..50).map(|k| k % 5).collect();
    let array = npy("<i8", "(50,)", &le(&labels, i64::to_le_bytes));
    for deflated in [false, true] {
        flip_each(&npz(&[("y", array.clone())], deflated, false), |path| {
            let source = LabelSource::open(&path)?;
            let mut batch = LabelBatch::default();
            source.read_rows(0, 50, &mut batch)?;
            source.check()?;
            Ok((0..batch.len()).map(|k| batch.get(k).map(<[u32]>::to_vec)).collect::<Vec<_>>())
        });
    }
}

#[test]
fn a_damaged_member_is_named_with_the_remedy() {
    let folder = Folder::new();
    let array = npy("<i8", "(20, 2)", &le(&[5_i64; 40], i64::to_le_bytes));
    for deflated in [false, true] {
        let mut whole = npz(&[("edge_index", array.clone())], deflated, false);
        // Damages the CRC in the directory, so everything else can be read.
        let at = memchr::memmem::rfind(&whole, b"PK\x01\x02").unwrap() + 16;
        whole[at] ^= 1;
        assert_contains(
            &message(edges(folder.file("e.npz", whole))),
            &["e.npz", "member edge_index", "CRC-32", "fetch it again"],
        );
    }
}

#[test]
fn no_flipped_byte_of_compressed_text_becomes_an_edge() {
    let text: String = (0..60).map(|k| format!("{} {}\n", k * 7 % 31, k * 3 % 29)).collect();
    let mut checked = Vec::new();
    let mut encoder = zstd::Encoder::new(&mut checked, 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap();
    for whole in [gzip(text.as_bytes()), checked] {
        flip_each(&whole, |path| read_path(&path, EdgeSourceOptions::default()));
    }
}

#[test]
fn no_flipped_byte_of_compressed_text_becomes_a_feature() {
    let text: String = (0..60).map(|k| format!("{},{}\n", k * 7 % 31, k * 3 % 29)).collect();
    flip_each(&gzip(text.as_bytes()), |path| {
        let mut source = MatrixSource::open(&path)?;
        source.expect_rows(60, "fewer rows")?;
        let mut rows = Vec::new();
        source.read_rows(0, 60, &mut rows)?;
        Ok(rows)
    });
}

#[test]
fn no_flipped_byte_of_a_parquet_page_with_a_checksum_becomes_an_edge() {
    // pyarrow.parquet.write_table({"src": [k * 5 % 37 for k in range(40)], "dst": [k + 1 for k in range(40)]},
    // write_page_checksum=True, compression="none", use_dictionary=False, write_statistics=False, store_schema=False)
    let whole = include_bytes!("page-checksums.parquet");
    let sources: Vec<i64> = (0..40).map(|k| k * 5 % 37).collect();
    let targets: Vec<i64> = (1..=40).collect();
    for ids in [sources, targets] {
        let page = le(&ids, i64::to_le_bytes);
        let start = memchr::memmem::find(whole, &page).unwrap();
        let failed = flip_each_in(whole, start..start + page.len(), edges);
        assert_eq!(failed, 3 * page.len());
    }
}

#[test]
fn zeros_behind_gzip_data_are_ignored_and_other_bytes_refused() {
    let folder = Folder::new();
    let open = |bytes: &[&[u8]]| edges(folder.file("e.tsv.gz", bytes.concat()));
    let (one, two) = (gzip(b"0 1\n"), gzip(b"1 2\n"));
    let whole = open(&[&one, &two]).unwrap();
    for zeros in [1, 10, 600_000] {
        assert_eq!(open(&[&one, &two, &vec![0; zeros]]).unwrap(), whole);
    }
    for garbage in [&b"x"[..], b"\0\0\0x", &[&[0; 512][..], &two].concat()] {
        let error = open(&[&one, garbage]).unwrap_err().to_string();
        assert_contains(&error, &["e.tsv.gz", "gzip data", "fetch or write it again"]);
    }
}
