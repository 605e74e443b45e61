//! Open stores: their chunks, ids, neighbors and columns. The examples use a store of Cora.
//!
//! A [`Store`] opens in about 10 us per file and reads no payload:
//!
//! ```
//! # let (cora, _) = grappa_cora::Cora::ingest();
//! use grappa_engine::Store;
//!
//! let store = Store::open(&cora.path("cora.grappa"))?;
//! let manifest = store.manifest();
//! assert_eq!((manifest.nodes, manifest.edges), (2708, 10_556));
//! assert_eq!(manifest.features.as_ref().unwrap().dim, 1433);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! Nodes have numbers of the store, which are not the ids of the user:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::ExternalId;
//!
//! let paper = ExternalId::Integer(35);
//! let node = store.node(&paper)?.expect("there are papers 0 to 2707");
//! assert_eq!(store.external_id(node)?, paper);
//! assert_eq!(store.node(&ExternalId::Integer(2708))?, None);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`Neighbors`] reads the in-neighbors of single nodes:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{ExternalId, NodeId};
//!
//! let mut neighbors = store.neighbors();
//! let node = store.node(&ExternalId::Integer(0))?.unwrap();
//! assert_eq!(neighbors.in_degree(node)?, 3);
//! let mut papers = Vec::new();
//! for neighbor in neighbors.in_neighbors(node)? {
//!     papers.push(store.ids().integer(neighbor)?);
//! }
//! papers.sort_unstable();
//! assert_eq!(papers, [633, 1862, 2582]);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! A [`Chunk`] has the adjacency lists of a range of nodes:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! let mut edges = 0;
//! for chunk in store.present_chunks() {
//!     let chunk = store.chunk(chunk)?;
//!     for list in chunk.rows().range(0..chunk.span().rows) {
//!         edges += list?.iter().count();
//!     }
//! }
//! assert_eq!(edges, 10_556);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! Labels and features are columns of a chunk:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{ExternalId, io::map::Access};
//!
//! let node = store.node(&ExternalId::Integer(0))?.unwrap();
//! let chunk = store.chunks().chunk_of(node);
//! let row = node.0 - store.chunks().range(chunk).start;
//!
//! let labels = store.labels(chunk, Access::Random)?.expect("Cora has labels");
//! assert_eq!(labels.single(row)?, Some(3));
//!
//! let features = store.features(chunk)?.expect("Cora has features");
//! let mut values = vec![0.0; 1433];
//! features.meta().layout.decode_row(features.row(row)?, &mut values);
//! assert_eq!(values.iter().sum::<f32>(), 9.0); // words of this paper
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! A split is a set of nodes:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! assert_eq!(store.split("train")?.unwrap().len(), 140);
//! assert!(store.split("holdout")?.is_none());
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`MappedChunks`] maps all chunks, for lookups in any order:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{NodeId, store::MappedChunks};
//!
//! let chunks = MappedChunks::open(&store)?;
//! let mut degrees = Vec::new();
//! chunks.degrees(&[NodeId(5), NodeId(1000)], &mut degrees)?;
//! assert_eq!(degrees[1], chunks.in_degree(NodeId(1000))?);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! A damaged or foreign folder is an error that says so:
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! use grappa_engine::Store;
//!
//! let error = Store::open(folder.path()).unwrap_err().to_string();
//! assert!(error.contains("has no file `manifest`"), "{error}");
//! ```

pub use grappa_storage::*;
