//! Minibatches: the [`Loader`] with its options, and the parts that it combines. The examples use a store of Cora.
//!
//! [`partition`] says who owns which chunks, [`view`] holds the adjacency lists of a partition, and [`feed`] delivers
//! minibatches with the features of their nodes.
//!
//! # Loader
//!
//! A [`Loader`] delivers the minibatches of an epoch. Each has a [`Block`] per hop; its nodes begin with the seeds:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::Loader;
//!
//! let mut loader = Loader::open(&store).fanouts([10, 5]).batch(64).memory(256 << 20).start()?;
//! let mut seeds = 0;
//! for batch in loader.epoch(0)? {
//!     let batch = batch?;
//!     let minibatch = batch.minibatch();
//!     assert_eq!(minibatch.blocks.len(), 2);
//!     assert_eq!(batch.features().unwrap().f32s().len(), minibatch.nodes.len() * 1433);
//!     seeds += minibatch.seeds;
//! }
//! assert_eq!(seeds, 140); // the training nodes
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! A block is a matrix in CSR form: the sources of each destination, as indices of `nodes`:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::Loader;
//!
//! let mut loader = Loader::open(&store).fanouts([-1]).batch(1).without_features().memory(64 << 20).start()?;
//! let batch = loader.epoch(0)?.next().expect("there are seeds")?;
//! let (minibatch, block) = (batch.minibatch(), &batch.minibatch().blocks[0]);
//! let mut sources: Vec<_> = block.edges_of(0).map(|edge| minibatch.nodes[block.indices[edge] as usize]).collect();
//! sources.sort_unstable();
//! assert_eq!(sources, store.neighbors().in_neighbors(minibatch.nodes[0])?);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! Seeds are a split, all nodes, or any set:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{Loader, sample::Seeds};
//!
//! let validation = Seeds::Split("val".into());
//! let mut loader =
//!     Loader::open(&store).seeds(validation).fanouts([5]).batch(100).without_features().memory(64 << 20).start()?;
//! assert_eq!(loader.epoch(0)?.count(), 5); // 500 nodes
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! Epochs without shuffling visit a list in its order:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{Loader, NodeId, sample::Seeds};
//!
//! let list = vec![NodeId(2000), NodeId(3), NodeId(77)];
//! let builder = Loader::open(&store).seeds(Seeds::List(list.clone().into())).fanouts([5]).batch(2);
//! let mut loader = builder.options(|options| options.minibatches.shuffle = false).without_features().memory(64 << 20).start()?;
//! let mut seen = Vec::new();
//! for batch in loader.epoch(0)? {
//!     let batch = batch?;
//!     seen.extend_from_slice(&batch.minibatch().nodes[..batch.minibatch().seeds]);
//! }
//! assert_eq!(seen, list);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! With partitions, each one expands its own nodes only. All have the same number of minibatches:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::Loader;
//!
//! let mut loader = Loader::open(&store).partitions(4).fanouts([10, 5]).batch(64).memory(256 << 20).start()?;
//! assert_eq!(loader.epoch(0)?.count(), 4);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! # Samplers
//!
//! A [`Sampler`] draws from a [`view`] without threads or features. A minibatch depends on its [`BatchKey`] alone:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{
//!     NodeId, PartitionId,
//!     sample::{
//!         BatchKey, Minibatch, Sampler, Scratch,
//!         partition::Owned,
//!         view::{PartitionView, ViewOptions},
//!     },
//! };
//!
//! let view = PartitionView::open(&store, Owned::whole(&store), &ViewOptions::default())?; // in memory
//! let sampler = Sampler::uniform("10,5".parse()?, false);
//! let key = BatchKey { seed: 1, epoch: 0, partition: PartitionId(0), batch: 0 };
//! let (mut scratch, mut first, mut second) = (Scratch::default(), Minibatch::default(), Minibatch::default());
//! sampler.sample(&view, &[NodeId(7), NodeId(8)], key, &mut scratch, &mut first)?;
//! sampler.sample(&view, &[NodeId(7), NodeId(8)], key, &mut scratch, &mut second)?;
//! assert_eq!(first.nodes, second.nodes);
//!
//! // As in PyTorch Geometric, a node draws once: the seeds have no edges in the second block.
//! sampler.drawing_once().sample(&view, &[NodeId(7), NodeId(8)], key, &mut scratch, &mut second)?;
//! assert_eq!(second.blocks[1].offsets[..3], [0, 0, 0]);
//! assert_eq!(second.blocks[0], first.blocks[0]);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`Fanouts`] is a number of neighbors per hop; -1 takes all:
//!
//! ```
//! use grappa_engine::sample::Fanouts;
//!
//! let fanouts: Fanouts = "15,-1".parse()?;
//! assert_eq!((fanouts.at(0), fanouts.at(1)), (Some(15), None));
//! assert!("15,0".parse::<Fanouts>().is_err());
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`RandomWalks`] are the neighborhoods of PinSAGE. [`LoaderOptions`] has what the builder has no method for:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use std::sync::Arc;
//!
//! use grappa_engine::{Loader, sample::{RandomWalks, Sampler}};
//!
//! let walks = RandomWalks { hops: 2, walks: 20, steps: 2, termination: 0.5, neighbors: 8 };
//! let sampler = Arc::new(Sampler::random_walks(walks)?);
//! assert_eq!(sampler.hops(), 2);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! # Time
//!
//! If edges have [times](crate::ingest::EdgeColumnOptions::time), a sampler may be limited by the time of its seeds. Each seed has a
//! minibatch of its own, with the edges that are not later:
//!
//! ```
//! use std::sync::Arc;
//!
//! use grappa_engine::{
//!     Loader, NodeId, Silent, Store,
//!     ingest::{Assign, IngestOptions, TimeColumn, TimeUnit, ingest},
//!     sample::{LoaderOptions, Sampler, SeedTimes, Seeds, TimeOptions, feed::MinibatchOptions},
//! };
//! # let folder = tempfile::tempdir().unwrap();
//! # let (edges, out) = (folder.path().join("edges.csv"), folder.path().join("graph.grappa"));
//!
//! std::fs::write(&edges, "src,dst,at\n1,0,3\n2,0,5\n3,0,8\n").unwrap();
//! let mut options = IngestOptions::new(vec![edges], out.clone());
//! options.edges.form.columns.time = Some(TimeColumn { column: "at".into(), unit: Some(TimeUnit::Integer) });
//! options.nodes.layout.assign = Assign::Range;
//! ingest(&options, &Silent)?;
//! let store = Arc::new(Store::open(&out)?);
//!
//! let sampler = Sampler::uniform("10".parse()?, false).with_times(TimeOptions::default())?;
//! let minibatches =
//!     MinibatchOptions { batch: 2, disjoint: true, shuffle: false, ..MinibatchOptions::new(sampler) };
//! let options = LoaderOptions { memory: 64 << 20, ..LoaderOptions::new(minibatches) };
//! let mut loader = Loader::new(&store, LoaderOptions { rows: Default::default(), ..options });
//! // Node 0 at the times 5 and 4: the edges from 1 and 2, and the edge from 1.
//! let seeds = Seeds::List(Arc::new(vec![NodeId(0), NodeId(0)]));
//! loader.partition(store.assignment(), &seeds, &Silent)?;
//! loader.set_seed_times(SeedTimes::Listed(vec![Arc::new(vec![5, 4])]))?;
//! for batch in loader.epoch(0)? {
//!     assert_eq!(batch?.minibatch().blocks[0].offsets, [0, 2, 3]);
//! }
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! # Partitions
//!
//! A new assignment of chunks to partitions takes milliseconds, and replaces the last one:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::sample::partition::{RepartitionOptions, Schedule, repartition, report};
//!
//! let options = RepartitionOptions { partitions: 4, schedule: Schedule::Shuffle, seed: 1, super_epoch: None };
//! let assignment = repartition(store.path(), store.manifest(), &options)?.assignment;
//! let partitions = report(store.manifest(), &assignment);
//! assert_eq!(partitions.iter().map(|partition| partition.nodes).sum::<u64>(), 2708);
//! let edges: u64 = partitions.iter().map(|partition| partition.visible_edges + partition.cut_edges).sum();
//! assert_eq!(edges, 10_556);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`partition::coverage`] counts the in-edges that each partition sees:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{Silent, sample::partition::{CoverageOptions, coverage}, store::Graph};
//!
//! let options = CoverageOptions { memory: 1 << 20, threads: 1 };
//! let partitions = coverage(&Graph::from_store(&store), store.assignment(), &options, &Silent)?;
//! assert_eq!(partitions[0].by_relation[0].one, 2708); // one partition sees all
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`partition::Owned`] numbers the nodes of a partition:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{
//!     ChunkId, NodeId, PartitionId,
//!     sample::partition::{LocalId, Owned, Schedule, assignment, chunk_sizes},
//! };
//!
//! let assignment = assignment(Schedule::Shuffle, &[chunk_sizes(store.manifest())], 4, 1, 0, 0)?;
//! let owned = Owned::new(&assignment, &store, PartitionId(2));
//! assert_eq!(owned.base().len(), 4); // of 16 chunks
//! let first = NodeId(store.chunks().range(owned.base()[0]).start);
//! assert_eq!(owned.local(first), Some(LocalId(0)));
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`partition::Share`] divides work among processes:
//!
//! ```
//! use grappa_engine::{PartitionId, sample::partition::Share};
//!
//! let second = Share::new(1, 3);
//! assert_eq!(second.range(10), 4..7);
//! assert!(second.serves(PartitionId(1), 3, 3));
//! ```
//!
//! # Sets of nodes
//!
//! [`NodeSet`] counts the members before each node, so that data about a set needs no gaps. [`InNeighbors`] finds the
//! sources of a set:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{NodeId, Silent, sample::{InNeighbors, NodeSet}, store::MappedChunks};
//!
//! let set = NodeSet::from_members(2708, [NodeId(70), NodeId(3)]);
//! assert_eq!((set.len(), set.position(NodeId(70))), (2, 1));
//!
//! let chunks = MappedChunks::open(&store)?;
//! let sources = InNeighbors::all(&chunks).sources_of(&set, 1, &Silent)?;
//! assert!(store.neighbors().in_neighbors(NodeId(3))?.into_iter().all(|source| sources.contains(source)));
//! # Ok::<(), grappa_engine::Error>(())
//! ```

pub use grappa_formats::assignment::{Assignment, Owners, Serves};
pub use grappa_sampling::{
    DecodedEdges, EdgeValues, GraphShape, InNeighbors, List, ListScratch, ListsPlace, Loader, LoaderBuilder,
    LoaderOptions, NeighborSample, NodeSet, NumberOptions, PartitionNumbers, Pieces, RelationEnds, Remedy,
    ScratchOptions, SeedTimes, Seeds, feed, links, partition, policy, sample::*, view,
};
