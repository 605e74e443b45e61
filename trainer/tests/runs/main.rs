//! Runs on small stores: predictions, exported models, stops, and disks that are full or read-only.

mod damage;
mod edge_data;
mod evaluation;
mod export;
mod full_disk;
mod historical;
mod initial;
mod links;
mod names;
mod not_finite;
mod numbers;
mod parity;
mod predict;
mod read_only;
mod refused;
mod resumed;
mod short_epochs;
mod slices;
mod stopped;
mod stores;
mod sweeps;
mod synthetic;
mod val_loss;
mod warnings;
