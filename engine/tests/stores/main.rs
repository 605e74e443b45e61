//! Stores from outside: made of edge lists or of models, and what is on disk then.

mod common;
mod generate;
mod ids;
mod ingest;
