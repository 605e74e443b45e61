//! The end-to-end tests, one module per subject. They are one program, because each test program takes seconds to link.

mod advice;
mod concurrent;
mod crash;
mod damage;
mod descriptors;
mod disk;
mod dry_run;
mod features;
mod formats;
mod hostile;
mod ingest;
mod input;
mod memory;
mod misread;
mod outputs;
mod place;
mod planted;
mod real;
mod remedies;
mod repartition;
mod sample;
mod signals;
mod split;
mod store;
mod unfinished;
