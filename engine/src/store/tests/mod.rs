//! Tests of opening, verifying, describing and exporting stores.

mod aggregates;
mod export;
mod open;
mod sample;
mod verify;
