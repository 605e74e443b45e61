//! The program `grappa-train` as its users run it, killed and interrupted.

mod compare;
mod compress;
mod disk;
mod finished;
mod fixture;
mod hosts;
#[cfg(debug_assertions)] // only then can a program be killed before a chosen change
mod kills;
mod knowledge;
mod launcher;
mod link_times;
mod links;
mod memory;
mod methods;
mod network;
mod peers;
mod predict;
mod refused;
mod report;
mod resume;
mod scores;
mod sharing;
mod signals;
mod tasks;
mod times;
mod torchrun;
mod workers;
