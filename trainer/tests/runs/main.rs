//! What becomes of runs, on small stores: predictions, exported models, and disks that are full.

mod damage;
mod export;
mod full_disk;
mod history;
mod predict;
mod stores;
