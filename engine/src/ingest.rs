//! Building a store from edge lists, features, labels and splits: [`ingest`], its options, and the types of their
//! fields.
//!
//! The smallest ingest takes the files of edges and the name of the store. Ids are dense integers by default:
//!
//! ```
//! use grappa_engine::{Silent, Store, ingest::{IngestOptions, ingest}};
//! # let folder = tempfile::tempdir().unwrap();
//!
//! let (edges, out) = (folder.path().join("edges.txt"), folder.path().join("graph.grappa"));
//! std::fs::write(&edges, "0 1\n0 2\n2 1\n").unwrap();
//! let summary = ingest(&IngestOptions::new(vec![edges], out.clone()), &Silent)?;
//! assert_eq!((summary.nodes, summary.edges), (3, 3));
//! assert_eq!(Store::open(&out)?.manifest().nodes, 3);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! # Ids
//!
//! Nodes may have any integers or strings as ids. The store keeps them, sorted, in a dictionary:
//!
//! ```
//! use grappa_engine::{ExternalId, Silent, Store, ingest::{ExternalIds, IngestOptions, ingest}};
//! # let folder = tempfile::tempdir().unwrap();
//! # let (edges, out) = (folder.path().join("edges.txt"), folder.path().join("graph.grappa"));
//!
//! std::fs::write(&edges, "ada bob\nbob eve\n").unwrap();
//! let mut options = IngestOptions::new(vec![edges], out.clone());
//! options.nodes.ids = ExternalIds::String;
//! ingest(&options, &Silent)?;
//!
//! let store = Store::open(&out)?;
//! let bob = store.node(&ExternalId::String(b"bob".to_vec()))?.expect("bob has edges");
//! let neighbors = store.neighbors().in_neighbors(bob)?;
//! assert_eq!(store.external_id(neighbors[0])?.to_string(), "ada");
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! Sparse integers are ids below 2^64 with gaps:
//!
//! ```
//! use grappa_engine::{ExternalId, Silent, Store, ingest::{ExternalIds, IngestOptions, ingest}};
//! # let folder = tempfile::tempdir().unwrap();
//! # let (edges, out) = (folder.path().join("edges.txt"), folder.path().join("graph.grappa"));
//!
//! std::fs::write(&edges, "7 1000000000000\n7 12\n").unwrap();
//! let mut options = IngestOptions::new(vec![edges], out.clone());
//! options.nodes.ids = ExternalIds::Sparse;
//! assert_eq!(ingest(&options, &Silent)?.nodes, 3);
//! assert_eq!(Store::open(&out)?.node(&ExternalId::Integer(8))?, None);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! # Edges
//!
//! [`EdgeOptions`] adds reverse edges, merges parallel edges, and removes or adds self-loops:
//!
//! ```
//! use grappa_engine::{Silent, ingest::{EdgeOptions, IngestOptions, SelfLoops, ingest}};
//! # let folder = tempfile::tempdir().unwrap();
//! # let (edges, out) = (folder.path().join("edges.txt"), folder.path().join("graph.grappa"));
//!
//! std::fs::write(&edges, "0 1\n1 0\n2 2\n").unwrap();
//! let mut options = IngestOptions::new(vec![edges], out);
//! options.edges.options = EdgeOptions { undirected: true, dedup: true, self_loops: SelfLoops::Drop };
//! let summary = ingest(&options, &Silent)?;
//! assert_eq!((summary.edges_read, summary.edges), (3, 2));
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! Columns of tables have names, which [`EdgeColumnOptions`] says where Grappa does not know them:
//!
//! ```
//! use grappa_engine::{Silent, ingest::{EdgeColumnOptions, ExternalIds, IngestOptions, ingest}};
//! # let folder = tempfile::tempdir().unwrap();
//! # let (edges, out) = (folder.path().join("follows.csv"), folder.path().join("graph.grappa"));
//!
//! std::fs::write(&edges, "day,who,whom\n2026-01-31,ada,bob\n2026-02-01,eve,bob\n").unwrap();
//! let mut options = IngestOptions::new(vec![edges], out);
//! options.nodes.ids = ExternalIds::String;
//! options.edges.form.columns.source = Some("who".into());
//! options.edges.form.columns.target = Some("whom".into());
//! let summary = ingest(&options, &Silent)?;
//! assert_eq!((summary.nodes, summary.edges), (3, 2));
//! assert_eq!(summary.readings[0].columns[0], ("source", "who".into()));
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! A malformed line is an error that names the line, or is set aside and counted:
//!
//! ```
//! use grappa_engine::{Silent, ingest::{IngestOptions, OnBadLine, ingest}};
//! # let folder = tempfile::tempdir().unwrap();
//! # let (edges, out) = (folder.path().join("edges.txt"), folder.path().join("graph.grappa"));
//!
//! std::fs::write(&edges, "0 1\n1 x\n").unwrap();
//! let mut options = IngestOptions::new(vec![edges], out);
//! let error = ingest(&options, &Silent).unwrap_err().to_string();
//! assert!(error.contains("edges.txt:2"), "{error}");
//!
//! options.edges.form.on_bad_line = OnBadLine::Skip;
//! assert_eq!(ingest(&options, &Silent)?.rejected, 1);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! # Features, labels and splits
//!
//! Arrays have a row per node, in ascending order of ids:
//!
//! ```
//! use grappa_engine::{Silent, ingest::{FeatureDtype, IngestOptions, SplitFile, ingest}};
//! # use grappa_cora::Cora;
//! # let folder = tempfile::tempdir().unwrap();
//! # let out = folder.path().join("cora.grappa");
//!
//! let file = |name| Cora::files().join(name);
//! let mut options = IngestOptions::new(vec![file("edges.tsv")], out);
//! options.nodes.data.features = Some(file("features.npz").into());
//! options.nodes.data.feature_dtype = Some(FeatureDtype::Int8); // a quarter of the bytes
//! options.nodes.data.labels = Some(file("labels.npy").into());
//! options.nodes.splits.files = vec![SplitFile::new("train", file("train.npy"))];
//! assert_eq!(ingest(&options, &Silent)?.nodes, 2708);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! A table has ids, and Grappa encodes its columns as numbers:
//!
//! ```
//! use grappa_engine::{Silent, ingest::{ExternalIds, IngestOptions, ingest}};
//! # let folder = tempfile::tempdir().unwrap();
//! # let (edges, out) = (folder.path().join("edges.txt"), folder.path().join("graph.grappa"));
//! # let people = folder.path().join("people.csv");
//!
//! std::fs::write(&edges, "ada bob\nbob eve\n").unwrap();
//! std::fs::write(&people, "id,age,country\nbob,30,DE\neve,40,FR\nada,50,DE\n").unwrap();
//! let mut options = IngestOptions::new(vec![edges], out);
//! options.nodes.ids = ExternalIds::String;
//! options.nodes.data.features = Some(people.into());
//! let schema = ingest(&options, &Silent)?.schema;
//! assert_eq!(schema.feature_names(), ["age", "country=DE", "country=FR", "country=other"]);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! Splits can be drawn at random, from all classes in the same shares:
//!
//! ```
//! use grappa_engine::{Silent, Store, ingest::{IngestOptions, RandomSplit, ingest}};
//! # use grappa_cora::Cora;
//! # let folder = tempfile::tempdir().unwrap();
//! # let out = folder.path().join("cora.grappa");
//!
//! let mut options = IngestOptions::new(vec![Cora::files().join("edges.tsv")], out.clone());
//! options.nodes.data.labels = Some(Cora::files().join("labels.npy").into());
//! options.nodes.splits.random = Some(RandomSplit { shares: "60/20/20".parse()?, seed: 0, stratify: true });
//! ingest(&options, &Silent)?;
//! assert_eq!(Store::open(&out)?.manifest().random_split(), Some("60/20/20, seed 0, stratified"));
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! # Chunks and nodes
//!
//! [`Assign`] chooses the node of each id, and so its chunk. By default nodes are permuted at random:
//!
//! ```
//! use grappa_engine::{ExternalId, NodeId, Silent, Store, ingest::{Assign, IngestOptions, ingest}};
//! # let folder = tempfile::tempdir().unwrap();
//! # let (edges, out) = (folder.path().join("edges.txt"), folder.path().join("graph.grappa"));
//!
//! std::fs::write(&edges, "0 1\n1 2\n2 3\n").unwrap();
//! let mut options = IngestOptions::new(vec![edges], out.clone());
//! options.nodes.layout.assign = Assign::Range;
//! options.nodes.layout.chunks = Some(2);
//! ingest(&options, &Silent)?;
//!
//! let store = Store::open(&out)?;
//! assert_eq!(store.node(&ExternalId::Integer(3))?, Some(NodeId(3)));
//! assert_eq!(store.chunks().starts(), [0, 2, 4]);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! # Before an ingest
//!
//! [`examine`] says how each file would be read, and writes nothing:
//!
//! ```
//! use grappa_engine::{Silent, ingest::{IngestOptions, Separator, examine}};
//! # let folder = tempfile::tempdir().unwrap();
//! # let (edges, out) = (folder.path().join("edges.csv"), folder.path().join("graph.grappa"));
//!
//! std::fs::write(&edges, "source,target\n0,1\n").unwrap();
//! let readings = examine(&IngestOptions::new(vec![edges], out.clone()), &Silent)?;
//! assert_eq!((readings[0].separator, readings[0].header), (Some(Separator::Comma), true));
//! assert!(!out.exists());
//! # Ok::<(), grappa_engine::Error>(())
//! ```

pub use grappa_formats::time_axis::TimeUnit;
pub use grappa_formats::{
    manifest::{EdgeOptions, ExternalIds, FeatureDtype, SelfLoops},
    schema::{CategoryForm, Schema},
};
pub use grappa_ingestion::ingest::{
    Assign, EdgeForm, EdgeIngest, EdgeSplit, GraphIngestOptions, GraphSummary, IngestOptions, Merge, MergeOption,
    NodeData, NodeIngest, NodeSplits, NodeTypeIngest, NodeTypeSummary, PARTS_MAX, Partitioner, RELATIONS_MAX,
    RandomSplit, RelationIngest, RelationSummary, Resources, Shares, SplitFile, StoreLayout, Summary, examine,
    examine_graph, ingest, ingest_graph,
};
pub use grappa_input::{
    ColumnReading, ColumnSchema, ColumnValues, Comments, Conversion, EDGE_FEATURES_MAX, EdgeColumnOptions, EdgeEnd,
    EdgeFormat, EncodingOptions, HeaderLine, Input, LabelType, MemoryArray, MemoryData, MemoryInput, MemoryMatrix,
    MissingOption, MissingOptions, Numbers, OnBadLine, ReadAt, Reading, Replacement, Separator, TableForm,
    TableOptions, TableParts, TableSchema, TimeColumn, files_of, ogb, read_numbers, relations_of_triples, shape_of,
    text_values,
};
pub use grappa_storage::writer::{kept_in, partial_folder};
