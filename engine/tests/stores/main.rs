//! Stores that are ingested from edge lists or generated from models.

mod common;
mod edge_features;
mod events;
mod generate;
mod graph;
mod ids;
mod ingest;
mod link_times;
mod node_ids;
mod node_times;
mod schema;
mod split;
mod tables;
mod times;
