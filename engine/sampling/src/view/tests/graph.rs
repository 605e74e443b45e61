//! Small graphs and stores of them.

use grappa_formats::{
    ChunkId,
    chunks::ChunkMap,
    manifest::{ChunkEntry, EdgeOptions, ExternalIds, IdSpec, Manifest, PermutationSpec, Sources},
    time_axis::TimeAxis,
};
use grappa_io::container::WrittenFile;
use grappa_storage::{
    Store, files,
    writer::{AdjacencyWriter, StoreFolder},
};
use tempfile::TempDir;

/// A graph as plain adjacency lists: the sources of each node, ascending, with edge weights.
#[derive(Debug, Clone)]
pub struct Graph {
    pub lists: Vec<Vec<(u64, f32)>>,
}

/// A store in a temporary folder.
pub struct TestStore {
    pub store: Store,
    folder: TempDir,
}

impl Graph {
    /// `sources_of` returns the sources of each node, in any order.
    pub fn new(nodes: u64, mut sources_of: impl FnMut(u64) -> Vec<u64>) -> Self {
        let lists = (0..nodes).map(|node| {
            let mut sources = sources_of(node);
            sources.sort_unstable();
            let weigh = |(i, source): (usize, u64)| (source, ((source * 7 + i as u64 * 3) % 5) as f32 / 2.0);
            sources.into_iter().enumerate().map(weigh).collect()
        });
        Self { lists: lists.collect() }
    }

    /// All kinds of degrees: isolated nodes, a node whose sources are all nodes, self-loops, parallel edges, hubs, and
    /// otherwise a few scattered sources.
    pub fn mixed(nodes: u64) -> Self {
        Self::new(nodes, |node| match node % 16 {
            0 => vec![],
            1 => vec![node; 3],
            2 => vec![node / 2; 20],
            3 if node == 3 => (0..nodes).collect(),
            4 => (0..nodes / 3).map(|k| (k * k * 3 + node) % nodes).collect(),
            kind => (0..kind * 3).map(|k| (node * 31 + k * k * 17 + k) % nodes).collect(),
        })
    }

    /// Most sources have ids close to the id of the node, as gap coding needs.
    pub fn local(nodes: u64) -> Self {
        Self::new(nodes, |node| {
            let near = (0..node % 40).map(|k| (node + k) % nodes);
            near.chain((node % 9 == 0).then_some((node * 13) % nodes)).collect()
        })
    }

    pub fn nodes(&self) -> u64 {
        self.lists.len() as u64
    }

    pub fn sources(&self, node: u64) -> impl Iterator<Item = u64> + '_ {
        self.lists[node as usize].iter().map(|&(source, _)| source)
    }

    /// Writes a store whose chunks start at `starts`.
    pub fn store_with(&self, starts: Vec<u64>, weighted: bool) -> TestStore {
        let map = ChunkMap::from_starts(starts).unwrap();
        assert_eq!(map.nodes(), self.nodes());
        store_of(&map, weighted, None, |store, chunk| {
            let mut writer = AdjacencyWriter::create(store, &map, chunk, weighted, None).unwrap();
            for node in map.range(chunk) {
                let (sources, weights): (Vec<_>, Vec<_>) = self.lists[node as usize].iter().copied().unzip();
                writer.push(&sources, if weighted { &weights } else { &[] }, &[]).unwrap();
            }
            writer.finish().unwrap()
        })
    }

    /// Writes a store of chunks of equal size.
    pub fn store(&self, chunks: u32) -> TestStore {
        self.store_with(ChunkMap::uniform(self.nodes(), chunks).starts().to_vec(), false)
    }
}

/// Writes a store whose chunks `write` writes. Its edges have times if there is an axis.
pub fn store_of(
    map: &ChunkMap,
    weighted: bool,
    axis: Option<&TimeAxis>,
    write: impl Fn(&StoreFolder, ChunkId) -> (ChunkEntry, Vec<WrittenFile>),
) -> TestStore {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.grappa");
    let (store, _) = StoreFolder::begin(&path, None, false).unwrap();
    let mut manifest = Manifest {
        sources: Sources::Nodes,
        writer: "test 1".into(),
        nodes: map.nodes(),
        edges: 0,
        chunk_starts: map.starts().to_vec(),
        chunks: Vec::new(),
        ids: IdSpec { external: ExternalIds::Dense, permutation: PermutationSpec::Identity },
        features: None,
        labels: None,
        splits: Vec::new(),
        weighted,
        edge_options: EdgeOptions::default(),
        edges_read: 0,
        rejected: 0,
        generator: String::new(),
        files: Vec::new(),
    };
    for chunk in (0..map.chunks()).map(ChunkId) {
        let (entry, files) = write(&store, chunk);
        manifest.edges += entry.edges;
        manifest.chunks.push(entry);
        manifest.files.extend(files.iter().map(|file| store.entry(file)));
    }
    manifest.edges_read = manifest.edges;
    let axis = axis.map(|axis| store.write_file(files::TIME_AXIS, axis.encode()).unwrap());
    manifest.files.extend(axis);
    manifest.files.sort_by(|a, b| a.path.cmp(&b.path));
    store.commit(&manifest).unwrap();
    TestStore { store: Store::open(&path).unwrap(), folder }
}

impl TestStore {
    /// Changes the payload of a file and makes its checksums match. Reopens the store.
    pub fn forged(self, file: &str, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        grappa_forge::rewrite(self.store.path(), file, None, change);
        Self { store: Store::open(self.store.path()).unwrap(), folder: self.folder }
    }
}
