//! The options of graphs with several node types.

use std::path::PathBuf;

use clap::Args;

const TYPES: &str = "Graphs with several node types";

// `graph` reads them from the command line. A doc comment would be the description of the program.
#[derive(Debug, Args)]
#[command(next_help_heading = TYPES)]
pub struct TypeArgs {
    /// Add a relation with the ends swapped to each relation, or to those that are named: RELATION=NAME
    ///
    /// Without a name, the reverse of writes is rev_writes.
    #[arg(long, num_args = 0.., value_name = "RELATION=NAME")]
    pub reverse: Option<Vec<String>>,
    /// Folder of Parquet or CSV tables with keys: each row is a node, and each foreign key a relation
    ///
    /// Parquet files of RelBench have their keys in their metadata. Other columns are features. Tables may be in DIR/db. DIR/tasks has
    /// tables of entities, times and targets, each a node type: NAME/train.parquet, val.parquet and test.parquet, or NAME.parquet.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["edges", "ogb", "triples"])]
    tables: Option<PathBuf>,
    /// Column with the ids of the rows of a table of --tables
    #[arg(long, value_name = "TABLE.COLUMN")]
    key: Vec<String>,
    /// Column of a table of --tables with the ids of rows of another table
    #[arg(long, value_name = "TABLE.COLUMN=TABLE")]
    foreign_key: Vec<String>,
    /// Table of --tables whose rows are edges between the tables of its two foreign keys
    #[arg(long, value_name = "TABLE")]
    link_table: Vec<String>,
    /// Task of --tables, by the name of its folder or file in DIR/tasks; none for no task [default: all tasks]
    #[arg(long, value_name = "NAME")]
    task: Vec<String>,
    /// Files with triples of head, relation and tail, separated by tabs
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with_all = ["edges", "ogb"])]
    triples: Vec<PathBuf>,
    /// Configuration of GraphStorm's gconstruct, in JSON: its nodes and edges, features, labels and splits
    ///
    /// Files are relative to the folder of the configuration, or to the working directory. Features have no transform, or to_categorical.
    #[arg(long, value_name = "JSON", conflicts_with_all = ["edges", "ogb", "tables", "triples"])]
    gconstruct: Option<PathBuf>,
    /// Files with headers of neo4j-admin database import, such as :ID(Movie) and :START_ID(Movie), or a folder of them
    ///
    /// Each ID space is a node type, each :TYPE a relation. Properties are features.
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with_all = ["edges", "ogb", "tables", "triples", "gconstruct"])]
    neo4j: Vec<PathBuf>,
    /// Metadata of an OnDiskDataset of DGL's GraphBolt, in YAML, or the folder with metadata.yaml
    #[arg(
        long,
        value_name = "YAML",
        conflicts_with_all = ["edges", "ogb", "tables", "triples", "gconstruct", "neo4j"]
    )]
    graphbolt: Option<PathBuf>,
    /// Folder of a heterogeneous dataset of IGB, with the folder processed in it
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["edges", "ogb", "tables", "triples", "gconstruct", "neo4j", "graphbolt"]
    )]
    igb: Option<PathBuf>,
}
