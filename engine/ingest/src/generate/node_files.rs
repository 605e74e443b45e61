//! Generated features, classes and splits as NumPy files beside an edge list.

use std::ops::Range;

use grappa_io::{
    Error, Result,
    blocks::{NewFile, Planned, blocks_at_once},
    durable::Destination,
    ledger::{Lease, split_at_limit},
    npy,
    progress::Progress,
};
use grappa_synthetic::{Generator, Split};

/// Approximate bytes per block.
const BLOCK_BYTES: u64 = 1 << 20;

/// Fails if [`write_features`] with the rayon threads of the caller takes more than `memory` bytes because of the features'
/// mean of each class, which is in memory all the time. Its blocks alone, a few MB per thread, are not refused. Returns the leases of
/// memory.
pub fn check_features_memory(
    generator: &Generator,
    dim: usize,
    memory: u64,
    remedy: &'static str,
) -> Result<Vec<Lease>> {
    let means = generator.features_memory(dim);
    let blocks = blocks_at_once() as u64 * BLOCK_BYTES.max(4 * dim as u64);
    if means <= blocks || means + blocks <= memory {
        let leases = vec![
            Lease::new(
                "means of classes",
                means,
                "each class has a mean, which all rows of its nodes are drawn around",
            ),
            Lease::new("blocks of rows", blocks, "1 MiB each, some for each thread: smaller ones are slower to write"),
        ];
        return Ok(split_at_limit(memory, leases));
    }
    Err(Error::Budget {
        operation: "the features' mean of each class".to_owned(),
        given: memory,
        least: means + blocks,
        remedy,
    })
}

/// Writes the features of all nodes to a new file: f32 with shape (nodes, `dim`). Returns the length of the file in
/// bytes. Threads and errors are as in [`super::write_edge_list`].
///
/// # Panics
/// If `dim` is 0.
pub fn write_features<'a>(
    generator: &Generator,
    dim: usize,
    out: impl Into<Destination<'a>>,
    progress: &dyn Progress,
) -> Result<u64> {
    let features = generator.features(dim);
    let row_bytes = 4 * dim as u64;
    progress.stage("writing features", Some(row_bytes * generator.nodes()));
    write(
        generator,
        out.into(),
        progress,
        row_bytes,
        |labels, row: &mut Vec<f32>, out| {
            row.resize(dim, 0.0);
            for label in labels {
                features.row(label, row);
                out.extend(row.iter().flat_map(|value| value.to_le_bytes()));
            }
        },
        |bytes| npy::header("<f4", &[bytes / row_bytes, dim as u64]),
    )
}

/// Writes the class of every node to a new file: int64 with shape (nodes,). Returns the length of the file in
/// bytes.
///
/// # Panics
/// If the model has no classes.
pub fn write_classes<'a>(
    generator: &Generator,
    out: impl Into<Destination<'a>>,
    progress: &dyn Progress,
) -> Result<u64> {
    assert!(generator.classes() > 0, "a model with classes");
    progress.stage("writing labels", Some(8 * generator.nodes()));
    let class = |label| Some(generator.class(label).expect("the model has classes").into());
    write_integers(generator, out.into(), progress, class)
}

/// Writes the external ids of a split's nodes, ascending, to a new file: int64 with one dimension. Returns the
/// length of the file in bytes.
pub fn write_split<'a>(
    generator: &Generator,
    split: Split,
    out: impl Into<Destination<'a>>,
    progress: &dyn Progress,
) -> Result<u64> {
    progress.stage(&format!("writing the split {}", split.name()), None);
    write_integers(generator, out.into(), progress, |label| (generator.split(label) == Some(split)).then_some(label))
}

/// Writes a file with an integer for each label that has one.
fn write_integers(
    generator: &Generator,
    destination: Destination<'_>,
    progress: &dyn Progress,
    integer: impl Fn(u64) -> Option<u64> + Sync,
) -> Result<u64> {
    write(
        generator,
        destination,
        progress,
        8,
        |labels, (): &mut (), out| {
            for integer in labels.filter_map(&integer) {
                out.extend_from_slice(&integer.to_le_bytes());
            }
        },
        |bytes| npy::header("<i8", &[bytes / 8]),
    )
}

/// Writes a file in blocks of nodes. `make` appends the bytes of a range of labels, at most `node_bytes` per node.
fn write<S: Default + Send + Sync>(
    generator: &Generator,
    destination: Destination<'_>,
    progress: &dyn Progress,
    node_bytes: u64,
    make: impl Fn(Range<u64>, &mut S, &mut Vec<u8>) + Sync,
    header: impl FnOnce(u64) -> [u8; npy::HEADER_BYTES],
) -> Result<u64> {
    let (nodes, step) = (generator.nodes(), (BLOCK_BYTES / node_bytes).max(1));
    let mut start = 0;
    let payload = NewFile { destination, header_bytes: npy::HEADER_BYTES, progress }.write(
        || {
            let block = start..nodes.min(start + step);
            start = block.end;
            Ok((!block.is_empty()).then_some(Planned { block, edges: 0 }))
        },
        |labels, state, out| {
            make(labels.clone(), state, out);
            Ok(())
        },
        |bytes| header(bytes).to_vec(),
    )?;
    Ok(npy::HEADER_BYTES as u64 + payload)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use grappa_io::progress::Silent;

    use grappa_synthetic::{BlockModel, Model, Recipe};

    use super::*;

    #[test]
    fn class_means_beyond_the_memory_are_refused_with_what_would_do() {
        let model = BlockModel { classes: 4096, ..BlockModel::new(40_000, 3.0) };
        let generator = Generator::new(Recipe::new(Model::Sbm(model), 5)).expect("valid options");
        let check = |memory| check_features_memory(&generator, 32768, memory, "raise --memory");
        let Err(Error::Budget { given, least, .. }) = check(64 << 20) else {
            panic!("64 MiB suffice for 512 MiB of means");
        };
        assert_eq!(given, 64 << 20);
        assert!(least > 512 << 20);
        assert!(check(least - 1).is_err());
        check(least).expect("enough");
        // Means that are smaller than the blocks do not count.
        check_features_memory(&generator, 1, 1, "raise --memory").expect("only blocks");
    }

    #[test]
    fn files_hold_what_the_generator_says_of_each_node() {
        let folder = tempfile::tempdir().expect("a folder");
        let generator =
            Generator::new(Recipe::new(Model::Sbm(BlockModel::new(40_000, 3.0)), 5)).expect("valid options");
        let nodes = generator.nodes();
        let check = |name: &str, header: [u8; 128], expected: Vec<u8>, bytes: u64| {
            let file = fs::read(folder.path().join(name)).expect("the file");
            assert_eq!(file.len() as u64, bytes, "{name}");
            assert_eq!(file[..128], header, "{name}");
            assert!(file[128..] == expected, "{name}");
        };

        let path = |name: &str| folder.path().join(name);
        let bytes = write_features(&generator, 33, &path("x"), &Silent).expect("written");
        let (features, mut row) = (generator.features(33), vec![0.0; 33]);
        let mut expected = Vec::new();
        for label in 0..nodes {
            features.row(label, &mut row);
            expected.extend(row.iter().flat_map(|value| value.to_le_bytes()));
        }
        check("x", npy::header("<f4", &[nodes, 33]), expected, bytes);

        let bytes = write_classes(&generator, &path("y"), &Silent).expect("written");
        let expected = (0..nodes).flat_map(|label| (label % 10).to_le_bytes()).collect();
        check("y", npy::header("<i8", &[nodes]), expected, bytes);

        for split in [Split::Train, Split::Val, Split::Test] {
            let bytes = write_split(&generator, split, &path(split.name()), &Silent).expect("written");
            let ids: Vec<u64> = (0..nodes).filter(|&label| generator.split(label) == Some(split)).collect();
            let expected = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            check(split.name(), npy::header("<i8", &[ids.len() as u64]), expected, bytes);
        }
    }
}
